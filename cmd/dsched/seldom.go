package main

import (
	"sync"
	"time"
)

// What strangers can make the head log: so many lines, and then no more for so
// long.
const (
	seldomLines = 10
	seldomEvery = time.Minute
)

// A seldom keeps strangers from filling the log. The zero value is ready.
type seldom struct {
	mu    sync.Mutex // guards the rest
	since time.Time
	lines int // said since
	left  int // not said, and not counted yet in what was said
}

// say says whether another line may be logged now, and how many were left out
// before it.
func (s *seldom) say(now time.Time) (left int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since) >= seldomEvery {
		s.since, s.lines = now, 0
	}
	if s.lines == seldomLines {
		s.left++
		return 0, false
	}
	s.lines++
	left, s.left = s.left, 0
	return left, true
}
