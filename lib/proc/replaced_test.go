package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"distribute/lib/durable"
)

// replacements are what a job can put in the place of a file of its order.
var replacements = map[string]func(name string) error{
	"a FIFO":           func(name string) error { return syscall.Mkfifo(name, 0o600) },
	"a directory":      func(name string) error { return os.Mkdir(name, 0o700) },
	"a link to zeros":  func(name string) error { return os.Symlink("/dev/zero", name) },
	"a link to itself": func(name string) error { return os.Symlink(filepath.Base(name), name) },
}

// TestRecordIsReplaced has something else than a file in the place of the record: nobody
// waits for it or reads it, and no lock is seen in it.
func TestRecordIsReplaced(t *testing.T) {
	t.Parallel()
	for what, put := range replacements {
		dir := newDir(t)
		if err := put(filepath.Join(dir, RecordFile)); err != nil {
			t.Fatal(err)
		}
		if alive, err := Alive(dir); alive || err != nil {
			t.Errorf("%s: alive %v, %v", what, alive, err)
		}
		_, runErr := ReadRun(dir, "x")
		_, pidErr := HolderPid(dir)
		_, lockErr := TakeLock(dir)
		for i, err := range []error{runErr, pidErr, lockErr, Append(dir, Line{Void: "x"})} {
			if !errors.Is(err, durable.ErrKind) {
				t.Errorf("%s: call %d: %v", what, i, err)
			}
		}
		s := newSlot(t)
		if err := s.Run(order(dir, "true")); err != nil {
			t.Fatal(err)
		}
		if r := <-s.Reports(); !strings.Contains(r.Refused, durable.ErrKind.Error()) {
			t.Errorf("%s: report %+v", what, r)
		}
	}
	huge := newDir(t)
	if err := errors.Join(os.WriteFile(filepath.Join(huge, RecordFile), nil, 0o600), os.Truncate(filepath.Join(huge, RecordFile), 1<<40)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRun(huge, "x"); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a huge file: %v", err)
	}
}

// TestOutputIsReplaced has something else than a file where an order prints: the order ends
// at once and says why.
func TestOutputIsReplaced(t *testing.T) {
	t.Parallel()
	for what, put := range replacements {
		s, o := newSlot(t), order(newDir(t), "true")
		if err := put(o.Output); err != nil {
			t.Fatal(err)
		}
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); !strings.HasSuffix(st.Error, "/output: "+durable.ErrKind.Error()) {
			t.Errorf("%s: status %+v", what, st)
		}
	}
}

// TestReplacesItsRecord has an order put something else in the place of its record while it
// runs: it ends as it would.
func TestReplacesItsRecord(t *testing.T) {
	t.Parallel()
	for what, put := range map[string]string{
		"a FIFO": "mkfifo", "a directory": "mkdir", "a link to zeros": "ln -s /dev/zero",
	} {
		s, o := newSlot(t), order(newDir(t), "rm "+RecordFile+" && "+put+" "+RecordFile+" && exit 3")
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); st.Exit == nil || *st.Exit != 3 {
			t.Errorf("%s: status %+v", what, st)
		}
	}
}
