package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that an order's lock is held: its supervisor lives.
var ErrHeld = errors.New("lock is held")

// A Lock is the hold on an order's directory.
type Lock struct{ f *os.File }

// Holder is what a supervisor writes into the lock it holds.
type Holder struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"` // of that process, in clock ticks after boot
	Boot  string `json:"boot"`
}

// TakeLock takes the lock of an order's directory, or fails with ErrHeld. The
// lock file is made if need be and never removed alone. A lock that is held is
// tried again for a few milliseconds: Alive holds it for a moment.
func TakeLock(dir string) (*Lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
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

// Release gives the lock up.
func (l *Lock) Release() error { return l.f.Close() }

// there says whether the lock is where it was taken.
func (l *Lock) there() bool {
	is, err := os.Stat(l.f.Name())
	held, herr := l.f.Stat()
	return err == nil && herr == nil && os.SameFile(is, held)
}

// sign writes this process into the lock. It is not made durable: after a boot
// no holder is alive.
func (l *Lock) sign(boot string, start uint64) error {
	b, err := json.Marshal(Holder{os.Getpid(), start, boot})
	if err == nil {
		err = l.f.Truncate(0)
	}
	if err == nil {
		_, err = l.f.WriteAt(append(b, '\n'), 0)
	}
	return err
}

// unsign takes this process out of the lock: nothing of the order ran.
func (l *Lock) unsign() error { return l.f.Truncate(0) }

// signed says whether a supervisor has come so far that it may have begun.
func (l *Lock) signed() bool {
	info, err := l.f.Stat()
	return err != nil || info.Size() > 0
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
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return true, nil
	}
	return false, err
}

// parseHolder reads the content of a lock. What is no holder of this boot, or
// names a pid that is never a supervisor's, is an error.
func parseHolder(b []byte, boot string) (Holder, error) {
	var h Holder
	if err := json.Unmarshal(b, &h); err != nil {
		return h, fmt.Errorf("not a holder: %w", err)
	}
	if h.Pid <= 1 || h.Boot != boot {
		return h, fmt.Errorf("pid %d of boot %.40q: %w", h.Pid, h.Boot, errNotSame)
	}
	return h, nil
}

// holder is who holds the lock of dir, opened as a pidfd, and by its number. The lock is seen held
// after the process was opened, so the pid is not one left from an earlier
// holder.
func holder(dir string) (fd, pid int, err error) {
	boot, err := Boot()
	if err != nil {
		return -1, 0, err
	}
	b, err := os.ReadFile(filepath.Join(dir, LockFile))
	if err != nil {
		return -1, 0, err
	}
	h, err := parseHolder(b, boot)
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
