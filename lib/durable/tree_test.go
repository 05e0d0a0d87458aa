package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// What was a directory when it was seen, and is a FIFO or a link to elsewhere
// when it is opened, is not waited for and not gone through.
func TestTreeThatChanges(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, err := range []error{os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700), os.Mkdir(filepath.Join(dir, "c"), 0o700),
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
	err = fs.WalkDir(Tree(root), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			failed[path] = err
			return nil
		}
		seen = append(seen, path)
		if path == "a" || path == "c" {
			if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
				t.Fatal(err)
			}
		}
		switch path {
		case "a":
			return syscall.Mkfifo(filepath.Join(dir, "a"), 0o600)
		case "c":
			return os.Symlink(other, filepath.Join(dir, "c"))
		}
		return nil
	})
	if err != nil || !slices.Equal(seen, []string{".", "a", "c", "d"}) {
		t.Errorf("seen %q, %v", seen, err)
	}
	if !errors.Is(failed["a"], syscall.ENOTDIR) || failed["c"] == nil || len(failed) != 2 {
		t.Errorf("failed %v", failed)
	}
}
