package head

import (
	"context"
	"errors"
	"io/fs"

	"distribute/lib/account"
	"distribute/spool"
)

// takeIncoming takes up the submissions that were left while no dsched ran.
// Those for which there is no room wait, which is said once.
func (h *Head) takeIncoming(ctx context.Context) {
	h.takeAll(h.store.WatchIncoming(ctx))
}

// takeAll takes up the files of incoming/ as they are named.
func (h *Head) takeAll(names <-chan string) {
	wait := map[string]bool{}
	for name := range names {
		err := h.takeOne(name)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist): // who left it has given it to this head meanwhile
			delete(wait, name)
		case errors.Is(err, spool.ErrFull) && wait[name]:
		case errors.Is(err, spool.ErrFull):
			wait[name] = true
			h.log.Warn("submission in incoming/ waits for room", "file", name, "why", err)
		default:
			h.log.Error("cannot read a submission in incoming/ now", "file", name, "why", err)
			h.broken(err)
		}
	}
}

// tellable is why the submission of a user who is not connected is refused, as
// he may know it: of his groups nothing is proven.
func (h *Head) tellable(uid int, err error) error {
	taken := (*spool.TakenError)(nil)
	if !errors.As(err, &taken) || h.spool.Readable(taken.Batch, spool.Reader{UID: uid}) {
		return err
	}
	if owner, oerr := h.spool.Owner(taken.Batch); oerr == nil && owner == uid {
		return err
	}
	return taken.Bare()
}

// takeOne makes a batch of one file of incoming/, or puts it into rejected/
// with the reason. What cannot be read now, or has no room, stays.
func (h *Head) takeOne(name string) (err error) {
	defer h.caught(&err)
	p := promise{room: h.transfers.room}
	defer p.end()
	room := func(bytes int64, files int) error { return p.set(sizeOf(bytes, files)) }
	var who int
	var his user
	defer func() { h.giveBack(who, his) }()
	sub, drop, err := h.store.Take(name, func(uid int) (string, error) {
		if err := h.allow(uid, user{batches: 1}); err != nil { // a whole file is not read in vain
			return "", err
		}
		who, his = uid, user{batches: 1}
		who, err := h.nameOfUser(uid)
		if errors.Is(err, account.ErrUnknown) {
			err = nil
		}
		return who, err
	}, room)
	if err == nil {
		if err = h.allow(who, user{jobs: sub.Jobs()}); err != nil {
			return errors.Join(err, sub.Abort())
		}
		his.jobs = sub.Jobs()
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
		h.log.Warn("submission in incoming/ refused", "file", name, "why", err)
		return h.store.Reject(name, h.tellable(who, err))
	}
	return err
}
