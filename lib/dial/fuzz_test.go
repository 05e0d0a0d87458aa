package dial

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// FuzzAddress reads addresses: on the terms of the default nothing that leaves
// this machine is dialled, and no address over TLS leads elsewhere than it says.
func FuzzAddress(f *testing.F) {
	for _, a := range []string{"/spool", "unix:/run/s", "tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://localhost:1", "tcp://0.0.0.0:1", "tcp://127.0.0.1.evil:1", "tcp://[::ffff:8.8.8.8]:1", "ssh://x", "tls://head", "tls://[::1]:1", "tls://", ""} {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, addr string) {
		Spool(addr)
		if hp, err := parseTLS(addr); err == nil && strings.HasPrefix(addr, "tls://") {
			host, port, err := net.SplitHostPort(hp)
			if rest := strings.Trim(addr, "[]"); err != nil || !strings.Contains(rest, host) || port != usualPort && !strings.HasSuffix(rest, ":"+port) {
				t.Fatalf("%q is %q", addr, hp)
			}
		}
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

// FuzzSSHAddress reads addresses over ssh: no word of them that ssh gets is an
// option, or is anything to a shell.
func FuzzSSHAddress(f *testing.F) {
	for _, a := range []string{"ssh://desk", "ssh://maria@desk:2222/srv/spool", "ssh://[fe80::1%25eth0]:22/x", "ssh://-oProxyCommand=x", "ssh://-l@h", "ssh://a%20b@c", "ssh://h/$(x)", "ssh://ma@lab.example@h"} {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, addr string) {
		a, err := parseSSH(addr)
		if err != nil {
			return
		}
		for i, w := range []string{a.host, a.user, a.port} {
			if w == "" && i > 0 {
				continue
			}
			if w == "" || w[0] == '-' || strings.ContainsAny(w, "\x00\n\t \"'`$;&|<>(){}*?[]~!#\\/=") {
				t.Errorf("%q has the word %q", addr, w)
			}
		}
	})
}

// FuzzHostKeys reads what a host shows as its keys: what is taken can stand in
// known_hosts, on a line of its own, and has a fingerprint.
func FuzzHostKeys(f *testing.F) {
	f.Add([]byte("# head:22 SSH-2.0-OpenSSH\nhead ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFiYw==\n"))
	f.Add([]byte("head ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB\nhead ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFiYw==\r\n"))
	f.Add([]byte("head ssh-rsa AAAA/////w==\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, k := range hostKeys(out) {
			if err := k.Fingerprint.Check(); err != nil || strings.ContainsAny(k.Line, "\r\n") || len(strings.Fields(k.Line)) != 3 {
				t.Errorf("%q: %v", k.Line, err)
			}
		}
	})
}
