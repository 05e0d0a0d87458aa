package account

import (
	"sync"
	"time"
)

// A Memory keeps answers for a while, so that who asks for the same thing again
// and again, or many times at once, does not have as many programs started. Its
// methods may be called from several goroutines.
type Memory[K comparable, V any] struct {
	Ask func(K) V
	For time.Duration // how long an answer counts

	// Passing reports whether an answer is an error that may pass: it counts for those who
	// ask while it is on its way, and for nobody later. Nil: none is.
	Passing func(V) bool

	mu    sync.Mutex // guards known
	known map[K]*recollection[V]
}

type recollection[V any] struct {
	done chan struct{} // closed when the rest is known
	v    V
	at   time.Time
}

// fresh says that it counts still, or is on its way.
func (r *recollection[V]) fresh(long time.Duration) bool {
	select {
	case <-r.done:
		return time.Since(r.at) < long
	default:
		return true
	}
}

// Of is what Ask says of k, or has said a while ago.
func (m *Memory[K, V]) Of(k K) V {
	m.mu.Lock()
	r := m.known[k]
	if r != nil && r.fresh(m.For) {
		m.mu.Unlock()
		<-r.done
		return r.v
	}
	if m.known == nil || len(m.known) >= most {
		m.known = map[K]*recollection[V]{}
	}
	r = &recollection[V]{done: make(chan struct{})}
	m.known[k] = r
	m.mu.Unlock()
	defer close(r.done)
	r.v = m.Ask(k)
	if m.Passing == nil || !m.Passing(r.v) {
		r.at = time.Now()
	}
	return r.v
}
