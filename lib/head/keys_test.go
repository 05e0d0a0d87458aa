package head

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/dial"
	"distribute/lib/wire"
)

// withTLS restarts a site that listens over TLS too, and says on what terms
// nodes dial it.
func (s *site) withTLS() dial.Terms {
	s.t.Helper()
	k, err := dial.NewKey(s.h.spool.KeyFile())
	if err != nil {
		s.t.Fatal(err)
	}
	s.stop()
	s.scheme = "tls"
	s.start()
	return dial.Terms{HeadKey: k.Fingerprint()}
}

// as is the terms of a node with a new key.
func as(t *testing.T, terms dial.Terms) dial.Terms {
	t.Helper()
	k, err := dial.NewKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	terms.Key = k
	return terms
}

// A node is let in whose key the list carries, under that name and no other,
// and as nothing else.
func TestX96OnlyListedKeys(t *testing.T) {
	s := newSite(t)
	head := s.withTLS()
	ws1, ws2 := as(t, head), as(t, head)
	if err := os.WriteFile(filepath.Join(s.dir, "keys", "nodes"), []byte("ws1 "+ws1.Key.Fingerprint()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.h.rereadNodes()
	hello := wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "b", State: "s"}
	greet := func(terms dial.Terms, role, name string) *wire.Error {
		t.Helper()
		hello := hello
		hello.Role, hello.Name = role, name
		c, _, err := terms.Greet(t.Context(), s.addr, hello)
		if err == nil {
			c.Close()
			return nil
		}
		var refusal *wire.Error
		if !errors.As(err, &refusal) {
			t.Fatalf("%s %s: %v", role, name, err)
		}
		return refusal
	}
	for _, c := range []struct {
		of         dial.Terms
		role, name string
		in         bool
		pending    bool
	}{
		{ws1, wire.RoleNode, "ws1", true, false},
		{ws2, wire.RoleNode, "ws2", false, true},
		{ws2, wire.RoleNode, "ws1", false, true},
		{ws1, wire.RoleNode, "ws2", false, false},
		{ws1, wire.RoleTool, "", false, false},
		{ws2, wire.RoleTool, "", false, false},
		{ws1, wire.RoleData, "ws1", false, false},
		{ws2, wire.RoleData, "ws1", false, true},
	} {
		refusal := greet(c.of, c.role, c.name)
		if (refusal == nil) != c.in || refusal != nil && refusal.Pending != c.pending {
			t.Errorf("%s as %s %q: %+v", c.of.Key.Fingerprint(), c.role, c.name, refusal)
		}
	}
}

// Connections that never end a handshake, and those that end one and say
// nothing, keep nobody out, and the log does not fill with them.
func TestX96Handshakes(t *testing.T) {
	s := newSite(t)
	head := s.withTLS()
	ws1 := as(t, head)
	if err := s.accept("ws1", ws1.Key.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.addr, "tls://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range 20 {
		c, err := ws1.Dial(t.Context(), s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	c, _, err := ws1.Greet(t.Context(), s.addr, wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "b", State: "s"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.stop()
	if n := strings.Count(s.log.String(), "turned away"); n > peerLines {
		t.Errorf("%d lines are logged", n)
	}
}
