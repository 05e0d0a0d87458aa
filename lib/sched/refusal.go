package sched

import (
	"time"

	"distribute/lib/sched/policy"
)

// longestBarred is how long a batch is kept from a node at most that does not run jobs of
// who submitted it, before it is tried again: that changes when the node is told
// otherwise, and begins a new session, or when he gets an account there.
const longestBarred = time.Hour

func (e Asks) apply(m *Machine) {
	k, ok := e.Attempt.Key()
	if a := m.live[k]; ok && a != nil {
		a.disk = max(0, e.Disk)
	}
}

// refuseRoom keeps a batch from a node for a while.
func (m *Machine) refuseRoom(b *batch, p *peer, why string) {
	long := min(max(resting, 2*b.Refusals[p.Node].Long), policy.LongestRefusal)
	b.Refusals[p.Node] = policy.Refusal{Until: m.lab.Now + long, Long: long, Why: orElse(why, "no room")}
	m.refusing[b] = struct{}{}
}

// bar keeps a batch from a node that does not run it for who submitted it.
func (m *Machine) bar(b *batch, p *peer, why string) {
	long := resting
	if old := b.Refusals[p.Node]; old.Barred {
		long = min(2*old.Long, longestBarred)
	}
	b.Refusals[p.Node] = policy.Refusal{Until: m.lab.Now + long, Long: long, Barred: true, Why: orElse(why, "does not run jobs of who submitted it")}
	m.refusing[b] = struct{}{}
}

// unbar lets a node be tried again that may have been told otherwise.
func (m *Machine) unbar(p *peer) {
	for b := range m.refusing {
		if b.Refusals[p.Node].Barred {
			delete(b.Refusals, p.Node)
		}
	}
}

// unbarSoon lets a node be tried again that may have been told otherwise, and that
// changes what it offers perhaps all the time: anybody there can have it do that.
func (m *Machine) unbarSoon(p *peer) {
	for b := range m.refusing {
		t := b.Refusals[p.Node]
		switch since := t.Until - t.Long; {
		case !t.Barred:
		case t.Until == 0 || m.lab.Now-since >= resting:
			delete(b.Refusals, p.Node)
		default:
			b.Refusals[p.Node] = policy.Refusal{Until: since + resting, Long: resting, Barred: true, Why: t.Why}
		}
	}
}

// retryRefusals lets nodes be tried again whose time has come.
func (m *Machine) retryRefusals() {
	for b := range m.refusing {
		waits := false
		for p, t := range b.Refusals {
			if t.Until != 0 && m.lab.Now >= t.Until {
				t.Until = 0
				b.Refusals[p] = t
			}
			waits = waits || t.Until != 0
		}
		if !waits {
			delete(m.refusing, b)
		}
	}
}

// removal is how long a node is given to remove what it need not keep.
const removal = time.Second

// retrySoon lets a node be tried again soon: something is being removed there.
func (m *Machine) retrySoon(p *peer) {
	for b := range m.refusing {
		if t, ok := b.Refusals[p.Node]; ok && t.Until != 0 && !t.Barred {
			t.Until = min(t.Until, m.lab.Now+removal)
			b.Refusals[p.Node] = t
		}
	}
}
