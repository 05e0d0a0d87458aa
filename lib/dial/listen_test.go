package dial

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

// TestListenAbsent listens on an address of no interface (RFC 5737), as at a start
// without a network, and on ones that are there.
func TestListenAbsent(t *testing.T) {
	terms := Terms{Insecure: true, Key: newKey(t)}
	for _, c := range []struct {
		addr   string
		absent bool
	}{
		{"tcp://198.51.100.1:0", true}, {"tcp://[2001:db8::1]:0", true}, {"tcp://127.0.0.1:0", false}, {"tcp://:0", false},
		{"tls://198.51.100.1:0", true}, {"tls://[2001:db8::1]:0", true}, {"tls://127.0.0.1:0", false}, {"tls://:0", false},
	} {
		l, err := terms.Listen(c.addr)
		if err != nil {
			t.Errorf("%s: %v", c.addr, err)
			continue
		}
		if Absent(l.Addr()) != c.absent {
			t.Errorf("%s: absent is %v", c.addr, !c.absent)
		}
		l.Close()
	}
}

func TestListenRefused(t *testing.T) {
	terms := Terms{Key: newKey(t)}
	l, err := terms.Listen("tls://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = terms.Listen("tls://" + l.Addr().String())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), "something listens there already") {
		t.Error(err)
	}
	_, err = terms.Listen("tls://head.invalid")
	if dns := (*net.DNSError)(nil); !errors.As(err, &dns) {
		t.Error(err)
	}
}
