package pack

import (
	"encoding/binary"
	"io"
	"sync"
)

// storer writes a zstd frame of raw blocks: what is written to it, as it is.
type storer struct {
	w    io.Writer
	err  error
	head int // bytes of a frame header that buf still begins with
	n    int
	buf  [frameHeader + blockHeader + maxBlock]byte
}

const (
	frameHeader = 6
	blockHeader = 3
)

var storers = sync.Pool{New: func() any { return new(storer) }}

func newStorer(w io.Writer) *storer {
	s := storers.Get().(*storer)
	s.w, s.err, s.n, s.head = w, nil, 0, frameHeader
	binary.LittleEndian.PutUint32(s.buf[:], frameMagic)
	s.buf[4] = 0              // no size, no checksum, no dictionary
	s.buf[5] = (17 - 10) << 3 // a window of 2 to the 17, one block
	return s
}

func (s *storer) Write(p []byte) (int, error) {
	all := len(p)
	for len(p) > 0 && s.err == nil {
		if s.n == maxBlock {
			s.flush(0)
			continue
		}
		if s.n == 0 && len(p) >= maxBlock {
			s.block(0, p[:maxBlock])
			p = p[maxBlock:]
			continue
		}
		n := copy(s.buf[frameHeader+blockHeader+s.n:], p)
		s.n += n
		p = p[n:]
	}
	return all - len(p), s.err
}

// flush writes what is gathered as a block; last is 1 for the last one.
func (s *storer) flush(last int) {
	s.header(last, s.n)
	_, s.err = s.w.Write(s.buf[frameHeader-s.head : frameHeader+blockHeader+s.n])
	s.n, s.head = 0, 0
}

// block writes p as a block, when nothing is gathered.
func (s *storer) block(last int, p []byte) {
	s.header(last, len(p))
	_, s.err = s.w.Write(s.buf[frameHeader-s.head : frameHeader+blockHeader])
	if s.head = 0; s.err == nil {
		_, s.err = s.w.Write(p)
	}
}

func (s *storer) header(last, n int) {
	bits := last | n<<3
	s.buf[frameHeader], s.buf[frameHeader+1], s.buf[frameHeader+2] = byte(bits), byte(bits>>8), byte(bits>>16)
}

// Close ends the frame.
func (s *storer) Close() error {
	if s.err == nil {
		s.flush(1)
	}
	return s.err
}

// withStorer is withEncoder for a frame that is not compressed.
func withStorer(w io.Writer, use func(io.Writer) error) error {
	s := newStorer(w)
	err := use(s)
	if err == nil {
		err = s.Close()
	}
	s.w = nil
	storers.Put(s)
	return err
}
