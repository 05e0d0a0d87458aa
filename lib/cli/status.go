package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// The exit statuses of every command. Those above 1 are of sysexits.h.
const (
	OK          = 0  // yes
	No          = 1  // no: nothing matched, a job is not done
	Usage       = 64 // the command line is wrong
	Input       = 65 // the input is wrong, or was refused
	NoSuch      = 66 // no such id or batch
	Unreachable = 69 // the head cannot be reached
	Fault       = 70 // a fault of ours
	IO          = 74 // reading or writing failed
	Later       = 75 // try again later
	NotAllowed  = 77 // not allowed
)

// statusError is an error that knows its exit status.
type statusError struct {
	status int
	err    error // nil: nothing to say
}

func (e *statusError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// ExitStatus is the status with which a command ends that returns e.
func (e *statusError) ExitStatus() int { return e.status }

// Errorf is fmt.Errorf for an error with which a command ends with status.
func Errorf(status int, format string, a ...any) error {
	return &statusError{status, fmt.Errorf(format, a...)}
}

// Usagef is Errorf for a wrong command line: Main prints the usage after it.
func Usagef(format string, a ...any) error { return Errorf(Usage, format, a...) }

// Quiet is an error with which a command ends with status and says nothing. For
// OK it is a way to end early, and still an error.
func Quiet(status int) error { return &statusError{status, nil} }

// Status is the exit status for err. An error made by this package, wrapped or
// not, knows its own, and so does any that has a method ExitStatus() int. Else it is Unreachable for a connection that could not be
// made, Later for a deadline that passed and IO for what the operating system
// refused; of several joined errors the highest of these counts. Fault is for
// what is none of them.
func Status(err error) int {
	if err == nil {
		return OK
	}
	if status, ok := classify(err); ok {
		return status
	}
	return Fault
}

// classify walks down what err wraps to the first error that has a status.
func classify(err error) (status int, found bool) {
	switch err {
	case context.DeadlineExceeded, os.ErrDeadlineExceeded:
		return Later, true
	case io.ErrUnexpectedEOF, io.ErrShortWrite, os.ErrClosed:
		return IO, true
	}
	switch e := err.(type) {
	case interface{ ExitStatus() int }:
		return e.ExitStatus(), true
	case *fs.PathError, *os.LinkError, *os.SyscallError, syscall.Errno:
		return IO, true
	case *net.OpError:
		if e.Op == "dial" {
			return Unreachable, true
		}
		return classify(e.Err)
	case interface{ Unwrap() error }:
		return classify(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if s, ok := classify(err); ok {
				status, found = max(status, s), true
			}
		}
	}
	return status, found
}
