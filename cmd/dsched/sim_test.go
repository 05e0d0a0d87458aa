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

// mutation is a sync that does not happen.
func mutation(name string) func(string, bool) bool { return nil }

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
	return plan{acts: 10 + int(seed%30), gap: 5 * time.Second}
}
