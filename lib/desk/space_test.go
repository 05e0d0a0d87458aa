package desk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/pack"
)

func input(data []byte) job.Input {
	return job.Input{Path: "x", Size: int64(len(data)), Sum: sumOf(data)}
}

// aged makes an input one that was used so long ago.
func aged(t *testing.T, d *Desk, in job.Input, ago time.Duration) {
	t.Helper()
	path, ok := d.Cached(in.Sum)
	if !ok {
		t.Fatalf("%s is not cached", in.Sum)
	}
	if err := os.Chtimes(path, time.Now().Add(-ago), time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func has(d *Desk, in job.Input) bool {
	_, ok := d.Cached(in.Sum)
	return ok
}

// What was used longest ago goes first; what is pinned stays, and is used.
func TestEvict(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	old, pinned, late := cache(t, d, []byte("old")), cache(t, d, []byte("pinned")), cache(t, d, bytes.Repeat([]byte("late"), 2000))
	if got := d.CacheSize(); got != 4*block {
		t.Fatalf("the cache has %d bytes", got)
	}
	aged(t, d, old, 2*time.Hour)
	aged(t, d, pinned, 3*time.Hour)
	aged(t, d, late, time.Hour)
	d.Pin([]job.Input{pinned})
	if freed, err := d.Evict(3 * block); err != nil || freed != block || has(d, old) || !has(d, pinned) || !has(d, late) {
		t.Errorf("freed %d, %v", freed, err)
	}
	if freed, err := d.Evict(0); err != nil || freed != 2*block || has(d, late) || !has(d, pinned) {
		t.Errorf("freed %d, %v", freed, err)
	}
	path, _ := d.Cached(pinned.Sum)
	if info, err := os.Stat(path); err != nil || time.Since(used(info)) > time.Minute {
		t.Errorf("a pin is no use: %v, %v", info, err)
	}
	d.Unpin([]job.Input{pinned})
	d.Close()
	if d = open(t, dir, "b1"); d.CacheSize() != block {
		t.Errorf("counted again it has %d bytes", d.CacheSize())
	}
	if freed, err := d.Evict(0); err != nil || freed != block || d.CacheSize() != 0 {
		t.Errorf("freed %d, %v; %d are left", freed, err, d.CacheSize())
	}
}

// cutReader ends with an error.
type cutReader struct{ r io.Reader }

func (c cutReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// An input that a job has made longer, or empty, had as many bytes of the cache as when it came.
func TestSpaceOfChanged(t *testing.T) {
	for _, size := range []int64{0, 5 * block} {
		d := open(t, t.TempDir(), "b1")
		in := cache(t, d, []byte("an input"))
		path, _ := d.Cached(in.Sum)
		if err := errors.Join(os.Chmod(path, 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
		changed, err := d.CheckShared(t.Context(), []job.Input{in}, []SharedFile{{Size: in.Size}})
		if err != nil || changed != in.Path || has(d, in) || d.CacheSize() != 0 {
			t.Errorf("of %d bytes: changed is %q, %v, and the cache has %d bytes", size, changed, err, d.CacheSize())
		}
	}
}

// TestD88PartOfAnInput cuts an input at each byte; the rest makes it whole.
func TestD88PartOfAnInput(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	data := []byte("an input of some bytes")
	in := input(data)
	e := pack.Blobs(map[string]int64{in.Sum: in.Size})[0]
	for cut := 1; cut < len(data); cut++ {
		if err := d.Cacher().Put(0, e, 0, cutReader{bytes.NewReader(data[:cut])}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if got := d.Part(in.Sum); got != int64(cut) || has(d, in) {
			t.Fatalf("cut at %d: %d bytes are here", cut, got)
		}
		if err := d.Cacher().Put(0, e, int64(cut), bytes.NewReader(data[cut:])); err != nil || !has(d, in) || d.Part(in.Sum) != 0 {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if err := d.Uncache(in); err != nil || d.CacheSize() != 0 {
			t.Fatalf("cut at %d: %d bytes are left, %v", cut, d.CacheSize(), err)
		}
	}
	// A part that is wrong is removed, so that all is asked for.
	if err := d.Cacher().Put(0, e, 0, cutReader{bytes.NewReader([]byte("wrong"))}); err == nil {
		t.Fatal("it was not cut")
	}
	if err := d.Cacher().Put(0, e, 5, bytes.NewReader(data[5:])); !errors.Is(err, pack.ErrSum) || d.Part(in.Sum) != 0 || has(d, in) {
		t.Errorf("a wrong part: %v", err)
	}
	if err := d.Cacher().Put(0, e, 5, bytes.NewReader(data[5:])); err == nil || has(d, in) {
		t.Errorf("more than is here was believed: %v", err)
	}
}

// What cannot be removed is in nobody's way.
func TestTrashThatStays(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	for _, name := range []string{"1", "2"} {
		if err := os.MkdirAll(filepath.Join(d.Dir(), "trash", name, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	as, errs := d.Begin([]Note{note("a")})
	if err := errors.Join(errs[0], d.Discard(as[0])); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(d.Dir(), "trash")); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
	d.Close()
	d = open(t, d.Dir(), "b1")
	if left, err := os.ReadDir(filepath.Join(d.Dir(), "trash")); err != nil || len(left) != 0 {
		t.Errorf("left after a start: %v, %v", left, err)
	}
}

// TestN66Deep removes a tree that is deeper than a path can be long, whose
// directories are closed to their owner, with few descriptors.
func TestN66Deep(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	as, errs := d.Begin([]Note{note("deep")})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	fd, err := syscall.Open(as[0].Dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	for range 2000 {
		if err == nil {
			err = syscall.Mkdirat(fd, "deep", 0o700)
		}
		next := -1
		if err == nil {
			next, err = syscall.Openat(fd, "deep", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		}
		syscall.Close(fd)
		fd = next
	}
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(fd)
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	few := lim
	few.Cur = 500
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
	if err := d.Discard(as[0]); err != nil {
		t.Errorf("%.200v", err)
	}
	if left, err := os.ReadDir(filepath.Join(d.Dir(), "trash")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Lstat(as[0].Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

// Neither a look at how much a tree takes, nor one for links to shared inputs, nor its removal
// holds the paths of all directories of a tree that is as deep as a job can make it: they have
// gigabytes.
func TestDeepTreeTakesLittleMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep")
	err := os.Mkdir(dir, 0o700)
	fd, oerr := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	err = errors.Join(err, oerr)
	name := strings.Repeat("d", 250)
	for range 1200 {
		next := -1
		if err == nil {
			if err = syscall.Mkdirat(fd, name, 0o700); err == nil {
				next, err = syscall.Openat(fd, name, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
			}
		}
		syscall.Close(fd)
		fd = next
	}
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(fd)
	allocated := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	used := allocated(func() { Use(t.Context(), dir) })
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	unshared := allocated(func() {
		if err := new(Build).unshare(root, []SharedFile{{Inode: 1}}); err != nil {
			t.Errorf("%.200v", err)
		}
	})
	removed := allocated(func() {
		if err := RemoveAll(dir); err != nil {
			t.Errorf("%.200v", err)
		}
	})
	if most := uint64(100 << 20); used > most || unshared > most || removed > most {
		t.Errorf("%d bytes were allocated by the look, %d for links in a build, %d by the removal", used, unshared, removed)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

// A file system may say that it is best read in blocks that are larger than
// those in which it counts.
func TestN62SpaceIsCountedInFragments(t *testing.T) {
	sp := spaceOf(&syscall.Statfs_t{Bsize: 1 << 20, Frsize: 4096, Blocks: 30, Bfree: 12, Bavail: 10, Ffree: 5, Files: 7})
	if want := (Space{40960, 28 * 4096, 5, 7}); sp != want {
		t.Errorf("got %+v, want %+v", sp, want)
	}
	if sp := spaceOf(&syscall.Statfs_t{Bsize: 512, Bavail: 3}); sp.Free != 1536 {
		t.Errorf("with no word of fragments: %+v", sp)
	}
}

// A large input of a job is the cache's: nothing of it counts as the job's, whether it is
// linked or, which is known before the job starts, cloned.
func TestLargeInputIsNobodysUse(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	in := cache(t, d, make([]byte, SharedFrom))
	dir := t.TempDir()
	if where := filepath.Join(d.dir, "attempts", "x"); os.Mkdir(where, 0o700) == nil { // of the same file system
		dir = where
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	_, at, err := d.Place(t.Context(), root, []job.Input{in}, false)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := Use(t.Context(), dir, at...)
	if len(at) > 0 && base > 1<<20 {
		t.Errorf("a linked input takes %d bytes", base)
	}
	if err := root.WriteFile("out", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, _ := Use(t.Context(), dir, at...); all-base < 1<<20 || all-base > 2<<20 {
		t.Errorf("%d bytes are written, and %d were there", all-base, base)
	}
}
