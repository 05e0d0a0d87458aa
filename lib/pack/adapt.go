package pack

import (
	"io"
	"slices"
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
	probeBytes = 2 << 20
	// probes is how many looks in a row have to find it slow. What counts then
	// is the one in the middle: any wire stops, or swallows some, once.
	probes = 3
	// trialBytes are squeezed to see whether that is quicker, which it is not
	// where the processors are what is short.
	trialBytes = 8 << 20
	// trialGain is how much quicker it has to be.
	trialGain = 1.25
	// fastWire, in bytes a second, is a wire that is not worth squeezing for: a
	// gigabit's.
	fastWire = 96 << 20
	// probeBlock of each probe is squeezed, to see whether that is of use.
	probeBlock = 64 << 10
)

// An adapter writes one zstd frame: raw blocks as long as the wire is fast, or
// nothing can be squeezed out of the content. From the first look on that says
// otherwise it writes compressed ones, and raw ones again to the end if a trial
// shows that content gets on no quicker so. What an encoder makes fits behind raw
// blocks, for it refers to nothing that was before its own beginning.
type adapter struct {
	*storer
	now     func() time.Time
	encoder *zstd.Encoder // nil: raw blocks
	decided bool          // nothing is looked at any more

	marked time.Time     // when what follows was 0
	since  int           // bytes written
	waited time.Duration // in writes
	raw    []float64     // bytes a second, of the last looks before the trial
}

// withAdapter is withEncoder for a frame of an adapter.
func withAdapter(w io.Writer, now func() time.Time, use func(io.Writer) error) error {
	a := &adapter{storer: newStorer(w), now: now}
	a.buf[5] = (18 - 10) << 3 // a window of 2 to the 18, as an encoder has
	a.w = timed{w, a}
	a.mark()
	err := use(a)
	if err == nil {
		err = a.Close()
	}
	a.release()
	a.w = nil
	storers.Put(a.storer)
	return err
}

func (a *adapter) mark() { a.marked, a.since, a.waited = a.now(), 0, 0 }

func (a *adapter) Write(p []byte) (n int, err error) {
	if a.encoder != nil {
		n, err = a.encoder.Write(p)
	} else {
		n, err = a.storer.Write(p)
	}
	if a.since += n; err == nil && !a.decided && a.since >= probeBytes {
		err = a.look(p)
	}
	return n, err
}

// look decides how to go on; p is what was written last.
func (a *adapter) look(p []byte) error {
	switch {
	case a.encoder != nil && a.since >= trialBytes:
		a.decided = true
		if err := a.encoder.Flush(); err != nil {
			return err
		}
		if slices.Sort(a.raw); a.rate() < a.raw[probes/2]*trialGain {
			a.release()
		}
	case a.encoder != nil:
	default:
		return a.probe(p)
	}
	return nil
}

// probe looks at the wire, and squeezes if it is slow.
func (a *adapter) probe(p []byte) error {
	if a.raw = append(a.raw, a.rate()); float64(a.since) >= a.waited.Seconds()*fastWire {
		a.raw = a.raw[:0]
	}
	a.mark()
	if len(a.raw) < probes {
		return nil
	}
	if a.squeezes(p) {
		return a.squeeze()
	}
	a.raw = a.raw[:0]
	return nil
}

// rate is the content that got on since the mark, in bytes a second.
func (a *adapter) rate() float64 { return float64(a.since) / a.now().Sub(a.marked).Seconds() }

// squeeze ends the raw blocks.
func (a *adapter) squeeze() error {
	if a.flush(0); a.err != nil {
		return a.err
	}
	a.encoder = bareEncoders.Get().(*zstd.Encoder)
	a.encoder.Reset(&headless{w: a.w})
	return nil
}

// release gives the encoder back.
func (a *adapter) release() {
	if a.encoder != nil {
		a.encoder.Reset(nil)
		bareEncoders.Put(a.encoder)
		a.encoder = nil
	}
}

func (a *adapter) Close() error {
	if a.encoder != nil {
		return a.encoder.Close()
	}
	return a.storer.Close()
}

// squeezes says whether what was written last takes a good deal less when it is
// compressed.
func (a *adapter) squeezes(p []byte) bool {
	if len(p) < probeBlock {
		p = a.buf[frameHeader+blockHeader:] // of this block, or of one before
	}
	p = p[:probeBlock]
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
