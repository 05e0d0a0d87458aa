package job

import (
	"fmt"
	"time"
)

// A Row is everything that is shown of a job: the fold of its records, and
// what the head knows of it besides. It is what the tools filter and print;
// members are named once, here, for JSON, filters and columns.
type Row struct {
	ID         ID        `json:"id"`
	Namespace  string    `json:"namespace"`
	Batch      string    `json:"batch"`
	Job        string    `json:"job"`
	Owner      string    `json:"owner"`
	State      State     `json:"state"`
	Phase      string    `json:"phase,omitempty"` // of a running job: building, sending, running, unkillable, returning
	Node       string    `json:"node,omitempty"`
	Attempt    int       `json:"attempt,omitempty"` // the number of the attempt told of here
	Exit       *int      `json:"exit,omitempty"`
	Signal     string    `json:"signal,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Submitted  time.Time `json:"submitted,omitzero"`
	Started    time.Time `json:"started,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	Runtime    float64   `json:"runtime,omitempty"` // seconds
	Paused     float64   `json:"paused,omitempty"`  // seconds
	CPUs       int       `json:"cpus,omitempty"`
	MemoryPeak int64     `json:"memory_peak,omitempty"` // bytes
	CPUTime    float64   `json:"cpu_time,omitempty"`    // seconds
	Written    int64     `json:"written,omitempty"`     // bytes

	Token    Token  `json:"-"` // of the attempt told of
	UID      int    `json:"-"` // of the owner, on the head: his name is for the eye
	Manifest string `json:"-"` // of what is kept of it: of the accepted result, or of the last attempt
}

// NewRow is the row of a job that was submitted and has no record yet.
func NewRow(batch BatchID, name string, head *Head, submitted time.Time) Row {
	return Row{ID: batch.Job(name), Namespace: batch.Namespace(), Batch: batch.Name(), Job: name,
		Owner: head.Owner, UID: head.UID, State: Queued, Submitted: submitted}
}

// Fold takes one record of the row's job into the row. A move that is not
// legal is an error and changes nothing.
func (r *Row) Fold(rec *Record) error {
	next, ok := r.State.Next(rec.Kind)
	if !ok {
		return fmt.Errorf("record %d: %s is not a legal move of a job that is %s", rec.Seq, rec.Kind, r.State)
	}
	r.State = next
	switch rec.Kind {
	case KindStart, KindAdopt:
		r.Attempt, r.Token, r.Node, r.CPUs = rec.Try, rec.Attempt, rec.Node, rec.CPUs
		r.end(Outcome{}, "")
		r.Started = rec.Time
	case KindDone, KindFailed:
		if rec.Attempt != "" {
			r.Attempt, r.Token, r.Node = rec.Try, rec.Attempt, rec.Node
		}
		r.end(rec.Outcome, rec.Manifest)
		if r.Ended.IsZero() {
			r.Ended = rec.Time
		}
	case KindBack:
		r.end(rec.Outcome, rec.Manifest)
		r.Started, r.Ended = time.Time{}, time.Time{}
	case KindCancelled:
		r.Reason, r.Ended = rec.Reason, rec.Time
	case KindRetry:
		r.end(Outcome{}, "")
	case KindLate:
		if r.Token == rec.Attempt && r.State != Done {
			r.Manifest = rec.Manifest
			if r.State == Cancelled {
				reason, ended := r.Reason, r.Ended
				r.end(rec.Outcome, rec.Manifest)
				r.Reason, r.Ended = reason, ended
			}
		}
	}
	return nil
}

func (r *Row) end(o Outcome, manifest string) {
	r.Exit, r.Signal, r.Reason = o.Exit, o.Signal, o.Reason
	r.Started, r.Ended = o.Started, o.Ended
	r.Runtime, r.Paused, r.CPUTime = o.Runtime, o.Paused, o.CPUTime
	r.MemoryPeak, r.Written, r.Manifest = o.MemoryPeak, o.Written, manifest
}
