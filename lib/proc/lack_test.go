package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"distribute/lib/suite"
)

// limit sets the soft limit of a process and returns what it was.
func limit(pid, what int, cur uint64) (was uint64, err error) {
	var lim unix.Rlimit
	if err := unix.Prlimit(pid, what, nil, &lim); err != nil {
		return 0, err
	}
	was, lim.Cur = lim.Cur, min(cur, lim.Max)
	return was, unix.Prlimit(pid, what, &lim, nil)
}

// TestN65NoDescriptors is a supervisor that has no descriptor left: the order is
// refused for now, nothing of it is on disk, and later it is done.
func TestN65NoDescriptors(t *testing.T) {
	s, dir := newSlot(t), newDir(t)
	if err := s.Run(order(newDir(t), "exit 0")); err != nil { // at its start a program sets its limit
		t.Fatal(err)
	}
	ended(t, s)
	o := order(dir, "exit 3")
	was, err := limit(s.Pid(), unix.RLIMIT_NOFILE, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	if r := <-s.Reports(); !r.Passing || !strings.Contains(r.Refused, "too many open files") {
		t.Fatalf("got %+v", r)
	}
	if _, err := ReadStatus(dir, filepath.Base(dir)); err == nil {
		t.Error("there is a status")
	}
	if _, err := limit(s.Pid(), unix.RLIMIT_NOFILE, was); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	if st := ended(t, s); st.Exit == nil || *st.Exit != 3 {
		t.Errorf("status %+v", st)
	}
}

// TestN65NoProcesses is a supervisor that may not fork. It runs as another user,
// since the superuser always may.
func TestN65NoProcesses(t *testing.T) {
	if os.Getuid() != 0 {
		suite.Missing(t, "this is not root, who can be somebody else")
	}
	dir := newDir(t)
	bin := filepath.Join(t.TempDir(), "proc.test")
	if out, err := exec.Command("cp", os.Args[0], bin).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const somebody = 58731
	if err := errors.Join(os.Chown(dir, somebody, somebody), os.Chmod(filepath.Dir(bin), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "no-forks", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}}
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "refused, then done\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// noForks is the process of TestN65NoProcesses.
func noForks(dir string) error {
	s, err := NewSlot()
	if err != nil {
		return err
	}
	was, err := limit(s.Pid(), unix.RLIMIT_NPROC, 0)
	if err != nil {
		return err
	}
	o := order(dir, "exit 3")
	if err := s.Run(o); err != nil {
		return err
	}
	if r, ok := <-s.Reports(); ok && !r.Passing {
		return fmt.Errorf("got %+v", r)
	} else if !ok { // its Go runtime wanted a thread, before it signed for the order or after
		lock, n, err := Reclaim(context.Background(), dir, o.Token, "")
		if err != nil || n > 0 {
			return fmt.Errorf("died: %d, %v", n, err)
		}
		lock.Release()
		if s, err = NewSlot(); err != nil {
			return err
		}
	}
	if _, err := limit(s.Pid(), unix.RLIMIT_NPROC, was); err != nil {
		return err
	}
	if err := s.Run(o); err != nil {
		return err
	}
	for r := range s.Reports() {
		if r.Ended != nil && r.Ended.Exit != nil && *r.Ended.Exit == 3 {
			fmt.Println("refused, then done")
			return nil
		}
		if r.Started == 0 {
			return fmt.Errorf("got %+v", r)
		}
	}
	return errors.New("the supervisor is gone")
}

// TestN65DiedBeforeItBegan tells a supervisor that had not begun from one that
// may have.
func TestN65DiedBeforeItBegan(t *testing.T) {
	dir := newDir(t)
	lock, n, err := Reclaim(t.Context(), dir, "x", "")
	if err != nil || n != NotBegun {
		t.Fatalf("%d, %v", n, err)
	}
	if err := appendTo(lock.f, Line{Supervised: &Holder{Token: "x", Pid: 2, Start: 1, Boot: "boot"}}); err != nil {
		t.Fatal(err)
	}
	lock.Release()
	if lock, n, err = Reclaim(t.Context(), dir, "x", ""); err != nil || n != 0 {
		t.Fatalf("%d, %v", n, err)
	}
	lock.Release()
}
