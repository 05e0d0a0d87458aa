package dial

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/node"
	"distribute/lib/wire"
)

// newKey is a key in a file of its own.
func newKey(t *testing.T) Key {
	t.Helper()
	k, err := NewKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A head is a listener that says of each stream who the peer is, and answers a
// hello. What a peer has said is in heard.
type head struct {
	addr  string
	peers chan Peer
	fails chan error
	heard chan wire.Message
}

func newTLSHead(t *testing.T, k Key, addr string) *head {
	t.Helper()
	l, err := Terms{Key: k}.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	h := &head{"tls://" + l.Addr().String(), make(chan Peer, 9), make(chan error, 9), make(chan wire.Message, 9)}
	go func() {
		for {
			s, err := l.Accept()
			if err != nil {
				return
			}
			go h.serve(s)
		}
	}()
	return h
}

func (h *head) serve(s net.Conn) {
	defer s.Close()
	p, err := Proven(s)
	if err != nil {
		h.fails <- err
		return
	}
	h.peers <- p
	c := wire.New(s)
	m, err := wire.Expect[*wire.Hello](c)
	if err != nil {
		return
	}
	h.heard <- m
	c.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, Spool: "x"})
	c.Recv() // until it closes
}

func TestTLS(t *testing.T) {
	ours, mine := newKey(t), newKey(t)
	for _, addr := range []string{"tls://127.0.0.1:0", "tls://[::1]:0", "tls://localhost:0"} {
		h := newTLSHead(t, ours, addr)
		terms := Terms{Key: mine, HeadKey: ours.Fingerprint()}
		c, hello, err := terms.Greet(t.Context(), h.addr, wire.Hello{Role: wire.RoleNode, Name: "ws1"})
		if err != nil || hello.Spool != "x" {
			t.Fatal(addr, hello, err)
		}
		if p := <-h.peers; p.Key != mine.Fingerprint() || p.Proven || p.Tool() || !p.Local || p.UID != -1 {
			t.Errorf("%s: the peer is %+v", addr, p)
		}
		c.Close()
	}
}

func TestTLSAddress(t *testing.T) {
	for _, a := range [][2]string{
		{"tls://head", "head:8952"}, {"tls://head:1", "head:1"}, {"tls://", ":8952"}, {"tls://:1", ":1"}, {"tls://[::1]", "[::1]:8952"},
		{"tls://[fe80::1%eth0]:2", "[fe80::1%eth0]:2"}, {"tls://[::]:8952", "[::]:8952"}, {"tls://127.0.0.1", "127.0.0.1:8952"},
		{"tls://::1", ""}, {"tls://head:", ""}, {"tls://head/x", ""}, {"tls://u@head", ""}, {"tls://head:1:2", ""}, {"tls://[::1", ""},
		{"tls://head:0", "head:0"}, {"tls://head:99999", ""}, {"tls://head:x", ""}, {"tls://head:-1", ""},
	} {
		hp, err := parseTLS(a[0])
		if hp != a[1] || (err == nil) != (a[1] != "") {
			t.Errorf("%s is %q, %v", a[0], hp, err)
		}
	}
	k := newKey(t)
	for _, c := range []struct {
		terms      Terms
		addr, want string
	}{
		{Terms{}, "tls://head", "people reach a head as ssh://"},
		{Terms{Key: k}, "tls://head", "fingerprint of the head's key"},
		{Terms{Key: k, HeadKey: k.Fingerprint()}, "tls://head", "cannot be the head's too"},
		{Terms{Key: k, HeadKey: node.Fingerprint("SHA256:other")}, "tls://:1", "names no host"},
	} {
		if err := c.terms.Check(c.addr); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.addr, err)
		}
		if _, err := c.terms.Dial(t.Context(), c.addr); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s is dialled: %v", c.addr, err)
		}
	}
	if _, err := new(Terms).Listen("tls://127.0.0.1:0"); err == nil {
		t.Error("listens without a key")
	}
}

func TestX96WrongHeadKey(t *testing.T) {
	ours, mine, other := newKey(t), newKey(t), newKey(t)
	h := newTLSHead(t, ours, "tls://127.0.0.1:0")
	_, err := Terms{Key: mine, HeadKey: other.Fingerprint()}.Dial(t.Context(), h.addr)
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), string(ours.Fingerprint())) || !strings.Contains(err.Error(), string(other.Fingerprint())) {
		t.Errorf("a head with another key: %v", err)
	}
	if err := <-h.fails; !errors.Is(err, ErrHandshake) {
		t.Errorf("the head says %v", err)
	}
}
