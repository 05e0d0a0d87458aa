package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"distribute/lib/conf"
	"distribute/lib/msg"
)

// ErrChanged is what the error of a file is that is not what it was when it
// was first looked at.
var ErrChanged = errors.New("changed while it was read: submit again when nothing writes to it")

// A Source is a file on this machine that has the content of an input.
type Source struct {
	Sum  string // SHA-256, hexadecimal
	Path string
	Size int64
	data *string // the content, if Path is the template of which it was made
	ident
}

// SourceOf is a file as it is now, of which it is known that its content has that sum.
func SourceOf(name, sum string) (Source, error) {
	st, err := os.Lstat(name)
	if err != nil {
		return Source{}, err
	}
	return Source{Sum: sum, Path: name, Size: st.Size(), ident: identify(st)}, nil
}

// ident is what a file has as long as nobody writes to it.
type ident struct {
	dev, ino uint64
	mtime    int64 // nanoseconds
}

// source is a file on its way to being a Source.
type source struct {
	path string
	at   conf.Place // where it was first named
	size int64      // at first what stat said, then what was hashed
	mode uint32     // 0o755 or 0o644
	sum  string
	err  error
	data *string // of what was made of a template: the content, whose sum is known
	ident
}

// Open opens the file to send it. A file that is not the one that was hashed
// any more is ErrChanged. What is read must still be compared with Sum, for a
// file can change while it is sent.
func (s Source) Open() (*os.File, error) {
	if s.data != nil {
		return openMade(*s.data)
	}
	f, st, err := open(s.Path)
	if err != nil {
		return nil, err
	}
	if st.Size() != s.Size || identify(st) != s.ident {
		f.Close()
		return nil, fmt.Errorf("%s %w", msg.Quote(s.Path), ErrChanged)
	}
	return f, nil
}

// Unchanged says, when all of what Open gave was read, that the file was what was
// hashed all the while, as far as its size and times tell: else it is
// ErrChanged.
func (s Source) Unchanged(f *os.File) error {
	if s.data != nil {
		return nil
	}
	st, err := f.Stat()
	if err == nil && (st.Size() != s.Size || identify(st) != s.ident) {
		err = fmt.Errorf("%s %w", msg.Quote(s.Path), ErrChanged)
	}
	return err
}

// open opens a regular file without waiting for anything else.
func open(name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is %s, and a file is wanted", msg.Quote(name), conf.What(st.Mode()))
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

func identify(st fs.FileInfo) ident {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ident{mtime: st.ModTime().UnixNano()}
	}
	return ident{uint64(sys.Dev), sys.Ino, sys.Mtim.Nano()}
}

// hash reads every source with two goroutines and notes what is wrong.
func (c *collector) hash(ctx context.Context, progress func(n, total int64)) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := int64(0)
	for i := range c.sources {
		total += c.sources[i].size
	}
	tell := func(n int64) {
		if progress != nil {
			mu.Lock()
			defer mu.Unlock()
			progress(n, total)
		}
	}
	for range 2 {
		wg.Go(func() {
			buf, h := make([]byte, 256<<10), sha256.New()
			for i := next.Add(1) - 1; i < int64(len(c.sources)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				c.sources[i].read(ctx, h, buf, tell)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i := range c.sources {
		if err := c.sources[i].err; err != nil {
			c.errs.Errorf(c.sources[i].at, "%w", err)
		}
	}
	return nil
}

// read hashes a file. Its size, times and inode must be the same before and
// after, and be those of as many bytes as were read.
func (s *source) read(ctx context.Context, h hash.Hash, buf []byte, tell func(int64)) {
	if s.data != nil {
		tell(s.size)
		return
	}
	f, before, err := open(s.path)
	if err != nil {
		s.err = err
		var path *fs.PathError
		if errors.As(err, &path) {
			s.err = cannot(s.path, s.path, err)
		}
		return
	}
	defer f.Close()
	h.Reset()
	n := int64(0)
	for ctx.Err() == nil {
		k, err := f.Read(buf)
		h.Write(buf[:k])
		n += int64(k)
		tell(int64(k))
		if err == io.EOF {
			break
		}
		if err != nil {
			s.err = cannot(s.path, s.path, err)
			return
		}
	}
	after, err := f.Stat()
	if err != nil {
		s.err = cannot(s.path, s.path, err)
		return
	}
	if identify(before) != identify(after) || before.Size() != n || after.Size() != n {
		s.err = fmt.Errorf("%s %w", msg.Quote(s.path), ErrChanged)
		return
	}
	s.size, s.ident = n, identify(after)
	s.sum = hex.EncodeToString(h.Sum(nil))
}
