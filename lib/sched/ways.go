package sched

import (
	"time"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// How a job runs is told by no log, and people follow it: it waits on its node, is paused,
// unreachable, or cancelled while its processes are there. Whatever may change that marks
// the attempt; Decide looks at what was marked at its end.

// A way is how a job runs by one of its attempts.
type way struct {
	known    bool
	state    job.State // of one that is its job's
	stopping bool
}

// A Change names an attempt whose job runs in another way than before, or which was
// cancelled and is gone now.
type Change struct {
	Ref   Ref
	Token job.Token
}

// Changed is what has changed of how jobs run, as the last Decide found.
func (m *Machine) Changed() []Change { return m.changes }

func (m *Machine) mark(a *attempt) {
	if m.loaded && !a.marked {
		a.marked, m.marked = true, append(m.marked, a)
	}
}

func (m *Machine) markAll(p *peer) {
	for a := p.first; a != nil; a = a.after {
		m.mark(a)
	}
}

// findChanges finds out which of the attempts that were marked are to be told of. What is
// seen for the first time is told with what begins it.
func (m *Machine) findChanges() {
	m.changes = m.changes[:0]
	for _, a := range m.marked {
		was := a.way
		a.way, a.marked = m.wayOf(a), false
		if was.known && (was.stopping != a.way.stopping || a.current && !a.dead && was.state != a.way.state) {
			m.changes = append(m.changes, Change{a.ref, a.Token})
		}
	}
	clear(m.marked)
	m.marked = m.marked[:0]
}

func (m *Machine) wayOf(a *attempt) way {
	if a.dead {
		return way{known: true, state: a.way.state}
	}
	s := m.shown(a)
	return way{true, s.State, s.Stopping}
}

// stops takes in that the job of an attempt is cancelled, whose processes are there as far
// as is known, or what they left is on its way home. Of a node that is away they are believed
// to be for a minute, in which it may come back. What was said to be over does not run again:
// when all is settled, or there is no room for what is left, or its transfer has failed twice, or
// the minute is over, or the head is started again, the job is cancelled for good.
func (m *Machine) stops(a *attempt) {
	a.stopping = m.loaded && a.current && !a.stranded && !a.peer.abroad && (a.peer.Session != 0 || m.lab.Now-a.peer.Heard < policy.SettleTime)
}

// stopping says that this is so yet.
func (m *Machine) stopping(a *attempt) bool {
	return a.stopping && !a.dead && m.batches[a.ref.Batch].States[a.ref.Job] == job.Cancelled
}

// despair gives up what is on nodes that have been away for too long since the last tick.
func (m *Machine) despair(before time.Duration) {
	for _, p := range m.peers {
		if p.Session == 0 && m.lab.Now-p.Heard >= policy.SettleTime && before-p.Heard < policy.SettleTime {
			for a := p.first; a != nil; a = a.after {
				a.stopping = false
				m.mark(a)
			}
		}
	}
}
