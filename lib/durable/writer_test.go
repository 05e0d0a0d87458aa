package durable

import (
	"bytes"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
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
