package desk

import (
	"path/filepath"

	"distribute/lib/check"
	"distribute/lib/job"
)

// An UnreadableError is returned for an attempt whose note cannot be understood.
type UnreadableError struct {
	Token job.Token // by the name of its directory
	Err   error
}

func (e *UnreadableError) Error() string { return e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// Unreadable returns the tokens of the attempts for which err has an [UnreadableError].
func Unreadable(err error) (all []job.Token) {
	switch e := err.(type) {
	case *UnreadableError:
		all = append(all, e.Token)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			all = append(all, Unreadable(err)...)
		}
	}
	return all
}

// UnreadableDir returns the directory of an attempt whose note cannot be understood.
func (d *Desk) UnreadableDir(t job.Token) string { return d.path("attempts", string(t)) }

// SetUnreadableAside moves the directory of an attempt whose note cannot be understood to found/,
// where nobody meets it again, and returns its new path in the node's directory.
func (d *Desk) SetUnreadableAside(t job.Token) (path string, err error) {
	return check.Aside(d.dir, filepath.Join("attempts", string(t)))
}
