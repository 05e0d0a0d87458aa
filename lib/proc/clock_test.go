package proc

import (
	"testing"
	"time"
)

// TestP75ClockOfAnOrder adds up many pauses, the last of which is not over.
func TestP75ClockOfAnOrder(t *testing.T) {
	const s = time.Second
	var c runClock
	c.start(100 * s)
	for _, step := range []struct {
		at           time.Duration
		do           func(time.Duration)
		wall, paused time.Duration
	}{
		{100 * s, nil, 0, 0},
		{103 * s, nil, 3 * s, 0},
		{104 * s, c.hold, 4 * s, 0},
		{110 * s, c.hold, 4 * s, 6 * s}, // held already
		{114 * s, nil, 4 * s, 10 * s},
		{115 * s, c.release, 4 * s, 11 * s},
		{116 * s, c.release, 5 * s, 11 * s}, // not held
		{120 * s, c.hold, 9 * s, 11 * s},
		{100_000 * s, nil, 9 * s, 99_891 * s}, // the machine slept
		{100_000 * s, c.release, 9 * s, 99_891 * s},
		{100_001 * s, c.hold, 10 * s, 99_891 * s},
		{100_002 * s, nil, 10 * s, 99_892 * s},
		{100_003 * s, c.start, 0, 0},
	} {
		if step.do != nil {
			step.do(step.at)
		}
		if wall, paused := c.times(step.at); wall != step.wall || paused != step.paused {
			t.Errorf("at %v: %v and %v, want %v and %v", step.at, wall, paused, step.wall, step.paused)
		}
	}
}

// TestP75LimitOfAnOrder has the time limit of an order go by the same clock.
func TestP75LimitOfAnOrder(t *testing.T) {
	for paused, want := range map[time.Duration]string{2 * time.Hour: "", time.Hour: StoppedTime} {
		s := &supervisor{token: "t", firsts: []int{1 << 30}, grace: time.Hour}
		now := Uptime()
		s.clock.start(now - 150*time.Minute)
		s.clock.hold(now - 150*time.Minute)
		s.clock.release(now - 150*time.Minute + paused)
		w := &watch{s: s, o: &Order{Dir: t.TempDir(), Token: "t", Limits: Limits{Time: time.Hour}}, quit: make(chan struct{}), done: make(chan struct{})}
		close(w.quit)
		if w.run(); s.stopped != want {
			t.Errorf("paused for %v of 2.5 hours, with a limit of one, it is stopped: %q", paused, s.stopped)
		}
	}
}
