package pack

import (
	"errors"
	"fmt"
	"io"
)

// Send writes to w the wanted entries of m, as one tar in one zstd frame. It calls open
// for each wanted file, in order, and closes what it gets; if an entry is wanted
// from a byte and what open gives can seek, the bytes before are not read.
//
// A file that is longer, shorter or, when sent from its start, otherwise not what
// the manifest says is ErrChanged with its name; of what open gives and is an
// [Unchanger], that itself is asked. After any error the stream is
// unfinished, so that Receive fails too; the caller has to drop the stream.
// Memory does not depend on sizes: it is about 1 MiB.
func Send(w io.Writer, m Manifest, want Want, open func(i int, e Entry) (io.ReadCloser, error)) error {
	return send(w, squeezed, m, want, open)
}

// An Unchanger is a file that knows without its content being hashed whether it
// is still what the manifest says. It is asked when all of it was read. The
// receiver hashes in any case.
type Unchanger interface{ Unchanged() error }

// SendStored is Send of the tar as it is. It is for a wire that costs less than
// compressing, within a machine: it is several times as fast there.
func SendStored(w io.Writer, m Manifest, want Want, open func(i int, e Entry) (io.ReadCloser, error)) error {
	return send(w, stored, m, want, open)
}

func send(w io.Writer, as func(io.Writer, func(io.Writer) error) error, m Manifest, want Want, open func(i int, e Entry) (io.ReadCloser, error)) error {
	if err := want.Check(m); err != nil {
		return err
	}
	return as(w, func(z io.Writer) error { return sendAll(z, m, want, open) })
}

// sendAll writes the tar.
func sendAll(z io.Writer, m Manifest, want Want, open func(i int, e Entry) (io.ReadCloser, error)) error {
	s := sender{w: z, open: open, buf: buffers.Get().(*buffer)}
	defer buffers.Put(s.buf)
	for i, from := range want.all(m) {
		if err := s.entry(i, &m[i], from); err != nil {
			return err
		}
	}
	_, err := z.Write(zeros[:tarEnd])
	return err
}

// zeros is for padding and for the end of a tar.
var zeros [tarEnd]byte

type sender struct {
	w    io.Writer
	open func(i int, e Entry) (io.ReadCloser, error)
	buf  *buffer
	head []byte
}

func (s *sender) entry(i int, e *Entry, from int64) error {
	if e.Type != File {
		return s.header(e, 0)
	}
	r, err := s.open(i, *e)
	if err != nil {
		return fmt.Errorf("send %q: %w", e.Path, err)
	}
	err = s.header(e, e.Size-from)
	if err == nil {
		if err = s.content(r, e, from); err != nil {
			err = fmt.Errorf("send %q: %w", e.Path, err)
		}
	}
	if cerr := r.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("send %q: %w", e.Path, cerr)
	}
	return err
}

func (s *sender) header(e *Entry, size int64) error {
	s.head = appendHeader(s.head[:0], e, size)
	_, err := s.w.Write(s.head)
	return err
}

// content sends e from the byte on and checks that it is what e says.
func (s *sender) content(r io.Reader, e *Entry, from int64) error {
	h := newHash()
	defer hashes.Put(h)
	whole := true
	knows, _ := r.(Unchanger)
	if seeker, ok := r.(io.Seeker); ok && from > 0 {
		if _, err := seeker.Seek(from, io.SeekStart); err != nil {
			return err
		}
		whole = false
	} else if err := s.pass(r, from, h.Write); err != nil {
		return err
	}
	err := s.pass(r, e.Size-from, func(b []byte) (int, error) {
		if whole && knows == nil {
			h.Write(b)
		}
		return s.w.Write(b)
	})
	if err != nil {
		return err
	}
	if n, err := io.ReadFull(r, s.buf[:1]); n > 0 {
		return fmt.Errorf("%w: it has grown", ErrChanged)
	} else if err != io.EOF {
		return err
	}
	switch {
	case knows != nil:
		err = knows.Unchanged()
	case whole && sumOf(h) != e.Sum:
		err = fmt.Errorf("%w: its content is another", ErrChanged)
	}
	if err != nil {
		return err
	}
	_, err = s.w.Write(zeros[:padding(e.Size-from)])
	return err
}

// pass gives the next n bytes of r to write.
func (s *sender) pass(r io.Reader, n int64, write func([]byte) (int, error)) error {
	for n > 0 {
		b := s.buf[:min(n, bufferSize)]
		got, err := io.ReadFull(r, b)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: it is %d bytes shorter", ErrChanged, n-int64(got))
		}
		if err != nil {
			return err
		}
		if _, err := write(b); err != nil {
			return err
		}
		n -= int64(got)
	}
	return nil
}
