package pause

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/suite"
)

// The users of these tests: the owner, one with a session and one without.
const owner, sitter, stranger = 1, 2, 3

// from returns a pause for ever whose file was changed so long after noon.
func from(uid int, after time.Duration) Pause {
	p := To(noon, time.Time{})
	p.ID, p.UID, p.Place, p.Changed = fmt.Sprintf("%d.%016x", uid, after), uid, "/p", noon.Now.Add(after)
	return p
}

// lasts returns for how long after noon a pause counts; -1: for ever.
func lasts(p Pause) time.Duration {
	end, forever := p.End(noon)
	if forever {
		return -1
	}
	return end.Sub(noon.Now)
}

func end(uid int, after time.Duration) Pause {
	p := from(uid, after)
	p.Ends = EndsAll
	return p
}

// P78: an owner ends all pauses that were made before, whoever made them; those in one place
// if he says so.
func TestP78OwnerEnds(t *testing.T) {
	const h = time.Hour
	here := end(owner, h)
	here.Ends = EndsHere
	elsewhere := from(sitter, 0)
	elsewhere.Place = "/q"
	for _, tt := range []struct {
		name string
		p    Pause
		ends Pause
		want time.Duration
	}{
		{"before", from(sitter, 0), end(owner, h), h},
		{"another owner's", from(owner, 0), end(0, h), h},
		{"the same owner's", from(owner, 0), end(owner, h), -1},
		{"since then", from(sitter, h), end(owner, h), -1},
		{"in the place", from(sitter, 0), here, h},
		{"elsewhere", elsewhere, here, -1},
	} {
		all := []Pause{tt.p}
		all[0].endBy([]Pause{tt.ends})
		if got := lasts(all[0]); got != tt.want {
			t.Errorf("%s: lasts %v, want %v", tt.name, got, tt.want)
		}
	}
}

// P78: only the record of an owner ends pauses, and only of those that were made before, by
// the times of the kernel.
func TestP78EndRecord(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can make files of others")
	}
	place, _ := here(t)
	file := func(uid int, p Pause) string {
		t.Helper()
		p = put(t, place, p)
		name := filepath.Join(place, fmt.Sprintf("%d%s", uid, p.ID[len("0"):]))
		if err := errors.Join(os.Rename(filepath.Join(place, p.ID), name), os.Chown(name, uid, -1)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	live := func(owners ...int) (uids []int) {
		t.Helper()
		s, err := (&Reader{Places: []string{place}, Owns: func(uid int) bool { return slices.Contains(owners, uid) }, Session: func(int) bool { return true }}).Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Live {
			uids = append(uids, p.UID)
		}
		return uids
	}
	forge := To(clock(t), time.Time{})
	forge.Why = "jobs have waited long enough"
	name := file(61002, forge)
	s, err := (&Reader{Places: []string{place}}).Read()
	if err != nil || len(s.Live) != 1 || s.Live[0].Why != "" {
		t.Errorf("a stranger speaks for a node: %+v, %v", s.Live, err)
	}
	if err := PutEnd(place, time.Now(), true, s.Live); err != nil {
		t.Fatal(err)
	}
	if got := live(0); got != nil {
		t.Errorf("after the end: %v", got)
	}
	if got := live(61001); !reflect.DeepEqual(got, []int{61002}) {
		t.Errorf("one who is no owner has ended it: %v", got)
	}
	// Its maker writes it again; that is another pause.
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = (&Reader{Places: []string{place}}).Read(); err != nil || len(s.Live) != 1 {
		t.Fatalf("written again: %+v, %v", s.Live, err)
	}
	// The record of a place that cannot be read now is heeded on.
	last := s.Live[0]
	last.UID, last.Ends, last.Place, last.Changed = 0, EndsAll, strings.Repeat("x", 5000), last.Changed.Add(1)
	r := &Reader{Places: []string{place, last.Place}, last: State{Ends: []Pause{last}}}
	if s, err := r.readAt(clock(t)); err == nil || len(s.Live) != 0 || len(s.Over) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := PutEnd(place, time.Now(), true, s.Live); err != nil {
		t.Fatal(err)
	}
	if own, err := ownEnds(place); live(0) != nil || len(own) != 1 || err != nil {
		t.Errorf("ended again: %v, %+v, %v", live(0), own, err)
	}
	// A record for the place alone does not replace one for all places.
	if err := PutEnd(place, time.Now(), false, nil); err != nil {
		t.Fatal(err)
	}
	if own, err := ownEnds(place); len(own) != 2 || err != nil {
		t.Errorf("%+v, %v", own, err)
	}
}
