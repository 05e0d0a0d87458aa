package dial

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// FuzzAddress reads addresses: on the terms of the default nothing that leaves
// this machine is dialled.
func FuzzAddress(f *testing.F) {
	for _, a := range []string{"/spool", "unix:/run/s", "tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://localhost:1", "tcp://0.0.0.0:1", "tcp://127.0.0.1.evil:1", "tcp://[::ffff:8.8.8.8]:1", "ssh://x", ""} {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, addr string) {
		Spool(addr)
		hp, tcp := strings.CutPrefix(addr, "tcp://")
		if !tcp || new(Terms).Check(addr) != nil {
			return
		}
		host, _, err := net.SplitHostPort(hp)
		if err != nil {
			t.Fatalf("%q passes: %v", addr, err)
		}
		if a, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !a.IsLoopback()) {
			t.Fatalf("%q passes", addr)
		}
	})
}
