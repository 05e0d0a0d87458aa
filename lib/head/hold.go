package head

import (
	"sync"

	"distribute/lib/job"
)

// holds says what is staged of which attempts somebody works on: a stream of a
// session that is over may still be writing when the node's next session wants
// to go on with the same result.
type holds struct {
	mu sync.Mutex // guards the rest
	of map[job.Token][]func()
}

// take takes hold of what is staged of an attempt. If another has hold of it, it
// says false, and calls again once it is worth another try.
func (x *holds) take(t job.Token, again func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	waiting, held := x.of[t]
	if held {
		x.of[t] = append(waiting, again)
		return false
	}
	x.of[t] = nil
	return true
}

// give lets go of it.
func (x *holds) give(t job.Token) {
	x.mu.Lock()
	waiting := x.of[t]
	delete(x.of, t)
	x.mu.Unlock()
	for _, again := range waiting {
		again()
	}
}
