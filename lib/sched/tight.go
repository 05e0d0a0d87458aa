package sched

import "time"

// longestTight is how long a batch is kept from a node at most that had no room
// on its disk for a job of it, before it is tried again.
const longestTight = 5 * time.Minute

// longestBarred is the same where a node does not run jobs of who submitted the
// batch: that changes when the node is told otherwise, and begins a new session,
// or when he gets an account there.
const longestBarred = time.Hour

// A tight is a batch for whose jobs a node had no room on its disk, or that it
// does not run for who submitted it. Nobody is to blame, and the node may do other
// work meanwhile. It is not in the log.
type tight struct {
	until  time.Duration // 0: it may be tried
	long   time.Duration // doubled each time, also where it was tried again sooner
	barred bool          // for whose it is
	why    string
}

// cramped says that a node gave a job of the batch back a while ago, for want of
// room or for whose it is, and why.
func (b *batch) cramped(p *peer) (why string, yes bool) {
	t, ok := b.tight[p]
	return t.why, ok && t.until != 0
}

func (e Asks) apply(m *Machine) {
	k, ok := e.Attempt.Key()
	if a := m.live[k]; ok && a != nil {
		a.disk = max(0, e.Disk)
	}
}

// noRoom keeps a batch from a node for a while.
func (m *Machine) noRoom(b *batch, p *peer, why string) {
	if b.tight == nil {
		b.tight = map[*peer]tight{}
	}
	long := min(max(resting, 2*b.tight[p].long), longestTight)
	b.tight[p] = tight{until: m.now + long, long: long, why: orElse(why, "no room")}
	m.tights[b] = struct{}{}
	m.changed++
}

// bar keeps a batch from a node that does not run it for who submitted it.
func (m *Machine) bar(b *batch, p *peer, why string) {
	if b.tight == nil {
		b.tight = map[*peer]tight{}
	}
	long := resting
	if old := b.tight[p]; old.barred {
		long = min(2*old.long, longestBarred)
	}
	b.tight[p] = tight{m.now + long, long, true, orElse(why, "does not run jobs of who submitted it")}
	m.tights[b] = struct{}{}
	m.changed++
}

// unbar lets a node be tried again that may have been told otherwise.
func (m *Machine) unbar(p *peer) {
	m.changed++
	for b := range m.tights {
		if b.tight[p].barred {
			delete(b.tight, p)
		}
	}
}

// unbarSoon lets a node be tried again that may have been told otherwise, and that
// changes what it offers perhaps all the time: anybody there can have it do that.
func (m *Machine) unbarSoon(p *peer) {
	m.changed++
	for b := range m.tights {
		t := b.tight[p]
		switch since := t.until - t.long; {
		case !t.barred:
		case t.until == 0 || m.now-since >= resting:
			delete(b.tight, p)
		default:
			b.tight[p] = tight{since + resting, resting, true, t.why}
		}
	}
}

// tryRoom lets nodes be tried again whose time has come.
func (m *Machine) tryRoom() {
	for b := range m.tights {
		waits := false
		for p, t := range b.tight {
			if t.until != 0 && m.now >= t.until {
				t.until = 0
				b.tight[p] = t
				m.changed++
				m.touch(p)
			}
			waits = waits || t.until != 0
		}
		if !waits {
			delete(m.tights, b)
		}
	}
}

// removal is how long a node is given to remove what it need not keep.
const removal = time.Second

// moreRoom lets a node be tried again soon: something is being removed there.
func (m *Machine) moreRoom(p *peer) {
	for b := range m.tights {
		if t, ok := b.tight[p]; ok && t.until != 0 && !t.barred {
			t.until = min(t.until, m.now+removal)
			b.tight[p] = t
		}
	}
}
