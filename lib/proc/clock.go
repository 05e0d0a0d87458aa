package proc

import (
	"cmp"
	"sync"
	"time"
)

// A Clock says how long an order has run, without pauses: from Began until now, or until
// Since. Its times are those of [Uptime], which goes on while the machine sleeps: a job
// that was not paused then had that time.
type Clock struct {
	Began time.Duration `json:"began,omitempty"` // when it began, and later by the pauses that are over; 0: that is not known
	Since time.Duration `json:"since,omitempty"` // when the pause at hand began; 0: there is none
}

// Hold begins a pause, if none has begun.
func (c *Clock) Hold(now time.Duration) {
	if c.Since == 0 {
		c.Since = now
	}
}

// Release ends the pause at hand, if there is one.
func (c *Clock) Release(now time.Duration) {
	if c.Since != 0 {
		c.Began += now - c.Since
		c.Since = 0
	}
}

// Ran is how long the order has run until now.
func (c *Clock) Ran(now time.Duration) time.Duration { return cmp.Or(c.Since, now) - c.Began }

// A runClock is the clock of a supervisor's order, which counts its pauses, too.
type runClock struct {
	mu    sync.Mutex // guards the rest
	begin time.Duration
	clock Clock
}

// start lets the clock begin anew.
func (c *runClock) start(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin, c.clock = now, Clock{Began: now}
}

// hold begins a pause, if none has begun.
func (c *runClock) hold(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock.Hold(now)
}

// release ends the pause at hand, if there is one.
func (c *runClock) release(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock.Release(now)
}

// times is how long the order has run until now, and how long it was paused. They
// add up to the time since start.
func (c *runClock) times(now time.Duration) (wall, paused time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall = c.clock.Ran(now)
	return wall, now - c.begin - wall
}

// read is the clock as it stands.
func (c *runClock) read() Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock
}
