package spool

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// deleted appends that a batch is deleted, and commits it.
func deleted(t *testing.T, h *Head, id job.BatchID) Doomed {
	t.Helper()
	b, err := h.firstRecord(id)
	if err != nil {
		t.Fatal(err)
	}
	d, err := h.Delete(id, b.seq, "ana", job.NewToken())
	if err := errors.Join(err, h.Commit()); err != nil {
		t.Fatal(err)
	}
	return d
}

// ids is which batches a Head tells of.
func ids(t *testing.T, h *Head) (all []job.BatchID) {
	t.Helper()
	infos, problems, err := h.Batches(nil)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	for _, i := range infos {
		all = append(all, i.ID)
	}
	return all
}

// A batch that is being deleted is not told to be gone before it is, so that
// nobody hears it before it is durable, or before its name is free.
func TestJ28ToldWhenItIsGone(t *testing.T) {
	h := newHead(t)
	over(t, h, submit(t, h, "ns/b", []string{"a"}), job.KindDone)
	d := deleted(t, h, "ns/b")
	if all := ids(t, h); len(all) != 1 || !h.Going(d) {
		t.Errorf("before it is moved there are %v", all)
	}
	if err := h.Trash(d); err != nil {
		t.Fatal(err)
	}
	if all := ids(t, h); len(all) != 0 || h.Going(d) {
		t.Errorf("after it was moved there are %v", all)
	}
}

// What is moved to trash/ is not touched before its place is durable: power that
// is cut then may put it back, and then all of it must be there to be known.
func TestJ28TrashIsEmptiedAfterIt(t *testing.T) {
	h := newHead(t)
	over(t, h, submit(t, h, "ns/b", []string{"a"}), job.KindDone)
	d := deleted(t, h, "ns/b")
	looked := 0
	var mu sync.Mutex // directories are synced side by side
	end := durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		mu.Lock()
		defer mu.Unlock()
		looked++
		err := h.EmptyTrash(t.Context())
		if logs, _ := filepath.Glob(h.path("trash", "*", "log.jsonl")); len(logs) != 1 {
			t.Errorf("at the sync of %s trash/ has the logs %v", f.Name(), logs)
		}
		return err
	}})
	err := h.Trash(d)
	end()
	if err != nil || looked == 0 {
		t.Fatal(looked, err)
	}
	if err := h.EmptyTrash(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(h.path("trash")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A process that was killed has moved a batch into trash/ and has not synced that. The next does,
// before it removes any of it: power that is cut then may put the batch back.
func TestTrashOfAKilledProcess(t *testing.T) {
	h := newHead(t)
	over(t, h, submit(t, h, "ns/b", []string{"a"}), job.KindDone)
	d := deleted(t, h, "ns/b")
	killed := errors.New("killed")
	end := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "delete.sync" {
			return killed
		}
		return nil
	}})
	err := h.Trash(d)
	end()
	if !errors.Is(err, killed) {
		t.Fatal(err)
	}
	dir := h.path()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	synced := map[string]bool{}
	defer durable.Observe(&durable.Observer{Sync: func(f *os.File, all bool) error {
		mu.Lock()
		defer mu.Unlock()
		synced[f.Name()] = true
		return nil
	}})()
	h, _, _ = loadHead(t, dir)
	for _, name := range []string{h.path("trash"), h.path("batches", "ns")} {
		if !synced[name] {
			t.Errorf("%s is not synced: %v", name, slices.Sorted(maps.Keys(synced)))
		}
	}
}

// Of two batches of one name only that is deleted which was.
func TestJ28AnotherOfItsName(t *testing.T) {
	h := newHead(t)
	over(t, h, submit(t, h, "ns/b", []string{"a"}), job.KindDone)
	d := deleted(t, h, "ns/b")
	if err := h.Trash(d); err != nil {
		t.Fatal(err)
	}
	b := submit(t, h, "ns/b", []string{"other"})
	if err := h.Trash(d); err != nil {
		t.Fatal(err)
	}
	h, open, problems := restart(t, h, b)
	if len(open) != 1 || len(problems) != 0 || open[0].Head.Jobs != 1 {
		t.Fatalf("open are %v, %v", open, problems)
	}
	if name, _ := open[0].Name(0); name != "other" || h.Deleted("ns/b") {
		t.Errorf("its job is %q; deleted: %v", name, h.Deleted("ns/b"))
	}
	over(t, h, open[0], job.KindFailed)
	if _, err := h.Delete("ns/b", d.First, "ana", job.NewToken()); !errors.Is(err, ErrOpen) {
		t.Errorf("deleted by the first line of another: %v", err)
	}
	if all := ids(t, h); len(all) != 1 {
		t.Errorf("there are %v", all)
	}
}

// A closed batch that was opened, and forgotten as it was, may be deleted before names are
// made durable; those of others still are.
func TestDeletedAfterItWasOpened(t *testing.T) {
	h := newHead(t)
	old, b := submit(t, h, "ns/old", []string{"a"}), submit(t, h, "ns/b", []string{"a"})
	one, two := start("a", 1), start("a", 1)
	commit(t, h, old, one)
	commit(t, h, b, two)
	m, err := bring(h, old, one.Attempt, "1\n")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, h, old, endOf(job.KindDone, one, m))
	if err := errors.Join(h.Publish(old, "a", one.Attempt), h.SyncPublished()); err != nil {
		t.Fatal(err)
	}
	h.CloseBatch(old)
	if err := errors.Join(h.Commit(), old.Close()); err != nil {
		t.Fatal(err)
	}
	again, problems, err := h.Open("ns/old")
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if err := errors.Join(again.Close(), h.Trash(deleted(t, h, "ns/old"))); err != nil {
		t.Fatal(err)
	}
	if m, err = bring(h, b, two.Attempt, "2\n"); err != nil {
		t.Fatal(err)
	}
	commit(t, h, b, endOf(job.KindDone, two, m))
	if err := h.Publish(b, "a", two.Attempt); err != nil {
		t.Fatal(err)
	}
	synced := map[string]bool{}
	var mu sync.Mutex // directories are synced side by side
	end := durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		mu.Lock()
		defer mu.Unlock()
		synced[f.Name()] = true
		return nil
	}})
	err = h.SyncPublished()
	end()
	if err != nil || !synced[h.path("batches/ns/b/out")] || !synced[h.path("batches/ns/b/manifests")] {
		t.Errorf("the next result: %v, synced %v", err, synced)
	}
}

// Where trash/ is missing, as in a copy of a spool that leaves out what is empty, it is made
// anew: what is deleted is gone.
func TestDeleteWithoutTrash(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	over(t, h, b, job.KindCancelled)
	if err := os.Remove(h.path("trash")); err != nil {
		t.Fatal(err)
	}
	if err := h.EmptyTrash(t.Context()); err != nil {
		t.Errorf("nothing is to be emptied: %v", err)
	}
	if err := h.Trash(deleted(t, h, "ns/b")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(h.path("trash")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("trash/ is %v, %v", info, err)
	}
	if err := exists(b.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is there: %v", err)
	}
}

// Where trash/ cannot be used, no deletion is reported, and the batch is moved when it can.
func TestDeleteWithoutUsableTrash(t *testing.T) {
	for what, put := range map[string]func(name string) error{
		"a link that leads nowhere": func(name string) error { return os.Symlink("nothing", name) },
		"a file":                    func(name string) error { return os.WriteFile(name, nil, 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			h := newHead(t)
			b := submit(t, h, "ns/b", []string{"a"})
			over(t, h, b, job.KindCancelled)
			if err := errors.Join(os.Remove(h.path("trash")), put(h.path("trash"))); err != nil {
				t.Fatal(err)
			}
			d := deleted(t, h, "ns/b")
			if err := h.Trash(d); err == nil || errors.Is(err, ErrBroken) || errors.Is(err, ErrFull) {
				t.Errorf("the batch is not moved: %v", err)
			}
			if !h.Going(d) || exists(b.dir) != nil {
				t.Error("the batch counts as moved")
			}
			if err := errors.Join(os.Remove(h.path("trash")), os.Mkdir(h.path("trash"), 0o700), h.Trash(d)); err != nil {
				t.Error(err)
			}
			if err := exists(b.dir); h.Going(d) || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its directory is there: %v", err)
			}
		})
	}
}

// A crash while dsched makes a directory of the spool anew leaves none with another mode.
func TestMadeAnewAfterACrash(t *testing.T) {
	h := newHead(t)
	if err := os.RemoveAll(h.path("incoming")); err != nil {
		t.Fatal(err)
	}
	crash := errors.New("crash")
	end := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "remake.publish" {
			return crash
		}
		return nil
	}})
	err := h.clean()
	if end(); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	if err := h.clean(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(h.path("incoming")); err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|fs.ModeSticky|0o730 {
		t.Errorf("incoming/ is %v, %v", info, err)
	}
	if left, err := filepath.Glob(h.path(".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// Two processes that start at once make run/ anew, and neither fails.
func TestMadeAnewByTwo(t *testing.T) {
	h := newHead(t)
	if err := os.RemoveAll(h.path("run")); err != nil {
		t.Fatal(err)
	}
	second := false
	end := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name != "remake.publish" || second {
			return nil
		}
		second = true
		return h.remakeTop("run")
	}})
	err := h.remakeTop("run")
	if end(); err != nil || !second {
		t.Error(second, err)
	}
	if left, err := filepath.Glob(h.path(".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// If run/ cannot be made anew, however often that is tried, nothing is left of it: Load, which
// removes what a crash has left, comes later.
func TestNotMadeAnew(t *testing.T) {
	h := newHead(t)
	if err := os.RemoveAll(h.path("run")); err != nil {
		t.Fatal(err)
	}
	end := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "remake.publish" {
			return fs.ErrPermission
		}
		return nil
	}})
	err := h.remakeTop("run")
	if end(); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	if left, err := filepath.Glob(h.path(".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// What is made anew in a spool whose directories hand their group on does so, too.
func TestMadeAnewHandsItsGroupOn(t *testing.T) {
	h := newHead(t)
	if err := errors.Join(os.Chmod(h.Dir(), fs.ModeSetgid|0o750), os.Remove(h.path("trash")), h.remakeTop("trash")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(h.path("trash")); err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o700 {
		t.Errorf("trash/ is %v, %v", info.Mode(), err)
	}
}
