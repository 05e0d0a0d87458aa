package dial

import "testing"

// TestListenAbsent listens on an address of no interface (RFC 5737), as at a start
// without a network, and on ones that are there.
func TestListenAbsent(t *testing.T) {
	for _, c := range []struct {
		addr   string
		absent bool
	}{{"tcp://192.0.2.1:0", true}, {"tcp://[2001:db8::1]:0", true}, {"tcp://127.0.0.1:0", false}, {"tcp://:0", false}} {
		l, err := Terms{Insecure: true}.Listen(c.addr)
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
