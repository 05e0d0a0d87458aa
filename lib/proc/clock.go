package proc

import (
	"sync"
	"time"
)

// A runClock says how long an order has run. Time in which its tree is held by a
// pause is counted apart. All times are those of [Uptime], which goes on while the
// machine sleeps: a job that was not paused then had that time.
type runClock struct {
	mu     sync.Mutex
	begin  time.Duration
	paused time.Duration // in pauses that are over
	since  time.Duration // when the pause at hand began
	held   bool
}

// start lets the clock begin anew.
func (c *runClock) start(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin, c.paused, c.since, c.held = now, 0, 0, false
}

// hold begins a pause, if none has begun.
func (c *runClock) hold(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held {
		c.held, c.since = true, now
	}
}

// release ends the pause at hand, if there is one.
func (c *runClock) release(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		c.held = false
		c.paused += now - c.since
	}
}

// times is how long the order has run until now, and how long it was paused. They
// add up to the time since start.
func (c *runClock) times(now time.Duration) (wall, paused time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	paused = c.paused
	if c.held {
		paused += now - c.since
	}
	return now - c.begin - paused, paused
}
