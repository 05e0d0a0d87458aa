package noded

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// watchEvery is how often a session looks at the clock that runs on while the
// machine sleeps. Timers and deadlines do not, so they never tell of a sleep.
const watchEvery = time.Second

// errSlept ends a session that a sleep of the machine, or a stop of the daemon,
// has cut in two: the head may have taken the node for lost meanwhile.
var errSlept = errors.New("the session is of before that")

// A watch notices when its session has not been looked after for so long that
// the head need not believe in it any more.
type watch struct {
	now  func() time.Duration
	last atomic.Int64 // when it looked last
}

func newWatch(now func() time.Duration) *watch {
	w := &watch{now: now}
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
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := w.slept(); err != nil {
			return err
		}
		w.last.Store(int64(w.now()))
	}
}
