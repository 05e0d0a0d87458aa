package policy

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Who goes first: the job of the higher priority that counts for all; of equal ones, that of
// the owner who has used less, and of owners who have used the same, of the one who waits with
// the oldest batch; of one owner's, the one of the higher priority, then the older one.

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

	oldest uint32 // the number of the oldest of his batches that wait; the greatest number: none does
}

// A Standing is what decides between two jobs before the use of their owners does, or
// between two of one owner.
type Standing struct {
	Common int    // the priority that counts for all
	Owner  *Owner // whose job it is
	Own    int    // the priority that counts among the owner's own jobs
}

// Over says that a job goes before another whatever their owners have used, and however old
// their batches are.
func (s Standing) Over(o Standing) bool {
	return s.Common > o.Common || s.Common == o.Common && s.Owner == o.Owner && s.Own > o.Own
}

// standing is that of a job of the batch with a priority of its own besides. Nobody but an
// operator lifts a job above those of others; to let them go first is up to everybody.
func (b *Batch) standing(own int) Standing {
	all := b.Priority + own
	common := min(all, 0)
	switch {
	case b.lab != nil && b.lab.ForAll:
		common = all
	case b.ForAll:
		common = b.Priority + min(own, 0)
	}
	return Standing{common, b.Owner, all}
}

// Standing is that of the first job of the queue.
func (q *Queue) Standing() Standing { return q.Batch.standing(q.Jobs.Priority()) }

// standing is that of the job of the attempt.
func (a *Run) standing() Standing { return a.Queue.Batch.standing(a.Queue.Batch.own(a.Job)) }

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

// takeTurns reckons the turns of all owners, of whom some wait with batches.
func (r *Round) takeTurns() {
	for _, o := range r.lab.Owners {
		o.Reckon(r.lab.Now)
		o.oldest = math.MaxUint32
	}
	for _, q := range r.queues {
		q.Batch.Owner.oldest = min(q.Batch.Owner.oldest, q.Batch.Num)
	}
}

// Compare orders queues by their first jobs: the one that goes first in front.
func (q *Queue) Compare(r *Queue) int {
	switch s, other := q.Standing(), r.Standing(); {
	case s.Over(other):
		return -1
	case other.Over(s):
		return 1
	case q.Batch == r.Batch:
		return cmp.Compare(q.Jobs.First(), r.Jobs.First())
	}
	return q.Batch.compare(r.Batch)
}

// compare orders batches of which neither is over the other by its [Standing].
func (b *Batch) compare(o *Batch) int {
	return cmp.Or(cmp.Compare(b.Owner.Turn, o.Owner.Turn), cmp.Compare(b.Owner.oldest, o.Owner.oldest), cmp.Compare(b.Num, o.Num))
}

// Before is how many jobs of a queue go before the first of another by their priority, and how
// many by the turn of their owner or by age.
func (q *Queue) Before(o *Queue) (higher, alike int) {
	first := o.Standing()
	for own, jobs := range q.Jobs.all() {
		switch s := q.Batch.standing(own); {
		case s.Over(first):
			higher += jobs.N
		case first.Over(s):
		case q.Batch == o.Batch:
			alike += jobs.Below(o.Jobs.First())
		case q.Batch.compare(o.Batch) < 0:
			alike += jobs.N
		}
	}
	return higher, alike
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
