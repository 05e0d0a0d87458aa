package pack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// frame passes on the bytes of the one zstd frame that r has to consist of, and
// refuses what a decoder would go along with: other frames before or after it, a
// dictionary, a large window, empty blocks without end. See RFC 8878, 3.1.1.
type frame struct {
	r      *bufio.Reader
	budget int64 // compressed bytes that may still come

	failed  error // the first error that Read had to return, other than its end
	stage   int
	closing bool   // the block at hand is the last
	raw     bool   // the block at hand is content as it is
	sum     bool   // a checksum follows the last block
	sized   bool   // the header says how much content there is
	window  uint64 // of content that a block may refer to, in bytes
	opening []byte // the frame's header, not passed on before raw blocks
	ready   []byte // of head, not yet passed on
	head    [18]byte
	content int64 // of the block at hand, not yet passed on
}

const (
	atStart = iota
	atBlock
	atSum
	atEnd
)

const (
	frameMagic = 0xFD2FB528
	maxBlock   = 128 << 10
)

// newFrame reads a frame of expanded bytes; an honest encoder needs hardly more
// compressed ones.
func newFrame(r *bufio.Reader, expanded int64) *frame {
	return &frame{r: r, budget: expanded + expanded/4 + 1<<20}
}

func (f *frame) Read(p []byte) (int, error) {
	n, err := f.pass(p)
	return n, f.noted(err)
}

func (f *frame) noted(err error) error {
	if err != nil && err != io.EOF && f.failed == nil {
		f.failed = err
	}
	return err
}

func (f *frame) pass(p []byte) (int, error) {
	for len(p) > 0 {
		if len(f.ready) > 0 {
			n := copy(p, f.ready)
			f.ready = f.ready[n:]
			return n, nil
		}
		if f.content > 0 {
			return f.block(p)
		}
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// block reads on in the block at hand.
func (f *frame) block(p []byte) (int, error) {
	n, err := f.r.Read(p[:min(int64(len(p)), f.content)])
	f.content -= int64(n)
	if err = whole(err); n > 0 {
		err = nil
	}
	return n, err
}

// errPacked says that a frame goes on with what only a decoder can read.
var errPacked = errors.New("a block that is not raw")

// plain is Read for content that needs no decoder: that of the raw blocks at the
// beginning of a frame without a checksum or a size. No block behind them refers
// to it. Before the first other block, and before any other frame, it returns
// errPacked; what Read gives then is a frame of what is left.
func (f *frame) plain(p []byte) (n int, err error) {
	for f.content == 0 {
		if err := f.next(); err != nil {
			return 0, f.noted(err)
		}
		switch {
		case f.opening == nil && (f.sum || f.sized):
			return 0, errPacked
		case f.opening == nil:
			f.opening = bytes.Clone(f.ready)
		case len(f.ready) > 0 && !f.raw:
			f.ready = slices.Concat(f.opening, f.ready)
			return 0, errPacked
		case f.content > int64(f.window):
			return 0, f.noted(fmt.Errorf("%w: a zstd block of %d bytes, more than the window", ErrFormat, f.content))
		}
		f.ready = nil
	}
	n, err = f.block(p)
	return n, f.noted(err)
}

// next reads the header that comes now into head.
func (f *frame) next() error {
	switch f.stage {
	case atStart:
		f.stage = atBlock
		return f.start()
	case atBlock:
		if f.closing {
			f.stage = atSum
			return nil
		}
		return f.header()
	case atSum:
		f.stage = atEnd
		if f.sum {
			return f.read(0, 4)
		}
		return nil
	}
	return io.EOF
}

// read fills head[from:to] and makes it ready up to there.
func (f *frame) read(from, to int) error {
	if f.budget -= int64(to - from); f.budget < 0 {
		return fmt.Errorf("%w: the stream goes on beyond what it may take", ErrFormat)
	}
	_, err := io.ReadFull(f.r, f.head[from:to])
	f.ready = f.head[:to]
	return whole(err)
}

// start reads the frame's header.
func (f *frame) start() error {
	if err := f.read(0, 5); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(f.head[:]) != frameMagic {
		return fmt.Errorf("%w: the stream is no zstd frame", ErrFormat)
	}
	descriptor := f.head[4]
	single := descriptor&0x20 != 0
	f.sum = descriptor&0x04 != 0
	if descriptor&0x08 != 0 {
		return fmt.Errorf("%w: the zstd frame has a reserved bit", ErrFormat)
	}
	if descriptor&0x03 != 0 {
		return fmt.Errorf("%w: the zstd frame wants a dictionary", ErrFormat)
	}
	sizeBytes := []int{0, 2, 4, 8}[descriptor>>6]
	if single && sizeBytes == 0 {
		sizeBytes = 1
	}
	end := 5 + sizeBytes
	if !single {
		end++
	}
	if err := f.read(5, end); err != nil {
		return err
	}
	f.sized = sizeBytes > 0
	if f.window = windowOf(single, f.head[5:end]); f.window > MaxWindow {
		return fmt.Errorf("%w: the zstd frame wants a window of %d bytes (at most %d)", ErrFormat, f.window, MaxWindow)
	}
	return nil
}

// windowOf is the memory that a frame asks for.
func windowOf(single bool, fields []byte) uint64 {
	if !single {
		base := uint64(1) << (10 + fields[0]>>3)
		return base + base/8*uint64(fields[0]&7)
	}
	var size [8]byte
	copy(size[:], fields)
	return binary.LittleEndian.Uint64(size[:]) // 256 less than it is if of 2 bytes
}

// header reads a block's header.
func (f *frame) header() error {
	if err := f.read(0, 3); err != nil {
		return err
	}
	bits := uint32(f.head[0]) | uint32(f.head[1])<<8 | uint32(f.head[2])<<16
	f.closing = bits&1 != 0
	size := int64(bits >> 3)
	if size > maxBlock {
		return fmt.Errorf("%w: a zstd block of %d bytes", ErrFormat, size)
	}
	if size == 0 && !f.closing {
		return fmt.Errorf("%w: an empty zstd block", ErrFormat)
	}
	f.content, f.raw = size, false
	switch bits >> 1 & 3 {
	case 0:
		f.raw = true
	case 1: // one byte, repeated size times
		f.content = 1
	case 3:
		return fmt.Errorf("%w: a reserved kind of zstd block", ErrFormat)
	}
	if f.budget -= f.content; f.budget < 0 {
		return fmt.Errorf("%w: the stream goes on beyond what it may take", ErrFormat)
	}
	return nil
}

// ended checks that the frame was read to its end and that nothing follows.
func (f *frame) ended() error {
	if f.stage != atEnd || len(f.ready) > 0 {
		return fmt.Errorf("%w: the zstd frame has not ended", ErrFormat)
	}
	switch _, err := f.r.ReadByte(); err {
	case io.EOF:
		return nil
	case nil:
		return fmt.Errorf("%w: something follows the zstd frame", ErrFormat)
	default:
		return err
	}
}

// whole makes the end of a stream an error where it cannot end.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
