package spool

import (
	"fmt"
	"maps"
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
	dir := copyTree(t, whole)
	harmed, err := harm.Do(t, rand.New(rand.NewPCG(seed, 48)), dir, whole, "run/lock")
	if err != nil {
		t.Fatal(err)
	}
	before := harmed.Before
	delete(before, "run/lock")
	tell := func(how string, found []*check.Finding) { t.Errorf("%s; %s:\n%s", harmed.Told, how, lines(found)) }
	look := func(mend bool) (found []*check.Finding, err error) {
		r := &check.Run{Dir: dir, Sums: true, Mend: mend, Key: check.PEM, Tell: func(f *check.Finding) error { found = append(found, f); return nil }}
		return found, Check(t.Context(), r)
	}
	defer func() {
		if !harmed.Outside() {
			t.Errorf("%s: a link was followed", harmed.Told)
		}
	}()
	first, err := look(true)
	if err != nil && harmed.At("spool.json") { // no program goes on without it
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", harmed.Told, err)
	}
	second, err := look(false)
	if err != nil {
		t.Fatalf("%s; a second time: %v", harmed.Told, err)
	}
	if !harm.Known(first, second) {
		tell("told", first)
		tell("after that", second)
	}
	mended, err := harm.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range harmed.Lost(before, mended) {
		tell(gone+" is not what it was", first)
	}
	third, err := look(true)
	if again, ferr := harm.Files(dir); err != nil || ferr != nil || !maps.Equal(mended, again) ||
		slices.ContainsFunc(third, func(f *check.Finding) bool { return f.Cured }) {
		tell(fmt.Sprintf("mending again (%v, %v)", err, ferr), third)
	}
	s, err := Open(dir)
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
			tell("the head has no "+string(id), first)
		}
	}
	for _, b := range open {
		b.Close()
	}
	started, err := harm.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	delete(mended, "run/lock")
	for _, gone := range harmed.Lost(mended, started) {
		if !strings.HasPrefix(gone, "ballast") {
			tell("of the head that started, "+gone+" is not what it was", first)
		}
	}
}
