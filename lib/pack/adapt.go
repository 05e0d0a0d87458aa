package pack

import (
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// What an adapter goes by.
const (
	// adaptBytes is the content from which on it is worth to see how fast a
	// wire is before anything is squeezed.
	adaptBytes = 16 << 20
	// probeBytes is after how many bytes it looks at that, again and again.
	probeBytes = 4 << 20
	// fastWire, in bytes a second, is a wire that is not worth squeezing for:
	// a gigabit's, or one that is slow for want of the processors that
	// squeezing would take more of.
	fastWire = 96 << 20
	// probeBlock of each probe is squeezed, to see whether that is of use.
	probeBlock = 64 << 10
)

// An adapter writes one zstd frame: raw blocks as long as the wire is fast, or
// nothing can be squeezed out of the content, and from the first look on that
// says otherwise compressed ones. What an encoder makes fits behind raw blocks,
// for it refers to nothing that was before its own beginning.
type adapter struct {
	*storer
	now     func() time.Time
	waited  time.Duration // in writes since the last look
	since   int           // bytes written since then
	encoder *zstd.Encoder // nil: raw blocks
}

// withAdapter is withEncoder for a frame of an adapter.
func withAdapter(w io.Writer, now func() time.Time, use func(io.Writer) error) error {
	a := &adapter{storer: newStorer(w), now: now}
	a.buf[5] = (18 - 10) << 3 // a window of 2 to the 18, as an encoder has
	a.w = timed{w, a}
	err := use(a)
	if err == nil {
		err = a.Close()
	}
	if a.encoder != nil {
		a.encoder.Reset(nil)
		bareEncoders.Put(a.encoder)
	}
	a.w = nil
	storers.Put(a.storer)
	return err
}

func (a *adapter) Write(p []byte) (int, error) {
	if a.encoder != nil {
		return a.encoder.Write(p)
	}
	n, err := a.storer.Write(p)
	a.since += n
	if err == nil && a.since >= probeBytes {
		slow := float64(a.since) < a.waited.Seconds()*fastWire
		if a.since, a.waited = 0, 0; slow && a.squeezes() {
			err = a.squeeze()
		}
	}
	return n, err
}

// squeeze ends the raw blocks.
func (a *adapter) squeeze() error {
	if a.flush(0); a.err != nil {
		return a.err
	}
	a.encoder = bareEncoders.Get().(*zstd.Encoder)
	a.encoder.Reset(&headless{w: a.w})
	return nil
}

func (a *adapter) Close() error {
	if a.encoder != nil {
		return a.encoder.Close()
	}
	return a.storer.Close()
}

// squeezes says whether what was written last takes a good deal less when it is
// compressed.
func (a *adapter) squeezes() bool {
	p := a.buf[frameHeader+blockHeader:][:probeBlock] // of this block, or of the one before
	e := encoders.Get().(*zstd.Encoder)
	defer encoders.Put(e)
	return len(e.EncodeAll(p, nil)) < len(p)*7/8
}

// timed is a wire of which it is known how long it took.
type timed struct {
	w io.Writer
	a *adapter
}

func (t timed) Write(p []byte) (int, error) {
	began := t.a.now()
	n, err := t.w.Write(p)
	t.a.waited += t.a.now().Sub(began)
	return n, err
}

// bareEncoders make frames without a checksum, which would not be one over the
// raw blocks.
var bareEncoders = sync.Pool{New: func() any { return newEncoder(2, zstd.WithEncoderCRC(false)) }}

// headless takes the header off a frame.
type headless struct {
	w    io.Writer
	head []byte // as far as it came
	off  bool
}

func (h *headless) Write(p []byte) (int, error) {
	if h.off {
		return h.w.Write(p)
	}
	h.head = append(h.head, p...)
	n := headerLength(h.head)
	if n == 0 || len(h.head) < n {
		return len(p), nil
	}
	h.off = true
	if _, err := h.w.Write(h.head[n:]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// headerLength is how long the header is that a frame begins with, 0 if that
// cannot be told yet.
func headerLength(b []byte) int {
	if len(b) < 5 {
		return 0
	}
	single, n := b[4]&0x20 != 0, 5+[]int{0, 2, 4, 8}[b[4]>>6]
	if single && b[4]>>6 == 0 || !single {
		n++
	}
	return n
}
