package pack

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// N65: that there is no descriptor makes no link one that leads out of the tree.
func TestN65NoDescriptorForALink(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	must(t, root.MkdirAll("d/e", 0o700))
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}))
	tree := NewTree(root, Perm{})
	err := tree.Put(0, Entry{Path: "l", Type: Link, Link: "d/e/f"}, 0, nil)
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	if !errors.Is(err, syscall.EMFILE) || errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "l")); err != nil {
		t.Error(err)
	}
	must(t, tree.Close())
}
