package spool

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/job"
)

// appendAdded has a batch have the jobs of an addition.
func appendAdded(h *Head, a *Addition) {
	rec := a.Added()
	rec.By = "ana"
	h.Append(a.Batch, &rec)
}

// adding makes an Addition of jobs that read contents.
func adding(t *testing.T, h *Head, b *Batch, spec job.Spec, names []string, contents ...string) (*Addition, error) {
	t.Helper()
	s, err := h.Begin(job.NewToken(), b.ID, "ana", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	if err := fillIn(s, spec, names, contents...); err != nil {
		t.Fatal(err)
	}
	return s.Add(b)
}

// While an Addition waits for its commit on a slow disk, the next waits for it without keeping the
// clock of a synctest bubble from going on: a history of the simulation in which a user added jobs
// twice never ended.
func TestAddWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead(t)
		b := submit(t, h, "ns/b", []string{"a"})
		first, err := adding(t, h, b, plain, []string{"b"})
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan *Addition)
		go func() {
			a, err := adding(t, h, b, plain, []string{"b", "c"})
			if err != nil {
				t.Error(err)
			}
			next <- a
		}()
		time.Sleep(time.Second)
		select {
		case <-next:
			t.Fatal("two Additions at once")
		default:
		}
		appendAdded(h, first)
		if err := h.Commit(); err != nil {
			t.Fatal(err)
		}
		first.End()
		a := <-next
		if a == nil || a.Jobs != 1 || a.Had != 1 {
			t.Fatalf("the next Addition is %+v", a)
		}
		a.End()
	})
}

// rowsOf are the names and states of a batch's jobs.
func rowsOf(t *testing.T, s *Spool, id job.BatchID) (all []string) {
	t.Helper()
	if err := s.Read(id, -1, func(r *job.Row) error { all = append(all, r.Job+" "+r.State.String()); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAdd(t *testing.T) {
	big := strings.Repeat("x", job.SmallFile)
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b"}, "one", big)
	h.Append(b, &job.Record{Kind: job.KindHold, By: "ana"})
	for i, tt := range []struct {
		names     []string
		contents  []string
		jobs, had int
	}{
		{[]string{"a", "b"}, []string{"one", big}, 0, 2},
		{[]string{"b", "c", "d"}, []string{"one", big}, 2, 1},
		{[]string{"e"}, []string{"two", "one", big + "y"}, 1, 0},
		{[]string{"e", "f"}, []string{"two", "one", big + "y"}, 1, 1},
	} {
		a, err := adding(t, h, b, plain, tt.names, tt.contents...)
		if err != nil {
			t.Fatal(err)
		}
		if a.Jobs != tt.jobs || a.Had != tt.had {
			t.Errorf("addition %d has %d jobs and had %d, want %d and %d", i, a.Jobs, a.Had, tt.jobs, tt.had)
		}
		if a.Jobs > 0 {
			appendAdded(h, a)
		}
		if err := h.Commit(); err != nil {
			t.Fatal(err)
		}
		a.End()
		a.End()
	}
	want := []string{"a held", "b held", "c queued", "d queued", "e queued", "f queued"}
	if got := rowsOf(t, h.Spool, b.ID); !slices.Equal(got, want) {
		t.Errorf("the rows are %q, want %q", got, want)
	}

	_, err := adding(t, h, b, plain, []string{"f"}, "other")
	wantErr(t, "another job of a name", err, ErrInput)
	if err != nil && !strings.Contains(err.Error(), `has a job "f"`) {
		t.Errorf("another job of a name: %v", err)
	}
	other := plain
	other.Priority, other.Resources.CPUs = 3, 2
	_, err = adding(t, h, b, other, []string{"g"})
	wantErr(t, "another spec", err, ErrInput)
	if err != nil && !strings.Contains(err.Error(), "in common is other: priority, resources (") {
		t.Errorf("another spec: %v", err)
	}

	// One of which no record tells, and a torn one, come to nothing.
	for i, tail := range []string{"", `{"name":"x"`} {
		a, err := adding(t, h, b, plain, []string{"g"}, "three")
		if err != nil {
			t.Fatal(err)
		}
		a.End()
		f, err := os.OpenFile(filepath.Join(b.dir, "jobs.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(tail); err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		if got := rowsOf(t, h.Spool, b.ID); !slices.Equal(got, want) {
			t.Errorf("the rows are %q, want %q", got, want)
		}
		if found := checkSpool(t, h.Dir(), false); len(found) > 0 {
			t.Errorf("dfsck finds\n%s", lines(found))
		}
		var open []*Batch
		var problems []*Problem
		if h, open, problems = restart(t, h, b); len(problems) > 0 || len(open) != 1 {
			t.Fatalf("restart %d: %v, %v", i, open, problems)
		}
		b = open[0]
		if b.Jobs() != 6 {
			t.Errorf("restart %d: %d jobs, want 6", i, b.Jobs())
		}
		for k := range b.Jobs() {
			j, err := b.Job(k)
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range j.Inputs {
				if sumOf(readInput(t, b, in)) != in.Sum {
					t.Errorf("input %q of %q is not whole", in.Path, j.Name)
				}
			}
		}
	}

	// A line that a record tells of is missed.
	text, err := os.ReadFile(filepath.Join(b.dir, "jobs.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	last := b.index().upTo(5)
	for _, cut := range []int64{last, last + 5} {
		if err := os.WriteFile(filepath.Join(b.dir, "jobs.jsonl"), text[:cut], 0o640); err != nil {
			t.Fatal(err)
		}
		if found := lines(checkSpool(t, h.Dir(), false)); !strings.Contains(found, "jobs.jsonl") {
			t.Errorf("dfsck finds %q", found)
		}
		err = h.Read(b.ID, -1, func(*job.Row) error { return nil })
		var p *Problem
		if !errors.As(err, &p) || !p.Stops {
			t.Errorf("reading it: %v", err)
		}
		var problems []*Problem
		if h, _, problems = restart(t, h, b); len(problems) != 1 || !problems[0].Stops || !strings.HasSuffix(problems[0].File, "jobs.jsonl") {
			t.Errorf("the problems are %v", problems)
		}
	}
}

// A batch that an older version made, with = in its name, can be added to. No new one is made.
func TestAddToAnOldName(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "lab/re-1", []string{"one"})
	dir := h.Dir()
	if err := errors.Join(b.Close(), h.Close(), os.Rename(b.dir, filepath.Join(filepath.Dir(b.dir), "re=1"))); err != nil {
		t.Fatal(err)
	}
	h, open, problems := loadHead(t, dir)
	if len(open) != 1 || len(problems) > 0 {
		t.Fatalf("open %v, problems %v", open, problems)
	}
	b = open[0]
	a, err := adding(t, h, b, plain, []string{"two"})
	if err != nil {
		t.Fatal(err)
	}
	appendAdded(h, a)
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	a.End()
	if got := rowsOf(t, h.Spool, "lab/re=1"); len(got) != 2 {
		t.Errorf("the rows are %q", got)
	}
	if _, err := h.Begin(job.NewToken(), "lab/re=2", "ana", os.Getuid()); !errors.Is(err, ErrInput) {
		t.Errorf("a new batch of such a name: %v", err)
	}
	for free, want := range map[bool]error{false: ErrTaken, true: ErrInput} {
		s, err := h.Begin(job.NewToken(), "lab/re=1", "ana", os.Getuid())
		if err == nil {
			err = fillIn(s, plain, []string{"other"})
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Finish(free)
		wantErr(t, "a new batch beside it", err, want)
	}
}

// Jobs are not added to a batch whose files cannot be written, and that ends nothing else.
func TestAddToUnwritable(t *testing.T) {
	for _, name := range []string{"jobs.jsonl", "files.tar"} {
		for what, put := range map[string]func(name string) error{
			"a directory":      func(name string) error { return os.Mkdir(name, 0o700) },
			"a link to itself": func(name string) error { return os.Symlink(filepath.Base(name), name) },
			"moved away":       func(name string) error { return os.Rename(filepath.Dir(name), filepath.Dir(name)+".old") },
		} {
			h := newHead(t)
			b := submit(t, h, "ns/b", []string{"a"}, "small")
			file := filepath.Join(b.dir, name)
			if err := errors.Join(os.Remove(file), put(file)); err != nil {
				t.Fatal(err)
			}
			if _, err := adding(t, h, b, plain, []string{"b"}, "small", "another"); err == nil || errors.Is(err, ErrBroken) || errors.Is(err, ErrFull) {
				t.Errorf("%s is %s: %v", name, what, err)
			}
			if n := b.Jobs(); n != 1 {
				t.Errorf("%s is %s: the batch has %d jobs", name, what, n)
			}
			submit(t, h, "ns/good", []string{"a"})
		}
	}
}
