package durable

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestOpenReplaced opens what can stand in the place of a file.
func TestOpenReplaced(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), []byte("text"), 0o600), syscall.Mkfifo(at("fifo"), 0o600),
		os.Mkdir(at("dir"), 0o700), os.Symlink("file", at("link")), os.Symlink("/dev/zero", at("zero"))); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]error{
		"file": nil, "none": fs.ErrNotExist, "fifo": ErrKind, "dir": ErrKind, "link": ErrKind, "zero": ErrKind, "socket": ErrKind,
	} {
		for _, flag := range []int{os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR} {
			f, err := Open(at(name), flag, 0)
			if !errors.Is(err, want) {
				t.Errorf("%s with flags %#x: %v", name, flag, err)
			}
			if err == nil {
				f.Close()
			}
		}
		if b, err := ReadFile(at(name), 4); !errors.Is(err, want) || want == nil && string(b) != "text" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		root, err := OpenRoot(at(name))
		if (err == nil) != (name == "dir") {
			t.Errorf("%s as a directory: %v", name, err)
		}
		if err == nil {
			root.Close()
		}
	}
	if b, err := ReadFile(at("file"), 3); err == nil || b != nil {
		t.Errorf("more than is wanted: %q, %v", b, err)
	}
	if err := os.Truncate(at("file"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(at("file"), 1<<20); err == nil || b != nil {
		t.Errorf("a huge file: %d bytes, %v", len(b), err)
	}
}
