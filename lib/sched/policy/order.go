package policy

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

// An Owner is a user who has submitted batches, with what his jobs have used of
// nodes lately. It is in no log: a head that is started again begins anew.
type Owner struct {
	Used float64       // cpu-seconds until At, of which half counts after each halfLife
	At   time.Duration // until when used is reckoned
	Rate int64         // thousandths of a cpu that his attempts take
	Turn int64         // cpu-seconds; the owner with fewer goes first
}

// Reckon brings what the owner has used up to now. His turn counts what he has used,
// and what runs as if it ran for ever: half of the latter would come to count within
// a half-life. So of jobs that start at once each owner gets some.
func (o *Owner) Reckon(now time.Duration) {
	will := float64(o.Rate) / 1000 / decay
	o.Used += (will - o.Used) * -math.Expm1(-decay*(now-o.At).Seconds())
	o.At = now
	o.Turn = int64(o.Used + will)
}

// Take has the owner's attempts take so much more from now on.
func (o *Owner) Take(more int64, now time.Duration) {
	o.Reckon(now)
	o.Rate += more
	o.Reckon(now)
}

// Weight is what an attempt takes of a node, in thousandths of a cpu: the greatest
// of the parts that it has of its cpus, memory and GPUs, as cpus.
func Weight(s, of Share) int64 {
	most := float64(s.CPUs)
	if of.GPUs > 0 {
		most = max(most, float64(s.GPUs)/float64(of.GPUs)*float64(of.CPUs))
	}
	if of.Memory > 0 {
		most = max(most, float64(s.Memory)/float64(of.Memory)*float64(of.CPUs))
	}
	return int64(most * 1000)
}

// takeTurns reckons the turns of all owners.
func (l *Lab) takeTurns() {
	for _, o := range l.Owners {
		o.Reckon(l.Now)
	}
}

// Compare orders queues by their first jobs: the one that goes first in front.
func (q *Queue) Compare(r *Queue) int {
	b, o := q.Batch, r.Batch
	if p, other := q.Priority(), r.Priority(); p != other {
		return cmp.Compare(other, p)
	}
	if b == o {
		return cmp.Compare(q.Jobs.First(), r.Jobs.First())
	}
	return b.Compare(o)
}

// Compare orders batches by whose jobs go first of those of one priority: the ones in front.
func (b *Batch) Compare(o *Batch) int {
	return cmp.Or(cmp.Compare(b.Owner.Turn, o.Owner.Turn), cmp.Compare(b.Num, o.Num))
}

// waits says that jobs of the queue wait for nothing but a node.
func (q *Queue) waits() bool {
	b := q.Batch
	return q.Jobs.N > 0 && b.Ready && !b.Full() && !b.Stopped && !q.mixed()
}

// reorder puts the queues in order again after a job of an owner has started.
func (r *Round) reorder(o *Owner) {
	his, others := []*Queue{}, r.queues[:0]
	for _, q := range r.queues {
		switch {
		case !q.waits():
		case q.Batch.Owner == o:
			his = append(his, q)
		default:
			others = append(others, q)
		}
	}
	slices.SortFunc(his, (*Queue).Compare)
	r.queues = others
	for at, q := range his {
		i, _ := slices.BinarySearchFunc(r.queues[at:], q, (*Queue).Compare)
		r.queues = slices.Insert(r.queues, at+i, q)
	}
}

// Ahead is the queues that go before one.
func (r *Round) Ahead(q *Queue) []*Queue {
	i, _ := slices.BinarySearchFunc(r.queues, q, (*Queue).Compare)
	return r.queues[:i]
}
