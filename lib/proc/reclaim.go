package proc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Reclaim takes the lock of an order whose supervisor died, kills every process
// that is left of its tree, and returns when none is: the lock, to be released
// when the order has been given up on disk, and the number of processes found
// in no cgroup of the order, or NotBegun if the supervisor died before it could begin. While
// the supervisor lives it fails with ErrHeld.
//
// The kernel knows which processes are in the order's cgroup. The others are found by best
// effort, if it has none or they have left it: the processes that have the attempt's variable
// in their environment (Marker), and those below them.
func Reclaim(ctx context.Context, dir, token, cgroup string) (*Lock, int, error) {
	lock, err := TakeLock(dir)
	if err != nil {
		return nil, 0, err
	}
	pause := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	killed, run := NotBegun, &Run{}
	if run, err = ReadRun(dir, token); err == nil && run.Holder != nil {
		killed = 0
	}
	held, empty := func(int) bool { return false }, func() error { return nil }
	if cgroup != "" {
		group := filepath.Join(cgroup, token)
		held, empty = inside(group), func() error { return emptyGroup(group, pause) }
	}
	switch {
	case err != nil:
	case run.Holder != nil:
		killed, err = killMarked(token, held, empty, pause)
	default:
		err = empty()
	}
	if err != nil {
		lock.Release()
		return nil, killed, fmt.Errorf("%s: cannot end what is left of it: %w", dir, err)
	}
	return lock, killed, nil
}

// NotBegun is for the number of processes of an order of which none ever ran.
const NotBegun = -1

// Void notes that a run has been given up. The caller holds the lock that
// Reclaim returned, so a supervisor that got the order and comes late will find
// the note and not start it.
func Void(dir, token string) error { return Append(dir, Line{Void: token}) }

// killMarked empties the group of an order, and kills the processes that carry the token and
// those below them, until two scans on end have found none that the group does not hold. One
// that was killed counts until it is gone, also if its parent, by which it was found, ended
// before it.
func killMarked(token string, held func(pid int) bool, empty func() error, pause func(time.Duration) error) (int, error) {
	killed := map[int]uint64{} // pid to start
	for wait, clean := time.Millisecond, 0; clean < 2; wait = min(2*wait, 250*time.Millisecond) {
		ps, err := processes()
		if err != nil {
			return len(killed), err
		}
		found := below(ps, func(p process) bool {
			start, was := killed[p.pid]
			return was && start == p.start || p.pid != os.Getpid() && hasMarker(p.pid, token)
		})
		found = slices.DeleteFunc(found, func(p process) bool { return held(p.pid) })
		if err := empty(); err != nil {
			return len(killed), err
		}
		var refused error // as for a process of root; it may be found only by a parent that is killed now
		for _, p := range found {
			err := signalSame(p.pid, p.start, unix.SIGKILL)
			if err != nil && !errors.Is(err, errNotSame) && !errors.Is(err, unix.ESRCH) {
				refused = cmp.Or(refused, err)
				continue
			}
			killed[p.pid] = p.start
		}
		if refused != nil {
			return len(killed), refused
		}
		if clean++; len(found) > 0 {
			clean = 0
		}
		if err := pause(wait); err != nil {
			return len(killed), err
		}
	}
	return len(killed), nil
}

// hasMarker says whether the environment that pid was started with names the
// token. One that may not be read does not.
func hasMarker(pid int, token string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	want := []byte(Marker + "=" + token)
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if bytes.Equal(v, want) {
			return true
		}
	}
	return false
}
