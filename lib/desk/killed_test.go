package desk

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// syncs are the names below dir that are synced until it is called.
func syncs(dir string) (names func() []string) {
	var mu sync.Mutex
	var seen []string
	end := durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, strings.TrimPrefix(f.Name(), dir))
		return nil
	}})
	return func() []string {
		end()
		slices.Sort(seen)
		return seen
	}
}

// A daemon that was killed may have written what it had not synced yet. The next
// one syncs it before it goes by it: the state, or the head would take all that
// is here for lost after a power cut, and the notes of attempts, or one would run
// of which nobody knows then.
func TestI15WhatOneThatWasKilledWrote(t *testing.T) {
	dir := t.TempDir()
	names := syncs(dir)
	d, err := Open(dir, "boot")
	if err != nil {
		t.Fatal(err)
	}
	fresh, over := note("a"), note("b")
	as, errs := d.Begin([]Note{fresh, over})
	if err := errors.Join(append(errs, as[1].SetResult(&job.Result{}, nil, false), d.Close())...); err != nil {
		t.Fatal(err)
	}
	names()
	names = syncs(dir)
	if d, err = Open(dir, "boot"); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if as, err = d.Attempts(); err != nil || d.Settle(as) != nil {
		t.Fatal(err)
	}
	at := "/attempts/" + string(fresh.Token)
	want := []string{"", "/node.json", "/attempts", at, at + "/attempt.jsonl"}
	slices.Sort(want)
	if got := names(); !slices.Equal(got, want) {
		t.Errorf("synced %q, want %q", got, want)
	}
}

// Nor had it synced, perhaps, what it had removed: the head forgets that once it is not in
// the list of the next daemon, and a power cut must not bring it back.
func TestI15WhatOneThatWasKilledRemoved(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, "boot")
	if err != nil {
		t.Fatal(err)
	}
	as, errs := d.Begin([]Note{note("a")})
	if err := errors.Join(append(errs, d.Discard(as[0]), d.Close())...); err != nil {
		t.Fatal(err)
	}
	names := syncs(dir)
	if d, err = Open(dir, "boot"); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if as, err = d.Attempts(); err != nil || len(as) != 0 || d.Settle(as) != nil {
		t.Fatal(as, err)
	}
	if got := names(); !slices.Contains(got, "/attempts") {
		t.Errorf("synced %q", got)
	}
}
