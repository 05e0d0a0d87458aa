package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

var (
	// ErrFull says that the disk or the quota had no room for the lines that
	// were to be written. The log is as it was before; the lines are still
	// buffered, so that Flush can be called again when room was made, or Discard.
	ErrFull = errors.New("no room on the disk")

	// ErrBroken says that the log can no longer be trusted to take a line: a
	// write or a sync has failed. Every later call fails in the same way. The
	// program has to stop, and to read again what the disk has.
	ErrBroken = errors.New("the log cannot be written")

	// ErrTorn says that a file to append to does not end in a newline.
	ErrTorn = errors.New("the last line is unfinished")
)

// NoRoom reports whether err is for want of room: the disk is full, or a user's quota on it is
// reached. Both are the same to every caller.
func NoRoom(err error) bool {
	return errors.Is(err, ErrFull) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// Log is a file of lines that only grows. Append and Flush are for one
// goroutine; Sync and the sizes may be used from others at the same time.
type Log struct {
	path  string
	file  *os.File
	write func([]byte) (int, error)
	sync  func() error

	mu      sync.Mutex // guards what follows
	buffer  []byte
	written int64    // bytes handed to the kernel, whole lines
	durable int64    // bytes that a finished Sync covers
	parent  *os.File // the directory, until the new name in it is durable
	broken  error
}

// OpenLog opens the file path for appending and creates it with the permission
// bits of mode if it is missing. What the file holds already counts as durable:
// who reads a log that was not synced before a crash reads what the disk has. A
// file that does not end in a newline is refused with ErrTorn; [Cut] it first.
func OpenLog(path string, mode fs.FileMode) (*Log, error) {
	l := &Log{path: path}
	if err := l.open(mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.write = l.file.Write
	l.sync = func() error { return datasync(l.file) }
	return l, nil
}

func (l *Log) open(mode fs.FileMode) (err error) {
	const flags = os.O_RDWR | os.O_APPEND | unix.O_NOFOLLOW
	l.file, err = os.OpenFile(l.path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		l.file, err = l.create(flags, mode)
	}
	if err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: l.path, Err: errors.New("not a regular file")}
	}
	l.written, l.durable = info.Size(), info.Size()
	if l.written == 0 {
		return nil
	}
	var last [1]byte
	if _, err := l.file.ReadAt(last[:], l.written-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		return &fs.PathError{Op: "open", Path: l.path, Err: ErrTorn}
	}
	return nil
}

func (l *Log) create(flags int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(l.path, flags|os.O_CREATE|os.O_EXCL, mode.Perm())
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(mode.Perm()); err != nil {
		return f, err
	}
	l.parent, err = os.OpenFile(filepath.Dir(l.path), os.O_RDONLY|unix.O_DIRECTORY, 0)
	return f, err
}

// Append buffers line, and a newline after it if it has none. It does no input
// or output and keeps no reference to line.
func (l *Log) Append(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buffer = append(l.buffer, line...)
	if n := len(l.buffer); n > 0 && l.buffer[n-1] != '\n' {
		l.buffer = append(l.buffer, '\n')
	}
}

// Buffered is the number of bytes that Append took and no Flush has written.
func (l *Log) Buffered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buffer)
}

// Discard forgets the lines that are buffered.
func (l *Log) Discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buffer = l.buffer[:0]
}

// Flush hands the buffered lines to the kernel with write(2); they are seen by
// readers and not yet durable. Where there is no room (ENOSPC, EDQUOT) the file
// is cut back to what it was, and the error is ErrFull. Any other error is
// ErrBroken.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return l.broken
	}
	if len(l.buffer) == 0 {
		return nil
	}
	err := Step("log.write")
	if err == nil {
		_, err = l.write(l.buffer)
	}
	switch {
	case err == nil:
		l.written += int64(len(l.buffer))
		l.buffer = l.emptied()
		return nil
	case NoRoom(err):
		if cut := l.file.Truncate(l.written); cut != nil {
			return l.breakWith("cut back "+l.path, cut)
		}
		return fmt.Errorf("%w: %w", ErrFull, err)
	default:
		return l.breakWith("append", err)
	}
}

// emptied is the buffer for the next lines; one that a burst made large is let go.
func (l *Log) emptied() []byte {
	if cap(l.buffer) > 1<<20 {
		return nil
	}
	return l.buffer[:0]
}

func (l *Log) breakWith(what string, err error) error {
	l.broken = fmt.Errorf("%w: %s: %w", ErrBroken, what, err)
	return l.broken
}

// Sync makes durable what Flush has written before the call. An error is
// ErrBroken: the kernel reports a lost page once, so a second try would lie.
func (l *Log) Sync() error {
	l.mu.Lock()
	upto, broken, parent := l.written, l.broken, l.parent
	done := upto == l.durable && parent == nil
	l.mu.Unlock()
	if broken != nil || done {
		return broken
	}
	err := Step("log.sync")
	if err == nil {
		err = l.sync()
	}
	if err == nil && parent != nil {
		err = Sync(parent)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return l.breakWith("sync "+l.path, err)
	}
	l.durable = max(l.durable, upto)
	if parent != nil && l.parent == parent {
		l.parent = nil
		return parent.Close()
	}
	return l.broken
}

// Size is the number of bytes that are durable, counted from the start of the
// file; they are whole lines.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// Written is the number of bytes in the file, durable or not yet; they are
// whole lines, and it is the offset of the next line if nothing is buffered.
func (l *Log) Written() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written
}

// InPlace says that the file at Path is that of the log, and has what the log has Written and
// nothing more.
func (l *Log) InPlace() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return false
	}
	there, err := os.Lstat(l.path)
	if err != nil {
		return false
	}
	mine, err := l.file.Stat()
	return err == nil && os.SameFile(there, mine) && mine.Size() == l.written
}

// Path is the name the log was opened by, or has been Moved to.
func (l *Log) Path() string { return l.path }

// Moved tells the log that its file has another name by now. It comes before
// any use from another goroutine.
func (l *Log) Moved(path string) { l.path = path }

// Close closes the file. Lines still buffered are lost, lines not synced may be.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, f := range []*os.File{l.parent, l.file} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	l.parent, l.file = nil, nil
	if l.broken == nil {
		l.broken = fmt.Errorf("%w: %s: %w", ErrBroken, l.path, fs.ErrClosed)
	}
	return errors.Join(errs...)
}

// Cut shortens the file path to size bytes, durably, and returns what was
// behind, at most limit bytes of it. It is for the torn last line that a crash
// leaves, before OpenLog.
func Cut(path string, size int64, limit int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, size, int64(limit)))
	if err == nil {
		err = Step("log.cut")
	}
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		err = Sync(f)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return tail, err
}
