package spool

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"distribute/lib/job"
)

// A table has the rows that ReadAttempts gives, of so much of the log; an unfinished line is no
// part of that.
func TestTable(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b"})
	first, second, other := start("a", 1), start("a", 2), start("b", 1)
	commit(t, h, b, first)
	short := b.Durable()
	commit(t, h, b, job.Record{Kind: job.KindBack, Job: "a", Attempt: first.Attempt, Try: 1, Node: "ws1", Outcome: job.Outcome{Reason: "ws1 is gone"}, Fate: job.FateLost}, second, other)
	whole := b.Durable()
	appendTo("batches/ns/b/log.jsonl", `{"seq":`)(t, func(file string) string { return filepath.Join(h.Dir(), file) })
	size, err := h.LogSize("ns/b")
	if err != nil || size <= whole {
		t.Fatal(size, err)
	}
	for upto, end := range map[int64]int64{short: short, whole: whole, size: whole, -1: whole} {
		table, err := h.ReadTable("ns/b", upto)
		if err != nil {
			t.Fatal(err)
		}
		if table.Upto() != end {
			t.Errorf("of %d bytes %d are read, want %d", upto, table.Upto(), end)
		}
		n := 0
		err = h.ReadAttempts("ns/b", upto, func(want *job.Row) error {
			got, number, ok := table.Row(want.Job)
			if !ok || number != n || !reflect.DeepEqual(got, want) {
				t.Errorf("up to %d: %d: %v, %+v\nwant %d: %+v", upto, number, ok, got, n, want)
			}
			n++
			return nil
		})
		if err != nil || n != 2 {
			t.Error(n, err)
		}
		if _, _, ok := table.Row("c"); ok {
			t.Error("it has a job that the batch does not have")
		}
	}
}

// A table of a log that is shorter lacks the jobs that were added later.
func TestTableBeforeAddition(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	short := b.Durable()
	a, err := adding(t, h, b, plain, []string{"later"})
	if err != nil {
		t.Fatal(err)
	}
	appendAdded(h, a)
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	a.End()
	for upto, want := range map[int64]bool{short: false, b.Durable(): true} {
		table, err := h.ReadTable("ns/b", upto)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := table.Row("later"); ok != want {
			t.Errorf("up to %d the job is there: %v", upto, ok)
		}
	}
}

// Batch tells of one batch what Batches does.
func TestOneBatch(t *testing.T) {
	h := newHead(t)
	submit(t, h, "ns/b", []string{"a"})
	submit(t, h, "ns/other", []string{"a"})
	bad := submit(t, h, "ns/bad", []string{"a"})
	if err := os.Truncate(filepath.Join(h.Dir(), "batches/ns/bad/log.jsonl"), 10); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"file", "ns/file"} {
		if err := os.WriteFile(filepath.Join(h.Dir(), "batches", file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("b", filepath.Join(h.Dir(), "batches/ns/link")); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[job.BatchID][2]int{"ns/b": {1, 0}, bad.ID: {0, 1}, "ns/none": {0, 0}, "none/b": {0, 0}, "file/b": {0, 0}, "ns/file": {0, 0}, "ns/link": {0, 0}} {
		infos, problems, err := h.Batch(id)
		all, bad, aerr := h.Batches(func(b job.BatchID) bool { return b == id })
		if err != nil || aerr != nil || len(infos) != want[0] || len(problems) != want[1] {
			t.Errorf("%s: %v, %v, %v, %v", id, infos, problems, err, aerr)
		}
		if !reflect.DeepEqual(problems, bad) || len(infos) != len(all) || len(all) > 0 && !reflect.DeepEqual(infos, all) {
			t.Errorf("%s: %v, %v; Batches tells %v, %v", id, infos, problems, all, bad)
		}
	}
}
