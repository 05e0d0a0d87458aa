package dial

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/wire"
)

// certificate is one of a key, with so many bytes that mean nothing.
func certificate(t *testing.T, key crypto.Signer, ballast int) tls.Certificate {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(1)}
	if ballast > 0 {
		c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Value: make([]byte, ballast)}}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// with is how an honest peer with that certificate speaks TLS, before something
// of it is changed.
func with(c tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c}, InsecureSkipVerify: true, NextProtos: []string{protocol}, ClientAuth: tls.RequestClientCert}
}

// A peer is how somebody who is not let in speaks TLS, and what is said of it.
type peer struct {
	name   string
	config *tls.Config
	want   string
}

// peers is everybody who is not let in by the side that has the key own. The
// key trusted is one that would be let in, and is not in their hands.
func peers(t *testing.T, own, trusted Key) []peer {
	t.Helper()
	good := func() tls.Certificate { return certificate(t, freshKey().private, 0) }
	changed := func(f func(*tls.Config)) *tls.Config {
		c := with(good())
		f(c)
		return c
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	stolen := certificate(t, trusted.private, 0)
	stolen.PrivateKey = freshKey().private
	twice := good()
	twice.Certificate = append(twice.Certificate, stolen.Certificate[0])
	long := good()
	for range 100 {
		long.Certificate = append(long.Certificate, long.Certificate[0])
	}
	return []peer{
		{"TLS 1.2", changed(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), "version"},
		{"no protocol", changed(func(c *tls.Config) { c.NextProtos = nil }), "does not speak distribute/1"},
		{"another protocol", changed(func(c *tls.Config) { c.NextProtos = []string{"h2"} }), "protocol"},
		{"ECDSA", with(certificate(t, ec, 0)), "not ed25519"},
		{"RSA", with(certificate(t, rs, 0)), "not ed25519"},
		{"two certificates", with(twice), "2 certificates"},
		{"a hundred certificates", with(long), "101 certificates"},
		{"a huge certificate", with(certificate(t, freshKey().private, 60<<10)), "more than 32768 bytes"},
		{"our own key", with(certificate(t, own.private, 0)), "shows our own key, " + string(own.Fingerprint())},
		{"a certificate without its key", with(stolen), "invalid signature"},
	}
}

// Nobody gets further than the handshake who does not show a key of his own in
// the one way there is, whatever he says after it.
func TestX96HostilePeers(t *testing.T) {
	own := newKey(t)
	h := newTLSHead(t, own, "tls://127.0.0.1:0")
	none := with(tls.Certificate{})
	none.Certificates = nil
	for _, p := range append(peers(t, own, newKey(t)), peer{"no key", none, "certificate"}) {
		t.Run(p.name, func(t *testing.T) {
			c, err := net.Dial("tcp", strings.TrimPrefix(h.addr, "tls://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s := tls.Client(c, p.config)
			if s.Handshake() == nil {
				wire.New(s).Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleNode, Name: "ws1"})
			}
			if err := <-h.fails; !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), p.want) {
				t.Errorf("the head says %v; want %q", err, p.want)
			}
			if n, err := s.Read(make([]byte, 1)); n > 0 {
				t.Errorf("the head answers: %v", err)
			}
		})
	}
	select {
	case p := <-h.peers:
		t.Errorf("somebody got in: %+v", p)
	case m := <-h.heard:
		t.Errorf("the head has heard %+v", m)
	default:
	}
}

// A node says nothing to whoever is not its head.
func TestX96HostileHeads(t *testing.T) {
	mine, ours := newKey(t), newKey(t)
	terms := Terms{Key: mine, HeadKey: ours.Fingerprint()}
	for _, p := range append(peers(t, mine, ours), peer{"another key", with(certificate(t, freshKey().private, 0)), "and the head's is " + string(ours.Fingerprint())}) {
		t.Run(p.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			said := make(chan []byte, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				b, _ := io.ReadAll(tls.Server(c, p.config))
				said <- b
			}()
			_, _, err = terms.Greet(t.Context(), "tls://"+l.Addr().String(), wire.Hello{Role: wire.RoleNode, Name: "ws1"})
			if !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), p.want) {
				t.Errorf("the node says %v; want %q", err, p.want)
			}
			if b := <-said; len(b) > 0 {
				t.Errorf("it told %q", b)
			}
		})
	}
}

// A head that refuses says so only when the node has ended the handshake.
func TestX96RefusalHasTheKey(t *testing.T) {
	own := newKey(t)
	h := newTLSHead(t, own, "tls://127.0.0.1:0")
	// The check that the key is not the head's too is taken away: it is a copy.
	d := net.Dialer{}
	config := Terms{Key: own}
	c, err := config.secured(t.Context(), &d, h.addr, anyKey)
	if err == nil {
		t.Fatal("a node with the head's key takes the head for another", c)
	}
	if err := <-h.fails; !strings.Contains(err.Error(), "the peer refuses this head, whose key is "+string(own.Fingerprint())) {
		t.Errorf("the head says %v", err)
	}
	// One with two certificates is refused by the head alone.
	tcp, err := net.Dial("tcp", strings.TrimPrefix(h.addr, "tls://"))
	if err != nil {
		t.Fatal(err)
	}
	mine := freshKey()
	cert := certificate(t, mine.private, 0)
	cert.Certificate = append(cert.Certificate, cert.Certificate[0])
	below := &stream{Conn: tcp}
	s := &secure{Conn: tls.Client(below, with(cert)), below: below, own: mine.Fingerprint()}
	defer s.Close()
	if _, err := s.prove(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = s.Read(make([]byte, 1))
	if !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), "the head refuses this side, whose key is "+string(mine.Fingerprint())) {
		t.Errorf("the node says %v", err)
	}
}

// A session that somebody has recorded proves nothing when it is played again.
func TestX96Replay(t *testing.T) {
	ours, mine := newKey(t), newKey(t)
	h := newTLSHead(t, ours, "tls://127.0.0.1:0")
	var record bytes.Buffer
	d := &net.Dialer{}
	tcp, err := d.Dial("tcp", strings.TrimPrefix(h.addr, "tls://"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := Terms{Key: mine}.config(anyKey)
	if err != nil {
		t.Fatal(err)
	}
	s := tls.Client(recorded{tcp, &record}, config)
	c := wire.New(s)
	if _, err := wire.Greet(c, wire.Hello{Role: wire.RoleNode, Name: "ws1"}); err != nil {
		t.Fatal(err)
	}
	tcp.Close()
	<-h.peers
	<-h.heard
	again, err := d.Dial("tcp", strings.TrimPrefix(h.addr, "tls://"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write(record.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := <-h.fails; !errors.Is(err, ErrHandshake) {
		t.Errorf("the head says %v", err)
	}
}

// recorded keeps what is written.
type recorded struct {
	net.Conn
	to io.Writer
}

func (r recorded) Write(p []byte) (int, error) {
	r.to.Write(p)
	return r.Conn.Write(p)
}

// Who speaks no TLS to a head that does is told so in plain, and the other way
// round both say it.
func TestX96PlainAndTLS(t *testing.T) {
	ours := newKey(t)
	h := newTLSHead(t, ours, "tls://127.0.0.1:0")
	_, _, err := Greet(t.Context(), "tcp"+strings.TrimPrefix(h.addr, "tls"), wire.Hello{Role: wire.RoleNode, Name: "ws1"})
	var refusal *wire.Error
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Text, "speaks TLS at this address") {
		t.Errorf("a plain node hears %v", err)
	}
	if err := <-h.fails; !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), "does not speak TLS") {
		t.Errorf("the head says %v", err)
	}

	l, err := Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said := make(chan error, 1)
	go func() {
		s, err := l.Accept()
		if err != nil {
			return
		}
		defer s.Close()
		_, err = wire.New(s).Recv()
		said <- err
		wire.New(s).Send(&wire.Error{Text: "no"})
	}()
	_, err = Terms{Key: newKey(t), HeadKey: ours.Fingerprint()}.Dial(t.Context(), "tls://"+l.Addr().String())
	if !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), "does not speak TLS") {
		t.Errorf("a node over TLS says %v", err)
	}
	if err := <-said; !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), "speaks TLS, and this address is plain TCP") {
		t.Errorf("the plain head says %v", err)
	}
}

// A handshake that stalls ends, on both sides, wherever it stalls.
func TestX96Stalls(t *testing.T) {
	for _, head := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			config, err := Terms{Key: freshKey()}.config(anyKey)
			if err != nil {
				t.Fatal(err)
			}
			below := &stream{Conn: near}
			s := &secure{Conn: tls.Client(below, config), below: below, head: head}
			if head {
				s.Conn = tls.Server(below, config)
			} else {
				go io.Copy(io.Discard, far)
			}
			began := time.Now()
			_, err = s.prove(context.Background())
			if !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), "has not finished it within 5s") {
				t.Errorf("head %v: %v", head, err)
			}
			if took := time.Since(began); took != wire.HelloWithin {
				t.Errorf("head %v: after %v", head, took)
			}
		})
	}
}

// piped is both sides of a stream over TLS that have proven who they are, over
// a pipe that holds nothing: what one side writes waits until the other reads.
func piped(t *testing.T) (head, node *secure) {
	t.Helper()
	near, far := net.Pipe()
	config, err := Terms{Key: freshKey()}.config(anyKey)
	if err != nil {
		t.Fatal(err)
	}
	head = &secure{below: &stream{Conn: near}, head: true}
	head.Conn = tls.Server(head.below, config)
	if node, err = (Terms{Key: freshKey()}).over(far, anyKey); err != nil {
		t.Fatal(err)
	}
	proved := make(chan error, 1)
	go func() { _, err := node.prove(t.Context()); proved <- err }()
	if _, err := head.prove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-proved; err != nil {
		t.Fatal(err)
	}
	return head, node
}

// What a stream is given for its reads and writes holds over TLS, and a read
// that was too late can be made again.
func TestT80DeadlinesOverTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		head, node := piped(t)
		defer head.Close()
		defer node.Close()
		c, d := wire.New(head), wire.New(node)
		c.ReadWithin(time.Second)
		if _, err := c.Recv(); !isDeadline(err) {
			t.Errorf("reads: %v", err)
		}
		c.ReadWithin(0)
		go d.Send(&wire.Ping{N: 7})
		if m, err := c.Recv(); err != nil || m.(*wire.Ping).N != 7 {
			t.Errorf("and reads again: %v, %v", m, err)
		}
		if err := c.Send(&wire.Ping{N: 8}); !isDeadline(err) { // which nobody reads
			t.Errorf("writes: %v", err)
		}
		if err := c.Send(&wire.Ping{N: 9}); err == nil {
			t.Error("writes again")
		}
	})
}

// To close a stream over TLS takes no time, whether its peer reads or not, and
// ends what is under way on both sides.
func TestT80CloseOverTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		head, node := piped(t)
		ends, drained := make(chan error, 2), make(chan error, 1)
		go func() { _, err := head.Read(make([]byte, 1)); ends <- err }()
		go func() { _, err := head.Write(make([]byte, 1)); ends <- err }()
		synctest.Wait()
		began := time.Now()
		if err := head.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %v", d)
		}
		go func() { _, err := io.Copy(io.Discard, node); drained <- err }()
		for range 2 {
			if err := <-ends; err == nil {
				t.Error("something goes on")
			}
		}
		<-drained
	})
}

func isDeadline(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
