package pack

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Sink takes what Receive finds in a stream.
type Sink interface {
	// Put is called for each wanted entry, in order. For a file r has its
	// bytes from the given one on, and ends where the manifest says; for
	// directories and links it is nil. What Put does not read is skipped. An
	// error ends Receive, which returns it.
	Put(i int, e Entry, from int64, r io.Reader) error
}

// Receive reads from r, which must end where the stream ends, what Send writes
// for the same manifest and want, and gives it to sink. It returns nil only if
// every wanted entry has come whole, as declared, and nothing else. A stream
// that is cut is io.ErrUnexpectedEOF wherever the cut is, and one that has
// anything but what has to be there is ErrFormat. The sums of the files are the
// sink's to check, since it may have the bytes before from; a Tree does.
//
// Memory is bounded by a window of 8 MiB and a buffer, whatever r has.
func Receive(r io.Reader, m Manifest, want Want, sink Sink) error {
	if err := want.Check(m); err != nil {
		return err
	}
	in := readers.Get().(*bufio.Reader)
	in.Reset(r)
	buf := buffers.Get().(*buffer)
	f := newFrame(in, tarBytes(m, want))
	x := &expansion{f: f}
	defer func() {
		x.release()
		in.Reset(nil)
		readers.Put(in)
		buffers.Put(buf)
	}()
	t := &taker{r: x, buf: buf}
	for i, from := range want.all(m) {
		if err := t.entry(i, &m[i], from, sink); err != nil {
			return err
		}
	}
	if err := t.end(); err != nil {
		return err
	}
	return f.ended()
}

// tarBytes is at least the size of the tar that has to come.
func tarBytes(m Manifest, want Want) int64 {
	n := int64(tarEnd)
	for i, from := range want.all(m) {
		n += m[i].Size - from + 4*block + int64(len(m[i].Path)+len(m[i].Link))
	}
	return n
}

// taker takes a tar apart whose every byte but the content is known.
type taker struct {
	r    io.Reader
	buf  *buffer
	head []byte
}

func (t *taker) entry(i int, e *Entry, from int64, sink Sink) error {
	size := e.Size - from
	t.head = appendHeader(t.head[:0], e, size)
	if err := t.expect(t.head); err != nil {
		return fmt.Errorf("receive %q: its header: %w", e.Path, err)
	}
	if e.Type != File {
		return sink.Put(i, *e, 0, nil)
	}
	body := &body{r: t.r, left: size}
	if err := sink.Put(i, *e, from, body); err != nil {
		return err
	}
	for body.left > 0 {
		if _, err := body.Read(t.buf[:]); err != nil {
			return fmt.Errorf("receive %q: %w", e.Path, err)
		}
	}
	if err := t.expect(zeros[:padding(size)]); err != nil {
		return fmt.Errorf("receive %q: after its content: %w", e.Path, err)
	}
	return nil
}

// expect reads exactly these bytes.
func (t *taker) expect(want []byte) error {
	for len(want) > 0 {
		got := t.buf[:min(len(want), bufferSize)]
		if _, err := io.ReadFull(t.r, got); err != nil {
			return whole(err)
		}
		if !bytes.Equal(got, want[:len(got)]) {
			return fmt.Errorf("%w: it differs from what the manifest says", ErrFormat)
		}
		want = want[len(got):]
	}
	return nil
}

// end reads the end of the tar and of the frame.
func (t *taker) end() error {
	if err := t.expect(zeros[:tarEnd]); err != nil {
		return fmt.Errorf("receive: the end of the tar: %w", err)
	}
	n, err := io.ReadFull(t.r, t.buf[:1])
	switch {
	case n > 0:
		return fmt.Errorf("receive: %w: something follows the tar", ErrFormat)
	case errors.Is(err, io.EOF):
		return nil
	}
	return fmt.Errorf("receive: the end of the frame: %w", err)
}

// expansion is what a frame expands to. What the decoder objects to is ErrFormat,
// and what the stream below fails with comes through.
type expansion struct {
	f *frame
	d *zstd.Decoder // from the first block on that needs one
}

func (x *expansion) Read(p []byte) (n int, err error) {
	if x.d == nil {
		if n, err = x.f.plain(p); err != errPacked {
			return n, err
		}
		x.d = decoders.Get().(*zstd.Decoder)
		if err := x.d.Reset(x.f); err != nil {
			return 0, err
		}
	}
	n, err = x.d.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if x.f.failed != nil {
		return n, x.f.failed
	}
	return n, fmt.Errorf("%w: zstd: %w", ErrFormat, err)
}

// release gives the decoder back.
func (x *expansion) release() {
	if x.d != nil {
		_ = x.d.Reset(nil) // an error would say that there is no more input
		decoders.Put(x.d)
	}
}

// body is the content of one file. Before it has had all that was declared, an
// end is a cut.
type body struct {
	r    io.Reader
	left int64
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, whole(err)
}
