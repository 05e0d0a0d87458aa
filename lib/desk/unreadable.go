package desk

import "distribute/lib/job"

// An UnreadableError is returned for an attempt whose note cannot be understood.
type UnreadableError struct {
	Token job.Token // by the name of its directory, which may be none
	Err   error
}

func (e *UnreadableError) Error() string { return e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// Unreadable returns the tokens of the attempts for which err has an [UnreadableError].
func Unreadable(err error) (all []job.Token) {
	switch e := err.(type) {
	case *UnreadableError:
		if e.Token.Check() == nil {
			all = append(all, e.Token)
		}
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			all = append(all, Unreadable(err)...)
		}
	}
	return all
}
