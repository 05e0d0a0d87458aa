package spool

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"distribute/lib/check"
	"distribute/lib/check/harm"
	"distribute/lib/job"
)

// After a repair of any damages, a second check tells nothing but what the first has left to
// people, and a second repair changes nothing. Files that were whole are there as they were,
// and a head starts.
func TestRepairs(t *testing.T) {
	harm.Each(t, 60, func() string {
		whole := variedSpool(t)
		if got := lines(checkSpool(t, whole, false)); got != "" {
			t.Fatalf("a whole spool has\n%s", got)
		}
		return whole
	}, repair)
}

func repair(t *testing.T, whole string, seed uint64) {
	harmed, first, mended := harm.Repair(t, rand.New(rand.NewPCG(seed, 48)), whole, "run/lock", "spool.json", func(r *check.Run) error { return Check(t.Context(), r) })
	if mended == nil {
		return
	}
	s, err := Open(harmed.Dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Lock()
	if err != nil {
		t.Fatalf("%s: no head starts: %v\n%s", harmed.Told, err, lines(first))
	}
	defer h.Close()
	open, _, err := h.Load()
	if err != nil {
		t.Fatalf("%s: no head starts: %v\n%s", harmed.Told, err, lines(first))
	}
	for _, id := range []job.BatchID{"ns/b", "ns/tiny", "ns/again", "no/waits", "no/private"} {
		isOpen := slices.ContainsFunc(open, func(b *Batch) bool { return b.ID == id })
		told := slices.ContainsFunc(first, func(f *check.Finding) bool {
			return strings.HasPrefix(f.Path, "batches/"+string(id)) || strings.HasPrefix("batches/"+string(id)+"/", f.Path+"/")
		})
		if !isOpen && !told && !harmed.At("batches/"+string(id)) {
			harmed.Fail(t, "the head has no "+string(id), first)
		}
	}
	for _, b := range open {
		b.Close()
	}
	started, err := harm.Files(harmed.Dir)
	if err != nil {
		t.Fatal(err)
	}
	delete(mended, "run/lock")
	for _, gone := range harmed.Lost(mended, started) {
		if !strings.HasPrefix(gone, "ballast") {
			harmed.Fail(t, "of the head that started, "+gone+" is not what it was", first)
		}
	}
}
