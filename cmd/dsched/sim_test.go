package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
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
	"the note of an attempt":      func(name string, dir bool) bool { return strings.HasSuffix(name, "/spec.json") },
	"which attempts a node has":   func(name string, dir bool) bool { return strings.HasSuffix(name, "/attempts") },
	"how an attempt ended":        func(name string, dir bool) bool { return strings.Contains(name, "result.json") },
}

// Each sync that the simulation can miss is missed, and seen to be within so
// many histories.
func TestSimulationSees(t *testing.T) {
	for name := range mutations {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 200; seed++ {
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
		})
	})
	return w
}

// TestSimulation lives histories: D_SIM of them, from the seed D_SEED on.
func TestSimulation(t *testing.T) {
	n, first := 30, uint64(1)
	if v := os.Getenv("D_SIM"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	if v := os.Getenv("D_SEED"); v != "" {
		first, _ = strconv.ParseUint(v, 10, 64)
	}
	began := time.Now()
	for i := range n {
		seed := first + uint64(i)
		w := history(t, seed, planOf(seed))
		if w == nil || len(w.faults) > 0 {
			if w != nil {
				name := filepath.Join(os.TempDir(), fmt.Sprintf("sim-%d.log", seed))
				os.WriteFile(name, w.log.Bytes(), 0o600)
				t.Errorf("history %d (D_SEED=%d D_SIM=1; its logs are in %s):\n%s", seed, seed, name, w.story())
			}
			if t.Failed() && !strings.Contains(os.Getenv("D_SIM_GO_ON"), "1") {
				return
			}
		}
	}
	t.Logf("%d histories in %v", n, time.Since(began))
}

func planOf(seed uint64) plan {
	return plan{acts: 10 + int(seed%30), gap: []time.Duration{time.Second, 5 * time.Second, 10 * time.Second}[seed%3],
		disk: []time.Duration{2, 20, 300}[seed/3%3] * time.Millisecond, rolls: seed%10 == 0}
}
