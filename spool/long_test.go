package spool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// A result may have a path that is as long as the kernel takes one, and too long when the
// path of the spool is before it: it is received, goes on after a restart, is put in place,
// weighed, deleted and removed as any other.
func TestLongPath(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	began := start("a", 1)
	commit(t, h, b, began)
	const text = "of a long path\n"
	short := resultOf(text)
	deep := short[0]
	deep.Path = "d"
	m := pack.Manifest{deep}
	for len(deep.Path) < 4077-200 {
		deep.Path += "/" + strings.Repeat("d", min(199, 4077-7-len(deep.Path)))
		m = append(m, deep)
	}
	file := short[1]
	file.Path = deep.Path + "/" + strings.Repeat("f", 4077-len(deep.Path)-1)
	m, err := bringAs(h, b, began.Attempt, append(m, file), text)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := h.StagedBytes(b, began.Attempt); n != int64(len(text)) || err != nil {
		t.Errorf("%d bytes are staged, %v", n, err)
	}
	h, open, problems := restart(t, h, b)
	if len(open) != 1 {
		t.Fatalf("a batch with a long path in staging/ does not open: %v", problems)
	}
	b = open[0]
	if _, want, err := h.Resume(t.Context(), b, began.Attempt, m.Sum()); err != nil || !want.Empty(m) {
		t.Errorf("after a restart %+v is wanted: %v", want, err)
	}
	commit(t, h, b, endOf(job.KindDone, began, m))
	h, open, problems = restart(t, h, b) // which puts it in place
	if len(open) != 1 {
		t.Fatal(problems)
	}
	whole(t, h.Spool, "ns/b/a", 0, m.Sum())
	if n, err := h.Weight(t.Context(), "ns/b"); n < int64(len(text)) || err != nil {
		t.Errorf("it weighs %d, %v", n, err)
	}
	for _, f := range checkSpool(t, h.Dir(), false) {
		t.Errorf("dfsck says: %s", f.Text())
	}
	h.CloseBatch(open[0])
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := h.Trash(deleted(t, h, "ns/b")); err != nil {
		t.Fatal(err)
	}
	if err := h.EmptyTrash(t.Context()); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(h.path("trash")); len(list) > 0 || err != nil {
		t.Errorf("left in trash/: %v, %v", list, err)
	}
}

// What cannot be used in the directory of one batch stops that batch, and no other.
func TestOneBatchAlone(t *testing.T) {
	for what, put := range map[string]func(name string) error{
		"a file":                      func(name string) error { return os.WriteFile(name, nil, 0o600) },
		"a FIFO":                      func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"a link to itself":            func(name string) error { return os.Symlink("out", name) },
		"a link to what is not there": func(name string) error { return os.Symlink("nothing", name) },
	} {
		t.Run(what, func(t *testing.T) {
			h := newHead(t)
			bad, good := submit(t, h, "ns/bad", []string{"a"}), submit(t, h, "ns/good", []string{"a"})
			began := start("a", 1)
			commit(t, h, bad, began)
			m, err := bring(h, bad, began.Attempt, "1\n")
			if err != nil {
				t.Fatal(err)
			}
			commit(t, h, bad, endOf(job.KindDone, began, m))
			out := filepath.Join(bad.dir, "out")
			if err := errors.Join(os.Remove(out), put(out)); err != nil {
				t.Fatal(err)
			}
			if err := h.Publish(bad, "a", began.Attempt); err == nil || errors.Is(err, ErrBroken) || errors.Is(err, ErrFull) {
				t.Errorf("a result that cannot be put in place: %v", err)
			}
			if err := h.SyncPublished(); err != nil {
				t.Errorf("what is in place: %v", err)
			}
			commit(t, h, good, start("a", 1))
			h, open, problems := restart(t, h, bad, good)
			if open[len(open)-1].ID != "ns/good" || len(problems) != 1 || problems[0].Batch != "ns/bad" || problems[0].Stops != (len(open) == 1) {
				t.Fatalf("open %v, problems %v", open, problems)
			}
			if err := errors.Join(os.Remove(out), os.Mkdir(out, 0o750)); err != nil {
				t.Fatal(err)
			}
			if h, open, problems = restart(t, h, open...); len(open) != 2 || len(problems) > 0 {
				t.Errorf("when it is mended: open %v, problems %v", open, problems)
			}
			whole(t, h.Spool, "ns/bad/a", 0, m.Sum())
		})
	}
}

// Where the directory of a namespace cannot be used, or becomes so while a batch is taken in,
// no batch is made in it. The disk counts as whole, and others are made.
func TestOneNamespaceAlone(t *testing.T) {
	for what, put := range map[string]func(name string) error{
		"a file":                      func(name string) error { return os.WriteFile(name, nil, 0o600) },
		"a link to itself":            func(name string) error { return os.Symlink("bad", name) },
		"a link to what is not there": func(name string) error { return os.Symlink("nothing", name) },
		"nothing":                     func(string) error { return nil },
	} {
		t.Run(what, func(t *testing.T) {
			h := newHead(t)
			bad := h.path("batches", "bad")
			refused := func(when string, err error) {
				t.Helper()
				if err == nil || errors.Is(err, ErrBroken) || errors.Is(err, ErrFull) {
					t.Errorf("%s: %v", when, err)
				}
			}
			late, err := h.Begin(job.NewToken(), "bad/b", "ana", os.Getuid())
			if err == nil {
				err = fillIn(late, plain, []string{"a"})
			}
			if err := errors.Join(err, os.Rename(bad, h.path("moved")), put(bad)); err != nil {
				t.Fatal(err)
			}
			_, err = late.Finish(false)
			refused("at its end", err)
			if what != "nothing" {
				_, err = h.Begin(job.NewToken(), "bad/c", "ana", os.Getuid())
				refused("at its beginning", err)
			}
			submit(t, h, "ns/good", []string{"a"}).Close()
		})
	}
}

// Where the directory of a namespace can be written and not read, no batch is made, found again or
// removed in it, as that could not be synced. The disk counts as whole.
func TestUnreadableNamespace(t *testing.T) {
	h := newHead(t)
	bad := h.path("batches", "bad")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", what, err)
		}
	}
	old := submit(t, h, "bad/old", []string{"a"})
	h.CloseBatch(old)
	check(errors.Join(h.Commit(), old.Close()))
	doomed, err := h.Delete("bad/old", old.seq, "ana", job.NewToken())
	check(errors.Join(err, h.Commit()))
	there := submit(t, h, "bad/there", []string{"a"})
	defer there.Close()
	var late []*Submission
	for _, id := range []job.BatchID{"bad/new", "bad/there"} {
		s, err := h.Begin(job.NewToken(), id, "ana", os.Getuid())
		check(err)
		check(fillIn(s, plain, []string{"a"}))
		late = append(late, s)
	}
	check(os.Chmod(bad, 0o300))
	bound(t, func() {
		_, err := h.Begin(job.NewToken(), "bad/c", "ana", os.Getuid())
		refused("at the beginning of a batch", err)
		_, err = late[0].Finish(false)
		refused("at the end of a batch", err)
		_, err = late[1].Finish(false)
		refused("at the end of one that is there", err)
		refused("at a deletion", h.Trash(doomed))
	})
	check(os.Chmod(bad, 0o700))
	for name, want := range map[string]error{"new": fs.ErrNotExist, "old": nil, "there": nil} {
		if err := exists(filepath.Join(bad, name)); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	submit(t, h, "bad/c", []string{"a"}).Close()
}

// Where the directory of a namespace cannot be read at a start, its open batches are left alone,
// and the others open.
func TestStartBesideUnreadable(t *testing.T) {
	for name, mode := range map[string]os.FileMode{"it can be entered": 0o300, "it cannot be entered": 0} {
		t.Run(name, func(t *testing.T) { startBesideUnreadable(t, mode) })
	}
}

func startBesideUnreadable(t *testing.T, mode os.FileMode) {
	h := newHead(t)
	var began []*Batch
	for _, id := range []job.BatchID{"bad/a", "good/a"} {
		b := submit(t, h, id, []string{"a"})
		commit(t, h, b, start("a", 1))
		began = append(began, b)
	}
	bad := h.path("batches", "bad")
	if err := os.Chmod(bad, mode); err != nil {
		t.Fatal(err)
	}
	bound(t, func() {
		for _, b := range began {
			b.Close()
		}
		h.Close()
		s, err := Open(h.Dir())
		if err == nil {
			h, err = s.Lock()
		}
		if err != nil {
			t.Error(err)
			return
		}
		open, problems, err := h.Load()
		if err != nil || len(open) != 1 || open[0].ID != "good/a" {
			t.Errorf("it opens %v, %v", open, err)
		}
		if !slices.ContainsFunc(problems, func(p *Problem) bool {
			return p.Stops && p.Batch == "bad/a" && p.Why == "the directory of its namespace cannot be read"
		}) {
			t.Errorf("it tells of %v", problems)
		}
		for _, b := range open {
			b.Close()
		}
	})
	if err := os.Chmod(bad, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, open, problems := restart(t, h); len(open) != 2 {
		t.Errorf("it can be read again: %d batches open, %v", len(open), problems)
	}
}

// bound calls f as a user to whom the modes of directories apply.
func bound(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread stays without what it gives up
		var err error
		if os.Geteuid() == 0 {
			head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			err = unix.Capset(&head, &none[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Where something else is in the place of a directory for inputs, or for what is refused, what
// needs it is not done. The disk counts as whole, and others are served.
func TestOnePlaceAlone(t *testing.T) {
	h := newHead(t)
	const other = 4242 // no owner of the spool
	big := strings.Repeat("big", job.SmallFile)
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, ErrBroken) || errors.Is(err, ErrFull) {
			t.Errorf("%s: %v", what, err)
		}
	}
	begin := func(uid int, contents ...string) error {
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", uid)
		if err != nil {
			return err
		}
		return errors.Join(fillIn(s, plain, []string{"a"}, contents...), s.Abort())
	}
	rejected := h.path("rejected")
	if err := errors.Join(os.WriteFile(h.path("blobs", sumOf(big)[:2]), nil, 0o600),
		os.Mkdir(h.path("uploads"), 0o700), os.WriteFile(h.uploads(other), nil, 0o600), os.Remove(rejected), os.WriteFile(rejected, nil, 0o600), os.WriteFile(h.path("incoming", "garbage"), nil, 0o640)); err != nil {
		t.Fatal(err)
	}
	refused("an input", begin(h.uid, big))
	refused("an input of another user", begin(other, big+"another"))
	refused("what waits", h.Reject("garbage", ErrInput))
	if err := errors.Join(begin(h.uid, big+"another"), os.Remove(rejected), h.Reject("garbage", ErrInput)); err != nil {
		t.Error(err)
	}
	if list, err := h.Waiting(); err != nil || len(list) != 1 || list[0].Why != ErrInput.Error() {
		t.Errorf("refused: %+v, %v", list, err)
	}
}

// Nor does the disk count as broken where a directory may be written to, and not be opened to be
// synced. What is in it is not durable then, and no batch is made with it.
func TestUnreadablePlace(t *testing.T) {
	h := newHead(t)
	big := strings.Repeat("big", job.SmallFile)
	bad := h.path("blobs", sumOf(big)[:2])
	if err := errors.Join(os.Mkdir(bad, 0o700), os.Chmod(bad, 0o300), os.Chmod(h.path("rejected"), 0o300),
		os.WriteFile(h.path("incoming", "garbage"), nil, 0o640)); err != nil {
		t.Fatal(err)
	}
	bound(t, func() {
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", h.uid)
		if err == nil {
			err = fillIn(s, plain, []string{"a"}, big)
		}
		if err != nil {
			t.Error(err)
			return
		}
		_, err = s.Finish(false)
		for what, err := range map[string]error{"an input": err, "what waits": h.Reject("garbage", ErrInput)} {
			if !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrBroken) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if exists(h.batchDir("ns/b")) == nil {
			t.Error("the batch is there")
		}
	})
}

// What a crash has left where it cannot be removed does not keep a head from starting.
func TestStartBesideWhatStays(t *testing.T) {
	h := newHead(t)
	submit(t, h, "ns/b", []string{"a"}).Close()
	space := h.path("batches", "bad")
	if err := errors.Join(h.Close(), os.MkdirAll(filepath.Join(space, ".new-left"), 0o700), os.Chmod(space, 0o500)); err != nil {
		t.Fatal(err)
	}
	again, err := h.Spool.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	bound(t, func() {
		open, problems, err := again.Load()
		if err != nil || len(open) != 1 || len(problems) > 0 {
			t.Errorf("%d batches, %v, %v", len(open), problems, err)
		}
	})
}

// An error of the disk in the files of a batch ends the start, as it may be of all.
func TestDiskErrorEndsTheStart(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	dir := h.Dir()
	if err := errors.Join(b.Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	defer durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		if f != nil && strings.HasSuffix(f.Name(), "/ns/b/log.jsonl") {
			return syscall.EIO
		}
		return nil
	}})()
	if _, _, err := lockAndLoad(dir); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
}
