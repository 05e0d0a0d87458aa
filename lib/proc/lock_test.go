package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Who holds a lock is known as soon as it has signed it, and as long as it holds it.
func TestHolderPid(t *testing.T) {
	dir := t.TempDir()
	boot, err := Boot()
	if err != nil {
		t.Fatal(err)
	}
	start, err := StartOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := TakeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := HolderPid(dir); err == nil {
		t.Errorf("of a lock that is not signed: %d", pid)
	}
	if err := appendTo(lock.f, Line{Supervised: &Holder{Token: "x", Pid: os.Getpid(), Start: start, Boot: boot}}); err != nil {
		t.Fatal(err)
	}
	if pid, err := HolderPid(dir); err != nil || pid != os.Getpid() {
		t.Errorf("of this process: %d, %v", pid, err)
	}
	lock.Release()
	if pid, err := HolderPid(dir); err == nil {
		t.Errorf("of a lock that nobody holds: %d", pid)
	}
}

// TestLockIsFree takes a lock as soon as it was looked at and as soon as it was released, while
// this process starts other programs, which have its descriptors for a moment.
func TestLockIsFree(t *testing.T) {
	dir := newDir(t)
	over := make(chan struct{})
	var starts sync.WaitGroup
	for range 3 {
		starts.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					exec.Command("/proc/self/exe", "-test.run=^$").Run()
				}
			}
		})
	}
	for _, how := range []struct {
		name string
		use  func() error
	}{
		{"released", func() error {
			l, err := TakeLock(dir)
			if err != nil {
				return err
			}
			return l.Release()
		}},
		{"looked at", func() error {
			_, err := Alive(dir)
			return err
		}},
	} {
		held := 0
		for range 2000 {
			if err := how.use(); err != nil {
				t.Error(err)
			}
			f, err := os.Open(filepath.Join(dir, RecordFile))
			if err != nil {
				t.Fatal(err)
			}
			if flock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
				held++
			}
			flock(f, unix.LOCK_UN)
			f.Close()
		}
		if held > 0 {
			t.Errorf("a lock that was %s is held %d times of 2000", how.name, held)
		}
	}
	close(over)
	starts.Wait()
}
