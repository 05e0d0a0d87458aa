package job

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"
	"time"

	"distribute/lib/msg"
)

// Limits of the different files that are the inputs of a batch.
const (
	MaxFiles = 1_000_000 //
	MaxBytes = 1 << 40   // of all of them
)

// A Batch is what is submitted: a File whose inputs have been looked at.
type Batch struct {
	Namespace string
	Name      string
	Data      []byte // the batch file, byte for byte
	Spec      Spec
	Jobs      []Job             // their Inputs may share memory: not to be changed in place
	Sources   map[string]Source // by SHA-256, every content that Spec and Jobs name
	Secrets   Secrets           // the values of those that Spec names; none: they are not known
}

// ID is the batch's namespace/name.
func (b *Batch) ID() BatchID { return NewBatchID(b.Namespace, b.Name) }

// ErrChanged is what the error of a file is that is not what it was when it
// was first looked at.
var ErrChanged = errors.New("changed while it was read: submit again when nothing writes to it")

// A Source is a file on this machine that has the content of an input.
type Source struct {
	Sum  string // SHA-256, hexadecimal
	Path string
	Size int64
	Data *string // the content, if Path is the template of which it was made

	// What a file has as long as nobody writes to it; times in nanoseconds.
	device, inode uint64
	mtime         int64
}

// SourceOf is a file as it is now, of which it is known that its content has that sum.
func SourceOf(name, sum string) (Source, error) {
	st, err := os.Lstat(name)
	if err != nil {
		return Source{}, err
	}
	return sourceOf(name, sum, st), nil
}

func sourceOf(name, sum string, st fs.FileInfo) Source {
	s := Source{Sum: sum, Path: name, Size: st.Size(), mtime: nanoseconds(st.ModTime())}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode = sys.Dev, sys.Ino
	}
	return s
}

// nanoseconds returns the nanoseconds from 1970 to t, and the nearest number for the times
// before 1677 and after 2262.
func nanoseconds(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// MTime returns the time of the file's last change, in nanoseconds since 1970.
func (s *Source) MTime() int64 { return s.mtime }

// OpenSource opens a regular file without waiting for anything else, and is the source
// that it is now, without its sum.
func OpenSource(name string) (*os.File, Source, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Source{}, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is %s, and a file is wanted", msg.Quote(name), msg.FileKind(st.Mode()))
	}
	if err != nil {
		f.Close()
		return nil, Source{}, err
	}
	return f, sourceOf(name, "", st), nil
}

// Open opens the file to send it. A file that is not the one that was hashed
// any more is ErrChanged. What is read must still be compared with Sum, for a
// file can change while it is sent.
func (s Source) Open() (*os.File, error) {
	if s.Data != nil {
		return nameless(*s.Data)
	}
	f, now, err := OpenSource(s.Path)
	if err != nil {
		return nil, err
	}
	if now.Sum = s.Sum; now != s {
		f.Close()
		return nil, s.Changed()
	}
	return f, nil
}

// Unchanged says, when all of what Open gave was read, that the file was what was
// hashed all the while, as far as its size and times tell: else it is
// ErrChanged.
func (s Source) Unchanged(f *os.File) error {
	if s.Data != nil {
		return nil
	}
	st, err := f.Stat()
	if err == nil && sourceOf(s.Path, s.Sum, st) != s {
		err = s.Changed()
	}
	return err
}

// Changed returns the error of a file that is not what was hashed.
func (s Source) Changed() error { return fmt.Errorf("%s %w", msg.Quote(s.Path), ErrChanged) }

// nameless is a file with that content, which has no name.
func nameless(data string) (*os.File, error) {
	f, err := os.CreateTemp("", "dsubmit-")
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(data)
	if err = errors.Join(err, os.Remove(f.Name())); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
