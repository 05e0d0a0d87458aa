package pack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A readerFunc is a function that reads.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestReceivedWhenWritten receives an executable file, as a job has saved one, of which a program
// that is being started has a descriptor: it is waited for, so that the file can be executed.
func TestReceivedWhenWritten(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	const text = "#!/bin/true\n"
	sum := sha256.Sum256([]byte(text))
	e := Entry{Path: "solve", Type: File, Size: int64(len(text)), Mode: 0o755, Time: time.Unix(1, 0), Sum: hex.EncodeToString(sum[:])}
	content := strings.NewReader(text)
	writers := make(chan *os.File, 1)
	r := readerFunc(func(p []byte) (n int, err error) {
		if content.Size() == int64(content.Len()) {
			f, err := os.OpenFile(filepath.Join(dir, "solve"), os.O_WRONLY, 0)
			if err != nil {
				return 0, err
			}
			writers <- f
		}
		return content.Read(p)
	})
	done := make(chan error)
	go func() { done <- NewTree(root, Perm{}).Put(0, e, 0, r) }()
	for stacks := make([]byte, 1<<20); !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("durable.AwaitWriters(")); runtime.Gosched() {
		select {
		case err := <-done:
			t.Fatal("a writer was not waited for: ", err)
		default:
		}
	}
	(<-writers).Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
