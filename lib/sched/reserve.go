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

// A reservation is the node that is kept for a class.
type reservation struct {
	on       *peer // nil: none
	priority int   // of the job it is for; from those of a higher one the node is not kept
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
	c := p.keeps
	if c == nil || c == q.c || q.b.priority > c.keeps.priority {
		return true
	}
	asks, stays := c.of(p), p.used.plus(p.waits)
	for a := p.first; a != nil; a = a.after {
		if a.result == nil && !holds(p.has, a.share, asks) {
			stays = stays.minus(a.share)
		}
	}
	return holds(p.has, stays.plus(asks), q.c.of(p))
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
	c.keeps = reservation{p, m.waitsFor(c, p).b.priority, m.now, patience}
	p.keeps = c
	m.keeps = append(m.keeps, c)
}

// unkeep gives the node free that is kept for a class, if there is one.
func (m *Machine) unkeep(c *class) {
	if p := c.keeps.on; p != nil {
		p.keeps = nil
		c.keeps = reservation{}
		m.keeps = slices.DeleteFunc(m.keeps, func(d *class) bool { return d == c })
		m.touch(p)
	}
}

// review gives nodes free for which nothing waits any more.
func (m *Machine) review() {
	for i := len(m.keeps) - 1; i >= 0; i-- {
		c := m.keeps[i]
		if q := m.waitsFor(c, c.keeps.on); q == nil || q.b.priority != c.keeps.priority {
			m.unkeep(c)
		}
	}
}

// reserve looks, before the first job of q starts on a node, at the job that goes
// first there. It says that a node was kept for that one, so that what starts is to
// be decided again.
func (m *Machine) reserve(q *queue, p *peer) bool {
	first := q
	for _, c := range m.classes {
		if c == q.c {
			continue
		}
		if r := m.waitsFor(c, p); r != nil && r.before(first) {
			first = r
		}
	}
	c := first.c
	kept := c.keeps
	switch {
	case first == q || kept.on == p:
		return false
	case kept.on == nil:
		on := m.earliest(first)
		if on != nil {
			m.keep(c, on, max(leastPatience, m.wait(c, on)))
		}
		return on != nil
	case p.keeps != nil || m.now-kept.since < kept.patience || m.wait(c, p) >= m.wait(c, kept.on)/2:
		return false
	}
	m.unkeep(c)
	m.keep(c, p, 2*kept.patience)
	return true
}

// earliest is the node on which the first job of a queue can start soonest, of those
// that are kept for no other; nil if there is none.
func (m *Machine) earliest(q *queue) (best *peer) {
	var least time.Duration
	for _, p := range m.peers {
		if p.keeps != nil || !q.takes(p) || m.waitsFor(q.c, p) == nil {
			continue
		}
		if long := m.wait(q.c, p); best == nil || long < least || long == least && q.prefers(p, best) {
			best, least = p, long
		}
	}
	return best
}
