package sched

import (
	"math"
	"slices"
	"time"
)

// Jobs that ask for much would wait for ever where jobs that ask for little come all
// the time: no node would ever have enough free at once. So when one of the latter is
// about to start where one of the former goes first, a node is kept for the class of
// the former, until a job of that has started. What else starts there meanwhile does
// not delay it.
//
// One node at a time would let a class have less than its owner's turn, where its jobs
// wait long for each: so more are kept as long as its jobs go first, but no more than
// these are, nor than a quarter of all nodes, whatever they are kept for.

// A reservation is a node that is kept for a class.
type reservation struct {
	of       *class
	on       *peer
	priority int // of the job it is for; from those of a higher one the node is not kept
	since    time.Duration
	patience time.Duration // how long it stays where it is
}

// leastPatience is how long a node is kept at least before another may be instead. It
// doubles each time, so that the jobs of some node end before it is over.
const leastPatience = time.Minute

// spares says that a node may be given the first job of q though it is kept for
// others: what they ask for is there beside it, once the attempts have ended beside
// which it never is.
func (p *peer) spares(q *queue) bool {
	r := p.keeps
	if r == nil || r.of == q.c || q.b.priority > r.priority {
		return true
	}
	asks, stays := r.of.of(p), p.used.plus(p.waits)
	for a := p.first; a != nil; a = a.after {
		if a.result == nil && !holds(p.has, a.share, asks) {
			stays = stays.minus(a.share)
		}
	}
	return holds(p.has, stays.plus(p.awaited(asks, stays)), q.c.of(p))
}

// lets says that a node may be given the first job of q though it is kept for others:
// that is there beside them, or ends before they could start by the known ends of what
// runs there.
func (m *Machine) lets(q *queue, p *peer) bool { return p.spares(q) || m.backfills(q, p) }

// backfills says that a job of q, begun now on a node that is kept, ends in time.
func (m *Machine) backfills(q *queue, p *peer) bool {
	return q.says.within(m.opens(p) - m.now)
}

// opens is when the job could start for which a node is kept, if what runs there ends
// when it is known to at the latest; 0 if that is not known of enough.
func (m *Machine) opens(p *peer) time.Duration {
	return p.freeAt(p.keeps.of, func(a *attempt) time.Duration {
		long := m.queueOf(a.ref).says.longest()
		if !a.active || a.began == 0 || long == 0 {
			return 0
		}
		return a.began + long
	})
}

// wait is how long a node will need until it has room for a job of the class, as far
// as one can tell without knowing how long anything runs: what has run for long is
// taken to run for as long again.
func (m *Machine) wait(c *class, p *peer) (long time.Duration) {
	used := p.used.plus(p.waits)
	for a := p.last; a != nil && !holds(p.has, used, c.of(p)); a = a.before {
		if a.result == nil {
			used, long = used.minus(a.share), m.now-a.began
		}
	}
	if !holds(p.has, used, c.of(p)) {
		return math.MaxInt64 / 2 // it has attempts of which nothing is known
	}
	return long
}

// waitsFor is the queue of a class whose first job goes first on a node, and could
// start there if nothing else ran; nil if there is none.
func (m *Machine) waitsFor(c *class, p *peer) *queue {
	if len(c.lanes) == 0 || !p.listed || p.paused() || p.rest != 0 || !p.fits[c] || !p.enough(c) {
		return nil
	}
	return m.next(c, p)
}

// keep keeps a node for a class.
func (m *Machine) keep(c *class, p *peer, patience time.Duration) {
	r := &reservation{c, p, m.waitsFor(c, p).b.priority, m.now, patience}
	p.keeps = r
	c.keeps, m.keeps = append(c.keeps, r), append(m.keeps, r)
}

// unkeep gives a node free that is kept.
func (m *Machine) unkeep(r *reservation) {
	gone := func(o *reservation) bool { return o == r }
	r.on.keeps = nil
	r.of.keeps, m.keeps = slices.DeleteFunc(r.of.keeps, gone), slices.DeleteFunc(m.keeps, gone)
	m.touch(r.on)
}

// kept gives a node free for which a job of the class need not wait any more, since
// one has started on p: that, or the one that was kept last.
func (m *Machine) kept(c *class, p *peer) {
	if r := p.keeps; r != nil && r.of == c {
		m.unkeep(r)
	} else if n := len(c.keeps); n > 0 {
		m.unkeep(c.keeps[n-1])
	}
}

// review gives nodes free for which nothing waits any more.
func (m *Machine) review() {
	for i := len(m.keeps) - 1; i >= 0; i-- {
		r := m.keeps[i]
		if q := m.waitsFor(r.of, r.on); q == nil || q.b.priority != r.priority || !r.of.more(len(r.of.keeps)-1) || !m.site.room(r.of) {
			m.unkeep(r)
		}
	}
}

// more says that more than n jobs of the class wait and may run.
func (c *class) more(n int) bool {
	for _, l := range c.lanes {
		var of *batch
		left := 0 // of its jobs may run besides those that do
		for _, q := range l.queues {
			may := q.jobs.n
			if q.b != of {
				of, left = q.b, q.b.most-q.b.running
			}
			if q.b.most > 0 {
				may = min(may, left)
				left -= may
			}
			if n -= may; n < 0 {
				return true
			}
		}
	}
	return false
}

// reserve looks, before the first job of q starts on a node, at the job that goes
// first there. It says that a node was kept for that one, so that what starts is to
// be decided again.
func (m *Machine) reserve(q *queue, p *peer) bool {
	first := q
	for _, c := range m.classes {
		if c == q.c || !m.site.room(c) { // a node is not what is wanted then
			continue
		}
		if r := m.waitsFor(c, p); r != nil && r.before(first) {
			first = r
		}
	}
	c, on, patience := first.c, p, time.Duration(0)
	switch {
	case first == q:
		return false
	case len(c.keeps) == 0:
		on = m.earliest(first)
	case p.keeps != nil:
		return false
	case !c.more(len(c.keeps)) || len(m.keeps) >= len(m.peers)/4:
		r := m.latest(c)
		if r == nil || m.wait(c, p) >= m.wait(c, r.on)/2 {
			return false
		}
		patience = 2 * r.patience
		m.unkeep(r)
	}
	if on == nil {
		return false
	}
	m.keep(c, on, max(leastPatience, patience, m.wait(c, on)))
	return true
}

// latest is that of a class's nodes which may be given free for a better one, and
// where its job would start last; nil if there is none.
func (m *Machine) latest(c *class) (last *reservation) {
	for _, r := range c.keeps {
		if m.now-r.since >= r.patience && (last == nil || m.wait(c, r.on) > m.wait(c, last.on)) {
			last = r
		}
	}
	return last
}

// earliest is the node on which the first job of a queue can start soonest, of those
// that are kept for no other; nil if there is none.
func (m *Machine) earliest(q *queue) (best *peer) {
	var least time.Duration
	for _, p := range m.peers {
		if p.keeps != nil || !q.takes(p) || m.waitsFor(q.c, p) == nil {
			continue
		}
		if long := m.wait(q.c, p); best == nil || long < least || long == least && m.prefers(q, p, best) {
			best, least = p, long
		}
	}
	return best
}
