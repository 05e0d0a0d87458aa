package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

func openLog(t *testing.T, path string) *Log {
	t.Helper()
	l, err := OpenLog(path, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	l.Append([]byte("one"))
	l.Append([]byte("two\n"))
	if got := content(t, path); got != "" {
		t.Errorf("before Flush: %q", got)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := content(t, path); got != "one\ntwo\n" {
		t.Errorf("after Flush: %q", got)
	}
	if l.Size() != 0 || l.Written() != 8 || l.Buffered() != 0 {
		t.Errorf("before Sync: size %d, written %d, buffered %d", l.Size(), l.Written(), l.Buffered())
	}
	if errs := SyncLogs([]*Log{l}); errs != nil {
		t.Fatal(errs)
	}
	if l.Size() != 8 {
		t.Errorf("after Sync: size %d", l.Size())
	}
	l.Append([]byte("dropped"))
	l.Discard()
	if err := errors.Join(l.Flush(), l.Sync(), l.Close()); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, path)
	if l.Size() != 8 || l.Written() != 8 {
		t.Errorf("opened again: size %d, written %d", l.Size(), l.Written())
	}
	l.Append([]byte("three"))
	if err := errors.Join(l.Flush(), l.Sync()); err != nil {
		t.Fatal(err)
	}
	if got := content(t, path); got != "one\ntwo\nthree\n" {
		t.Errorf("in the end: %q", got)
	}
}

func TestOpenLogRefuses(t *testing.T) {
	dir := t.TempDir()
	torn := filepath.Join(dir, "torn")
	if err := os.WriteFile(torn, []byte("one\ntw"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLog(torn, 0o600); !errors.Is(err, ErrTorn) {
		t.Errorf("torn: %v", err)
	}
	tail, err := Cut(torn, 4, 100)
	if err != nil || string(tail) != "tw" {
		t.Errorf("cut: %q, %v", tail, err)
	}
	if l := openLog(t, torn); l.Size() != 4 {
		t.Errorf("after the cut: %d", l.Size())
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(torn, link); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLog(link, 0o600); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("link: %v", err)
	}
	if _, err := OpenLog(dir, 0o600); err == nil {
		t.Error("a directory was opened")
	}
	if _, err := OpenLog(filepath.Join(dir, "no", "log"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// halfWrite writes n bytes of what it gets and then fails.
func halfWrite(l *Log, n int, err error) func([]byte) (int, error) {
	return func(b []byte) (int, error) {
		n, _ := l.file.Write(b[:min(n, len(b))])
		return n, err
	}
}

func TestNoRoomOfAFullDiskAndOfAQuota(t *testing.T) {
	for err, want := range map[error]bool{
		ErrFull: true, syscall.ENOSPC: true, syscall.EDQUOT: true,
		nil: false, ErrBroken: false, syscall.EIO: false, syscall.EROFS: false,
	} {
		if got := NoRoom(fmt.Errorf("write: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestJ26NoRoom(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		path := filepath.Join(t.TempDir(), "log")
		l := openLog(t, path)
		l.Append([]byte("one"))
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		whole := l.write
		l.Append([]byte("two"))
		l.Append([]byte("three"))
		for n := range 11 {
			l.write = halfWrite(l, n, errno)
			if err := l.Flush(); !errors.Is(err, ErrFull) || !errors.Is(err, errno) || errors.Is(err, ErrBroken) {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if got := content(t, path); got != "one\n" {
				t.Fatalf("%d bytes: left %q", n, got)
			}
		}
		l.write = whole
		if err := errors.Join(l.Flush(), l.Sync()); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != "one\ntwo\nthree\n" || l.Size() != 14 {
			t.Errorf("after room was made: %q, size %d", got, l.Size())
		}
	}
}

func TestBrokenLogStaysBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	whole := l.write
	l.write = halfWrite(l, 2, syscall.EIO)
	l.Append([]byte("one"))
	if err := l.Flush(); !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.EIO) {
		t.Errorf("write: %v", err)
	}
	l.write = whole
	for _, err := range []error{l.Flush(), l.Sync()} {
		if !errors.Is(err, ErrBroken) {
			t.Errorf("afterwards: %v", err)
		}
	}
	if got := content(t, path); got != "on" {
		t.Errorf("content %q: the log was touched again", got)
	}
}

func TestJ25FailedSyncIsNotRetried(t *testing.T) {
	l := openLog(t, filepath.Join(t.TempDir(), "log"))
	l.Append([]byte("one"))
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	calls := 0
	l.sync = func() error {
		if calls++; calls == 1 {
			return syscall.EIO
		}
		return nil
	}
	for range 3 {
		if err := l.Sync(); !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.EIO) {
			t.Errorf("error %v", err)
		}
	}
	if calls != 1 || l.Size() != 0 {
		t.Errorf("%d syncs, durable size %d; want 1 and 0", calls, l.Size())
	}
	l.Append([]byte("two"))
	if err := l.Flush(); !errors.Is(err, ErrBroken) {
		t.Errorf("flush afterwards: %v", err)
	}
}

func TestLogSyncWhileAppending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := l.Sync(); err != nil {
				t.Error(err)
				return
			}
			if l.Size() > l.Written() || l.Size()%4 != 0 {
				t.Errorf("durable %d of %d", l.Size(), l.Written())
			}
		}
	})
	for range 200 {
		l.Append([]byte("row"))
		if err := l.Flush(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	if err := l.Sync(); err != nil || l.Size() != 800 {
		t.Errorf("size %d, %v", l.Size(), err)
	}
}
