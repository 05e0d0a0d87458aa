package head

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// maxUnauthenticated is how many connections of one listener may not have said hello
// yet. With one more, the oldest of whoever has the most is closed: who floods
// a listener keeps himself out, and a peer that says hello at once gets in. So
// many nodes may all come at once, as they do when a head was away, before the
// first of them is heard.
const maxUnauthenticated = 1024

// unauthenticated are the connections of a listener that have not said hello.
type unauthenticated struct {
	mu  sync.Mutex    // guards the rest
	all []pendingConn // the oldest first
	of  map[string]int
}

type pendingConn struct {
	network string
	conn    net.Conn
}

func newUnauthenticated() *unauthenticated { return &unauthenticated{of: map[string]int{}} }

// add counts a new connection; another may be closed for it.
func (s *unauthenticated) add(origin string, c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	network := networkOf(origin)
	s.all = append(s.all, pendingConn{network, c})
	if s.of[network]++; len(s.all) <= maxUnauthenticated {
		return
	}
	most := 0
	for _, n := range s.of {
		most = max(most, n)
	}
	i := slices.IndexFunc(s.all, func(o pendingConn) bool { return s.of[o.network] == most })
	out := s.all[i].conn
	s.remove(i)
	out.Close()
}

// drop forgets a connection that has said hello, or was closed.
func (s *unauthenticated) drop(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.all, func(o pendingConn) bool { return o.conn == c }); i >= 0 {
		s.remove(i)
	}
}

// remove needs mu.
func (s *unauthenticated) remove(i int) {
	network := s.all[i].network
	s.all = slices.Delete(s.all, i, i+1)
	if s.of[network]--; s.of[network] == 0 {
		delete(s.of, network)
	}
}

// networkOf is the network that a peer is counted with: its address, or over IPv6, where
// every host has a network of addresses to come from, that network.
func networkOf(origin string) string {
	a, err := netip.ParseAddr(origin)
	if err != nil || !a.Is6() || a.Is4In6() {
		return origin
	}
	return netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
}
