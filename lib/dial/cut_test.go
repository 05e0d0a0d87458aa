package dial

import (
	"io"
	"net"
	"strings"
	"testing"

	"distribute/lib/wire"
)

// A relay is a network between a node and its head: what the node writes goes
// on byte by byte, until n bytes have; then it ends, or that byte is another.
type relay struct {
	net.Conn
	n    int
	flip bool
}

func (r *relay) Write(p []byte) (int, error) {
	for i, b := range p {
		if r.n == 0 && !r.flip {
			r.Conn.(*net.TCPConn).CloseWrite()
			return i, io.ErrClosedPipe
		}
		if r.n == 0 {
			b ^= 0x10
		}
		r.n--
		if _, err := r.Conn.Write([]byte{b}); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// A stream over TLS that comes byte by byte is the same stream, and of one that
// is cut or changed anywhere the head takes in no more than whole messages that
// were sent.
func TestT81CutAndChangedOverTLS(t *testing.T) {
	ours, mine := newKey(t), newKey(t)
	const pings = 5
	through := func(n int, flip bool) (written, got int) {
		t.Helper()
		l, err := Terms{Key: ours}.Listen("tls://127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		heard := make(chan int, 1)
		go func() {
			n := 0
			defer func() { heard <- n }()
			s, err := l.Accept()
			if err != nil {
				return
			}
			defer s.Close()
			if p, err := Proven(s); err != nil || p.Key != mine.Fingerprint() {
				return
			}
			c := wire.New(s)
			for ; ; n++ {
				m, err := c.Recv()
				if err != nil {
					return
				}
				if p, ok := m.(*wire.Ping); !ok || p.N != uint64(n) {
					t.Errorf("message %d is %+v", n, m)
				}
			}
		}()
		tcp, err := net.Dial("tcp", strings.TrimPrefix(l.Addr().String(), "tls://"))
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		between := &relay{tcp, n, flip}
		s, err := Terms{Key: mine}.over(between, anyKey)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.prove(t.Context()); err == nil {
			c := wire.New(s)
			for i := range pings {
				c.Send(&wire.Ping{N: uint64(i)})
			}
		}
		tcp.(*net.TCPConn).CloseWrite()
		return n - between.n, <-heard
	}
	all, got := through(1<<30, false)
	if got != pings {
		t.Fatalf("of %d messages %d came", pings, got)
	}
	t.Logf("%d bytes", all)
	for _, flip := range []bool{false, true} {
		last := 0
		for n := 0; n < all; n += 41 {
			if _, got := through(n, flip); got < last && !flip || got >= pings {
				t.Errorf("after %d bytes of %d (changed: %v) %d messages came, and %d before", n, all, flip, got, last)
			} else {
				last = got
			}
		}
	}
}
