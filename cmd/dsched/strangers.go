package main

import (
	"net"
	"slices"
	"sync"
)

// maxStrangers is how many connections of one listener may not have said hello
// yet. With one more, the oldest of whoever has the most is closed: who floods
// a listener keeps himself out, and a peer that says hello at once gets in.
const maxStrangers = 256

// strangers are the connections of a listener that have not said hello, by
// where they come from, the oldest first.
type strangers struct {
	mu  sync.Mutex // guards of and all
	of  map[string][]net.Conn
	all int
}

func newStrangers() *strangers { return &strangers{of: map[string][]net.Conn{}} }

// add takes one in, for whom another may have to go.
func (s *strangers) add(origin string, c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[origin] = append(s.of[origin], c)
	if s.all++; s.all <= maxStrangers {
		return
	}
	most := origin
	for o, cs := range s.of {
		if len(cs) > len(s.of[most]) {
			most = o
		}
	}
	out := s.of[most][0]
	s.remove(most, 0)
	out.Close()
}

// drop lets one go that has said hello, or has gone.
func (s *strangers) drop(origin string, c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.of[origin], c); i >= 0 {
		s.remove(origin, i)
	}
}

// remove needs mu.
func (s *strangers) remove(origin string, i int) {
	s.all--
	if s.of[origin] = slices.Delete(s.of[origin], i, i+1); len(s.of[origin]) == 0 {
		delete(s.of, origin)
	}
}
