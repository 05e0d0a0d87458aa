package job

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// A Row is everything that is shown of a job: the fold of its records, and
// what the head knows of it besides. It is what the tools filter and print;
// members are named once, here, for JSON, filters and columns.
type Row struct {
	ID         ID        `json:"id"`
	Namespace  string    `json:"namespace" line:"word"`
	Batch      string    `json:"batch" line:"word"`
	Job        string    `json:"job"`
	Owner      string    `json:"owner" line:"word"`
	State      State     `json:"state"`
	Phase      Phase     `json:"phase,omitempty" line:"word"` // of a running job
	Node       string    `json:"node,omitempty" line:"word"`
	Machine    string    `json:"machine,omitempty" line:"word"` // of a node that is a cluster: where on it
	Attempt    int       `json:"attempt,omitempty"`             // the number of the attempt told of here
	Exit       *int      `json:"exit,omitempty"`
	Signal     string    `json:"signal,omitempty" line:"word"`
	Reason     string    `json:"reason,omitempty" line:"word"`
	Said       string    `json:"said,omitempty" line:"word"` // the last line that it printed, of one that did not end well
	Submitted  time.Time `json:"submitted,omitzero"`
	Started    time.Time `json:"started,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	Ends       time.Time `json:"ends,omitzero"`                    // of one that runs, about
	Runtime    float64   `json:"runtime,omitempty"`                // seconds
	Ran        float64   `json:"ran,omitempty"`                    // seconds: the runtimes of all its attempts
	Paused     float64   `json:"paused,omitempty"`                 // seconds
	CPUs       int       `json:"cpus,omitempty"`                   // given to the attempt
	Memory     int64     `json:"memory,omitempty" is:"bytes"`      // bytes given to it
	GPUs       GPUs      `json:"gpus,omitempty"`                   // given to it
	Counted    Counts    `json:"counted,omitempty"`                // given to it of what is counted by its name
	Limit      int64     `json:"time,omitempty" is:"seconds"`      // seconds that it may run
	MemoryPeak int64     `json:"memory_peak,omitempty" is:"bytes"` // bytes
	MemoryRank int64     `json:"memory_rank,omitempty" is:"bytes"` // bytes: of that one of several ranks which had most
	CPUTime    float64   `json:"cpu_time,omitempty"`               // seconds
	Written    int64     `json:"written,omitempty" is:"bytes"`     // bytes
	Priority   int       `json:"priority"`                         // of the batch, and its own
	Seq        uint64    `json:"seq,omitempty"`                    // of its last record, or of the one that made it known
	Param      []string  `json:"param,omitempty"`                  // its parameters, each as name=value

	Token    Token  `json:"-"` // of the attempt told of
	Matrix   string `json:"-"` // whom to tell when the batch is over
	Own      int    `json:"-"` // the part of the priority that is its own
	UID      int    `json:"-"` // of the owner, on the head: his name is for the eye
	Manifest string `json:"-"` // of what is kept of it: of the accepted result, or of the last attempt
	From     string `json:"-"` // the node of the attempt with whose saved files it goes on
	After    string `json:"-"` // how the attempt before ended, and where, if the job was tried again since that failed
	Old      []Row  `json:"-"` // of the attempts that the job went on without, as Superseded tells, if they were asked for
	Saved    bool   `json:"-"` // the last attempt has saved that, and it is gone with the end of the job
}

// NewRow is the row of a job that was submitted and has no record yet.
func NewRow(batch BatchID, name string, head *Head, submitted time.Time) Row {
	return Row{ID: batch.Job(name), Namespace: batch.Namespace(), Batch: batch.Name(), Job: name,
		Owner: head.Owner, UID: head.UID, State: Queued, Submitted: submitted, Priority: head.Spec.Priority, Matrix: head.Spec.Matrix}
}

// Prefer gives the job a priority of its own, besides that of its batch.
func (r *Row) Prefer(own int) {
	r.Priority += own - r.Own
	r.Own = own
}

// Fold takes one record of the row's job, or of its whole batch, into the row. A move
// that is not legal, or a member that does not go with the fate, is an error and changes
// nothing; of a record of the batch the former is none.
func (r *Row) Fold(rec *Record) error {
	if rec.Kind == KindSet && rec.Job == "" && rec.Set != nil && rec.Set.Priority != nil {
		r.Priority = *rec.Set.Priority + r.Own
	}
	next, err := r.State.after(rec)
	if err != nil && rec.Job == "" && rec.Kind.Whole() {
		return nil
	}
	if err != nil {
		return err
	}
	r.State, r.Seq = next, rec.Seq
	r.Lengthen(rec)
	switch rec.Kind {
	case KindStart, KindAdopt:
		r.Attempt, r.Token, r.Node, r.CPUs = rec.Try, rec.Attempt, rec.Node, rec.CPUs
		r.Memory, r.GPUs, r.Counted, r.Limit = rec.Memory, rec.GPUs, rec.Counted, rec.Limit
		r.Runtime = 0 // which Ran has
		r.end(Outcome{}, "")
		r.Started, r.Ended = rec.Time, time.Time{}
		r.wentOn()
	case KindDone, KindFailed:
		given := r.Started
		if rec.Attempt != r.Token {
			given = r.Submitted
		}
		if rec.Attempt != "" {
			r.Attempt, r.Token, r.Node = rec.Try, rec.Attempt, rec.Node
		}
		r.end(rec.Outcome, rec.Manifest)
		r.setTimes(&rec.Outcome, given, rec.Time)
		r.Said = rec.Said
		if rec.Kind == KindDone {
			r.Reason = rec.Skipped
			r.wentOn()
		}
		r.From = ""
	case KindBack:
		r.end(rec.Outcome, rec.Manifest)
		if rec.Fate == FateEnded {
			r.After = "after " + rec.Words() + " on " + rec.Node
			r.Reason = r.After
		}
		if r.Saved = rec.Saved; rec.Saved {
			r.From = rec.Node
		}
		r.Started, r.Ended = time.Time{}, time.Time{}
	case KindCancelled:
		r.Reason, r.Ended = rec.Reason, rec.Time
		if r.From = ""; r.Saved {
			r.Manifest = ""
		}
	case KindRetry:
		r.Runtime, r.After = 0, ""
		r.end(Outcome{}, "")
		r.Started, r.Ended = time.Time{}, time.Time{}
	case KindHold, KindFreeze:
		r.Reason = rec.heldBy()
	case KindRelease:
		r.Reason = ""
	case KindThaw:
		r.Reason = ""
		r.wentOn()
	case KindLate:
		if r.Token != rec.Attempt {
			r.Ran = sum(r.Ran, rec.Runtime)
		}
		if r.Token == rec.Attempt && r.State != Done {
			r.Manifest, r.Said = rec.Manifest, rec.Said
			if r.State == Cancelled {
				reason, ended := r.Reason, r.Ended
				r.end(rec.Outcome, rec.Manifest)
				r.setTimes(&rec.Outcome, r.Started, rec.Time)
				r.Reason, r.Ended = reason, ended
			}
		}
	}
	return nil
}

// Lengthen takes in that the attempt which runs may run for longer, if the record sets
// that.
func (r *Row) Lengthen(rec *Record) {
	if rec.Kind == KindSet && rec.Set != nil && rec.Set.Time != nil && r.State == Running && r.Limit > 0 && (*rec.Set.Time == 0 || *rec.Set.Time > r.Limit) {
		r.Limit = *rec.Set.Time
	}
}

// heldBy tells who holds a job, and since when.
func (rec *Record) heldBy() string {
	return fmt.Sprintf("by %s since %s", rec.By, rec.Time.UTC().Format("2006-01-02T15:04:05Z"))
}

// wentOn notes with what the attempt began, or how the one before ended, if nothing
// else is to be said of it.
func (r *Row) wentOn() {
	switch {
	case r.Reason != "":
	case r.After != "":
		r.Reason = r.After
	case r.From != "":
		r.Reason = "went on from " + r.From
	}
}

// ClusterPrefix begins the names of clusters to which people take jobs. No node has such a name.
const ClusterPrefix = "slurm:"

// OnCluster reports whether a cluster has the attempt.
func (r *Row) OnCluster() bool { return strings.HasPrefix(r.Node, ClusterPrefix) }

// Take is the runtime of the attempt from now on.
func (r *Row) Take(runtime float64) {
	r.Ran = sum(r.Ran, runtime-r.Runtime)
	r.Runtime = runtime
}

// sum adds seconds with three decimals, as logs have them, up to a length that no
// node measures.
func sum(a, b float64) float64 { return min(max(0, math.Round((a+b)*1000)/1000), 1e12) }

func (r *Row) end(o Outcome, manifest string) {
	r.Take(o.Runtime)
	r.Exit, r.Signal, r.Reason, r.Said = o.Exit, o.Signal, o.Reason, ""
	r.Paused, r.CPUTime, r.Machine = o.Paused, o.CPUTime, o.Machine
	r.MemoryPeak, r.MemoryRank, r.Written, r.Manifest = o.MemoryPeak, o.MemoryRank, o.Written, manifest
	r.Saved = false
}

// setTimes sets when an attempt began and ended that was given to its node and whose end was
// logged at these times. Times of the record that do not lie between them are of the clock of
// the node, which earlier releases have logged: such an attempt ended when that was logged.
// A cluster may have run the attempt before the head knew of the job.
func (r *Row) setTimes(o *Outcome, given, logged time.Time) {
	r.Started, r.Ended = o.Started, o.Ended
	if r.Ended.IsZero() || r.Ended.Before(given) || r.Ended.After(logged) {
		r.Ended = logged
	}
	if !r.Started.IsZero() && (r.Started.Before(given) || r.Started.After(r.Ended)) {
		ran := min(max(o.Runtime+o.Paused, 0), 1e9)
		if r.Started = r.Ended.Add(-time.Duration(ran * float64(time.Second))); r.Started.Before(given) && !r.OnCluster() {
			r.Started = given
		}
	}
}
