package head

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"distribute/lib/suite"
)

// simBase is a directory for the disks of a history, in memory where it can be.
func simBase(t *testing.T) string {
	for _, dir := range []string{"/dev/shm", ""} {
		if base, err := os.MkdirTemp(dir, "sim"); err == nil {
			t.Cleanup(func() { os.RemoveAll(base) })
			return base
		}
	}
	t.Fatal("no directory can be made")
	return ""
}

// mutations are syncs that do not happen, by what they are for. Each must be
// found out: it shows what the simulation can see.
var mutations = map[string]func(name string, dir bool) bool{
	"the log of a batch":          func(name string, dir bool) bool { return strings.HasSuffix(name, "/log.jsonl") },
	"the files of a result":       func(name string, dir bool) bool { return strings.Contains(name, "/staging/") && !dir },
	"the directories of a result": func(name string, dir bool) bool { return strings.Contains(name, "/staging/") && dir },
	"the names in staging":        func(name string, dir bool) bool { return strings.HasSuffix(name, "/staging") },
	"the names in out":            func(name string, dir bool) bool { return strings.HasSuffix(name, "/out") },
	"the names in manifests":      func(name string, dir bool) bool { return strings.HasSuffix(name, "/manifests") },
	"the name of a batch":         func(name string, dir bool) bool { return strings.HasSuffix(name, "/batches/lab") },
	"the jobs of a batch":         func(name string, dir bool) bool { return strings.HasSuffix(name, "/jobs.jsonl") },
	"the record of an attempt":    func(name string, dir bool) bool { return strings.HasSuffix(name, "/attempt.jsonl") },
	"which attempts a node has":   func(name string, dir bool) bool { return strings.HasSuffix(name, "/attempts") },
}

// Each sync is left out in turn, and somebody notices within so many histories.
// Without D_FULL=1 only of some, which takes few.
func TestSimulationSees(t *testing.T) {
	few := map[string]bool{"the log of a batch": true, "the files of a result": true, "the names in out": true, "the jobs of a batch": true}
	for name := range mutations {
		if !suite.Full() && !few[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 1000; seed++ {
				p := planOf(seed)
				p.rolls, p.without = false, name
				if w := history(t, seed, p); len(w.faults) > 0 {
					t.Logf("seen in history %d: %s", seed, w.faults[0])
					return
				}
			}
			t.Error("nobody noticed")
		})
	}
}

// history lives one history and returns what was wrong with it.
func history(t *testing.T, seed uint64, p plan) (w *world) {
	t.Helper()
	base := simBase(t)
	defer os.RemoveAll(base)
	// Pools of what a bubble made must not be used in the next.
	defer func() { runtime.GC(); runtime.GC() }()
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(t, base, seed, p)
			w.live()
			w.removed()
			acts, saved := w.paused()
			t.Logf("%d pauses, %d attempts saved what they had", acts, saved)
		})
	})
	return w
}

// Seeds of histories in which something was wrong once, and what. Each is lived
// again. What a seed leads to changes with the simulation, so each mistake has a
// test of its own, too: here it is named.
var found = []struct {
	seed uint64
	test string
}{
	{9, "spool TestJ28NothingIsBackInStaging: an empty directory of staging/ came back in a closed batch"},
	{27, "lib/noded TestI03GoneIsDurable: an attempt came back of a batch that the head had closed"},
	{1529, "spool TestI03PlacedByOneThatWasKilled: a result was lost that the head had said to be safe"},
	{1222, "lib/desk TestI15WhatOneThatWasKilledWrote: a node had another state after a power cut"},
	{1846, "TestD88AskedWhenItsNodeGoes: what was asked for of a session that ended was never let go, and its batch never closed"},
	{1793, "spool TestJ28ShedIsBackInStaging: a power cut brought back an empty directory of what had been saved and was taken back, and its batch counted as damaged"},
	{800691, "spool TestS04WaitsForRoomWhereverItLacks: a submission in incoming/ was refused since the disk was full"},
}

// Of a history whose disks somebody else has removed that is said, too.
func TestSimulationRemoved(t *testing.T) {
	w := newWorld(t, simBase(t), 1, planOf(1))
	w.wrong("a file is missing")
	if w.removed(); len(w.faults) != 1 {
		t.Errorf("all is there, and it says %q", w.faults)
	}
	must(t, os.RemoveAll(w.head.disk.root))
	if w.removed(); len(w.faults) != 2 {
		t.Errorf("a disk is gone, and it says %q", w.faults)
	}
}

// TestSimulation lives histories of a head, its nodes and its people: D_SIM of
// them from the seed D_SEED on, 12 if nothing is said, 100 in a full
// run, which has the race detector; make sim lives any number without it, and D_THEME
// gives all of them one theme. Of each
// the real state machines are checked all the time and at its end, when all
// faults are over and everything must have come right. It is repeated by its
// seed as far as goroutines can be: what one seed decides is what happens and
// when, but not which of two goroutines goes first.
//
// It makes happen, together: S01, S02, S06 (submissions that are cut and said
// again), J25 (a sync that fails), J26 (a full disk), J27, J28, J33 (kills and
// power cuts in the middle of syncs, syncs that take long), J31 (a spool that is
// put back), L35 to L41, L44, L45, L52 (heads and nodes that come and go, cancels
// and retries at any time), N53, N55 (daemons and supervisors killed), P73, P75 (desks
// that are paused, and jobs that leave them with what they saved), T80, T81,
// D88 (streams that are silent, split, and cut at any byte).
//
// In most histories several users, of whom one is an operator, say all that users
// can say, each also about batches of the others; the clocks of nodes are off, and paths of
// results are as long as they may be. Each has a theme (see themes), of which much happens:
// an operator drains, resumes, removes, accepts and gives up nodes; nodes get another name;
// jobs are taken to a cluster and back; jobs that wait for others are held and cancelled;
// closed batches are opened; jobs are never started twice. At the end all of that is taken
// back, every job has to come to its end, batches that are opened then are closed again,
// and when all batches are deleted nothing is left anywhere.
//
// In all of them the clock of the head is set forwards and back, dsched gets no
// descriptors, the disks of nodes are full, and each job must find its input.
func TestSimulation(t *testing.T) {
	n, first := suite.Size(4, 100), uint64(1) // the full run is under the race detector; make sim lives thousands
	if v := os.Getenv("D_SIM"); v != "" {
		n, _ = strconv.Atoi(v)
		first = uint64(time.Now().UnixNano() / 1e6 % 1e9)
	}
	if v := os.Getenv("D_SEED"); v != "" {
		first, _ = strconv.ParseUint(v, 10, 64)
	}
	if os.Getenv("D_SIM") == "" {
		for _, f := range found {
			lived(t, f.seed)
		}
	}
	if n > 100 && os.Getenv("D_SIM_CHILD") == "" {
		share(t, n, first)
		return
	}
	for i := range n {
		lived(t, first+uint64(i))
	}
	t.Logf("%d histories, seeds %d to %d", n, first, first+uint64(n)-1)
}

// lived lives one history, and says what was wrong with it.
func lived(t *testing.T, seed uint64) {
	w := history(t, seed, planOf(seed))
	if w == nil || len(w.faults) > 0 {
		name := filepath.Join(os.TempDir(), fmt.Sprintf("sim-%d.log", seed))
		story := ""
		if w != nil {
			os.WriteFile(name, w.log.Bytes(), 0o600)
			story = w.story()
		}
		t.Errorf("history %d (again: GOMAXPROCS=%d make sim N=1 SEED=%d; its logs are in %s):\n%s", seed, runtime.GOMAXPROCS(0), seed, name, story)
	}
}

// share lets a process for each processor live some of the histories: one
// process lives one at a time.
func share(t *testing.T, n int, first uint64) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var hands sync.WaitGroup
	procs := runtime.NumCPU()
	for i := range procs {
		from, to := n*i/procs, n*(i+1)/procs
		hands.Go(func() {
			cmd := exec.Command(self, "-test.run=^TestSimulation$", "-test.v", "-test.timeout=0")
			cmd.Env = append(os.Environ(), "D_SIM_CHILD=1", "GOMAXPROCS=1",
				fmt.Sprintf("D_SIM=%d", to-from), fmt.Sprintf("D_SEED=%d", first+uint64(from)))
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Logf("%d histories, seeds %d to %d", to-from, first+uint64(from), first+uint64(to)-1)
				return
			}
			var lines []string
			for line := range strings.Lines(string(out)) {
				if !strings.HasPrefix(strings.TrimSpace(line), "=== ") && !strings.HasPrefix(strings.TrimSpace(line), "--- PASS") {
					lines = append(lines, line)
				}
			}
			t.Errorf("%v:\n%s", err, strings.Join(lines, ""))
		})
	}
	hands.Wait()
}

func planOf(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 11)) // so that what one seed leaves out, the next has
	p := plan{acts: 10 + int(seed%30), gap: []time.Duration{time.Second, 5 * time.Second, 10 * time.Second}[seed%3],
		disk: []time.Duration{2, 20, 300}[seed/3%3] * time.Millisecond, theme: cmp.Or(os.Getenv("D_THEME"), themes[r.IntN(len(themes))]), rolls: r.IntN(12) == 0, gates: r.IntN(5) == 0, never: r.IntN(6) == 0, long: r.IntN(4) == 0}
	p.verbs = p.theme != ""
	switch p.theme {
	case themeNames:
		p.words, p.renames, p.rolls = true, true, false
	case themeCopies:
		p.rolls = false
	case themeNodes:
		p.words = true
	case themeCluster:
		p.cluster = true
	case themeHolds:
		p.gates = true
	case themeStarts:
		p.never = true
	}
	return p
}
