package spool

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// exhausted takes all descriptors away from the step of a name on, and gives
// them back a while later.
func exhausted(t *testing.T, step string) (met func() bool) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	back := make(chan struct{})
	met = func() bool { <-back; return true }
	t.Cleanup(func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) })
	t.Cleanup(durable.Observe(&durable.Observer{Step: func(name string) error {
		if name != step {
			return nil
		}
		step = ""
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}); err != nil {
			return err
		}
		if f, err := os.Open("/dev/null"); err == nil {
			return errors.Join(errors.New("there are descriptors"), f.Close())
		}
		time.AfterFunc(100*time.Millisecond, func() {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
				t.Error(err)
			}
			close(back)
		})
		return nil
	}, Sync: func(f *os.File, _ bool) error { return f.Sync() }}))
	return met
}

// A submission that has got its name when the last descriptor is gone becomes a
// batch that can be worked on: it would be there, and nobody would do it.
func TestN65NoDescriptorForItsName(t *testing.T) {
	h := newHead(t)
	s, err := h.Begin(job.NewToken(), "ns/b", "ana", h.uid)
	if err != nil {
		t.Fatal(err)
	}
	if err := fillIn(s, plain, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	met := exhausted(t, "submit.rename")
	b, err := s.Finish(false)
	if err != nil || !met() {
		t.Fatal(err)
	}
	if err := b.Replay(func(int, *job.Record) error { return nil }); err != nil {
		t.Error(err)
	}
	commit(t, h, b, start("a", 1))
	n := 0
	if err := b.Replay(func(int, *job.Record) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}

// What is told of results waits for a descriptor; that there is none does not
// break the disk.
func TestN65NoDescriptorForACommit(t *testing.T) {
	for _, step := range []string{"commit.staging", "publish.sync"} {
		t.Run(step, func(t *testing.T) {
			h := newHead(t)
			b := submit(t, h, "ns/b", []string{"a"})
			one := start("a", 1)
			m, err := bring(h, b, one.Attempt, "x\n")
			if err != nil {
				t.Fatal(err)
			}
			met := exhausted(t, step)
			commit(t, h, b, one, endOf(job.KindDone, one, m))
			if err := errors.Join(h.Publish(b, "a", one.Attempt), h.SyncPublished()); err != nil {
				t.Fatal(err)
			}
			met()
		})
	}
}
