package sched

import "time"

// longestRefusal is how long a batch is kept from a node at most that had no room
// on its disk for a job of it, before it is tried again.
const longestRefusal = 5 * time.Minute

// longestBarred is the same where a node does not run jobs of who submitted the
// batch: that changes when the node is told otherwise, and begins a new session,
// or when he gets an account there.
const longestBarred = time.Hour

// A refusal is a batch for whose jobs a node had no room on its disk, or that it
// does not run for who submitted it. Nobody is to blame, and the node may do other
// work meanwhile. It is not in the log.
type refusal struct {
	until  time.Duration // 0: it may be tried
	long   time.Duration // doubled each time, also where it was tried again sooner
	barred bool          // for whose it is
	why    string
}

// refusedBy says that a node gave a job of the batch back a while ago, for want of
// room or for whose it is, and why.
func (b *batch) refusedBy(p *peer) (why string, yes bool) {
	t, ok := b.refusals[p]
	return t.why, ok && t.until != 0
}

func (e Asks) apply(m *Machine) {
	k, ok := e.Attempt.Key()
	if a := m.live[k]; ok && a != nil {
		a.disk = max(0, e.Disk)
	}
}

// refuseRoom keeps a batch from a node for a while.
func (m *Machine) refuseRoom(b *batch, p *peer, why string) {
	if b.refusals == nil {
		b.refusals = map[*peer]refusal{}
	}
	long := min(max(resting, 2*b.refusals[p].long), longestRefusal)
	b.refusals[p] = refusal{until: m.now + long, long: long, why: orElse(why, "no room")}
	m.refusing[b] = struct{}{}
}

// bar keeps a batch from a node that does not run it for who submitted it.
func (m *Machine) bar(b *batch, p *peer, why string) {
	if b.refusals == nil {
		b.refusals = map[*peer]refusal{}
	}
	long := resting
	if old := b.refusals[p]; old.barred {
		long = min(2*old.long, longestBarred)
	}
	b.refusals[p] = refusal{m.now + long, long, true, orElse(why, "does not run jobs of who submitted it")}
	m.refusing[b] = struct{}{}
}

// unbar lets a node be tried again that may have been told otherwise.
func (m *Machine) unbar(p *peer) {
	for b := range m.refusing {
		if b.refusals[p].barred {
			delete(b.refusals, p)
		}
	}
}

// unbarSoon lets a node be tried again that may have been told otherwise, and that
// changes what it offers perhaps all the time: anybody there can have it do that.
func (m *Machine) unbarSoon(p *peer) {
	for b := range m.refusing {
		t := b.refusals[p]
		switch since := t.until - t.long; {
		case !t.barred:
		case t.until == 0 || m.now-since >= resting:
			delete(b.refusals, p)
		default:
			b.refusals[p] = refusal{since + resting, resting, true, t.why}
		}
	}
}

// retryRefusals lets nodes be tried again whose time has come.
func (m *Machine) retryRefusals() {
	for b := range m.refusing {
		waits := false
		for p, t := range b.refusals {
			if t.until != 0 && m.now >= t.until {
				t.until = 0
				b.refusals[p] = t
			}
			waits = waits || t.until != 0
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
		if t, ok := b.refusals[p]; ok && t.until != 0 && !t.barred {
			t.until = min(t.until, m.now+removal)
			b.refusals[p] = t
		}
	}
}
