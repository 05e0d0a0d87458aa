package durable

import (
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// An Observer stands between this package and the disk, for a test that
// simulates the disk: one that must know what was made durable and when, or
// that wants a sync to take long or to fail. A nil member is as if there were
// no observer.
type Observer struct {
	// Step is asked at every [Step]; its error is the step's.
	Step func(name string) error
	// Sync is called in the place of fsync(2) and fdatasync(2) of a file or a
	// directory, and with all of syncfs(2) of what holds it. With nil the
	// caller goes on as if it were on the disk. It may be called from several
	// goroutines at once.
	Sync func(f *os.File, all bool) error
}

// observer is state of the process, as the disk is. Programs in use have none;
// a Step and a sync then pay one atomic load for it.
var observer atomic.Pointer[Observer]

// Observe lets o see every step and every sync of this process until end is
// called. There is one observer at a time: it is for tests that run alone.
func Observe(o *Observer) (end func()) {
	if !observer.CompareAndSwap(nil, o) {
		panic("durable: there is an observer already")
	}
	return func() { observer.Store(nil) }
}

// observed asks the observer; done says that it has taken the place of the
// system call.
func observed(f *os.File, all bool) (done bool, err error) {
	o := observer.Load()
	if o == nil || o.Sync == nil {
		return false, nil
	}
	return true, o.Sync(f, all)
}

// Sync makes the content of a file, or the names in a directory, durable. All
// syncs of the spool and of a node's directory go through this package, so that
// one place knows of them.
func Sync(f *os.File) error {
	if done, err := observed(f, false); done {
		return err
	}
	return f.Sync()
}

// Syncfs makes everything in the file system that holds f durable. It is for a
// writer that may create a name in a directory and not read it, and so cannot
// open that directory to sync it; and it costs what everybody else has written.
func Syncfs(f *os.File) error {
	if done, err := observed(f, true); done {
		return err
	}
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: f.Name(), Err: err}
	}
	return nil
}

// datasync is Sync for a file that only grows.
func datasync(f *os.File) error {
	if done, err := observed(f, false); done {
		return err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for {
			if failed = unix.Fdatasync(int(fd)); failed != unix.EINTR {
				return
			}
		}
	})
	if err == nil {
		err = failed
	}
	return err
}
