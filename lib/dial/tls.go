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
	"strconv"
	"strings"
	"time"

	"distribute/lib/node"
)

// What a stream over TLS is (dwire(5)).
const (
	protocol  = "distribute/1" // the name both sides agree on
	usualPort = "8952"         // of the head, where an address names none
)

// parseTLS reads tls://host[:port], which begins with tls://. An empty host is
// every address of this machine.
func parseTLS(addr string) (hostport string, err error) {
	hp := strings.TrimPrefix(addr, "tls://")
	host, port, err := net.SplitHostPort(hp)
	if err != nil {
		host, port, err = net.SplitHostPort(hp + ":" + usualPort)
	}
	if err != nil || strings.ContainsAny(hp, "/@? ") || strings.HasSuffix(hp, ":") {
		return "", errors.New("an address over TLS is tls://host[:port], with an IPv6 address as tls://[::1]")
	}
	if err := checkPort(port); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

// checkPort reports what is no number of a port.
func checkPort(port string) error {
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is no port: that is a number up to 65535", port)
	}
	return nil
}

// CheckTLS reports an address at which there can be no head over TLS, whatever
// its key.
func CheckTLS(addr string) error {
	if !strings.HasPrefix(addr, "tls://") {
		return errors.New("an address over TLS is tls://host[:port]")
	}
	hp, err := parseTLS(addr)
	if err == nil && strings.HasPrefix(hp, ":") {
		err = errors.New("it names no host")
	}
	return err
}

// checkTLS is CheckTLS on these terms.
func (t Terms) checkTLS(addr string) error {
	switch err := CheckTLS(addr); {
	case err != nil:
		return err
	case t.Key.private == nil:
		return errors.New("only nodes get in over TLS; people reach a head as ssh://HOST/SPOOL")
	case t.HeadKey == "":
		return errors.New("TLS needs the fingerprint of the head's key, and none is known: dnoded -init writes it down, as head_key")
	case t.HeadKey == t.Key.Fingerprint():
		return fmt.Errorf("%s is the key of this side, and cannot be the head's too", t.HeadKey)
	}
	return nil
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
	return t.secured(ctx, d, addr, func(key node.Fingerprint) error {
		if key != t.HeadKey {
			return fmt.Errorf("what answers shows the key %s, and the head's is %s: it is another, or somebody is between", key, t.HeadKey)
		}
		return nil
	})
}

// KeyAt is the key of whoever answers at an address over TLS. Whether that is
// the head is for the caller to know.
func KeyAt(ctx context.Context, addr string) (node.Fingerprint, error) {
	d := net.Dialer{Timeout: dialWithin}
	c, err := Terms{Key: freshKey()}.secured(ctx, &d, addr, anyKey)
	if err != nil {
		return "", wrap(addr, err)
	}
	defer c.Close()
	return keyOf(c.ConnectionState())
}

func anyKey(node.Fingerprint) error { return nil }

// secured makes a stream whose peer has a key that passes the check.
func (t Terms) secured(ctx context.Context, d *net.Dialer, addr string, check func(node.Fingerprint) error) (*secure, error) {
	hp, err := parseTLS(addr)
	if err != nil {
		return nil, err
	}
	tcp, err := d.DialContext(ctx, "tcp", hp)
	if err != nil {
		return nil, err
	}
	c, err := t.over(tcp, check)
	if err == nil {
		_, err = c.prove(ctx)
	}
	if err != nil {
		tcp.Close()
		return nil, err
	}
	return c, nil
}

// over makes the node's side of TLS over a stream, before the handshake.
func (t Terms) over(c net.Conn, check func(node.Fingerprint) error) (*secure, error) {
	config, err := t.config(check)
	if err != nil {
		return nil, err
	}
	below := &stream{Conn: c}
	return &secure{Conn: tls.Client(below, config), below: below, own: t.Key.Fingerprint()}, nil
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
	config, err := t.config(anyKey)
	if err != nil {
		return nil, err
	}
	l, err := listenTCP(hp)
	if err != nil {
		return nil, err
	}
	return &listener{l, config, t.Key.Fingerprint()}, nil
}

// Addr is where it listens, on a network that is called tls.
func (l *listener) Addr() net.Addr { return tlsAddr{l.Listener.Addr()} }

type tlsAddr struct{ net.Addr }

func (tlsAddr) Network() string { return "tls" }

// Accept takes a stream whose peer has not proven anything yet: [Proven] lets
// it.
func (l *listener) Accept() (net.Conn, error) {
	tcp, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	below := &stream{Conn: tcp}
	return &secure{Conn: tls.Server(below, l.config), below: below, own: l.own, head: true}, nil
}
