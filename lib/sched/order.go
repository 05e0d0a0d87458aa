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
		b.run(runs)
	}
	m.takeCounts(a)
	takes := int64(0)
	if a.active && !a.dead && p.listed && !p.offer.Pause.Full() {
		takes = weight(a.share, p.could)
	}
	if takes != a.takes {
		b.owner.take(takes-a.takes, m.now)
		a.takes = takes
	}
}

// countAll counts all attempts of a node again.
func (m *Machine) countAll(p *peer) {
	for a := p.first; a != nil; a = a.after {
		m.count(a)
	}
}

// run counts one more job of the batch that runs, or one less.
func (b *batch) run(begins bool) {
	if b.running--; begins {
		b.running += 2
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

// takeTurns reckons the turns of all owners, and forgets those who have no batch and have
// used nothing to speak of.
func (m *Machine) takeTurns() {
	for uid, o := range m.owners {
		if o.reckon(m.now); o.batches == 0 && o.turn == 0 {
			delete(m.owners, uid)
		}
	}
}

// before orders queues by their first jobs: the one that goes first in front.
func (q *queue) before(r *queue) int {
	b, o := q.b, r.b
	if b == o {
		return cmp.Compare(q.jobs.first(), r.jobs.first())
	}
	return cmp.Or(cmp.Compare(o.priority, b.priority), cmp.Compare(b.owner.turn, o.owner.turn), cmp.Compare(b.num, o.num))
}

// goFirst counts the jobs that wait and go before the first job of a queue on nodes
// that both could use: those of a higher priority, and of the same one those of other
// owners, and those of its own.
func (r *round) goFirst(q *queue) (higher, others, own int) {
	for _, o := range r.ahead(q) {
		switch {
		case !r.m.meet(o.c, q.c):
		case o.b.priority > q.b.priority:
			higher += o.jobs.n
		case o.b.owner == q.b.owner:
			own += o.jobs.n
		default:
			others += o.jobs.n
		}
	}
	return higher, others, own
}

// meet says that jobs of both classes could run on one of the connected nodes.
func (m *Machine) meet(c, d *class) bool {
	return c == d || slices.ContainsFunc(m.peers, func(p *peer) bool { return p.listed && p.fits[c] && p.fits[d] })
}
