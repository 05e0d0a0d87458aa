package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/pause"
)

// P76: what somebody lets go on while it is paused is seen at a glance, and stopped
// again.
func TestP76LetGoByOthers(t *testing.T) {
	place := t.TempDir()
	s := newSlot(t)
	o := run(t, s, "", restless["children"], func(o *Order) { o.Pause = &Pausing{Places: []string{place}} })
	c, err := pause.Here()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pause.Put(place, pause.For(c, time.Hour)); err != nil {
		t.Fatal(err)
	}
	for r := range s.Reports() {
		if r.Hold != nil && r.Hold.Frozen && r.Hold.Running == 0 {
			break
		}
	}
	for range 3 {
		ps := descendants(s.Pid())
		seen := &halt{known: map[int]name{}}
		for _, p := range ps {
			seen.known[p.pid] = p.name()
		}
		if !seen.stands() {
			t.Fatal("what is stopped is not seen to be")
		}
		last := ps[len(ps)-1]
		before := last.used()
		if err := unix.Kill(last.pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for { // it has run, and stands again
			if p, err := stat(last.pid); err == nil && stopped(p.state) && p.used() > before {
				break
			}
			unix.Poll(nil, 1)
		}
		for !seen.stands() {
			unix.Poll(nil, 1)
		}
	}
	seen := &halt{known: map[int]name{os.Getpid(): {os.Getpid(), 1}}}
	if seen.stands() {
		t.Error("another process is taken for the one that was seen")
	}
	s.Stop(o.Token)
	ended(t, s)
	if _, err := os.Stat(filepath.Join(o.Dir, StatusFile)); err != nil {
		t.Error(err)
	}
}

// A thread of what was there is nothing new on the machine; a process is.
func TestGivenStands(t *testing.T) {
	if given("").stands() || given("x").stands() {
		t.Error("nothing is known, and it stands")
	}
	if ids, few := given("x").since("7"); few || ids != nil {
		t.Errorf("since nothing is known: %v", ids)
	}
	if ids, few := given("9").since("7"); few || ids != nil {
		t.Errorf("since the numbers began anew: %v", ids)
	}
	me := os.Getpid()
	if ids, few := given(strconv.Itoa(me - 1)).since(given(strconv.Itoa(me + 3))); !few || !slices.Contains(ids, me) {
		t.Errorf("since before this process was started: %v", ids)
	}
	if of := processOf(os.Getpid()); of != os.Getpid() {
		t.Errorf("process of its first thread: %d", of)
	}
	if of := processOf(1 << 22); of != 0 {
		t.Errorf("process of no thread: %d", of)
	}
}
