package job

import (
	"slices"
	"strings"
	"time"
)

// Superseded is the row of the attempt that the next record of the job leaves behind, as the
// job goes on without it; ok is false if there is none. That of an attempt that failed is
// failed, also if the job was tried again by itself; that of one which came to nothing, since
// its node was lost, or gave it back, is queued, as the job was then.
func (r *Row) Superseded(rec *Record) (old Row, ok bool) {
	old = *r
	switch {
	case r.Attempt == 0 || r.Token == "":
		return old, false
	case rec.Kind == KindRetry:
		return old, r.State == Failed || r.State == Cancelled
	case r.State != Running:
		return old, false
	case rec.Kind == KindBack:
		old.stop(&rec.Outcome, rec.Time)
		if old.State = Failed; rec.Fate != FateEnded && rec.Fate != FateBuildFailed {
			fate := strings.ReplaceAll(string(rec.Fate), "_", " ")
			if old.State = Queued; old.Reason == "" {
				old.Reason = fate
			} else if old.Reason != fate && !strings.HasPrefix(old.Reason, fate+": ") {
				old.Reason = fate + ": " + old.Reason
			}
		}
		return old, true
	case rec.Kind == KindDone && rec.Attempt != r.Token:
		old.stop(&Outcome{Reason: "another attempt was done first"}, rec.Time)
		old.State = Cancelled
		return old, true
	}
	return old, false
}

// Attempts are the rows of the attempts of a job, in the order in which they were started:
// Old, and the last one, if the row tells of it. Ran is that of the attempt alone.
func (r *Row) Attempts() (all []Row) {
	last := r.Token != "" && r.State != Queued && r.State != Held
	for _, old := range r.Old {
		same := old.Token == r.Token
		if same && r.State == Done { // it came back, and its result was accepted later
			continue
		}
		last = last && !same
		all = append(all, old)
	}
	if last {
		all = append(all, *r)
	}
	for i := range all {
		all[i].Ran = all[i].Runtime
	}
	slices.SortStableFunc(all, func(a, b Row) int { return a.Attempt - b.Attempt })
	return all
}

// Late takes in how the attempt ended, if the record tells that only after its job went on.
func (r *Row) Late(rec *Record) {
	if rec.Kind == KindLate && rec.Attempt == r.Token {
		reason := r.Reason
		r.stop(&rec.Outcome, rec.Time)
		r.Reason, r.Said = reason, rec.Said
	}
}

// stop ends an attempt. If its node has not said when it began, that is when it was given
// to the node.
func (r *Row) stop(o *Outcome, at time.Time) {
	given := r.Started
	r.end(*o, "")
	if r.setTimes(o, given, at); r.Started.IsZero() {
		r.Started = given
	}
}
