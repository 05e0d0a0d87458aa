package main

import "sync"

// maxReading is how many jobs may be in memory at once for what tools ask: of a
// batch that is read, some 200 bytes for each job that has run. What asks for
// more waits its turn.
const maxReading = 4_000_000

// A quota is a number of things that are given out and come back. Who asks for
// more than is there waits, in the order of asking.
type quota struct {
	mu   sync.Mutex // guards what follows
	all  int
	free int
	line []*turn
}

// A turn is one that waits.
type turn struct {
	n   int
	now chan struct{} // closed when it has them
}

func newQuota(all int) *quota { return &quota{all: all, free: all} }

// take takes n, or all there are if that is less, and returns what gives them
// back. It returns nil when gone is closed before it had its turn.
func (q *quota) take(n int, gone <-chan struct{}) (back func()) {
	t := &turn{min(n, q.all), make(chan struct{})}
	q.mu.Lock()
	q.line = append(q.line, t)
	q.serve()
	q.mu.Unlock()
	give := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.free += t.n
		q.serve()
	}
	select {
	case <-t.now:
		return give
	case <-gone:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, w := range q.line {
		if w == t {
			q.line = append(q.line[:i], q.line[i+1:]...)
			q.serve()
			return nil
		}
	}
	q.free += t.n // its turn came meanwhile
	q.serve()
	return nil
}

// wanted says that somebody waits.
func (q *quota) wanted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.line) > 0
}

// serve gives to those in front. It is called with mu held.
func (q *quota) serve() {
	for len(q.line) > 0 && q.line[0].n <= q.free {
		q.free -= q.line[0].n
		close(q.line[0].now)
		q.line = q.line[1:]
	}
}
