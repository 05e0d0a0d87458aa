package durable

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAwaitWriters has a second descriptor of a file open, as a program that is being
// started has one.
func TestAwaitWriters(t *testing.T) {
	dir := t.TempDir()
	root, err := OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"none", "fifo", "."} { // which are not waited for
		AwaitWriters(root, name)
	}
	f, err := root.Create("solve")
	if err != nil {
		t.Fatal(err)
	}
	its, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		AwaitWriters(root, "solve")
	}()
	for stacks := make([]byte, 1<<20); !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("durable.AwaitWriters(")); runtime.Gosched() {
		select {
		case <-done:
			t.Fatal("a writer was not waited for")
		default:
		}
	}
	syscall.Close(its)
	<-done
}

// TestAwaitWritersRemote has a file on a network file system refuse all leases: there nobody is
// waited for.
func TestAwaitWritersRemote(t *testing.T) {
	defer func() { statfs = unix.Fstatfs }()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := root.Create("solve") // refuses them here
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, magic := range []uint32{unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC} {
		looks := 0
		statfs = func(_ int, st *unix.Statfs_t) error {
			st.Type = int64(magic)
			looks++
			return nil
		}
		if AwaitWriters(root, "solve"); looks != 1 {
			t.Errorf("on %#x it has looked %d times", magic, looks)
		}
	}
}
