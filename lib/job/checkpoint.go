package job

import (
	"fmt"
	"slices"
	"time"
)

// A Checkpoint is how the jobs of a batch are asked to save what they have and to
// leave their node.
type Checkpoint struct {
	Signal string `json:"signal,omitempty"` // as SIGUSR1, which is also what "" is
	Grace  int64  `json:"grace,omitempty"`  // seconds that they have for it; 0: 30
}

// ExitSaved is the exit status by which a job that was asked says that it has
// saved what the next attempt is to go on with.
const ExitSaved = 85

// Of a batch that says nothing.
const (
	checkpointSignal = "SIGUSR1"
	checkpointGrace  = 30 * time.Second
	MaxGrace         = time.Hour // the person at the node waits for it
)

// CheckpointSignals are those that a job can catch, and that mean nothing to it
// otherwise while it runs.
var CheckpointSignals = []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU"}

// Asked is the signal by which jobs are asked, and for how long they have.
func (c *Checkpoint) Asked() (signal string, grace time.Duration) {
	signal, grace = checkpointSignal, checkpointGrace
	if c != nil && c.Signal != "" {
		signal = c.Signal
	}
	if c != nil && c.Grace > 0 {
		grace = time.Duration(c.Grace) * time.Second
	}
	return signal, grace
}

// Check reports why jobs cannot be asked so.
func (c *Checkpoint) Check() error {
	switch {
	case c == nil:
	case c.Signal != "" && !slices.Contains(CheckpointSignals, c.Signal):
		return fmt.Errorf("jobs cannot be asked to save what they have by %.20q", c.Signal)
	case c.Grace < 0 || c.Grace > int64(MaxGrace/time.Second):
		return fmt.Errorf("jobs cannot have %d seconds to save what they have", c.Grace)
	}
	return nil
}
