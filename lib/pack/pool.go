package pack

import (
	"bufio"
	"crypto/sha256"
	"hash"
	"io"
	"runtime"
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
	// manyBytes is the content from which on two blocks are compressed at a
	// time; below, starting the goroutines would cost more.
	manyBytes = 4 << 20
)

// What is expensive to make is kept between uses: an encoder takes about a
// megabyte, and thousands of small trees a second go through here.
var (
	encoders  = sync.Pool{New: func() any { return newEncoder(1) }}
	encoders2 = sync.Pool{New: func() any { return newEncoder(2) }}
	decoders  = sync.Pool{New: newDecoder}
	buffers   = sync.Pool{New: func() any { return new(buffer) }}
	larges    = sync.Pool{New: func() any { return new(large) }}
	hashes    = sync.Pool{New: func() any { return sha256.New() }}
	readers   = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 16<<10) }}
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

func newEncoder(concurrency int, more ...zstd.EOption) *zstd.Encoder {
	e, err := zstd.NewWriter(nil, append([]zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(concurrency),
		zstd.WithConcurrentBlocks(concurrency > 1),
		zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(window)}, more...)...)
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

// withEncoder calls use with an encoder that writes to w, and closes the frame
// if use has no error. Otherwise the frame stays open for ever, and a receiver
// knows that what it got is not whole.
func withEncoder(w io.Writer, bytes int64, use func(io.Writer) error) error {
	pool := &encoders
	if bytes >= manyBytes && runtime.GOMAXPROCS(0) > 1 {
		pool = &encoders2
	}
	e := pool.Get().(*zstd.Encoder)
	e.Reset(w)
	err := use(e)
	if err == nil {
		err = e.Close()
	}
	e.Reset(nil) // waits for its goroutines and lets go of w
	pool.Put(e)
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
