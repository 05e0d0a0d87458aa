package spool

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
)

// large is a content that becomes a blob.
func large(what string) string { return strings.Repeat(what+" ", job.SmallFile) }

// over ends the jobs of a batch, each as kind, and closes it.
func over(t *testing.T, h *Head, b *Batch, kind job.Kind) {
	t.Helper()
	for i := range b.Jobs() {
		name, err := b.Name(i)
		if err != nil {
			t.Fatal(err)
		}
		s := start(name, 1)
		exit := 0
		h.Append(b, &s)
		h.Append(b, &job.Record{Kind: kind, Job: name, Attempt: s.Attempt, Try: 1, Node: "ws1", Outcome: job.Outcome{Exit: &exit}})
	}
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	h.CloseBatch(b)
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
}

// blobs is which of the contents are there as blobs.
func blobs(h *Head, contents ...string) (there []string) {
	for _, c := range contents {
		if exists(h.path("blobs", sumOf(c)[:2], sumOf(c))) == nil {
			there = append(there, strings.Fields(c)[0])
		}
	}
	return there
}

func collect(t *testing.T, h *Head, keep time.Duration) {
	t.Helper()
	if _, err := h.Collect(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
}

// What is collected, as time goes by.
func TestS16CollectionOfBlobs(t *testing.T) {
	const day = 24 * time.Hour
	h := newHead(t)
	all := []string{large("open"), large("done"), large("failed"), large("short"), large("both"), large("deleted"), large("orphan"), large("sent")}
	submit(t, h, "ns/open", []string{"a"}, all[0], all[4])
	over(t, h, submit(t, h, "ns/done", []string{"a", "b"}, all[1], all[4]), job.KindDone)
	over(t, h, submit(t, h, "ns/failed", []string{"a", "b"}, all[2]), job.KindFailed)
	orphan := submit(t, h, "ns/orphan", []string{"a"}, all[6])
	if err := os.RemoveAll(orphan.dir); err != nil {
		t.Fatal(err)
	}
	over(t, h, submit(t, h, "ns/deleted", []string{"a"}, all[5]), job.KindFailed)
	first, err := h.firstRecord("ns/deleted")
	if err != nil {
		t.Fatal(err)
	}
	d, err := h.Delete("ns/deleted", first.seq, "ana", job.NewToken())
	if err := errors.Join(err, h.Commit(), h.Trash(d)); err != nil {
		t.Fatal(err)
	}
	zero := int64(0)
	short, err := h.Begin(job.NewToken(), "ns/short", "ana", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	spec := plain
	spec.Keep = &zero
	if err := fillIn(short, spec, []string{"a"}, all[3]); err != nil {
		t.Fatal(err)
	}
	b, err := short.Finish(false)
	if err != nil {
		t.Fatal(err)
	}
	over(t, h, b, job.KindFailed)
	// One that is on its way, whose blob is there and whose name is not.
	sent, err := h.Begin(job.NewToken(), "ns/sent", "ana", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	defer sent.Abort()
	if err := fillIn(sent, plain, []string{"a"}, all[7]); err != nil {
		t.Fatal(err)
	}
	if err := sent.nameArrivals(); err != nil {
		t.Fatal(err)
	}
	b.Close()
	for _, look := range []struct {
		after time.Duration
		want  string
	}{
		{0, "open done failed short both deleted orphan sent"},
		{6 * day, "open done failed short both deleted orphan sent"},
		{-100 * day, "open done failed short both deleted orphan sent"}, // the clock is wrong for a while
		{102 * day, "open failed both sent"},
		{21 * day, "open failed both sent"},
		{2 * day, "open both sent"},
	} {
		later(h, look.after)
		collect(t, h, 30*day)
		if got := strings.Join(blobs(h, all...), " "); got != look.want {
			t.Errorf("after %v there are %s, want %s", look.after, got, look.want)
		}
	}
	sent.Abort()
	collect(t, h, 30*day)
	if got := blobs(h, all...); !slices.Equal(got, []string{"open", "both"}) {
		t.Errorf("after the submission was given up there are %v", got)
	}
}

// A blob of which a submission was told that it is there stays until the batch
// is, and one of which a retry was told.
func TestI18WhatIsSaidToBeThereStays(t *testing.T) {
	h := newHead(t)
	content := large("x")
	over(t, h, submit(t, h, "ns/a", []string{"a"}, content), job.KindDone)
	later(h, 100*24*time.Hour)
	s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	in := inputOf("x", content)
	j := &job.Job{Name: "a", Run: []string{"x"}, Inputs: []job.Input{in}}
	if err := errors.Join(s.BatchFile(strings.NewReader("x")), s.Spec(plain), s.AddJob(j)); err != nil {
		t.Fatal(err)
	}
	if _, turns := s.Lacks(); len(turns) > 0 {
		t.Fatal("it is not there")
	}
	collect(t, h, 0)
	b, err := s.Finish(false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	collect(t, h, 0)
	if got := readInput(t, b, j.Inputs[0]); got != content {
		t.Error("the input is not whole")
	}
	over(t, h, b, job.KindFailed)
	hold := h.NewHold()
	if there, err := hold.There(&in); !there || err != nil {
		t.Fatal("it is not there any more", err)
	}
	later(h, time.Hour)
	collect(t, h, 0)
	if there, _ := hold.There(&in); !there || len(blobs(h, content)) != 1 {
		t.Error("what is held was collected")
	}
	hold.Release()
	collect(t, h, 0)
	if there, _ := h.NewHold().There(&in); there {
		t.Error("what nobody needs is still there")
	}
}

// What a submission that died has left is removed when it is old; what one that
// lives fills is not, however old.
func TestS01LeftoversAreCollected(t *testing.T) {
	h := newHead(t)
	s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abort()
	sum := sumOf(large("x"))
	temp, half := h.path("blobs", sum[:2], "."+sum+".0123.tmp~"), h.path("batches", "ns", ".new-0123")
	if err := errors.Join(os.Mkdir(filepath.Dir(temp), 0o750), os.WriteFile(temp, []byte("x"), 0o640),
		os.MkdirAll(filepath.Join(half, "out"), 0o700), os.Chmod(half, 0o500)); err != nil {
		t.Fatal(err)
	}
	later(h, 35*time.Hour)
	collect(t, h, 0)
	if err := errors.Join(exists(temp), exists(half)); err != nil {
		t.Errorf("too early: %v", err)
	}
	later(h, 2*time.Hour)
	collect(t, h, 0)
	if exists(temp) == nil || exists(half) == nil {
		t.Error("old leftovers are still there")
	}
	if err := exists(s.dir); err != nil {
		t.Error(err)
	}
}

// On a clock that was set nothing is old, and with a batch that cannot be read
// nobody knows what is needed.
func TestS16NothingIsCollectedInDoubt(t *testing.T) {
	h := newHead(t)
	content := large("x")
	over(t, h, submit(t, h, "ns/b", []string{"a"}, content), job.KindDone)
	submit(t, h, "ns/other", []string{"a"}, "y")
	now := h.now
	collect(t, h, 0)
	h.now = func() time.Time { return now().Add(59 * time.Minute) }
	collect(t, h, 0)
	h.now = func() time.Time { return now().Add(2 * time.Hour) }
	_, err := h.Collect(t.Context(), 0)
	wantErr(t, "after a jump of the clock", err, ErrClock)
	h.now = now
	_, err = h.Collect(t.Context(), 0)
	wantErr(t, "after the clock was set right", err, ErrClock)

	later(h, 100*24*time.Hour)
	lines := h.path("batches/ns/other/jobs.jsonl")
	text, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lines, append([]byte("x"), text...), 0o640); err != nil {
		t.Fatal(err)
	}
	var bad *Problem
	if _, err := h.Collect(t.Context(), 0); !errors.As(err, &bad) || bad.Batch != "ns/other" {
		t.Errorf("with a damaged batch: %v", err)
	}
	if len(blobs(h, content)) != 1 {
		t.Error("a blob is gone")
	}
	if err := os.WriteFile(lines, text, 0o640); err != nil {
		t.Fatal(err)
	}
	collect(t, h, 0)
	if len(blobs(h, content)) != 0 {
		t.Error("a blob is still there")
	}
}

// Submissions and collections at the same time: every batch has its inputs.
func TestCollectBesideSubmissions(t *testing.T) {
	h := newHead(t)
	later(h, 100*24*time.Hour)
	ctx := t.Context()
	ended := make(chan error)
	go func() {
		var errs []error
		for range 30 {
			_, err := h.Collect(ctx, 0)
			errs = append(errs, err)
		}
		ended <- errors.Join(errs...)
	}()
	var all []*Batch
	for _, name := range []job.BatchID{"ns/a", "ns/b", "ns/c", "ns/d", "ns/e", "ns/f"} {
		all = append(all, submit(t, h, name, []string{"a"}, large("x"), large("y")))
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, b := range all {
		j, err := b.Job(0)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range j.Inputs {
			if got := readInput(t, b, in); sumOf(got) != in.Sum {
				t.Errorf("an input of %s is not whole", b.ID)
			}
		}
	}
}

// What is left of an addition that came to nothing keeps no blob from being collected. A
// bad line of one that counts does.
func TestS16CollectionAfterACutAddition(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	bad, err := adding(t, h, b, plain, []string{"b"})
	if err != nil {
		t.Fatal(err)
	}
	appendAdded(h, bad)
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	bad.End()
	content := large("done")
	over(t, h, submit(t, h, "ns/done", []string{"a"}, content), job.KindDone)
	name := filepath.Join(b.dir, "jobs.jsonl")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	later(h, 8*24*time.Hour)
	write(string(text[:len(text)-3]))
	var p *Problem
	if _, err := h.Collect(t.Context(), 0); !errors.As(err, &p) || p.Line != 2 || len(blobs(h, content)) != 1 {
		t.Errorf("with an added line that is cut: %v", err)
	}
	write(string(text) + `{"name":"x"`)
	collect(t, h, 0)
	if len(blobs(h, content)) != 0 {
		t.Error("with the beginning of a line that is not added a blob is still there")
	}
}

// A damaged line of head.jsonl that opened a batch again takes no input from its jobs.
func TestS16CollectionAfterADamagedLine(t *testing.T) {
	h := newHead(t)
	content := large("x")
	b := submit(t, h, "ns/b", []string{"a"}, content)
	over(t, h, b, job.KindFailed)
	commit(t, h, b, job.Record{Kind: job.KindRetry, Job: "a"})
	name := h.path("head.jsonl")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text[bytes.LastIndex(text, []byte(`"opened"`))+2] ^= 1
	if err := os.WriteFile(name, text, 0o640); err != nil {
		t.Fatal(err)
	}
	h, open, problems := restart(t, h, b)
	if len(open) != 1 || len(problems) != 1 || problems[0].Stops {
		t.Fatal(open, problems)
	}
	later(h, 8*24*time.Hour)
	collect(t, h, 0)
	j, err := open[0].Job(0)
	if err != nil {
		t.Fatal(err)
	}
	if readInput(t, open[0], j.Inputs[0]) != content {
		t.Error("the input is not whole")
	}
}

// What jobs that are being added read stays until the record of them is durable.
func TestI18WhatAddedJobsReadStays(t *testing.T) {
	h := newHead(t)
	content := large("x")
	b := submit(t, h, "ns/b", []string{"a"}, content)
	over(t, h, b, job.KindDone)
	later(h, 8*24*time.Hour)
	for _, name := range []string{"b", "c"} { // the addition of b comes to nothing
		a, err := adding(t, h, b, plain, []string{name}, content)
		if err != nil {
			t.Fatal(err)
		}
		collect(t, h, 0)
		if name == "c" {
			appendAdded(h, a)
			if err := h.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		a.End()
	}
	collect(t, h, 0)
	j, err := b.Job(1)
	if err != nil {
		t.Fatal(err)
	}
	if readInput(t, b, j.Inputs[0]) != content {
		t.Error("the input is not whole")
	}
	began, exit := start("c", 1), 0
	commit(t, h, b, began, job.Record{Kind: job.KindDone, Job: "c", Attempt: began.Attempt, Try: 1, Node: "ws1", Outcome: job.Outcome{Exit: &exit}})
	h.CloseBatch(b)
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	collect(t, h, 0)
	if there := blobs(h, content); len(there) > 0 {
		t.Error("what nobody needs is still there")
	}
}
