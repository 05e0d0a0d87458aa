package job

import (
	"errors"
	"fmt"

	"distribute/lib/msg"
	"distribute/lib/unit"
)

// A Set is what is asked for of jobs after they were submitted; what is nil stays as
// it is. Priority and MaxRunning are of a whole batch.
type Set struct {
	Priority   *int   `json:"priority,omitempty"`
	ForAll     bool   `json:"-"`                     // the priority counts beside the batches of others, too: an operator has set it; First of a record
	MaxRunning *int   `json:"max_running,omitempty"` // 0: no bound
	Time       *int64 `json:"time,omitempty"`        // seconds; 0: no limit
}

// unset is how a person takes a bound or a limit away.
const unset = "none"

// Lifts says that the batch has a priority then that an operator has set: he takes it back by
// setting 0.
func (s *Set) Lifts() bool { return s.ForAll && s.Priority != nil && *s.Priority != 0 }

// Read takes in the value of one of the keys of a batch file that can be set, as a
// person wrote it. The error says what to write; it does not name the key.
func (s *Set) Read(key, text string) (err error) {
	n, seconds := 0, int64(0)
	switch key {
	case "priority":
		n, err = wholeNumber(text, -MaxPriority, MaxPriority)
		s.Priority = &n
	case "max_running":
		if text != unset {
			n, err = wholeNumber(text, 1, MaxJobs)
		}
		s.MaxRunning = &n
	case "time":
		switch d, bad := unit.ParseDuration(text); {
		case text == unset:
		case bad == nil && d == 0:
			err = fmt.Errorf("%s is no time to run: write %s if there is to be no limit", msg.Quote(text), unset)
		default:
			seconds, err = parseTime(text)
		}
		s.Time = &seconds
	default:
		err = fmt.Errorf("%s cannot be set", msg.Quote(key))
	}
	return err
}

// Check reports why nothing can be set so; nil sets nothing.
func (s *Set) Check() error {
	if s == nil || *s == (Set{}) {
		return errors.New("nothing is to be set")
	}
	if s.ForAll && s.Priority == nil {
		return errors.New("no priority is set that would count for all")
	}
	spec := Spec{}
	if s.Priority != nil {
		spec.Priority = *s.Priority
	}
	if s.MaxRunning != nil {
		spec.MaxRunning = *s.MaxRunning
	}
	if s.Time != nil {
		spec.Resources.Time = *s.Time
	}
	return errors.Join(spec.CheckOrder(), spec.Resources.Check())
}
