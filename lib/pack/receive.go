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
	defer func() {
		in.Reset(nil)
		readers.Put(in)
		buffers.Put(buf)
	}()
	return expand(in, tarBytes(m, want), func(tar io.Reader) error {
		t := &taker{r: tar, buf: buf}
		for i, from := range want.all(m) {
			if err := t.entry(i, &m[i], from, sink); err != nil {
				return err
			}
		}
		return t.end()
	})
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

// end reads the end of the tar and of the stream.
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
	return fmt.Errorf("receive: behind the tar: %w", err)
}

// magic is what a zstd frame begins with, and no tar.
const magic = "\x28\xb5\x2f\xfd"

// expand calls use with the tar of so many bytes that in has, as it is or in zstd. What the
// decoder objects to is ErrFormat, and what in fails with comes through.
func expand(in *bufio.Reader, size int64, use func(io.Reader) error) error {
	switch begin, err := in.Peek(len(magic)); {
	case err != nil && err != io.EOF: // which in says only once
		return err
	case string(begin) != magic:
		return use(in)
	}
	d := decoders.Get().(*zstd.Decoder)
	x := &expansion{d: d, in: in, budget: size + size/4 + 1<<20} // an honest encoder needs hardly more than size
	defer func() {
		_ = d.Reset(nil) // an error would say that there is no more input
		decoders.Put(d)
	}()
	if err := d.Reset(inflow{x}); err != nil {
		return err
	}
	return use(x)
}

// An expansion is what the zstd of a stream expands to.
type expansion struct {
	d      *zstd.Decoder
	in     *bufio.Reader
	budget int64 // compressed bytes that may still come
	failed error // what in failed with, its end too
}

func (x *expansion) Read(p []byte) (int, error) {
	n, err := x.d.Read(p)
	switch {
	case err == nil || err == io.EOF:
	case x.failed != nil && x.failed != io.EOF:
		err = x.failed
	case x.failed == nil || !errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("%w: zstd: %w", ErrFormat, err)
	}
	return n, err
}

// An inflow is what the decoder of an expansion reads.
type inflow struct{ *expansion }

func (f inflow) Read(p []byte) (n int, err error) {
	if f.budget == 0 {
		f.failed = fmt.Errorf("%w: the stream goes on beyond what it may take", ErrFormat)
		return 0, f.failed
	}
	n, err = f.in.Read(p[:min(int64(len(p)), f.budget)])
	if f.budget -= int64(n); err != nil {
		f.failed = err
	}
	return n, err
}

// whole makes the end of a stream an error where it cannot end.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
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
