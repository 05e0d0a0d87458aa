package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"distribute/lib/node"
	"distribute/lib/wire"
)

// ErrHandshake is returned for a peer over TLS that has not proven who it is.
// Nothing but its side of the handshake was read of it.
var ErrHandshake = errors.New("the TLS handshake failed")

// MaxHandshake is how many bytes a peer may say before it has proven who it is.
// Ours say about 2,500.
const MaxHandshake = 32 << 10

// A secure is a stream over TLS.
type secure struct {
	*tls.Conn
	below *stream
	own   node.Fingerprint // of the key on this side
	head  bool             // this side is the head
}

// A stream is what TLS runs over. Until the peer is known, it may say only so
// much.
type stream struct {
	net.Conn
	known bool
	heard int

	much  bool     // came with the last read
	ahead *records // that were read and are not asked for yet, while much comes
	taken int      // of these

	mu      sync.Mutex // guards what follows
	writers int        // that have more than a record
	records *records   // that wait to be written together
	err     error      // of a write; nothing can follow it
}

// records are several of TLS, which are at most 16 KiB each. Written or read one by
// one they would cost a system call each, and wake the peer as often.
type records struct {
	n   int
	buf [128 << 10]byte
}

var recordsPool = sync.Pool{New: func() any { return new(records) }}

// Write writes records, or gathers them while there is a writer of several.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records != nil && s.records.n+len(p) > len(s.records.buf) {
		s.flush()
	}
	if s.writers == 0 || s.err != nil || len(p) > len(s.records.buf) {
		return s.write(p)
	}
	s.records.n += copy(s.records.buf[s.records.n:], p)
	return len(p), nil
}

// write is Write to the network; it needs s.mu, as flush does.
func (s *stream) write(p []byte) (n int, err error) {
	if s.err == nil {
		n, s.err = s.Conn.Write(p)
	}
	return n, s.err
}

// flush writes the records that wait.
func (s *stream) flush() {
	s.write(s.records.buf[:s.records.n])
	s.records.n = 0
}

// gather begins a write of several records, and end ends it.
func (s *stream) gather() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writers++; s.records == nil {
		s.records = recordsPool.Get().(*records)
	}
}

func (s *stream) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	if s.writers--; s.writers == 0 {
		recordsPool.Put(s.records)
		s.records = nil
	}
	return s.err
}

// Read reads what has come; while that is much, more at a time than is asked for.
func (s *stream) Read(p []byte) (n int, err error) {
	if !s.known && s.heard >= MaxHandshake {
		return 0, fmt.Errorf("it said more than %d bytes before it had proven who it is", MaxHandshake)
	}
	if s.ahead == nil && !s.much {
		n, err = s.Conn.Read(p)
		s.heard += n
		s.much = s.known && n == len(p) && n >= maxRecord
		return n, err
	}
	if s.ahead == nil {
		s.ahead, s.taken = recordsPool.Get().(*records), 0
		s.ahead.n, err = s.Conn.Read(s.ahead.buf[:])
	}
	n = copy(p, s.ahead.buf[s.taken:s.ahead.n])
	if s.taken += n; s.taken == s.ahead.n {
		s.much = s.ahead.n >= maxRecord
		s.ahead.n = 0
		recordsPool.Put(s.ahead)
		s.ahead = nil
	}
	return n, err
}

// prove makes the handshake, and says whose key the peer has.
func (c *secure) prove(ctx context.Context) (node.Fingerprint, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.HelloWithin)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		c.sayTLS(err)
		return "", fmt.Errorf("%w: %w", ErrHandshake, c.inWords(err))
	}
	c.below.known = true
	return keyOf(c.ConnectionState())
}

// sayTLS answers a peer that does not speak TLS in its own words.
func (c *secure) sayTLS(err error) {
	var plain tls.RecordHeaderError
	if c.head && errors.As(err, &plain) && plain.Conn != nil {
		wire.New(plain.Conn).Send(&wire.Error{Status: 65, Text: "the head speaks TLS at this address: dial it as tls://"})
	}
}

// inWords says what an error of a handshake means here. What the peer found
// wrong it says in a word only.
func (c *secure) inWords(err error) error {
	var op *net.OpError
	refused := errors.As(err, &op) && op.Op == "remote error"
	switch {
	case refused && c.head:
		return fmt.Errorf("the peer refuses this head, whose key is %s (%w)", c.own, op.Err)
	case refused:
		return fmt.Errorf("the head refuses this side, whose key is %s (%w)", c.own, op.Err)
	case errors.As(err, new(tls.RecordHeaderError)):
		return errors.New("the peer does not speak TLS")
	case errors.Is(err, io.EOF):
		return errors.New("the peer closed the stream")
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the peer has not finished it within %v", wire.HelloWithin)
	}
	return err
}

// Close ends the stream at once. What it carries has ends of its own, so TLS
// says none, and a peer that does not read holds nobody up.
func (c *secure) Close() error { return c.below.Close() }

// maxRecord is the content of a record of TLS.
const maxRecord = 16 << 10

// Write writes to the stream, several records at once.
func (c *secure) Write(p []byte) (int, error) {
	if len(p) <= maxRecord {
		return c.Conn.Write(p)
	}
	c.below.gather()
	n, err := c.Conn.Write(p)
	if ferr := c.below.end(); err == nil {
		err = ferr
	}
	return n, err
}

// Read reads the stream. The head's refusal of a handshake comes only when this
// side has ended it, and is read here.
func (c *secure) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "remote error" {
		err = fmt.Errorf("%w: %w", ErrHandshake, c.inWords(err))
	}
	return n, err
}
