package head

import (
	"time"

	"distribute/lib/estimate"
	"distribute/lib/job"
	"distribute/lib/sched"
)

// A pace is how long the jobs of a batch took that have ended. It follows from the
// log of the batch.
type pace struct {
	took  estimate.Sample
	ended int

	usual float64 // seconds, as it was
	asOf  int     // when so many had ended
}

// see takes in a record of the batch.
func (p *pace) see(rec *job.Record) {
	if (rec.Kind == job.KindDone || rec.Kind == job.KindFailed) && rec.Attempt != "" && rec.Runtime > 0 {
		p.took.Ended(rec.Runtime)
		p.ended++
	}
}

// half is how many seconds half of them took, at least as of nine tenths of them; 0
// while that is not known.
func (p *pace) half() float64 {
	if p.ended > p.asOf+p.asOf/10 {
		p.usual, _ = p.took.Typical()
		p.asOf = p.ended
	}
	return p.usual
}

// takes is how many seconds a job takes, about, that has run for some already: as
// long as half of those of its batch that have ended, if that is more, else as long as
// it may; 0 if neither is known.
func takes(half, limit, ran float64) float64 {
	switch {
	case half > ran && (limit == 0 || half < limit):
		return half
	case limit > ran:
		return min(limit, 1e9)
	}
	return 0
}

// takes is the same of a job by its numbers.
func (h *Head) takes(ref sched.Ref, ran time.Duration) time.Duration {
	b := h.batches[ref.Batch]
	if b == nil {
		return 0
	}
	return seconds(takes(b.pace.half(), float64(b.limit(int(ref.Job))), ran.Seconds()))
}
