package proc

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/pause"
)

// P72, I10: who looks from outside sees when nothing of a tree runs any more, and
// before does not.
func TestP72I10AwaitStill(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		place := filepath.Join(t.TempDir(), "pause")
		if err := os.Mkdir(place, 0o755); err != nil {
			t.Fatal(err)
		}
		s, err := NewSlot(place)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		o := run(t, s, cgroup, "for i in 1 2 3; do (while :; do (:); done) & done; echo up > said; sleep 1000 & wait",
			func(o *Order) { o.Pause = &Pausing{Places: []string{place}} })
		seen := func() Tree {
			t.Helper()
			trees, _, err := Trees(place)
			if err != nil || len(trees) != 1 || trees[0].PID != s.Pid() || trees[0].UID != os.Geteuid() {
				t.Fatalf("%+v, %v", trees, err)
			}
			return trees[0]
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if trees, still, err := AwaitStill(ctx, place); still || err != nil || len(trees) == 1 && len(trees[0].Running) == 0 {
			t.Errorf("what runs is said to stand still: %+v, %v", trees, err)
		}
		c, err := pause.Here()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pause.Put(place, pause.For(c, time.Hour)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		trees, still, err := AwaitStill(ctx, place)
		if !still || err != nil || len(trees) != 1 || trees[0].Processes < 4 {
			t.Fatalf("%v, %v: %+v", still, err, trees)
		}
		if held := nothingRuns(t, s.Pid()); len(held) != trees[0].Processes {
			t.Errorf("%d processes are held, and %d were seen", len(held), trees[0].Processes)
		}
		if err := s.Stop(o.Token); err != nil {
			t.Fatal(err)
		}
		ended(t, s)
		if n := seen().Processes; n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// What is started below a supervisor while somebody looks is not overlooked, and
// nothing else is taken for it.
func TestGivenSpares(t *testing.T) {
	if given("").spares() || given("x").spares() {
		t.Error("it is not known what was given a number, and all was looked at")
	}
	s := newSlot(t)
	before := lastGiven()
	o := run(t, s, "", "(echo up > said; sleep 1000) & wait", nil)
	if before.spares() {
		t.Error("a job was started meanwhile, and is overlooked")
	}
	below := descendants(s.Pid())
	if len(below) < 2 {
		t.Fatalf("the job is %+v", below)
	}
	for _, p := range below {
		if !mayBeSupervised(p.pid) {
			t.Errorf("%+v is below no supervisor", p)
		}
	}
	if mayBeSupervised(s.Pid()) || mayBeSupervised(os.Getpid()) || mayBeSupervised(1<<22+1) {
		t.Error("what is not below a supervisor is")
	}
	s.Stop(o.Token)
	ended(t, s)
}

// Many processes are looked at by several processors; each that is there is found, in
// its place.
func TestStatAll(t *testing.T) {
	me := os.Getpid()
	var pids []int
	for range 3 * manyStats {
		pids = append(pids, me, 1<<22+1, os.Getppid())
	}
	all := statAll(pids)
	if len(all) != 6*manyStats {
		t.Fatalf("%d are found", len(all))
	}
	for i, p := range all {
		if want := []int{me, os.Getppid()}[i%2]; p.pid != want || p.start == 0 || p.comm == "" {
			t.Fatalf("number %d is %+v", i, p)
		}
	}
}

// A directory that a stranger names is no group, whatever is in it, and is not
// waited for.
func TestGroupFrozenHostile(t *testing.T) {
	dir := t.TempDir()
	events := filepath.Join(dir, "cgroup.events")
	if err := unix.Mkfifo(events, 0o600); err != nil {
		t.Fatal(err)
	}
	if GroupFrozen(dir) {
		t.Error("a FIFO is frozen")
	}
	if err := os.Remove(events); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(events, []byte("populated 1\nfrozen 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if GroupFrozen(dir) {
		t.Error("a file is frozen")
	}
}

func TestLives(t *testing.T) {
	start, err := StartOf(os.Getpid())
	if err != nil || !Lives(os.Getpid(), start) || Lives(os.Getpid(), start+1) || Lives(1<<22+1, start) {
		t.Errorf("%d, %v", start, err)
	}
}
