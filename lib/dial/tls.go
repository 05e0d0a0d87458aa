package dial

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"

	"distribute/lib/node"
	"distribute/lib/wire"
)

// What a stream over TLS is (dwire(5)).
const (
	protocol     = "distribute/1" // the name both sides agree on
	usualPort    = "8952"         // of the head, where an address names none
	maxHandshake = 32 << 10       // bytes of a peer that has not proven who it is
)

// ErrHandshake is returned for a peer over TLS that has not proven who it is.
// Nothing but the handshake was read of it.
var ErrHandshake = errors.New("no handshake")

// parseTLS reads tls://host[:port], which begins with tls://. An empty host is
// every address of this machine.
func parseTLS(addr string) (hostport string, err error) {
	hp := strings.TrimPrefix(addr, "tls://")
	host, port, err := net.SplitHostPort(hp)
	if err != nil {
		host, port, err = net.SplitHostPort(hp + ":" + usualPort)
	}
	if err != nil || strings.ContainsAny(hp, "/@? ") || strings.HasSuffix(hp, ":") {
		return "", fmt.Errorf("%q: an address over TLS is tls://host[:port], with an IPv6 address as tls://[::1]", addr)
	}
	return net.JoinHostPort(host, port), nil
}

// checkTLS reports why there can be no head at an address over TLS, on these
// terms.
func (t Terms) checkTLS(addr string) error {
	hp, err := parseTLS(addr)
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(hp, ":"):
		return fmt.Errorf("%q names no host", addr)
	case t.Key.private == nil:
		return errors.New("TLS needs a key of one's own, and there is none")
	case t.HeadKey == "":
		return errors.New("TLS needs the fingerprint of the head's key, and none is known")
	case t.HeadKey == t.Key.Fingerprint():
		return fmt.Errorf("%s is the key of this side, and cannot be the head's too", t.HeadKey)
	}
	return nil
}

// A secure is a stream over TLS. Its key, once proven, is that of the peer.
type secure struct {
	*tls.Conn
	below *stream
	own   node.Fingerprint
}

// A stream is what TLS runs over. Until the peer has proven who it is, it may
// say only so much.
type stream struct {
	net.Conn
	known bool
	heard int
}

func (s *stream) Read(p []byte) (int, error) {
	if !s.known && s.heard >= maxHandshake {
		return 0, fmt.Errorf("more than %d bytes before the peer has proven who it is", maxHandshake)
	}
	n, err := s.Conn.Read(p)
	s.heard += n
	return n, err
}

// config is how both sides speak TLS: 1.3, a certificate made for the occasion
// of which nothing counts but its key, and no session taken up again. The key
// of the peer must pass the check; that it has the key is proven only when the
// handshake is over.
func (t Terms) config(check func(node.Fingerprint) error) (*tls.Config, error) {
	if t.Key.private == nil {
		return nil, errors.New("TLS needs a key of one's own, and there is none")
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, t.Key.private.Public(), t.Key.private)
	if err != nil {
		return nil, err
	}
	own := t.Key.Fingerprint()
	return &tls.Config{
		Certificates:                []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: t.Key.private}},
		MinVersion:                  tls.VersionTLS13,
		NextProtos:                  []string{protocol},
		ClientAuth:                  tls.RequireAnyClientCert,
		InsecureSkipVerify:          true, // the key is verified, below, and nothing else would be
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			key, err := keyOf(s)
			switch {
			case err != nil:
				return err
			case key == own:
				return fmt.Errorf("the peer shows our own key, %s: a key is for the head or for one node, and for nobody else", own)
			}
			return check(key)
		},
	}, nil
}

// keyOf is the key that the peer shows.
func keyOf(s tls.ConnectionState) (node.Fingerprint, error) {
	if s.NegotiatedProtocol != protocol {
		return "", fmt.Errorf("the peer does not speak %s", protocol)
	}
	if n := len(s.PeerCertificates); n != 1 {
		return "", fmt.Errorf("the peer shows %d certificates, and one is wanted", n)
	}
	key, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return "", errors.New("the peer shows a key that is not ed25519")
	}
	return node.FingerprintOf(key), nil
}

// dialTLS makes a stream to the head that has the key HeadKey.
func (t Terms) dialTLS(ctx context.Context, d *net.Dialer, addr string) (net.Conn, error) {
	if err := t.checkTLS(addr); err != nil {
		return nil, err
	}
	hp, err := parseTLS(addr)
	if err != nil {
		return nil, err
	}
	config, err := t.config(func(key node.Fingerprint) error {
		if key != t.HeadKey {
			return fmt.Errorf("what answers shows the key %s, and the head's is %s: it is another, or somebody is between", key, t.HeadKey)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	tcp, err := d.DialContext(ctx, "tcp", hp)
	if err != nil {
		return nil, err
	}
	below := &stream{Conn: tcp}
	c := &secure{Conn: tls.Client(below, config), below: below, own: t.Key.Fingerprint()}
	if _, err := c.prove(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// A listener takes streams over TLS.
type listener struct {
	net.Listener
	config *tls.Config
	own    node.Fingerprint
}

// listenTLS listens on the address with the head's key.
func (t Terms) listenTLS(addr string) (net.Listener, error) {
	hp, err := parseTLS(addr)
	if err != nil {
		return nil, err
	}
	config, err := t.config(func(node.Fingerprint) error { return nil })
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", hp)
	if err != nil {
		return nil, err
	}
	return &listener{l, config, t.Key.Fingerprint()}, nil
}

// Accept takes a stream whose peer has not proven anything yet: [Proven] lets
// it.
func (l *listener) Accept() (net.Conn, error) {
	tcp, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	below := &stream{Conn: tcp}
	return &secure{Conn: tls.Server(below, l.config), below: below, own: l.own}, nil
}

// prove makes the handshake, and says whose key the peer has.
func (c *secure) prove(ctx context.Context) (node.Fingerprint, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.HelloWithin)
	defer cancel()
	err := c.HandshakeContext(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrHandshake, c.inWords(err))
	}
	c.below.known = true
	return keyOf(c.ConnectionState())
}

// inWords says what an error of TLS means here.
func (c *secure) inWords(err error) error {
	return err
}

// Close ends the stream at once. What it carries has ends of its own, so none
// is said, and a peer that does not read holds nobody up.
func (c *secure) Close() error { return c.below.Close() }
