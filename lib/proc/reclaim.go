package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Reclaim takes the lock of an order whose supervisor died, kills every process
// that is left of its tree, and returns when none is: the lock, to be released
// when the order has been given up on disk, and the number of processes found,
// or NotBegun if the supervisor died before it could begin. While the supervisor
// lives it fails with ErrHeld.
//
// With a cgroup the kernel knows the tree. Without one it is found by the
// attempt's variable in the environment (Marker), by the sessions and by the
// children of those that have it; a process that has cleared its environment,
// left its session and lost its parent is not found.
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
	if cgroup != "" {
		err = emptyGroup(filepath.Join(cgroup, token), pause)
	}
	killed := NotBegun
	if err == nil && lock.signed() {
		killed, err = killMarked(token, pause)
	}
	if err != nil {
		lock.Release()
		return nil, killed, fmt.Errorf("%s: cannot end what is left of it: %w", dir, err)
	}
	return lock, killed, nil
}

// NotBegun is for the number of processes of an order of which none ever ran.
const NotBegun = -1

// Void notes that an order has been given up. The caller holds the lock that
// Reclaim returned, so a supervisor that got the order and comes late will find
// the note and not start it.
func Void(dir string) error {
	return os.WriteFile(filepath.Join(dir, VoidFile), nil, 0o600)
}

// killMarked kills the tree that carries the token until two scans on end have
// found nothing of it.
func killMarked(token string, pause func(time.Duration) error) (int, error) {
	seen := map[int]bool{}
	sessions := map[int]bool{}
	clean := 0
	for wait := time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		ps, err := processes()
		if err != nil {
			return len(seen), err
		}
		found := marked(ps, sessions, func(pid int) bool { return hasMarker(pid, token) })
		for _, p := range found {
			err := signalSame(p.pid, p.start, unix.SIGKILL)
			if err != nil && !errors.Is(err, errNotSame) && !errors.Is(err, unix.ESRCH) {
				return len(seen), err
			}
			seen[p.pid] = true
		}
		if clean++; len(found) > 0 {
			clean = 0
		}
		if clean == 2 {
			return len(seen), nil
		}
		if err := pause(wait); err != nil {
			return len(seen), err
		}
	}
}

// marked is what of ps belongs to the tree: those with the marker, those in
// their sessions, and those below them. The sessions found are added to
// sessions, so that they are known after their leaders are dead.
func marked(ps []process, sessions map[int]bool, has func(pid int) bool) []process {
	self := os.Getpid()
	own := 0
	in := map[int]bool{}
	for _, p := range ps {
		if p.pid == self {
			own = p.session
		}
	}
	for _, p := range ps {
		if p.pid != self && has(p.pid) {
			in[p.pid] = true
			if p.session > 1 && p.session != own {
				sessions[p.session] = true
			}
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range ps {
			if !in[p.pid] && p.pid != self && (in[p.parent] || sessions[p.session]) {
				in[p.pid], grown = true, true
			}
		}
	}
	var out []process
	for _, p := range ps {
		if in[p.pid] && !p.gone() {
			out = append(out, p)
		}
	}
	return out
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
