package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/durable"
)

// ErrHeld says that an order's lock is held: its supervisor lives.
var ErrHeld = errors.New("lock is held")

// A Lock is the hold on an order's directory: that of its record.
type Lock struct{ f *os.File }

// TakeLock takes the lock of an order's directory, or fails with ErrHeld. The
// record is made if need be. A lock that is held is
// tried again for a few milliseconds: Alive holds it for a moment.
func TakeLock(dir string) (*Lock, error) { return LockFile(filepath.Join(dir, RecordFile)) }

// LockFile is TakeLock for a file by its name.
func LockFile(name string) (*Lock, error) {
	f, err := durable.Open(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	for try := 0; err == unix.EWOULDBLOCK && try < 10; try++ {
		time.Sleep(2 * time.Millisecond)
		err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	}
	switch {
	case err == unix.EWOULDBLOCK:
		f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), ErrHeld)
	case err != nil:
		f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return &Lock{f}, nil
}

// Release gives the lock up. It does not leave that to the end of the descriptor: a program
// that this process is starting has that for a moment, too.
func (l *Lock) Release() error { return errors.Join(flock(l.f, unix.LOCK_UN), l.f.Close()) }

// there says whether the lock is where it was taken.
func (l *Lock) there() bool {
	is, err := os.Stat(l.f.Name())
	held, herr := l.f.Stat()
	return err == nil && herr == nil && os.SameFile(is, held)
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// Alive says whether a supervisor holds the lock of dir.
func Alive(dir string) (bool, error) {
	f, err := durable.Open(filepath.Join(dir, RecordFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrKind) {
		return false, nil // what runs may have replaced it
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	defer flock(f, unix.LOCK_UN) // see Release
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return true, nil
	}
	return false, err
}

// lastHolder is the last supervisor that a record names, of whatever run.
func lastHolder(dir string) (h *Holder, err error) {
	b, err := ReadRecord(dir)
	if err != nil {
		return nil, err
	}
	for text := range bytes.Lines(b) {
		var l Line
		if json.Unmarshal(text, &l) == nil && l.Supervised != nil {
			h = l.Supervised
		}
	}
	return h, nil
}

// check reports a holder of another boot, or with a pid that is never a supervisor's.
func (h *Holder) check(boot string) error {
	if h == nil || h.Pid <= 1 || h.Boot != boot {
		return fmt.Errorf("no supervisor of this boot: %w", errNotSame)
	}
	return nil
}

// holder is who holds the lock of dir, opened as a pidfd, and by its number. The lock is seen held
// after the process was opened, so the pid is not one left from an earlier
// holder.
func holder(dir string) (fd, pid int, err error) {
	boot, err := Boot()
	if err != nil {
		return -1, 0, err
	}
	h, err := lastHolder(dir)
	if err == nil {
		err = h.check(boot)
	}
	if err != nil {
		return -1, 0, err
	}
	fd, err = openSame(h.Pid, h.Start)
	if err != nil {
		return -1, 0, err
	}
	if alive, err := Alive(dir); err != nil || !alive {
		unix.Close(fd)
		return -1, 0, errors.Join(err, errNotSame)
	}
	return fd, h.Pid, nil
}

// HolderOf is the supervisor that the record in dir names last, of this boot.
func HolderOf(dir, boot string) (*Holder, bool) {
	h, err := lastHolder(dir)
	return h, err == nil && h.check(boot) == nil
}

// HolderPid is the process id of the supervisor that holds the lock of dir, whoever
// started it. It is an error as long as that has not begun with its order.
func HolderPid(dir string) (int, error) {
	fd, pid, err := holder(dir)
	if err != nil {
		return 0, fmt.Errorf("%s: cannot be seen: %w", dir, err)
	}
	return pid, unix.Close(fd)
}

// StopHeld asks the supervisor that holds the lock of dir, whoever started it,
// to stop its order, with the order's grace time. It is for orders taken over
// from an earlier daemon; the lock says when it is done.
func StopHeld(dir string) error {
	fd, _, err := holder(dir)
	if err != nil {
		return fmt.Errorf("%s: cannot stop: %w", dir, err)
	}
	defer unix.Close(fd)
	return unix.PidfdSendSignal(fd, unix.SIGUSR2, nil, 0)
}

// LookHeld asks the supervisor that holds the lock of dir, whoever started it, to
// look at the pauses, as [Slot.Look] does.
func LookHeld(dir string) error {
	fd, _, err := holder(dir)
	if err != nil {
		return fmt.Errorf("%s: cannot ask: %w", dir, err)
	}
	defer unix.Close(fd)
	return unix.PidfdSendSignal(fd, unix.SIGWINCH, nil, 0)
}

// AwaitFree waits until no supervisor holds the lock of dir. A supervisor of an
// earlier daemon exits when its order is over, which wakes AwaitFree; since one
// of this daemon goes on, the lock is also looked at, first after milliseconds and
// then once a second.
func AwaitFree(ctx context.Context, dir string) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		alive, err := Alive(dir)
		if err != nil || !alive {
			return err
		}
		turn, cancel := context.WithTimeout(ctx, wait)
		if fd, _, err := holder(dir); err == nil {
			awaitExit(turn, fd)
		} else {
			<-turn.Done()
		}
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// awaitExit waits until the process of a pidfd has exited, and closes it.
func awaitExit(ctx context.Context, fd int) {
	unix.SetNonblock(fd, true)
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	c.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
