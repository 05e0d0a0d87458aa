package spool

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"distribute/lib/check"
)

// somePast is a Past with something of everything.
func somePast() *Past {
	at := time.Date(2026, 11, 20, 12, 0, 0, 250e6, time.UTC)
	return &Past{Time: at, Users: []UserPast{{0, 0.25}, {1000, 5234.5}}, Nodes: []NodePast{{Node: "ws4", Boot: "b", Heard: at, Until: at.Add(time.Minute),
		Reason: "3 jobs failed only here", Given: "no room", Blamed: true, Fast: []PastJob{{"ana/re", 1}, {}}, Since: at, Rests: 2,
		Only: []PastJob{{"ana/re", 12}}, Proofs: 1, Proven: at, Left: at, Leaving: 20}, {Node: "ws5", Heard: at, Rests: 1}}}
}

// What is kept is read as it was, and what is kept next is in its place.
func TestPast(t *testing.T) {
	h := newHead(t)
	if _, err := h.ReadPast(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a new spool: %v", err)
	}
	for _, want := range []*Past{{Time: time.Unix(0, 0).UTC()}, somePast()} {
		if err := h.WritePast(want, false); err != nil {
			t.Fatal(err)
		}
		if got, err := h.ReadPast(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v was read, of %+v: %v", got, want, err)
		}
	}
}

// A byte that is another, or a part that is missing, is noticed wherever it is, by
// dfsck, too.
func TestPastDamaged(t *testing.T) {
	text := somePast().lines()
	for i := range text {
		bad := bytes.Clone(text)
		bad[i] ^= 1
		if _, err := parsePast(bad); err == nil {
			t.Errorf("byte %d is %q in place of %q, and nobody notices", i, bad[i], text[i])
		}
		if _, err := parsePast(text[:i]); err == nil {
			t.Errorf("it is cut at byte %d, and nobody notices", i)
		}
	}
	dir, _ := fullSpool(t)
	name := dir + "/past.jsonl"
	finds := func() (found []string) {
		r := &check.Run{Dir: dir, Tell: func(f *check.Finding) error { found = append(found, f.Text()); return nil }}
		if err := Check(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if err := os.WriteFile(name, text, 0o640); err != nil {
		t.Fatal(err)
	}
	if got := finds(); len(got) != 0 {
		t.Errorf("of one that is whole dfsck says %q", got)
	}
	if err := os.WriteFile(name, text[:len(text)/2], 0o640); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(finds(), "\n"); !strings.Contains(got, "past.jsonl") || !strings.Contains(got, "begins anew") {
		t.Errorf("of one that was cut dfsck says %q", got)
	}
}

// FuzzPast reads past.jsonl: what is taken is written and read again as the same.
func FuzzPast(f *testing.F) {
	f.Add(somePast().lines())
	f.Add([]byte(`{"t":"2026-11-20T12:00:00Z"}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parsePast(text)
		if err != nil {
			return
		}
		again, err := parsePast(p.lines())
		if err != nil || !bytes.Equal(again.lines(), p.lines()) {
			t.Fatalf("%q is read as %+v, and that as %+v: %v", text, p, again, err)
		}
	})
}
