package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"distribute/lib/conf"
	"distribute/lib/msg"
	"distribute/lib/unit"
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
	maxGrace         = time.Hour // the person at the node waits for it
)

// checkpointSignals are those that a job can catch, and that mean nothing to it
// otherwise while it runs.
var checkpointSignals = []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU"}

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
	case c.Signal != "" && !slices.Contains(checkpointSignals, c.Signal):
		return fmt.Errorf("jobs cannot be asked to save what they have by %.20q", c.Signal)
	case c.Grace < 0 || c.Grace > int64(maxGrace/time.Second):
		return fmt.Errorf("jobs cannot have %d seconds to save what they have", c.Grace)
	}
	return nil
}

var checkpointKeys = conf.Keys{Known: []string{"signal", "grace"}}

// checkpoint reads how jobs are asked to save what they have: a signal, or a
// mapping.
func (r *reader) checkpoint(n conf.Node) *Checkpoint {
	if n.Absent() {
		return nil
	}
	if n.IsText() {
		return &Checkpoint{Signal: checkpointSignalOf(n)}
	}
	m := n.Map(checkpointKeys)
	c := &Checkpoint{}
	if s := m.Get("signal"); !s.Absent() {
		c.Signal = checkpointSignalOf(s)
	}
	if g := m.Get("grace"); !g.Absent() {
		d, err := unit.WrittenDuration(g.Text())
		switch {
		case !g.IsText():
		case err != nil:
			g.Errorf("%w", err)
		case d < time.Second || d > maxGrace:
			g.Errorf("%s is not from 1s to 1h", msg.Quote(g.Text()))
		}
		c.Grace = int64((d + time.Second - 1) / time.Second)
	}
	return c
}

func checkpointSignalOf(n conf.Node) string {
	name := "SIG" + strings.TrimPrefix(n.Text(), "SIG")
	if n.IsText() && !slices.Contains(checkpointSignals, name) {
		n.Errorf("jobs cannot be asked by %s: write one of %s", msg.Quote(n.Text()),
			strings.ReplaceAll(strings.Join(checkpointSignals, ", "), "SIG", ""))
	}
	return name
}
