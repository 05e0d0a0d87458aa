package dial

import (
	"fmt"
	"net"
)

// A plainListener takes streams over plain TCP.
type plainListener struct{ net.Listener }

func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &plain{Conn: c}, nil
}

// A plain is a stream over plain TCP, on which nobody is to begin with TLS: its
// first record has no newline that must come.
type plain struct {
	net.Conn
	begun bool
}

// startsTLS is the first byte of a stream over TLS: a record of a handshake
// (RFC 8446, section 5.1).
const startsTLS = 22

func (c *plain) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.begun && p[0] == startsTLS {
		return 0, fmt.Errorf("%w: the peer speaks TLS, and this address is plain TCP", ErrHandshake)
	}
	c.begun = c.begun || n > 0
	return n, err
}
