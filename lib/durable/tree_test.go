package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What was a directory when it was seen, and is a FIFO or a link to elsewhere
// when it is opened, is not waited for and not gone through.
func TestTreeThatChanges(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, err := range []error{os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700), os.Mkdir(filepath.Join(dir, "c"), 0o700), os.Mkdir(filepath.Join(dir, "e"), 0o700),
		os.WriteFile(filepath.Join(dir, "d"), nil, 0o600), os.WriteFile(filepath.Join(other, "theirs"), nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var seen []string
	failed := map[string]error{}
	err = Walk(root, func(e Entry, err error) error {
		path := e.Path
		if err != nil {
			failed[path] = err
			return nil
		}
		seen = append(seen, path)
		if path == "a" || path == "c" || path == "e" {
			if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
				t.Fatal(err)
			}
		}
		switch path {
		case "a":
			return syscall.Mkfifo(filepath.Join(dir, "a"), 0o600)
		case "c":
			return os.Symlink(other, filepath.Join(dir, "c"))
		case "e":
			return os.Symlink(".", filepath.Join(dir, "e")) // where a walk would never end
		}
		return nil
	}, nil)
	if err != nil || !slices.Equal(seen, []string{".", "a", "c", "d", "e"}) {
		t.Errorf("seen %q, %v", seen, err)
	}
	if !errors.Is(failed["a"], syscall.ENOTDIR) || failed["c"] == nil || failed["e"] == nil || len(failed) != 3 {
		t.Errorf("failed %v", failed)
	}
}

// deep makes a tree of so many levels below dir. Each has the directory d, which is the next
// one, the file c before it and the directory e after it.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	r, err := os.OpenRoot(dir)
	for range levels {
		if err == nil {
			err = errors.Join(r.Mkdir("d", 0o700), r.Mkdir("e", 0o700), r.WriteFile("c", nil, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		up := r
		r, err = r.OpenRoot("d")
		up.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// A walk of a tree that is deeper than a path can be long comes to all that is in it, in
// order, and goes on above a level that it had to close. It has few directories open.
func TestWalkDeep(t *testing.T) {
	const levels = 3000
	dir := t.TempDir()
	deep(t, dir, levels)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before, most, depth := open(), 0, 0
	var entered, left int
	err = Walk(root, func(e Entry, err error) error {
		if err != nil {
			return err
		}
		if n := strings.Count(e.Path, "/"); e.Path != "." && n != depth {
			t.Fatalf("at level %d comes what is at level %d", depth, n)
		}
		if _, err := e.Dir.Lstat(e.Name); err != nil {
			return err
		}
		entered++
		if e.Info.IsDir() && e.Path != "." {
			depth++
		}
		if depth%100 == 0 {
			most = max(most, open()-before)
		}
		return nil
	}, func(e Entry) error {
		depth--
		left++
		if depth%100 == 0 {
			most = max(most, open()-before)
		}
		return e.Dir.Remove(e.Name + map[bool]string{true: "/c", false: ""}[e.Name == "d" && depth < levels-1])
	})
	if err != nil || entered != 3*levels+1 || left != 2*levels {
		t.Errorf("entered %d, left %d, %v", entered, left, err)
	}
	if most > 200 {
		t.Errorf("%d directories are open at once", most)
	}
	if err := errors.Join(RereadTree(dir), os.RemoveAll(dir)); err != nil {
		t.Error(err)
	}
}

// What is in a directory that was moved away while the walk was far below it is given up, as is
// what SkipDir leaves out. The walk goes on above.
func TestWalkOfWhatMoves(t *testing.T) {
	dir := t.TempDir()
	deep(t, dir, 3*openLevels)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var after, lost []string
	moved := false
	err = Walk(root, func(e Entry, err error) error {
		depth := strings.Count(e.Path, "/")
		switch {
		case errors.Is(err, fs.ErrNotExist) && e.Dir == nil:
			lost = append(lost, e.Path)
		case err != nil:
			return err
		case !moved && depth == 2*openLevels+1 && e.Name == "d":
			moved = true
			if err := errors.Join(root.Rename("d/d", "gone"), root.MkdirAll("d/d/d/other", 0o700)); err != nil {
				return err
			}
			return fs.SkipDir
		case moved && depth < openLevels || depth > 2*openLevels+1:
			after = append(after, e.Path)
		}
		return nil
	}, nil)
	if err != nil || !slices.Equal(after, []string{"d/e", "e"}) {
		t.Errorf("then come %q, %v", after, err)
	}
	if len(lost) != openLevels-2 || lost[len(lost)-1] != "d/d" {
		t.Errorf("given up are %q", lost)
	}
}

// TestTakes reserves blocks behind the end of files, as a job can on each file system: they are taken,
// and so is what a directory has.
func TestTakes(t *testing.T) {
	const kib = 1 << 10
	dir := t.TempDir()
	for _, tt := range []struct{ size, reserved int64 }{{0, 64 * kib}, {400 * kib, 1200 * kib}, {100 * kib, 100 * kib}, {0, 0}, {10, 0}} {
		name := fmt.Sprintf("%d-%d", tt.size, tt.reserved)
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(make([]byte, tt.size))
		if err == nil && tt.reserved > 0 {
			err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, tt.reserved)
		}
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	Walk(root, func(e Entry, err error) error {
		if got, want := e.Takes(), e.Info.Sys().(*syscall.Stat_t).Blocks*512; err != nil || got != want {
			t.Errorf("%s takes %d, want %d; %v", e.Path, got, want, err)
		}
		return nil
	}, nil)
	closed := func() (*os.File, error) { return nil, fs.ErrPermission }
	for _, tt := range []struct {
		mode         uint32
		blocks, size int64
	}{{unix.S_IFDIR, 1456, 409600}, {unix.S_IFREG, 1536, 262145}, {unix.S_IFREG, 8, 10}} {
		if got := Takes(tt.mode, tt.blocks, tt.size, closed); got != tt.blocks*512 {
			t.Errorf("%+v takes %d", tt, got)
		}
	}
}
