package spool

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// Nobody looks into staging/ of a batch that is closed. So what was removed there
// is removed for good before head.jsonl says so on the disk: else an empty
// directory would be back after a power cut, and stay.
func TestJ28NothingIsBackInStaging(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	one := start("a", 1)
	m, err := bring(h, b, one.Attempt, "x\n")
	if err != nil {
		t.Fatal(err)
	}
	root, err := h.Stage(b, job.NewToken()) // of an attempt that nobody wants any more
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
	commit(t, h, b, one, endOf(job.KindDone, one, m))
	if err := errors.Join(h.Publish(b, "a", one.Attempt), h.SyncPublished()); err != nil {
		t.Fatal(err)
	}
	var synced []string
	defer durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		name := filepath.Base(f.Name())
		if name == "staging" {
			list, err := os.ReadDir(f.Name())
			if err != nil || len(list) > 0 {
				t.Errorf("it is synced with %v, %v", list, err)
			}
		}
		synced = append(synced, name)
		return nil
	}})()
	h.CloseBatch(b)
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(synced, []string{"staging", "head.jsonl"}) {
		t.Errorf("synced: %s", strings.Join(synced, " "))
	}
}

// What is left in staging/ of a batch goes to trash/ as it is, however much it is: nothing
// else is committed meanwhile. Whoever empties that is told, once.
func TestClosingRemovesNothing(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	left := start("a", 1).Attempt
	root, err := h.Stage(b, left)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(root.WriteFile("x", nil, 0o600), root.WriteFile("y", nil, 0o600), root.Close())
	if err != nil {
		t.Fatal(err)
	}
	over(t, h, b, job.KindCancelled)
	if !h.Closed("ns/b") {
		t.Fatal("it is open")
	}
	if list, err := os.ReadDir(filepath.Join(b.dir, "staging")); err != nil || len(list) > 0 {
		t.Errorf("in staging/: %v, %v", list, err)
	}
	list, err := os.ReadDir(h.path("trash"))
	if err != nil || len(list) != 1 {
		t.Fatalf("in trash/: %v, %v", list, err)
	}
	if files, err := os.ReadDir(h.path("trash", list[0].Name(), "tree")); err != nil || len(files) != 2 {
		t.Errorf("of two files are there: %v, %v", files, err)
	}
	for i, want := range []bool{true, false} {
		if moved, err := h.Sweep(b); moved != want || err != nil {
			t.Errorf("Sweep %d says %v, %v", i, moved, err)
		}
	}
	if err := h.EmptyTrash(t.Context()); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(h.path("trash")); err != nil || len(list) > 0 {
		t.Errorf("still in trash/: %v, %v", list, err)
	}
}

// A head that was killed after it had put a result in place, and before it had
// synced that, leaves names that are in the cache alone. The next one syncs them
// before it tells anybody anything: a node would delete what a power cut then
// takes away. The directories themselves may have been made anew by it.
func TestI03PlacedByOneThatWasKilled(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b"})
	done, failed := start("a", 1), start("b", 1)
	m, err := bring(h, b, done.Attempt, "x\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bring(h, b, failed.Attempt, "x\n"); err != nil {
		t.Fatal(err)
	}
	commit(t, h, b, done, endOf(job.KindDone, done, m), failed, endOf(job.KindFailed, failed, m))
	if err := errors.Join(h.Publish(b, "a", done.Attempt), h.Aside(b, "b", 1, failed.Attempt), h.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	synced := map[string]bool{}
	var mu sync.Mutex
	defer durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		mu.Lock()
		defer mu.Unlock()
		synced[strings.TrimPrefix(f.Name(), h.Dir())] = true
		return nil
	}})()
	next, _, _ := loadHead(t, h.Dir())
	defer next.Close()
	for _, dir := range []string{"", "/batches", "/batches/ns", "/batches/ns/b", "/batches/ns/b/out", "/batches/ns/b/attempts", "/batches/ns/b/manifests"} {
		if !synced[dir] {
			t.Errorf("%s is not synced (%v)", dir, synced)
		}
	}
}

// Somebody removes the empty directories of a batch, and does it again while dsched makes one
// anew for a result.
func TestPlacedWhileDirectoriesAreRemoved(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	done := start("a", 1)
	m, err := bring(h, b, done.Attempt, "x\n")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, h, b, done, endOf(job.KindDone, done, m))
	bare := func() {
		for _, dir := range []string{"out", "manifests"} {
			os.Remove(filepath.Join(b.dir, dir)) // that is not empty stays
		}
	}
	bare()
	defer durable.Observe(&durable.Observer{Sync: func(*os.File, bool) error { bare(); return nil }})()
	if err := errors.Join(h.Publish(b, "a", done.Attempt), h.SyncPublished()); err != nil {
		t.Error(err)
	}
}

// What a dsched had written when it was killed is made durable before a reader
// tells it.
func TestI04ToldFromFiles(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	var synced []string
	defer durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		synced = append(synced, f.Name())
		return nil
	}})()
	if err := h.Settle(b.ID); err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(h.batchDir(b.ID), "log.jsonl"); len(synced) != 1 || synced[0] != want {
		t.Errorf("synced %v, want %s", synced, want)
	}
}
