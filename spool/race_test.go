package spool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
)

// A stream may still seal a result when its node was given up and its batch was
// closed, or deleted. That is no fault of the disk.
func TestI03SealedWhenItsBatchIsGone(t *testing.T) {
	h := newHead(t)
	b, token := submit(t, h, "ns/b", []string{"a"}), job.NewToken()
	m, err := bring(h, b, token, "x\n") // sealed, and of no record
	if err != nil {
		t.Fatal(err)
	}
	over(t, h, b, job.KindCancelled)
	if err := h.Seal(b, token, m); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrBroken) {
		t.Errorf("swept meanwhile: %v", err)
	}
	d := deleted(t, h, "ns/b")
	h.unsynced[filepath.Join(b.dir, "staging")] = true // as Seal notes that ended just now
	if err := h.Trash(d); err != nil {
		t.Fatal(err)
	}
	if err := h.Commit(); err != nil {
		t.Errorf("deleted meanwhile: %v", err)
	}
}

// A batch can be opened as soon as it has its name. Before head.jsonl lists it as open, its
// name is durable: after a power cut its directory would be missing otherwise.
func TestNameIsDurableBeforeItIsListed(t *testing.T) {
	var dir string
	var mu sync.Mutex // guards synced
	var synced []string
	var h *Head
	observe := func(meanwhile func() error) func() {
		synced = nil
		return durable.Observe(&durable.Observer{
			Step: func(name string) error {
				if name == "submit.name" {
					return meanwhile()
				}
				return nil
			},
			Sync: func(f *os.File, _ bool) error {
				mu.Lock()
				defer mu.Unlock()
				synced = append(synced, strings.TrimPrefix(f.Name(), dir+"/"))
				return nil
			},
		})
	}
	listed := func(as string, dirs ...string) {
		t.Helper()
		at := slices.IndexFunc(synced, func(name string) bool { return strings.HasPrefix(strings.TrimPrefix(name, "."), "head.jsonl") })
		for _, d := range dirs {
			if at < 0 || !slices.Contains(synced[:at], d) {
				t.Errorf("%s: synced in this order: %q", as, synced)
			}
		}
	}
	begin := func() *Submission {
		h = newHead(t)
		dir = h.Dir()
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
		if err != nil {
			t.Fatal(err)
		}
		if err := fillIn(s, plain, []string{"a"}); err != nil {
			t.Fatal(err)
		}
		return s
	}

	s := begin()
	end := observe(func() error {
		synced = nil
		b, problems, err := h.Open("ns/b")
		if err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
		defer b.Close()
		commit(t, h, b, job.Record{Kind: job.KindHold, Job: "a", By: "ana"})
		listed("by a hold", "batches", "batches/ns", "batches/ns/b")
		return nil
	})
	b, err := s.Finish(false)
	if end(); err != nil {
		t.Fatal(err)
	}
	b.Close()

	s = begin()
	killed := errors.New("killed")
	end = observe(func() error { return killed })
	_, err = s.Finish(false)
	end()
	wantErr(t, "a name that is not durable", err, killed)
	if err := errors.Join(h.Close(), os.Remove(filepath.Join(dir, "head.jsonl"))); err != nil {
		t.Fatal(err)
	}
	end = observe(func() error { return nil })
	err = Check(t.Context(), &check.Run{Dir: dir, Mend: true, Tell: func(*check.Finding) error { return nil }})
	if end(); err != nil {
		t.Fatal(err)
	}
	listed("by dfsck -r", "batches", "batches/ns")
}

// A batch that is opened again, while its closing still waits for what is not
// durable, is not closed under who opened it.
func TestL35ReopenedBeforeItIsClosed(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	h.Append(b, &job.Record{Kind: job.KindCancelled, Job: "a", By: "ana"})
	tick := h.Tick()
	h.CloseBatch(b)
	if err := errors.Join(tick.Commit(), b.Close()); err != nil {
		t.Fatal(err)
	}
	again, problems, err := h.Open("ns/b")
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	commit(t, h, again, job.Record{Kind: job.KindRetry, Job: "a", By: "ana"})
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	if h.Closed("ns/b") {
		t.Error("it is closed, and a job of it waits")
	}
	if _, open, _ := restart(t, h, again); len(open) != 1 {
		t.Error("its job is not there any more after a restart")
	}
}

// Who leaves what is there already is told so only when it is durable: who left
// it before may have died just before that.
func TestS02LeftTwice(t *testing.T) {
	h := newHead(t)
	d := Drop{Submission: job.NewToken(), Batch: "ns/b", Jobs: 1}
	leave := func() error {
		return h.Leave(d, nil, &plain, func(yield func(*job.Job) bool) { yield(&job.Job{Name: "a", Run: []string{"./run"}}) }, nil)
	}
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	all := 0
	defer durable.Observe(&durable.Observer{Sync: func(_ *os.File, everything bool) error {
		if everything {
			all++
		}
		return nil
	}})()
	if err := leave(); err != nil || all != 1 {
		t.Errorf("%v, after %d syncs of everything", err, all)
	}
}

// On a disk that is full to the last block the ballast is given up so that a
// batch can be deleted.
func TestJ26DeleteOnAFullDisk(t *testing.T) {
	h := newHead(t)
	over(t, h, submit(t, h, "ns/b", []string{"a"}), job.KindDone)
	d := deleted(t, h, "ns/b")
	if err := exists(h.path("ballast")); err != nil {
		t.Fatal(err)
	}
	defer durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "delete.rename" && exists(h.path("ballast")) == nil {
			return syscall.ENOSPC
		}
		return nil
	}})()
	if err := h.Trash(d); err != nil || exists(h.batchDir("ns/b")) == nil {
		t.Errorf("it is there: %v", err)
	}
}

// What was never finished is collected, too, of a spool whose path looks like a
// pattern.
func TestS01CollectedWithOddPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b]", "spool")
	if err := errors.Join(os.Mkdir(filepath.Dir(dir), 0o750), Init(dir, Private)); err != nil {
		t.Fatal(err)
	}
	h, _, _ := loadHead(t, dir)
	half := h.path("batches", "ns", ".new-0123")
	if err := os.MkdirAll(half, 0o750); err != nil {
		t.Fatal(err)
	}
	later(h, tempAge*2)
	collect(t, h, 0)
	if exists(half) == nil {
		t.Error("it is still there")
	}
}

// A file system may say that it is best read in blocks that are larger than
// those in which it counts.
func TestI17SpaceIsCountedInFragments(t *testing.T) {
	sp := spaceOf(&syscall.Statfs_t{Bsize: 1 << 20, Frsize: 4096, Blocks: 1000, Bavail: 10, Files: 7, Ffree: 5})
	if want := (Space{Free: 40960, Size: 4096000, Files: 5}); sp != want {
		t.Errorf("got %+v, want %+v", sp, want)
	}
	if sp := spaceOf(&syscall.Statfs_t{Bsize: 512, Blocks: 3}); sp.Size != 1536 || sp.Files != -1 {
		t.Errorf("with no word of fragments: %+v", sp)
	}
}

// So it is for an accepted result that has no room for its name; while it is not
// in place, nothing is told.
func TestJ26PlacedOnAFullDisk(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	one := start("a", 1)
	m, err := bring(h, b, one.Attempt, "x\n")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, h, b, one, endOf(job.KindDone, one, m))
	defer durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "publish.manifest" && exists(h.path("ballast")) == nil {
			return syscall.ENOSPC
		}
		return nil
	}})()
	if err := errors.Join(h.Publish(b, "a", one.Attempt), h.SyncPublished()); err != nil {
		t.Error(err)
	}
	if !b.closable() {
		t.Error("its batch cannot be closed")
	}
}

// A head starts although there is no room to move what was deleted, and moves it
// at the next start.
func TestJ26StartBesideTheDeleted(t *testing.T) {
	h := newHead(t)
	over(t, h, submit(t, h, "ns/b", []string{"a"}), job.KindDone)
	deleted(t, h, "ns/b")
	full := true
	defer durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "delete.rename" && full {
			return syscall.ENOSPC
		}
		return nil
	}})()
	h, open, problems := restart(t, h)
	if len(open) != 0 || len(problems) != 1 || problems[0].Stops {
		t.Fatalf("open %v, problems %v", open, problems)
	}
	if all := ids(t, h); len(all) != 0 {
		t.Errorf("there are %v", all)
	}
	full = false
	if h, _, problems = restart(t, h); len(problems) != 0 || exists(h.batchDir("ns/b")) == nil {
		t.Errorf("it is there: %v", problems)
	}
}

// A ballast that takes no room is made anew.
func TestJ26HollowBallast(t *testing.T) {
	h := newHead(t)
	if err := os.Truncate(h.path("ballast"), 0); err != nil {
		t.Fatal(err)
	}
	h, _, _ = restart(t, h)
	if n := takes(h.path("ballast")); n < ballastSize || h.Bare() {
		t.Errorf("it takes %d bytes; bare: %v", n, h.Bare())
	}
}
