package spool

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
)

// needing makes a batch of jobs, each a name and what it needs.
func needing(h *Head, jobs ...[]string) (*Batch, error) {
	s, err := h.Begin(job.NewToken(), "ns/needs", "ana", os.Getuid())
	if err != nil {
		return nil, err
	}
	defer s.Abort()
	if err := errors.Join(s.BatchFile(strings.NewReader("command:\n")), s.Spec(plain)); err != nil {
		return nil, err
	}
	for _, words := range jobs {
		if err := s.AddJob(&job.Job{Name: words[0], Needs: words[1:], Run: []string{"x"}}); err != nil {
			return nil, err
		}
	}
	return s.Finish(false)
}

// What jobs need is there again when the head is.
func TestNeeds(t *testing.T) {
	h := newHead(t)
	b, err := needing(h, []string{"mesh"}, []string{"run-1", "mesh"}, []string{"run-2", "mesh"}, []string{"table", "run-*", "mesh"})
	if err != nil {
		t.Fatal(err)
	}
	_, open, problems := restart(t, h, b)
	if len(open) != 1 || len(problems) > 0 {
		t.Fatalf("%d batches, %v", len(open), problems)
	}
	n, err := open[0].Needs()
	if err != nil || !slices.Equal(n.Of, []uint32{0, 1, 1, 2}) || !slices.Equal(n.List(1), []uint32{0}) || !slices.Equal(n.List(2), []uint32{0, 1, 2}) {
		t.Errorf("%+v, %v", n, err)
	}
}

// What a head is sent is not believed: needs that no dsubmit sends are refused.
func TestNeedsRefused(t *testing.T) {
	h := newHead(t)
	for what, jobs := range map[string][][]string{
		"there is no such job":       {{"a"}, {"b", "c"}},
		"needs itself":               {{"a"}, {"b", "b"}},
		"jobs wait for one another":  {{"a", "b"}, {"b", "*"}},
		"is no pattern":              {{"a"}, {"b", "["}},
		"bad name":                   {{"a"}, {"b", "../a"}},
		"which fits no other job of": {{"a"}, {"b", "b*"}},
	} {
		if _, err := needing(h, jobs...); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v, want %s", jobs, err, what)
		}
	}
	for _, spec := range []job.Spec{{Kind: job.Command, Canary: -1}, {Kind: job.Command, StopAfter: MaxJobs + 1}} {
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, "a number", s.Spec(spec), ErrInput)
		s.Abort()
	}
}

// needsItself makes a job of fullSpool need itself, with a right checksum.
func needsItself(t *testing.T, at func(string) string) {
	text, err := os.ReadFile(at(batchJobs))
	if err != nil {
		t.Fatal(err)
	}
	text = summed(bytes.Replace(text, []byte(`"name":"c",`), []byte(`"name":"c","needs":["c"],`), 1))
	if err := os.WriteFile(at(batchJobs), text, 0o640); err != nil {
		t.Fatal(err)
	}
}
