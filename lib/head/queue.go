package head

import "sync"

// A queue hands things from goroutines that must not wait to one that may: the
// state's goroutine puts, a stream's goroutine takes. It holds at most max
// things; a peer that lets more pile up is given up.
type queue[T any] struct {
	mu     sync.Mutex // guards the rest
	ready  sync.Cond
	items  []T
	max    int
	closed bool
}

func newQueue[T any](max int) *queue[T] {
	q := &queue[T]{max: max}
	q.ready.L = &q.mu
	return q
}

// put adds things and says whether there was room.
func (q *queue[T]) put(items ...T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.items)+len(items) > q.max {
		return false
	}
	q.items = append(q.items, items...)
	q.ready.Signal()
	return true
}

// len is how many things wait.
func (q *queue[T]) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// take waits for things and takes all that are there, in order; nil when the
// queue is closed and empty.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.ready.Wait()
	}
	items := q.items
	q.items = nil
	return items
}

// close lets take return what is left, and then nil.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
}
