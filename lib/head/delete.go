package head

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// How long a deletion waits for a batch whose jobs are over to be closed: its
// nodes have yet to say that they let go of it.
const (
	closesWithin = 5 * time.Second
	closesLook   = 20 * time.Millisecond
)

// remove deletes batches that are over.
func (t *tool) remove(ctx context.Context, m *wire.Change) error {
	q, err := t.parse(m.Args, m.All)
	if err != nil {
		return err
	}
	if _, jobs := q.IDs(); len(jobs) > 0 {
		return &wire.Error{Ref: m.Ref, Status: cli.Input, Text: fmt.Sprintf(
			"%q is a job, and drm deletes whole batches (write %q)", jobs[0], jobs[0].Batch())}
	}
	batches, err := t.meant(m, q)
	if err != nil {
		return err
	}
	var answer []wire.Deletion
	if m.Dry {
		answer, err = t.wouldDelete(ctx, batches)
	} else {
		answer, err = t.deleteAll(ctx, m, batches)
	}
	if err != nil {
		return err
	}
	return sendRows(t, m.Ref, answer)
}

// meant is the batches that a request is about, those of which every job fits,
// each with what tells it from another of its name.
func (t *tool) meant(m *wire.Change, q *query.Query) (all []spool.Info, err error) {
	infos, _, err := t.infos(nil)
	if err != nil {
		return nil, err
	}
	is := make(map[job.BatchID]spool.Info, len(infos))
	for _, i := range infos {
		is[i.ID] = i
	}
	var snap *snapshot
	t.settled(func() { snap = t.snapshot() })
	var last job.BatchID
	var fits, others bool
	end := func() {
		if i, there := is[last]; there && fits {
			all = append(all, i)
		}
	}
	err = t.rows(snap, q, func(r, _ *job.Row) error {
		if id := r.ID.Batch(); id != last {
			end()
			last, fits = id, true
		}
		fits = fits && q.Match(r)
		if fits && !t.mayChange(r.UID) {
			fits, others = false, true
		}
		return nil
	})
	end()
	if err == nil && len(all) == 0 && others {
		err = &wire.Error{Ref: m.Ref, Status: cli.NotAllowed, Text: "they are another user's: only who submitted a batch, and operators, may delete it"}
	}
	return all, err
}

// wouldDelete tells what a deletion would do.
func (t *tool) wouldDelete(ctx context.Context, batches []spool.Info) (answer []wire.Deletion, err error) {
	until := time.Now().Add(closesWithin)
	for _, b := range batches {
		d := wire.Deletion{Batch: b.ID}
		if d.Why, err = t.whyKept(ctx, b, until, false); err != nil {
			return nil, err
		}
		if d.Why == "" {
			if d.Bytes, err = t.spool.Weight(ctx, b.ID); err != nil {
				return nil, err
			}
		}
		answer = append(answer, d)
	}
	return answer, nil
}

// whyKept is why a batch cannot be deleted, "" if it can. For one that is about
// to be closed it waits, until then. What is left of it on nodes keeps it from
// that, perhaps for want of the room that its deletion makes: with drop it is let
// go.
func (t *tool) whyKept(ctx context.Context, b spool.Info, until time.Time, drop bool) (why string, err error) {
	look := time.NewTicker(closesLook)
	defer look.Stop()
	for {
		soon := false
		ok := t.do(func() {
			if why, soon = t.undeletable(b); !soon || !t.machine.Waits(t.byID[b.ID]) {
				return
			}
			if drop {
				t.log.Info("attempts on nodes given up to delete a batch", "batch", string(b.ID), "by", t.peer.User)
				t.apply(sched.Unwanted{Batch: t.byID[b.ID]})
			} else {
				why, soon = "", false
			}
		})
		if !ok {
			return "", errEndingNow
		}
		if !soon || time.Now().After(until) {
			return why, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// errEndingNow answers what dsched has no time for any more.
var errEndingNow = &wire.Error{Status: cli.Later, Text: "dsched is ending"}

// undeletable is why a batch cannot be deleted, "" if it can, and whether that
// will soon be otherwise by itself.
func (h *Head) undeletable(b spool.Info) (why string, soon bool) {
	n, open := h.byID[b.ID]
	switch {
	case !open && h.store.Closed(b.ID):
		return "", false
	case h.store.Going(spool.Doomed{ID: b.ID, First: b.First}):
		return "it is being deleted", true
	case h.store.Deleted(b.ID):
		return "it was deleted just now", false
	case !open:
		var err error
		if n, err = h.number(b.ID); err != nil {
			return "its files are damaged, and nothing is done with it (see the log of dsched)", false
		}
	}
	if h.batches[n].First() != b.First { // the name has passed to another batch, perhaps of another user
		return "it was deleted just now", false
	}
	if live := h.machine.Open(n); live > 0 {
		of := fmt.Sprintf("of its %d jobs", h.batches[n].Jobs())
		return some(live, of+" is not over", of+" are not over") + " (dcancel gives them up)", false
	}
	soon = true
	var away []string
	for _, p := range h.machine.Holders(n) {
		if !p.Connected {
			away, soon = append(away, string(p.Node)), false
		}
	}
	if soon && h.batches[n].Owes() {
		return "a result of it is not in its place yet (try again in a moment; then see the log of dsched, and dfsck(8))", true
	}
	if soon {
		return "it is being closed (try again in a moment)", true
	}
	slices.Sort(away)
	return fmt.Sprintf("it may have attempts on %s, not connected (wait, or see lost in dadm(8))", strings.Join(away, ", ")), false
}

// deleteAll deletes the batches that can be: each is logged, durably, and then
// moved out of the way.
func (t *tool) deleteAll(ctx context.Context, m *wire.Change, batches []spool.Info) (answer []wire.Deletion, err error) {
	until := time.Now().Add(closesWithin)
	for _, b := range batches { // wait for those that are being closed
		if _, err := t.whyKept(ctx, b, until, true); err != nil {
			return nil, err
		}
	}
	var doomed []spool.Doomed
	ok := t.settled(func() { doomed, answer = t.logDeleted(m, batches) })
	if !ok {
		return nil, errEndingNow
	}
	t.do(func() { t.letGoOf(doomed) })
	err = t.store.Trash(doomed...)
	t.sweeper.wake()
	if err != nil {
		t.log.Error("cannot move a deleted batch to trash/; the next start of dsched does", "why", err)
		t.broken(err)
		return nil, err
	}
	return answer, nil
}

// logDeleted records that the batches are deleted, but for those that cannot
// be.
func (t *tool) logDeleted(m *wire.Change, batches []spool.Info) (doomed []spool.Doomed, answer []wire.Deletion) {
	for _, b := range batches {
		d := wire.Deletion{Batch: b.ID}
		if d.Why, _ = t.undeletable(b); d.Why == "" {
			gone, err := t.store.Delete(b.ID, b.First, t.peer.User, m.Ref)
			var bad *spool.Problem
			switch {
			case err == nil:
				t.log.Info("deleted", "batch", string(b.ID), "by", t.peer.User)
				doomed = append(doomed, gone)
			case errors.As(err, &bad):
				d.Why = bad.Error()
			default:
				d.Why = err.Error()
			}
		}
		answer = append(answer, d)
	}
	return doomed, answer
}
