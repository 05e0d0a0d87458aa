package main

import (
	"context"
	"errors"

	"distribute/lib/dial"
	"distribute/spool"
)

// takeIncoming takes up the submissions that were left while no dsched ran.
func (h *head) takeIncoming(ctx context.Context) {
	for name := range h.store.WatchIncoming(ctx) {
		if err := h.takeOne(name); err != nil {
			h.log.Error("a submission in incoming/ cannot be taken up now", "file", name, "why", err)
			h.broken(err)
		}
	}
}

// takeOne makes a batch of one file of incoming/, or puts it into rejected/
// with the reason. What cannot be read now stays.
func (h *head) takeOne(name string) error {
	sub, drop, err := h.store.Take(name, func(uid int) (string, error) { return dial.UserName(uid), nil })
	if err == nil {
		var b *spool.Batch
		b, err = sub.Finish(drop.Free)
		if err == nil {
			err = h.accept(b)
		}
		if err == nil || errors.Is(err, spool.ErrSame) {
			return h.store.Taken(name)
		}
	}
	if errors.Is(err, spool.ErrInput) || errors.Is(err, spool.ErrTaken) {
		h.log.Warn("a submission in incoming/ is refused", "file", name, "why", err)
		return h.store.Reject(name, err)
	}
	return err
}
