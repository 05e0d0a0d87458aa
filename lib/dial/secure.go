package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

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
}

// Read reads what has come.
func (s *stream) Read(p []byte) (int, error) {
	if !s.known && s.heard >= MaxHandshake {
		return 0, fmt.Errorf("it said more than %d bytes before it had proven who it is", MaxHandshake)
	}
	n, err := s.Conn.Read(p)
	s.heard += n
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

// Read reads the stream. The head's refusal of a handshake comes only when this
// side has ended it, and is read here.
func (c *secure) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "remote error" {
		err = fmt.Errorf("%w: %w", ErrHandshake, c.inWords(err))
	}
	return n, err
}
