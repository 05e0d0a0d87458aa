package head

import (
	"context"
	"errors"
	"time"

	"distribute/spool"
)

// When what nobody needs is collected. The first time is an hour after the
// start, when nodes are back and what waited in incoming/ is taken.
const (
	collectFirst = time.Hour
	collectEvery = 24 * time.Hour
	collectGap   = 10 * time.Minute // at least, between one and another that a deletion asks for
)

// A sweeper removes what nobody needs any more, beside all other work.
type sweeper struct {
	trash chan struct{} // something was put into trash/
}

func newSweeper() *sweeper { return &sweeper{trash: make(chan struct{}, 1)} }

// wake says that there is something in trash/.
func (s *sweeper) wake() {
	select {
	case s.trash <- struct{}{}:
	default: // it is awake already
	}
}

// run sweeps until ctx ends: trash/ at once and each time that it is woken, the
// rest when it is time, and soon after it was woken.
func (s *sweeper) run(ctx context.Context, h *Head) {
	var last time.Time
	next := time.NewTimer(collectFirst)
	defer next.Stop()
	h.emptyTrash(ctx)
	for {
		select {
		case <-s.trash:
			h.emptyTrash(ctx)
			if gap := time.Until(last.Add(collectGap)); gap > 0 {
				next.Reset(gap)
				continue
			}
		case <-next.C:
		case <-ctx.Done():
			return
		}
		h.collect(ctx)
		last = time.Now()
		next.Reset(collectEvery)
	}
}

func (h *Head) emptyTrash(ctx context.Context) {
	if err := h.store.EmptyTrash(ctx); err != nil && ctx.Err() == nil {
		h.log.Warn("cannot empty trash/; trying again at the next deletion", "why", err)
	}
}

// collect removes what is old and needed by nobody.
func (h *Head) collect(ctx context.Context) {
	h.log.Debug("collecting what nobody needs")
	c, err := h.store.Collect(ctx, h.settings().Keep)
	if c != (spool.Collected{}) {
		h.log.Info("unneeded inputs collected", "blobs", c.Blobs, "bytes", c.Bytes, "unfinished", c.Temps)
	}
	var bad *spool.Problem
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.As(err, &bad):
		h.log.Warn("inputs not collected while a batch is damaged", "problem", bad.Error())
	default:
		h.log.Warn("cannot collect all unneeded inputs", "why", err)
	}
}
