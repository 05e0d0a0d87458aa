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

// An outlook is what is to be expected of a node that is kept.
type outlook struct {
	taken share         // of it, when the job has started for which it is kept
	opens time.Duration // when that is, if what runs there ends when it is known to at the latest; 0: not known
}

func (r *round) outlook(k *reservation) *outlook {
	if r.outlooks[k] == nil {
		r.outlooks[k] = &outlook{r.m.taken(k), r.m.opens(k.on)}
	}
	return r.outlooks[k]
}

// taken is what of a kept node is taken when the job has started for which it is kept:
// once the attempts have ended beside which it never does.
func (m *Machine) taken(k *reservation) share {
	p := k.on
	asks, stays := k.of.of(p), p.used.plus(p.waits)
	for a := p.first; a != nil; a = a.after {
		if a.result == nil && !holds(p.has, a.share, asks) {
			stays = stays.minus(a.share)
		}
	}
	return stays.plus(p.awaited(asks, stays))
}

// spares says that a node may be given a job of a class, for whose sake it is kept or
// beside that: there is room for both.
func (r *round) spares(c *class, p *peer) bool {
	k := p.keeps
	return k == nil || k.of == c || holds(p.has, r.outlook(k).taken, c.of(p))
}

// beside says that a node may be given the first job of q though it is kept for others:
// that goes first, or is there beside them.
func (r *round) beside(q *queue, p *peer) bool {
	return r.spares(q.c, p) || q.b.priority > p.keeps.priority
}

// lets says the same, or that the job ends before they could start.
func (r *round) lets(q *queue, p *peer) bool {
	return r.beside(q, p) || q.says.within(r.outlook(p.keeps).opens-r.m.now)
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

// waitsFor says that the first job of a queue could start on a node if nothing else ran.
func (q *queue) waitsFor(p *peer) bool {
	return p.open() && p.fits[q.c] && p.enough(q.c) && q.takes(p)
}

// unkeep gives a node free that is kept.
func (m *Machine) unkeep(r *reservation) {
	gone := func(o *reservation) bool { return o == r }
	r.on.keeps = nil
	r.of.keeps, m.keeps = slices.DeleteFunc(r.of.keeps, gone), slices.DeleteFunc(m.keeps, gone)
}

// release gives a node free for which a job of the class need not wait any more, since
// one has started on p: that, or the one that was kept last.
func (r *round) release(c *class, p *peer) {
	k := p.keeps
	if (k == nil || k.of != c) && len(c.keeps) > 0 {
		k = c.keeps[len(c.keeps)-1]
	}
	if k != nil && k.of == c {
		r.m.unkeep(k)
		clear(r.places)
	}
}

// review gives nodes free for which nothing waits any more.
func (r *round) review() {
	m := r.m
	for i := len(m.keeps) - 1; i >= 0; i-- {
		k := m.keeps[i]
		at := slices.IndexFunc(r.queues, func(q *queue) bool { return q.c == k.of && q.waitsFor(k.on) })
		if at < 0 || r.queues[at].b.priority != k.priority || !r.more(k.of, len(k.of.keeps)-1) || !m.site.room(k.of) {
			m.unkeep(k)
		}
	}
}

// more says that more than n jobs of the class wait and may run.
func (r *round) more(c *class, n int) bool {
	var of *batch
	left := 0 // of its jobs may run besides those that do
	for _, q := range r.queues {
		if q.c != c {
			continue
		}
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
	return false
}

// reserve looks, before the first job of q starts on a node, at the job that goes
// first there. It says that a node was kept for that one, so that what starts is to
// be decided again.
func (r *round) reserve(q *queue, p *peer) bool {
	m, ahead := r.m, r.ahead(q)
	i := slices.IndexFunc(ahead, func(o *queue) bool {
		return o.c != q.c && m.site.room(o.c) && o.waitsFor(p) // without what the site counts a node is of no use
	})
	if i < 0 {
		return false
	}
	c, on, patience := ahead[i].c, p, time.Duration(0)
	switch {
	case len(c.keeps) == 0:
		if on = r.earliest(ahead[i]); on == nil {
			return false
		}
	case p.keeps != nil:
		return false
	case !r.more(c, len(c.keeps)) || len(m.keeps) >= len(m.peers)/4:
		last := m.latest(c)
		if last == nil || m.wait(c, p) >= m.wait(c, last.on)/2 {
			return false
		}
		patience = 2 * last.patience
		m.unkeep(last)
	}
	clear(r.places)
	i = slices.IndexFunc(r.queues, func(o *queue) bool { return o.c == c && o.waitsFor(on) })
	on.keeps = &reservation{c, on, r.queues[i].b.priority, m.now, max(leastPatience, patience, m.wait(c, on))}
	c.keeps, m.keeps = append(c.keeps, on.keeps), append(m.keeps, on.keeps)
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
func (r *round) earliest(q *queue) (best *peer) {
	m, least := r.m, time.Duration(0)
	for _, p := range m.peers {
		if p.keeps != nil || !q.waitsFor(p) {
			continue
		}
		if long := m.wait(q.c, p); best == nil || long < least || long == least && m.rank(q, p).better(m.rank(q, best)) {
			best, least = p, long
		}
	}
	return best
}
