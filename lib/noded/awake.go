package noded

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"distribute/lib/timing"
)

// How often a session looks at the clock that runs on while the machine sleeps. Most
// timers and deadlines do not, so they never tell of a sleep. Those of the kernel by
// that clock do, at once; where there are none it is looked at more often.
var (
	watchEvery = timing.Wait(15 * time.Second)
	watchOften = timing.Wait(time.Second)
)

// errSlept ends a session that a sleep of the machine, or a stop of the daemon,
// has cut in two: the head may have taken the node for lost meanwhile.
var errSlept = errors.New("the session is of before that")

// A watch notices when its session has not been looked after for so long that
// the head need not believe in it any more.
type watch struct {
	now   func() time.Duration
	ticks func(ctx context.Context, every time.Duration) <-chan struct{} // nil: the clock is not the kernel's
	last  atomic.Int64                                                   // when it looked last
}

func newWatch(now func() time.Duration, ticks func(context.Context, time.Duration) <-chan struct{}) *watch {
	w := &watch{now: now, ticks: ticks}
	w.last.Store(int64(now()))
	return w
}

// slept says that more time has passed since the last look than a silent peer
// is given.
func (w *watch) slept() error {
	if d := w.now() - time.Duration(w.last.Load()); d >= silentAfter {
		return fmt.Errorf("this machine slept, or dnoded was stopped, for %v: %w", d.Round(time.Second), errSlept)
	}
	return nil
}

// run looks until ctx ends, or it slept.
func (w *watch) run(ctx context.Context) error {
	var ticks <-chan struct{}
	var often <-chan time.Time
	if w.ticks != nil {
		ticks = w.ticks(ctx, watchEvery)
	} else {
		tick := time.NewTicker(watchOften)
		defer tick.Stop()
		often = tick.C
	}
	for {
		select {
		case <-ticks:
		case <-often:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := w.slept(); err != nil {
			return err
		}
		w.last.Store(int64(w.now()))
	}
}
