package spool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"distribute/lib/check"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// What was saved before, and is there still since dsched was stopped before it
// could remove it, is found for what it is, whole or in part, and put away; what
// counts is left alone, and missed.
func TestCheckSaved(t *testing.T) {
	for _, fail := range []string{"shed.printed:exit:1", "shed.tree:exit:1", "shed.manifest:exit:1", "shed.tree:exit:2"} {
		dir := filepath.Join(t.TempDir(), "spool")
		prepareBatch(t, dir)
		if _, finished := runScene(t, "evict", dir, fail); finished {
			t.Fatalf("%s is not passed", fail)
		}
		mended := 0
		for _, f := range checkSpool(t, dir, true) {
			if f.Kind != check.Left {
				t.Errorf("%s: %s", fail, f.Text())
			}
			if f.Mend != nil {
				mended++
			}
		}
		if mended == 0 {
			t.Errorf("%s: nothing was to be mended", fail)
		}
		for _, f := range checkSpool(t, dir, false) {
			if f.Mend != nil {
				t.Errorf("%s: it is not mended: %s", fail, f.Text())
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "spool")
	prepareBatch(t, dir)
	runScene(t, "evict", dir, "stage.tree:exit:2") // what the first attempt has saved counts
	if err := os.RemoveAll(filepath.Join(dir, "batches/ns/b/attempts/a~1")); err != nil {
		t.Fatal(err)
	}
	damaged := false
	for _, f := range checkSpool(t, dir, false) {
		damaged = damaged || f.Kind == check.Damaged && f.Path == "batches/ns/b/attempts/a~1"
	}
	if !damaged {
		t.Error("that it is missing is not found")
	}
}

// A batch in which jobs had to leave nodes, and that is opened again when it is over, is
// closed again.
func TestOpenedIsClosedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	prepareBatch(t, dir)
	if _, finished := runScene(t, "evict", dir, ""); !finished {
		t.Fatal("the scene did not end")
	}
	h, open, _ := loadHead(t, dir)
	if len(open) != 0 {
		t.Fatalf("%v is open", open)
	}
	b, problems, err := h.Open("ns/b")
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	commit(t, h, b, job.Record{Kind: job.KindRetry, Job: "b", By: "ana"}, job.Record{Kind: job.KindCancelled, Job: "b", By: "ana"})
	h.CloseBatch(b)
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	if !h.Closed("ns/b") {
		t.Error("it stays open, and nothing runs")
	}
}

// On a full disk all that is to be put in place or removed is tried again, also what went
// well before. It is owed once.
func TestOwedOnce(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	defer b.Close()
	for range 2 {
		h.Owe(b)
		for range 3 {
			if _, err := h.Shed(b, "a", 1, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.SyncPublished(); err != nil {
			t.Fatal(err)
		}
		if b.Owes() {
			t.Fatal("something is owed, and all is done: the batch is never closed")
		}
	}
}

// A job that had to leave nodes again and again, and saved nothing, keeps all of
// what the last attempt left, and what so many before it printed; also when all of
// that is put right at once by a start, and dfsck finds nothing wrong with it.
func TestShedAll(t *testing.T) {
	const tries = 2*job.MaxPrinted + 2
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	for try := 1; try <= tries; try++ {
		text := printedBy("a", try)
		m := resultOf(text)
		prints := m[1]
		prints.Path = "a_output.txt"
		began := start("a", try)
		m, err := bringAs(h, b, began.Attempt, append(pack.Manifest{prints}, m...), text)
		if err != nil {
			t.Fatal(err)
		}
		back := endOf(job.KindBack, began, m)
		back.Fate = job.FateEvicted
		commit(t, h, b, began, back)
		if err := h.Aside(b, "a", try, began.Attempt); err != nil {
			t.Fatal(err)
		}
	}
	dir := h.path()
	b.Close()
	h.Close()
	for again := range 3 {
		h, open, problems := loadHead(t, dir)
		if len(open) != 1 || len(problems) > 0 {
			t.Fatalf("start %d: %d open, %v", again, len(open), problems)
		}
		open[0].Close()
		h.Close()
		for try := 1; try <= tries; try++ {
			_, root, err := h.Result("ns/b/a", try)
			if whole := err == nil; whole != (try == tries) {
				t.Errorf("start %d: all of attempt %d is there: %v", again, try, whole)
			} else if whole {
				root.Close()
			}
			f, err := h.Printed("ns/b/a", try)
			if printed := err == nil; printed != (try < tries && try >= tries-job.MaxPrinted) {
				t.Errorf("start %d: what attempt %d printed is there alone: %v", again, try, printed)
			} else if printed {
				f.Close()
			}
		}
	}
	for _, f := range checkSpool(t, dir, false) {
		if f.Path != "" && f.Kind != check.Left {
			t.Errorf("dfsck says: %s", f.Text())
		}
	}
}

// The directory in staging/ of what an attempt has left is removed when that is in
// its place, and a power cut may bring it back, empty, when the log leaves less of
// it and it is nowhere else any more. Nothing is lost by that, and what the attempt
// printed is still there.
func TestJ28ShedIsBackInStaging(t *testing.T) {
	t.Parallel()
	for _, fail := range []string{"shed.printed:exit:1", "shed.tree:exit:1", "shed.manifest:exit:1", "shed.tree:exit:2"} {
		for _, mend := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "spool")
			prepareBatch(t, dir)
			runScene(t, "evict", dir, fail)
			staged := filepath.Join(dir, "batches/ns/b/staging", string(firstAttempt(t, dir)))
			if err := os.Mkdir(staged, 0o750); err != nil {
				t.Fatal(err)
			}
			told := false
			for _, f := range checkSpool(t, dir, mend) {
				told = told || f.Path == "batches/ns/b/attempts/a~1" || f.Path == "batches/ns/b/staging/"+filepath.Base(staged)
				if f.Kind != check.Left {
					t.Errorf("%s: %s", fail, f.Text())
				}
			}
			if !told {
				t.Errorf("%s: it is not found", fail)
			}
			h, open, problems := loadHead(t, dir)
			if len(open) != 1 || len(problems) > 0 {
				t.Errorf("%s: loaded %v, %v", fail, open, problems)
			}
			if _, err := os.Lstat(staged); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: it is there: %v", fail, err)
			}
			if f, err := h.Printed("ns/b/a", 1); err != nil {
				t.Errorf("%s: what it printed: %v", fail, err)
			} else {
				f.Close()
			}
			if err := errors.Join(h.SyncPublished(), h.Close()); err != nil {
				t.Error(err)
			}
			for _, f := range checkSpool(t, dir, false) {
				if f.Mend != nil || f.Kind != check.Left {
					t.Errorf("%s, after: %s", fail, f.Text())
				}
			}
		}
	}
}

// The same of a directory with the tree in it, of which the manifest was moved on
// and removed.
func TestJ28ShedTreeIsBackInStaging(t *testing.T) {
	for _, fail := range []string{"shed.printed:exit:1", "shed.tree:exit:1"} {
		for _, mend := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "spool")
			prepareBatch(t, dir)
			runScene(t, "evict", dir, fail)
			batch := filepath.Join(dir, "batches/ns/b")
			staged := filepath.Join(batch, "staging", string(firstAttempt(t, dir)))
			if err := errors.Join(os.Mkdir(staged, 0o750), os.Rename(batch+"/attempts/a~1", staged+"/tree"),
				os.Remove(batch+"/manifests/a~1.jsonl")); err != nil {
				t.Fatal(err)
			}
			for _, f := range checkSpool(t, dir, mend) {
				if f.Kind != check.Left {
					t.Errorf("%s: %s", fail, f.Text())
				}
			}
			h, open, problems := loadHead(t, dir)
			if len(open) != 1 || len(problems) > 0 {
				t.Errorf("%s: loaded %v, %v", fail, open, problems)
			}
			if _, err := os.Lstat(staged); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: it is there: %v", fail, err)
			}
			if got := printedOf(h.Spool, "ns/b/a", 1); got != printedBy("a", 1) {
				t.Errorf("%s: it printed %q", fail, got)
			}
			if err := errors.Join(h.SyncPublished(), h.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// firstAttempt is the first attempt of job a.
func firstAttempt(t *testing.T, dir string) (token job.Token) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Events("ns/b", 0, -1, func(rec *job.Record) error {
		if rec.Kind == job.KindStart && rec.Job == "a" && rec.Try == 1 {
			token = rec.Attempt
		}
		return nil
	})
	if err != nil || token == "" {
		t.Fatalf("attempt %q, %v", token, err)
	}
	return token
}
