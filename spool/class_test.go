package spool

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

// Of what keeps something from being written, a full disk and too few
// descriptors pass, and the rest does not.
func TestClassed(t *testing.T) {
	for errno, want := range map[syscall.Errno][2]bool{ // full, broken
		syscall.ENOSPC: {true, false}, syscall.EDQUOT: {true, false},
		syscall.EMFILE: {false, false}, syscall.ENFILE: {false, false},
		syscall.EIO: {false, true}, syscall.EROFS: {false, true},
	} {
		err := classed(fmt.Errorf("write: %w", errno))
		if got := [2]bool{errors.Is(err, ErrFull), errors.Is(err, ErrBroken)}; got != want || !errors.Is(err, errno) {
			t.Errorf("%v: full and broken are %v, want %v", errno, got, want)
		}
	}
}
