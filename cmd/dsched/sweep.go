package main

import (
	"context"
	"errors"
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

// run sweeps until ctx ends: at once, and each time that it is woken.
func (s *sweeper) run(ctx context.Context, h *head) {
	for {
		if err := h.store.EmptyTrash(ctx); err != nil && !errors.Is(err, context.Canceled) {
			h.log.Warn("what is deleted cannot be removed; it is tried again later", "why", err)
		}
		select {
		case <-s.trash:
		case <-ctx.Done():
			return
		}
	}
}
