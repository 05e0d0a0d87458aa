package pack

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"hash"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// MaxWindow is the largest zstd window that a stream may ask a receiver for.
	MaxWindow = 8 << 20
	// window is the one that Send uses; a larger one costs memory and does not
	// gain anything at the fastest level.
	window = 256 << 10
	// bufferSize is that of the buffers that content passes through.
	bufferSize = 256 << 10
	// largeSize is that of the buffers of a large file, of which one part is read
	// while another is hashed: to hand one over costs as much as to copy some of it.
	largeSize = 4 * bufferSize
)

// What is expensive to make is kept between uses: an encoder takes about a
// megabyte, and thousands of small trees a second go through here.
var (
	encoders = sync.Pool{New: newEncoder}
	decoders = sync.Pool{New: newDecoder}
	buffers  = sync.Pool{New: func() any { return new(buffer) }}
	larges   = sync.Pool{New: func() any { return new(large) }}
	hashes   = sync.Pool{New: func() any { return sha256.New() }}
	readers  = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 16<<10) }}
	writers  = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 64<<10) }}
)

// buffer is a place for content on its way, and large one for that of a large
// file.
type (
	buffer [bufferSize]byte
	large  [largeSize]byte
)

// turns are two buffers that take turns, as far as they are needed.
type turns struct {
	bufs [2]*large
	next int
}

// take is the one whose turn it is.
func (t *turns) take() []byte {
	b := &t.bufs[t.next]
	if t.next = 1 - t.next; *b == nil {
		*b = larges.Get().(*large)
	}
	return (*b)[:]
}

func (t *turns) release() {
	for _, b := range t.bufs {
		if b != nil {
			larges.Put(b)
		}
	}
}

func newEncoder() any {
	e, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(window))
	if err != nil {
		panic("pack: options of the encoder: " + err.Error())
	}
	return e
}

func newDecoder() any {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(MaxWindow))
	if err != nil {
		panic("pack: options of the decoder: " + err.Error())
	}
	return d
}

// squeezed calls use with an encoder that writes to w, and ends the frame if use has no
// error. Otherwise the frame has no end, and a receiver knows that it is not whole. All that
// use wrote before its error is sent.
func squeezed(w io.Writer, use func(io.Writer) error) error {
	e := encoders.Get().(*zstd.Encoder)
	e.Reset(w)
	err := use(e)
	if err == nil {
		err = e.Close()
	} else {
		_ = e.Flush() // the error of use says why the rest does not come
	}
	e.Reset(nil) // lets go of w
	encoders.Put(e)
	return err
}

// stored calls use with a buffer before w, for many small files. All that use wrote is sent,
// also before its error.
func stored(w io.Writer, use func(io.Writer) error) error {
	b := writers.Get().(*bufio.Writer)
	b.Reset(w)
	err := cmp.Or(use(b), b.Flush())
	b.Reset(nil)
	writers.Put(b)
	return err
}

// sumOf is a hash that was used, as a manifest writes it.
func sumOf(h hash.Hash) string {
	var sum [sha256.Size]byte
	const digits = "0123456789abcdef"
	var text [2 * sha256.Size]byte
	for i, c := range h.Sum(sum[:0]) {
		text[2*i], text[2*i+1] = digits[c>>4], digits[c&15]
	}
	return string(text[:])
}

func newHash() hash.Hash {
	h := hashes.Get().(hash.Hash)
	h.Reset()
	return h
}
