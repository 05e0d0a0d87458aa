package dial

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// A source is a network on which all of this has come, but for what comes after a
// while: a nil.
type source struct {
	net.Conn
	parts [][]byte
	reads int
}

func (s *source) Read(p []byte) (int, error) {
	if len(s.parts) == 0 {
		return 0, io.EOF
	}
	if s.parts[0] == nil {
		s.parts = s.parts[1:]
		return 0, os.ErrDeadlineExceeded
	}
	s.reads++
	n := copy(p, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; len(s.parts[0]) == 0 {
		s.parts = s.parts[1:]
	}
	return n, nil
}

// While much comes it is read many records at a time, and nothing is lost: at
// the end of it, when little comes, or when a deadline passes.
func TestReadAhead(t *testing.T) {
	var seed [32]byte
	content := make([]byte, 3<<20+5)
	rand.NewChaCha8(seed).Read(content)
	from := &source{parts: [][]byte{content[:1<<20], nil, content[1<<20 : 2<<20], content[2<<20 : 2<<20+5], nil, content[2<<20+5 : 2<<20+40], content[2<<20+40:]}}
	s := &stream{Conn: from, known: true}
	var got []byte
	for p := make([]byte, maxRecord+300); ; {
		n, err := s.Read(p)
		if got = append(got, p[:n]...); err == io.EOF {
			break
		}
	}
	if !bytes.Equal(got, content) {
		t.Fatalf("%d bytes come, which are not the %d that were sent", len(got), len(content))
	}
	if most := 3<<20/len(records{}.buf) + 12; from.reads > most {
		t.Errorf("%d reads for 3 MiB, want at most %d", from.reads, most)
	}
}

// Of a peer that has not proven who it is no more is read than its handshake may
// have.
func TestNotReadAhead(t *testing.T) {
	from := &source{parts: [][]byte{make([]byte, 1<<20)}}
	s := &stream{Conn: from}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, s, make([]byte, maxRecord))
	if err == nil || n > MaxHandshake || len(from.parts[0]) < 1<<20-MaxHandshake {
		t.Errorf("%d bytes were read and %d are left, %v", n, len(from.parts[0]), err)
	}
}
