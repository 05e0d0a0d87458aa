package sched

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Who goes first: the job of the higher priority; of equal ones, that of the owner
// who has used less; of one owner's, the one that is older.

// halfLife is the time in which what an owner has used comes to count half.
const halfLife = time.Hour

// decay is the part of what was used that is forgotten in a second.
const decay = math.Ln2 * float64(time.Second) / float64(halfLife)

// An owner is a user who has submitted batches, with what his jobs have used of
// nodes lately. It is in no log: a head that is started again begins anew.
type owner struct {
	batches int           // that are known
	used    float64       // cpu-seconds until at, of which half counts after each halfLife
	at      time.Duration // until when used is reckoned
	rate    int64         // thousandths of a cpu that his attempts take
	turn    int64         // cpu-seconds; the owner with fewer goes first
}

// reckon brings what the owner has used up to now. His turn counts what he has used,
// and what runs as if it ran for ever: half of the latter would come to count within
// a half-life. So of jobs that start at once each owner gets some.
func (o *owner) reckon(now time.Duration) {
	will := float64(o.rate) / 1000 / decay
	if passed := now - o.at; passed > 0 {
		o.used += (will - o.used) * -math.Expm1(-decay*passed.Seconds())
		o.at = now
	}
	o.turn = int64(o.used + will)
}

// take has the owner's attempts take so much more from now on.
func (o *owner) take(more int64, now time.Duration) {
	o.reckon(now)
	o.rate += more
	o.reckon(now)
}

// weight is what an attempt takes of a node, in thousandths of a cpu: the greatest
// of the parts that it has of its cpus, memory and GPUs, as cpus.
func weight(s, of share) int64 {
	most := float64(s.cpus)
	if of.gpus > 0 {
		most = max(most, float64(s.gpus)/float64(of.gpus)*float64(of.cpus))
	}
	if of.memory > 0 {
		most = max(most, float64(s.memory)/float64(of.memory)*float64(of.cpus))
	}
	return int64(most * 1000)
}

// count takes in that an attempt has begun or ceased to run for its job, or to take
// something of a node. It is told of every change of what it looks at.
func (m *Machine) count(a *attempt) {
	m.mark(a)
	b, p := m.batches[a.ref.Batch], a.peer
	if runs := a.current && a.result == nil && !a.dead && !p.abroad; runs != a.runs {
		a.runs = runs
		b.run(m, runs)
	}
	m.takeCounts(a)
	takes := int64(0)
	if a.active && !a.dead && p.listed && !p.offer.Pause.Full() {
		takes = weight(a.share, p.could)
	}
	if takes != a.takes {
		b.owner.take(takes-a.takes, m.now)
		a.takes = takes
		m.turn++
	}
}

// countAll counts all attempts of a node again.
func (m *Machine) countAll(p *peer) {
	for a := p.first; a != nil; a = a.after {
		m.count(a)
	}
}

// run counts one more job of the batch that runs, or one less. A batch that has
// come to its bound is out of the queues until one ends.
func (b *batch) run(m *Machine, begins bool) {
	was := b.full()
	if b.running--; begins {
		b.running += 2
	}
	if b.full() == was {
		return
	}
	for q := range b.all() {
		if was {
			m.enter(q)
		} else {
			q.c.hide(q)
		}
	}
}

// full says that as many jobs of the batch run as may.
func (b *batch) full() bool { return b.most > 0 && b.running >= b.most }

// ownerOf is the owner of that number, made known by his first batch.
func (m *Machine) ownerOf(uid int) *owner {
	o := m.owners[uid]
	if o == nil {
		o = &owner{at: m.now}
		m.owners[uid] = o
	}
	return o
}

// takeTurns has the owners stand in the order that holds now, and forgets those who
// have no batch and have used nothing to speak of.
func (m *Machine) takeTurns() {
	for uid, o := range m.owners {
		if o.reckon(m.now); o.batches == 0 && o.turn == 0 {
			delete(m.owners, uid)
		}
	}
	m.turn++
}

// before says that the first job of q goes before the first one of r.
func (q *queue) before(r *queue) bool {
	b, o := q.b, r.b
	switch {
	case b == o:
		return q.jobs.first() < r.jobs.first()
	case b.priority != o.priority:
		return b.priority > o.priority
	case b.owner.turn != o.owner.turn:
		return b.owner.turn < o.owner.turn
	}
	return b.num < o.num
}

// A lane is the queues of one owner in a class, those that go first in front.
type lane struct {
	owner  *owner
	queues []*queue
}

// queueOrder orders the queues of a lane. Those of one batch are in no order that
// counts.
func queueOrder(q, r *queue) int {
	return cmp.Or(cmp.Compare(r.b.priority, q.b.priority), cmp.Compare(q.b.num, r.b.num), cmp.Compare(q.index, r.index))
}

// lane is the place of an owner's lane in the class, or -1.
func (c *class) lane(o *owner) int {
	return slices.IndexFunc(c.lanes, func(l *lane) bool { return l.owner == o })
}

// show lets the decision see a queue, and says whether it did not before.
func (c *class) show(q *queue) bool {
	i := c.lane(q.b.owner)
	if i < 0 {
		i = len(c.lanes)
		c.lanes = append(c.lanes, &lane{owner: q.b.owner})
	}
	l := c.lanes[i]
	at, found := slices.BinarySearchFunc(l.queues, q, queueOrder)
	if !found {
		l.queues = slices.Insert(l.queues, at, q)
		c.turn = 0
	}
	return !found
}

// hide takes a queue from the sight of the decision.
func (c *class) hide(q *queue) {
	i := c.lane(q.b.owner)
	if i < 0 {
		return
	}
	l := c.lanes[i]
	at, found := slices.BinarySearchFunc(l.queues, q, queueOrder)
	if !found {
		return
	}
	if l.queues = slices.Delete(l.queues, at, at+1); len(l.queues) == 0 {
		c.lanes = slices.Delete(c.lanes, i, i+1)
	}
	c.turn = 0
}

// inTurn is the lanes of a class, the one whose first job goes first in front. They
// are sorted again only when an owner has used more, or a queue has come or gone.
func (m *Machine) inTurn(c *class) []*lane {
	if c.turn != m.turn {
		slices.SortFunc(c.lanes, func(l, k *lane) int {
			if l.queues[0].before(k.queues[0]) {
				return -1
			}
			return 1
		})
		c.turn = m.turn
	}
	return c.lanes
}

// next is the queue of a class whose first job goes first of those that may use a
// node; nil if there is none.
func (m *Machine) next(c *class, p *peer) *queue {
	var first *queue
	for _, l := range m.inTurn(c) {
		for i, q := range l.queues {
			if first != nil && q.b != first.b && !q.before(first) {
				if i == 0 {
					return first
				}
				break
			}
			if q.takes(p) && (first == nil || q.before(first)) {
				first = q
			}
		}
	}
	return first
}

// nextLet is that of those which may be started on a node though it is kept, if it is.
func (m *Machine) nextLet(c *class, p *peer) *queue {
	first := m.next(c, p)
	if first == nil || p.spares(first) {
		return first
	}
	first = nil
	left := m.opens(p) - m.now
	if left <= 0 {
		return nil
	}
	for _, l := range c.lanes {
		for _, q := range l.queues {
			if q.says.within(left) && (first == nil || q.before(first)) && q.takes(p) {
				first = q
			}
		}
	}
	return first
}

// goFirst counts the jobs that wait and go before the first job of a queue on nodes
// that both could use: those of a higher priority, and of the same one those of other
// owners, and those of its own.
func (m *Machine) goFirst(q *queue) (higher, others, own int) {
	m.takeTurns()
	for _, c := range m.classes {
		if !m.meet(c, q.c) {
			continue
		}
		for _, l := range c.lanes {
			for _, r := range l.queues {
				switch {
				case r == q || !r.before(q):
				case r.b.priority > q.b.priority:
					higher += r.jobs.n
				case l.owner == q.b.owner:
					own += r.jobs.n
				default:
					others += r.jobs.n
				}
			}
		}
	}
	return higher, others, own
}

// meet says that jobs of both classes could run on one of the connected nodes.
func (m *Machine) meet(c, d *class) bool {
	return c == d || slices.ContainsFunc(m.peers, func(p *peer) bool { return p.listed && p.fits[c] && p.fits[d] })
}
