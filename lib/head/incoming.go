package head

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/spool"
)

// takeIncoming takes up the submissions that were left while no dsched ran.
// Those for which there is no room wait.
func (h *Head) takeIncoming(ctx context.Context) {
	h.takeAll(h.store.WatchIncoming(ctx))
}

// maxLogged is how many files that stay in incoming/ takeAll remembers to have logged.
const maxLogged = 10_000

// takeAll takes up the files of incoming/ as they are named. A file that stays is named again each
// minute; each reason for that is logged once. Whoever may write there makes files without end: it
// logs at most nodeLines in linesEvery.
func (h *Head) takeAll(names <-chan string) {
	out := slog.New(limitedLog{h.log.Handler(), &logRate{most: nodeLines}})
	logged := map[string]string{} // by file: the message and, unless room is missing, the reason
	log := func(level slog.Level, name, text string, err error) {
		key := text
		if !errors.Is(err, spool.ErrFull) { // which may name the free space
			key += err.Error()
		}
		if logged[name] == key {
			return
		}
		if len(logged) >= maxLogged {
			clear(logged)
		}
		logged[name] = key
		out.Log(context.Background(), level, text, "file", name, "why", err)
	}
	for name := range names {
		err := h.takeOne(name, out)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist): // who left it has given it to this head meanwhile
			delete(logged, name)
		case errors.Is(err, spool.ErrFull):
			log(slog.LevelWarn, name, "submission in incoming/ waits for room", err)
		default:
			log(slog.LevelError, name, "cannot take a submission in incoming/ now", err)
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
func (h *Head) takeOne(name string, log *slog.Logger) (err error) {
	defer h.caught(&err)
	p := promise{room: h.transfers.room}
	defer p.end()
	room := func(bytes int64, files int) error { return p.set(sizeOf(bytes, files)) }
	var who int
	var called string
	var his user
	defer func() { h.giveBack(who, his) }()
	sub, drop, err := h.store.Take(name, func(uid int) (string, error) {
		err := h.allow(uid, user{batches: 1})
		if err != nil { // a whole file is not read in vain
			return "", err
		}
		who, his = uid, user{batches: 1}
		called, err = h.nameOfUser(uid)
		if errors.Is(err, account.ErrUnknown) {
			err = nil
		}
		return called, err
	}, room)
	if err == nil {
		if err = h.mayHaveLeft(who, called, drop.Batch); err != nil {
			if cli.Status(err) == cli.NotAllowed {
				err = fmt.Errorf("%w: %w", spool.ErrInput, err)
			}
			err = errors.Join(err, sub.Abort())
		}
	}
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
		if stays := h.store.Reject(name, h.tellable(who, err)); stays != nil {
			return fmt.Errorf("%w; it is refused: %v", stays, err)
		}
		log.Warn("submission in incoming/ refused", "file", name, "why", err)
		return nil
	}
	return err
}
