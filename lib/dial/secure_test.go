package dial

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// A source is a network on which all of this has come.
type source struct {
	net.Conn
	came *bytes.Reader
}

func (s *source) Read(p []byte) (int, error) { return s.came.Read(p) }

// Of a peer that has not proven who it is no more is read than its handshake may
// have.
func TestHandshakeIsBounded(t *testing.T) {
	const record = 16 << 10
	from := &source{came: bytes.NewReader(make([]byte, 1<<20))}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, &stream{Conn: from}, make([]byte, record))
	if err == nil || n > MaxHandshake || from.came.Len() < 1<<20-MaxHandshake {
		t.Errorf("%d bytes were read and %d are left, %v", n, from.came.Len(), err)
	}
}
