package pack

import (
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync"
	"syscall"
)

// A Filler writes one file from its beginning to its end and hashes what is in
// it. It is for one goroutine, and needs Release.
type Filler struct {
	// Lazy leaves it to the kernel when it begins to write to the disk: for a file
	// whose sync nobody waits for.
	Lazy bool

	f    *os.File
	hash hash.Hash
	buf  *buffer
	more turns // for a file that needs them
	disk error // the first error of the file

	behind sync.WaitGroup // of a buffer that is hashed and written
	late   error          // of that write
	size   int64          // of the file, as far as it was written
	begun  int64          // up to where the kernel was told to write to the disk
}

// NewFiller returns a Filler of a file that is open for reading and writing. The
// file stays the caller's.
func NewFiller(f *os.File) *Filler {
	return &Filler{f: f, hash: newHash(), buf: buffers.Get().(*buffer)}
}

// Disk is the first error that the file itself has had. Any other error of a
// Filler is the reader's.
func (w *Filler) Disk() error { return w.disk }

// Sum is the SHA-256 of what was filled so far, in hexadecimal digits.
func (w *Filler) Sum() string { return sumOf(w.hash) }

// fill makes the file what e says, by what is in it up to from and what r has.
func (w *Filler) fill(e *Entry, from int64, r io.Reader) error {
	if err := w.Prefix(from); err != nil {
		return err
	}
	at, err := w.Append(from, r)
	if err != nil {
		return err
	}
	if at != e.Size {
		return fmt.Errorf("%w: %d bytes of %d", io.ErrUnexpectedEOF, at, e.Size)
	}
	if w.Sum() != e.Sum {
		return ErrSum
	}
	return nil
}

// Append writes what r has behind the first from bytes, which have to be filled
// already, and returns where the file ends then. A whole buffer of zeros becomes
// a hole, so that a sparse file does not come to need its size on the disk. Of a
// large file the kernel has begun to write all to the disk, if it is not Lazy;
// nothing is synced.
func (w *Filler) Append(from int64, r io.Reader) (end int64, err error) {
	w.size, w.begun = from, from
	end, err = w.copy(from, r)
	if err == nil && w.size < end {
		err = w.noted(w.f.Truncate(end))
	}
	if err == nil && end > bufferSize && !w.Lazy {
		err = w.noted(startFlush(w.f, 0, 0))
	}
	return end, err
}

// noted is an error of the file.
func (w *Filler) noted(err error) error {
	if w.disk == nil {
		w.disk = err
	}
	return err
}

// Prefix hashes the first n bytes, which are there, and cuts off what is behind
// them.
func (w *Filler) Prefix(n int64) error {
	if n == 0 {
		return nil
	}
	if err := w.f.Truncate(n); err != nil {
		return w.noted(err)
	}
	for at := int64(0); at < n; {
		got, err := w.f.ReadAt(w.buf[:min(bufferSize, n-at)], at)
		w.hash.Write(w.buf[:got])
		if at += int64(got); err != nil {
			return w.noted(whole(err))
		}
	}
	return nil
}

var emptyBuffer buffer

// copy is Append, but for a hole at the end. A full buffer is hashed and written
// while the next is read.
func (w *Filler) copy(at int64, r io.Reader) (end int64, err error) {
	defer func() {
		if werr := w.wait(); err == nil {
			err = werr
		}
	}()
	buf := w.buf[:]
	for {
		n, rerr := io.ReadFull(r, buf)
		if err := w.wait(); err != nil {
			return at, err
		}
		if n == len(buf) {
			w.start(buf, at)
			buf = w.more.take()
		} else {
			w.hash.Write(buf[:n])
			if w.write(buf[:n], at); w.late != nil {
				return at, w.noted(w.late)
			}
		}
		at += int64(n)
		switch rerr {
		case nil:
		case io.EOF, errShort:
			return at, nil
		default:
			return at, rerr
		}
	}
}

// Release gives back what NewFiller took. The Filler is of no use then.
func (w *Filler) Release() {
	hashes.Put(w.hash)
	buffers.Put(w.buf)
	w.more.release()
}

// start hashes a buffer and writes it behind the caller's back, until wait.
func (w *Filler) start(buf []byte, at int64) {
	w.behind.Go(func() { w.hash.Write(buf) })
	w.behind.Go(func() {
		w.write(buf, at)
		if w.late == nil && w.size-w.begun >= flushSize && !w.Lazy {
			w.late = startFlush(w.f, w.begun, w.size-w.begun)
			w.begun = w.size
		}
	})
}

// write writes what is not to be a hole.
func (w *Filler) write(b []byte, at int64) {
	for len(b) > 0 && w.late == nil {
		part := b[:min(len(b), bufferSize)]
		if len(part) < bufferSize || *(*buffer)(part) != emptyBuffer {
			_, w.late = w.f.WriteAt(part, at)
			w.size = at + int64(len(part))
		}
		at, b = at+int64(len(part)), b[len(part):]
	}
}

// flushSize is after how many bytes the kernel is told to write them.
const flushSize = 8 << 20

// startFlush has the kernel begin to write a part of a file to the disk, so that
// the sync that has to come waits for less. It does not wait itself. A file
// system that cannot do it does without; a disk's error is one here, because it
// may not be told a second time.
func startFlush(f *os.File, at, n int64) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	const begin = 2 // SYNC_FILE_RANGE_WRITE
	cerr := conn.Control(func(fd uintptr) {
		err = syscall.SyncFileRange(int(fd), at, n, begin)
	})
	switch err {
	case syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ESPIPE:
		err = nil
	}
	return errors.Join(cerr, err)
}

// wait returns how what start began has ended.
func (w *Filler) wait() error {
	w.behind.Wait()
	return w.noted(w.late)
}

// errShort is how io.ReadFull says that a reader has ended within the buffer. It
// is also what a cut stream gives, which is told by the number of bytes.
var errShort = io.ErrUnexpectedEOF
