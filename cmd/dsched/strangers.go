package main

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// maxStrangers is how many connections of one listener may not have said hello
// yet. With one more, the oldest of whoever has the most is closed: who floods
// a listener keeps himself out, and a peer that says hello at once gets in. So
// many nodes may all come at once, as they do when a head was away, before the
// first of them is heard.
const maxStrangers = 1024

// strangers are the connections of a listener that have not said hello.
type strangers struct {
	mu  sync.Mutex // guards the rest
	all []stranger // the oldest first
	of  map[string]int
}

type stranger struct {
	crowd string
	conn  net.Conn
}

func newStrangers() *strangers { return &strangers{of: map[string]int{}} }

// add takes one in, for whom another may have to go.
func (s *strangers) add(origin string, c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	crowd := crowdOf(origin)
	s.all = append(s.all, stranger{crowd, c})
	if s.of[crowd]++; len(s.all) <= maxStrangers {
		return
	}
	most := 0
	for _, n := range s.of {
		most = max(most, n)
	}
	i := slices.IndexFunc(s.all, func(o stranger) bool { return s.of[o.crowd] == most })
	out := s.all[i].conn
	s.remove(i)
	out.Close()
}

// drop lets one go that has said hello, or has gone.
func (s *strangers) drop(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.all, func(o stranger) bool { return o.conn == c }); i >= 0 {
		s.remove(i)
	}
}

// remove needs mu.
func (s *strangers) remove(i int) {
	crowd := s.all[i].crowd
	s.all = slices.Delete(s.all, i, i+1)
	if s.of[crowd]--; s.of[crowd] == 0 {
		delete(s.of, crowd)
	}
}

// crowdOf is as one of whom a peer counts: over IPv6 every host has a network of
// addresses to come from.
func crowdOf(origin string) string {
	a, err := netip.ParseAddr(origin)
	if err != nil || !a.Is6() || a.Is4In6() {
		return origin
	}
	return netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
}
