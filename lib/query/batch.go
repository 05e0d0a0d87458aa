package query

import (
	"math"
	"time"

	"distribute/lib/estimate"
	"distribute/lib/job"
)

// A Batch is a line of dquery -s: how many jobs of a batch are in which state.
// As the others, its members are named once, for JSON and columns.
type Batch struct {
	ID          job.BatchID `json:"id"`
	Namespace   string      `json:"namespace"`
	Batch       string      `json:"batch"`
	Owner       string      `json:"owner"`
	Submitted   time.Time   `json:"submitted,omitzero"`
	Jobs        int         `json:"jobs"` // the sum of those below
	Queued      int         `json:"queued"`
	Held        int         `json:"held"`
	Running     int         `json:"running"`
	Paused      int         `json:"paused"`
	Stranded    int         `json:"stranded"`
	Unreachable int         `json:"unreachable"`
	Done        int         `json:"done"`
	Failed      int         `json:"failed"`
	Cancelled   int         `json:"cancelled"`
	Ended       time.Time   `json:"ended,omitzero"`   // when the last of them was over, if all are
	Matrix      string      `json:"matrix,omitempty"` // whom to tell then, as @user:host

	// When all of its jobs will be over, which are queued or have begun, if as many run
	// at once as now; zero while that is not known.
	Rate   float64   `json:"rate,omitempty" is:"number"` // jobs an hour
	Ends   time.Time `json:"ends,omitzero"`
	EndsBy time.Time `json:"ends_by,omitzero"` // in four of five cases it is between the two
}

// NewBatch is a batch with no jobs counted yet.
func NewBatch(id job.BatchID, owner string, submitted time.Time) Batch {
	return Batch{ID: id, Namespace: id.Namespace(), Batch: id.Name(), Owner: owner, Submitted: submitted}
}

// Count is where jobs in state s are counted, nil if there is no such state.
func (b *Batch) Count(s job.State) *int {
	switch s {
	case job.Queued:
		return &b.Queued
	case job.Held:
		return &b.Held
	case job.Running:
		return &b.Running
	case job.Paused:
		return &b.Paused
	case job.Stranded:
		return &b.Stranded
	case job.Unreachable:
		return &b.Unreachable
	case job.Done:
		return &b.Done
	case job.Failed:
		return &b.Failed
	case job.Cancelled:
		return &b.Cancelled
	}
	return nil
}

// Add counts n more jobs in state s.
func (b *Batch) Add(s job.State, n int) {
	if c := b.Count(s); c != nil {
		*c += n
		b.Jobs += n
	}
}

// Live is how many of the jobs are not over.
func (b *Batch) Live() int { return b.Jobs - b.Done - b.Failed - b.Cancelled }

// Sum adds what o counted.
func (b *Batch) Sum(o *Batch) {
	for s := job.Queued; s <= job.Cancelled; s++ {
		b.Add(s, *o.Count(s))
	}
	if o.Ended.After(b.Ended) {
		b.Ended = o.Ended
	}
	if b.Live() > 0 {
		b.Ended = time.Time{}
	}
}

// BatchFields are all fields of a batch, in the order of dquery(1).
func BatchFields() []Field[Batch] { return fieldsOf[Batch]() }

// A Tally counts the jobs that fit a query, batch by batch. It is not safe for
// concurrent use.
type Tally struct {
	q       *Query
	order   []*Batch
	batches map[job.BatchID]*Batch
	seen    map[job.BatchID]*estimate.Sample // of all of its jobs
}

// NewTally counts for q. If q asks for what is not over, the tally is of all
// jobs of the batches in which something is not.
func NewTally(q *Query) *Tally {
	return &Tally{q: q, batches: map[job.BatchID]*Batch{}, seen: map[job.BatchID]*estimate.Sample{}}
}

// Add counts the job if it fits. For the end of its batch it counts in any case.
func (t *Tally) Add(r *job.Row) {
	t.see(r)
	if !t.q.fits(r) {
		return
	}
	id := r.ID.Batch()
	b := t.batches[id]
	if b == nil {
		n := NewBatch(id, r.Owner, r.Submitted)
		n.Matrix = r.Matrix
		b = &n
		t.batches[id], t.order = b, append(t.order, b)
	}
	b.Add(r.State, 1)
	if r.State.Over() && r.Ended.After(b.Ended) {
		b.Ended = r.Ended
	}
}

// see takes in how long a job took, or has run.
func (t *Tally) see(r *job.Row) {
	id := r.ID.Batch()
	s := t.seen[id]
	if s == nil {
		s = &estimate.Sample{}
		t.seen[id] = s
	}
	switch {
	case r.State == job.Queued, r.State == job.Running && r.Phase == job.PhaseWaiting: // there for room
		s.Queued++
	case r.Attempt == 0 || r.State == job.Held || r.State == job.Cancelled:
	case r.State == job.Done, r.State == job.Failed, r.State == job.Stranded, r.Phase == job.PhaseReturning:
		s.Ended(r.Runtime)
	case r.State == job.Running:
		s.Running(r.Runtime)
	default:
		s.Stopped(r.Runtime)
	}
}

// maxEnds is of how many batches the end is estimated in one answer.
const maxEnds = 50

// Rows are the batches with jobs that fit, in the order in which Add met them. now is
// when the rows were as they are; if it is not zero, the ends of the first 50 batches
// that have one are estimated, which costs up to some tens of milliseconds each.
func (t *Tally) Rows(now time.Time) []Batch {
	var rows []Batch
	ends := 0
	for _, b := range t.order {
		if t.q.live && b.Live() == 0 {
			continue
		}
		if !now.IsZero() && ends < maxEnds {
			if e, ok := t.seen[b.ID].End(); ok {
				ends++
				b.Rate = math.Round(e.Rate*10) / 10
				b.Ends, b.EndsBy = after(now, math.Floor(e.From)), after(now, math.Ceil(e.To))
			}
		}
		row := *b
		if row.Live() > 0 {
			row.Ended = time.Time{}
		}
		rows = append(rows, row)
	}
	return rows
}

// after is so many seconds after now.
func after(now time.Time, seconds float64) time.Time {
	return now.Add(time.Duration(min(seconds, 1e9)) * time.Second).Truncate(time.Second)
}
