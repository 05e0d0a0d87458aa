package job

import (
	"errors"
	"fmt"
)

// A History is what the records of a batch's log make of its jobs. It is used for
// the state of the scheduler, when a batch is opened, and by dfsck(8). The zero one
// is of a batch without jobs; a job that waits takes one byte.
type History struct {
	States  []State          // of the jobs, by their numbers; only Fold and Add change them
	Started map[Key]struct{} // attempts that were started; nil: Fold does not look whether an attempt was
	left    map[int]*Left    // of jobs with attempts that had to leave their nodes
}

// WholeBatch is the number for a record that is about all jobs of a batch.
const WholeBatch = -1

// ErrNoJob says that a record is about a job that the batch does not have.
var ErrNoJob = errors.New("there is no job")

// Add adds so many jobs, which wait.
func (h *History) Add(jobs int) { h.States = append(h.States, make([]State, jobs)...) }

// Fold takes in the next record, which is about job number i or about the [WholeBatch].
// It calls moved, unless that is nil, for each job with another state, as soon as it has
// that, with the state before. It returns of which attempts less is kept because of
// the record. An error says why the record cannot follow those before it, and the
// record has changed nothing then, but that the attempt of a start counts as started.
func (h *History) Fold(i int, rec *Record, moved func(i int, from State)) (less []Less, err error) {
	if h.Started != nil && rec.Attempt != "" {
		key, ok := rec.Attempt.Key()
		if _, started := h.Started[key]; rec.Kind == KindStart {
			if ok {
				h.Started[key] = struct{}{}
			}
		} else if !started || !ok {
			return nil, fmt.Errorf("the attempt %.40q was never started", rec.Attempt)
		}
	}
	next, err := h.Next(i, rec)
	switch {
	case err != nil:
		return nil, err
	case rec.Kind == KindAdded:
		h.Add(rec.Jobs)
	case i == WholeBatch:
		for i, s := range h.States {
			if next, ok := s.Next(rec.Kind); ok {
				h.move(i, next, moved)
			}
		}
	default:
		less = h.foldLeft(i, rec)
		h.move(i, next, moved)
	}
	return less, nil
}

func (h *History) move(i int, next State, moved func(i int, from State)) {
	from := h.States[i]
	if h.States[i] = next; from != next && moved != nil {
		moved(i, from)
	}
}

// Next is the state that a record gives to job number i, or of no meaning if it is
// about the [WholeBatch]. The error is that of Fold, but for attempts that were never
// started.
func (h *History) Next(i int, rec *Record) (State, error) {
	if i == WholeBatch && rec.Kind.Whole() {
		if rec.Kind == KindAdded && (rec.Jobs < 1 || len(h.States)+rec.Jobs > MaxJobs) {
			return 0, fmt.Errorf("it adds %d jobs to %d", rec.Jobs, len(h.States))
		}
		return 0, rec.check()
	}
	if i < 0 || i >= len(h.States) {
		return 0, fmt.Errorf("%w %.100q", ErrNoJob, rec.Job)
	}
	return h.States[i].after(rec)
}

// check reports why the members of the record do not go together.
func (rec *Record) check() error {
	if rec.Set != nil {
		if err := rec.Set.Check(); err != nil {
			return fmt.Errorf("what it sets cannot be: %w", err)
		}
	}
	return rec.CheckFate()
}

// after is the state of a job in state s after the record. The error says why it cannot
// follow.
func (s State) after(rec *Record) (State, error) {
	next, ok := s.Next(rec.Kind)
	if !ok {
		return s, fmt.Errorf("%.40q is no event, or not one of a job that is %s", rec.Kind, s)
	}
	return next, rec.check()
}

// foldLeft takes in what a record says of attempts that had to leave their nodes.
func (h *History) foldLeft(i int, rec *Record) []Less {
	l := h.left[i]
	if l == nil {
		if !rec.Leaves() {
			return nil
		}
		if h.left == nil {
			h.left = map[int]*Left{}
		}
		l = &Left{}
		h.left[i] = l
	}
	return l.Fold(rec)
}
