package batchfile

import (
	"slices"
	"strings"
	"time"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
	"distribute/lib/unit"
)

var checkpointKeys = conf.Keys{Known: []string{"signal", "grace"}}

// checkpoint reads how jobs are asked to save what they have: a signal, or a
// mapping.
func (r *reader) checkpoint(n conf.Node) *job.Checkpoint {
	if n.Absent() {
		return nil
	}
	if n.IsText() {
		return &job.Checkpoint{Signal: checkpointSignalOf(n)}
	}
	m := n.Map(checkpointKeys)
	c := &job.Checkpoint{}
	if s := m.Get("signal"); !s.Absent() {
		c.Signal = checkpointSignalOf(s)
	}
	if g := m.Get("grace"); !g.Absent() {
		d, err := unit.WrittenDuration(g.Text())
		switch {
		case !g.IsText():
		case err != nil:
			g.Errorf("%w", err)
		case d < time.Second || d > job.MaxGrace:
			g.Errorf("%s is not from 1s to 1h", msg.Quote(g.Text()))
		}
		c.Grace = int64((d + time.Second - 1) / time.Second)
	}
	return c
}

func checkpointSignalOf(n conf.Node) string {
	name := "SIG" + strings.TrimPrefix(n.Text(), "SIG")
	if n.IsText() && !slices.Contains(job.CheckpointSignals, name) {
		n.Errorf("jobs cannot be asked by %s: write one of %s", msg.Quote(n.Text()),
			strings.ReplaceAll(strings.Join(job.CheckpointSignals, ", "), "SIG", ""))
	}
	return name
}
