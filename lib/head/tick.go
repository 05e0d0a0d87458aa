package head

import (
	"context"
	"errors"
	"fmt"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/sched"
	"distribute/spool"
)

// A tick is what is made durable together, and what is done when it is. It
// goes through two hands, each of which has one at a time (the second may take
// several at once): first its records are committed, then the results that
// these accept are put in place. What does not need the second, such as the
// start of an attempt, is done after the first.
type tick struct {
	actions []sched.Action
	after   []func()
	closing []uint32
	logged  []logged
	places  []placing
	told    map[*batch]int64 // how long the logs are with it
}

// ticks are what was decided and is on its way through these hands.
type ticks struct {
	actions    []sched.Action // decided, not yet recorded
	undecided  bool           // something was applied since the last decision
	after      []func()       // to be called when these are durable and done
	closing    []uint32       // batches that the next tick closes
	logged     []logged       // records of the next tick
	committing *tick          // recorded, not yet durable; nil: none
	committed  chan error     // how that went
	waiting    []*tick        // durable, their results not yet being put in place
	placing    []*tick        // durable, their results being put in place
	placed     chan error     // how that went
	stocking   bool           // the ballast is being made anew
	stocked    chan error     // how that went
	compacting bool           // a smaller head.jsonl is being written
	compacted  chan compacted // how that went
	replacing  bool           // a tick puts it in place
	full       bool           // the tick waits for room on the disk
	fullAt     time.Time      // when there was none last
	failed     error          // dsched ends with it as soon as it can
}

// A placing is a result that is put in place, or what one has left that had
// to leave and is removed.
type placing struct {
	batch   *spool.Batch
	job     string
	attempt job.Token
	try     int // 0: it is accepted
	drop    bool
	nothing bool // is kept of what is removed; else what it printed is
}

// A compacted is what [spool.Head.Compact] returns.
type compacted struct {
	c   *spool.Compaction
	err error
}

// run owns the state until ctx ends or the disk fails.
func (h *Head) run(ctx context.Context) error {
	sealer := make(chan struct{})
	go func() {
		defer close(sealer)
		h.sealSmall()
	}()
	defer func() { // the spool is not given back meanwhile
		h.transfers.small.close()
		h.stop()
		<-sealer
	}()
	clock := time.NewTicker(tickEvery)
	defer clock.Stop()
	for {
		if h.ticks.failed == nil {
			h.begin()
		}
		if h.ticks.failed != nil {
			return h.fail()
		}
		var err error
		select {
		case f := <-h.in:
			if err := durable.Step("head.state"); err != nil {
				return err
			}
			f()
		case <-clock.C:
			h.apply(sched.Tick{})
			h.startPlacing() // what a full disk has kept from its place
			h.restock()
			h.compact()
			h.dropStalled()
		case err = <-h.ticks.committed:
			err = h.whenCommitted(err)
		case err = <-h.ticks.placed:
			err = h.whenPlaced(err)
		case err := <-h.ticks.stocked:
			h.whenStocked(err)
		case c := <-h.ticks.compacted:
			h.whenCompacted(c)
		case <-ctx.Done():
			return h.end()
		}
		if err != nil {
			h.ticks.failed = err
		} else {
			h.drain()
		}
	}
}

// broken ends dsched, for an error that it cannot go on after. What was synced
// and failed is not synced again: the kernel says so once only.
func (h *Head) broken(err error) {
	if errors.Is(err, spool.ErrBroken) {
		h.do(func() { h.ticks.failed = fmt.Errorf("the spool cannot be written, so dsched ends: %w", err) })
	}
}

// fail waits for what is under way, of which nothing is done or told any more.
func (h *Head) fail() error {
	if h.ticks.committing != nil && !h.ticks.full {
		<-h.ticks.committed
	}
	if h.ticks.placing != nil {
		<-h.ticks.placed
	}
	if h.ticks.stocking {
		<-h.ticks.stocked
	}
	if h.ticks.compacting {
		<-h.ticks.compacted
	}
	return h.ticks.failed
}

// drain takes in what waits already, so that one tick is for all of it.
func (h *Head) drain() {
	for range maxBatchN {
		select {
		case f := <-h.in:
			f()
		default:
			return
		}
	}
}

// end waits for what is under way.
func (h *Head) end() error {
	for {
		var err error
		switch {
		case h.ticks.committing != nil && !h.ticks.full:
			err = h.whenCommitted(<-h.ticks.committed)
		case h.ticks.placing != nil:
			err = h.whenPlaced(<-h.ticks.placed)
		case h.ticks.stocking:
			h.whenStocked(<-h.ticks.stocked)
		case h.ticks.compacting: // the next start removes what it has written
			<-h.ticks.compacted
			h.ticks.compacting = false
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// begin begins to make durable what has been decided, in a goroutine of its
// own, unless that of a tick before is under way, or the disk is full.
func (h *Head) begin() {
	t := h.ticks.committing
	if t != nil && !h.ticks.full || h.ticks.full && time.Since(h.ticks.fullAt) < tickEvery {
		return
	}
	h.decide()
	if h.readNames(); h.ticks.failed != nil {
		return
	}
	switch {
	case t == nil && len(h.ticks.actions)+len(h.ticks.after) == 0 && !h.store.Pending():
		return
	case t == nil:
		t = &tick{}
	}
	for _, a := range h.ticks.actions {
		h.record(a)
	}
	t.actions, t.after = append(t.actions, h.ticks.actions...), append(t.after, h.ticks.after...)
	t.closing, t.logged = append(t.closing, h.ticks.closing...), append(t.logged, h.ticks.logged...)
	h.ticks.actions, h.ticks.after, h.ticks.closing, h.ticks.logged = nil, nil, nil, nil
	t.places = h.places(t)
	if h.ticks.failed != nil {
		return
	}
	h.ticks.committing, h.ticks.full = t, false
	on := h.store.Tick()
	go func() { h.ticks.committed <- on.Commit() }()
}

// whenCommitted takes how a commit went, and does what need not wait for the
// results. With a full disk nothing is lost: it is tried again, and nothing is
// done or said meanwhile.
func (h *Head) whenCommitted(err error) error {
	if errors.Is(err, spool.ErrFull) {
		h.noRoom(err)
		h.ticks.full = true
		return nil
	}
	t := h.ticks.committing
	h.ticks.committing = nil
	if err != nil {
		return fmt.Errorf("what happened cannot be made durable, so dsched ends: %w", err)
	}
	t.told = map[*batch]int64{}
	for _, l := range t.logged {
		if n, open := h.byID[l.batch.ID]; open {
			t.told[h.batches[n]] = l.batch.Durable()
		}
	}
	h.closed(t.closing)
	late := t.actions[:0]
	for _, a := range t.actions {
		if early(a) {
			h.act(a)
		} else {
			late = append(late, a)
		}
	}
	t.actions = late
	h.ticks.waiting = append(h.ticks.waiting, t)
	h.startPlacing()
	return nil
}

// noRoom notes that the disk is full.
func (h *Head) noRoom(err error) {
	if time.Since(h.ticks.fullAt) > 2*tickEvery {
		h.log.Error("disk full: nothing is accepted or started until there is room", "why", err)
	}
	h.ticks.fullAt = time.Now()
}

// restock has the ballast made anew, in a goroutine of its own, if it is gone.
func (h *Head) restock() {
	if h.ticks.stocking || !h.store.Bare() {
		return
	}
	h.ticks.stocking = true
	go func() { h.ticks.stocked <- h.store.Restock(h.transfers.room.reserved()) }()
}

// whenStocked takes how that went. Without a ballast dsched goes on.
func (h *Head) whenStocked(err error) {
	h.ticks.stocking = false
	if err != nil && !errors.Is(err, spool.ErrFull) {
		h.log.Warn("cannot make the ballast", "why", err)
	}
}

// compact has head.jsonl written anew, in a goroutine of its own, if it has grown.
func (h *Head) compact() {
	if h.ticks.compacting || h.ticks.replacing {
		return
	}
	if upto := h.store.Grown(); upto > 0 {
		h.ticks.compacting = true
		go func() {
			c, err := h.store.Compact(upto)
			h.ticks.compacted <- compacted{c, err}
		}()
	}
}

// whenCompacted takes how that went, and has the next tick put it in place.
func (h *Head) whenCompacted(made compacted) {
	h.ticks.compacting = false
	if made.c == nil {
		h.notCompacted(made.err)
		return
	}
	h.ticks.replacing = true
	h.store.UseCompacted(made.c)
	h.ticks.after = append(h.ticks.after, func() {
		h.ticks.replacing = false
		h.notCompacted(h.store.Compacted(made.c))
	})
}

// notCompacted logs why head.jsonl stays as it is.
func (h *Head) notCompacted(err error) {
	if err != nil {
		h.log.Warn("cannot compact head.jsonl; going on with it as it is", "why", err)
	}
}

// early says that something may be done as soon as it is durable, whatever
// results are still to be put in place.
func early(a sched.Action) bool {
	switch a.(type) {
	case sched.Start, sched.Keep, sched.Stop, sched.Recall, sched.Grant:
		return true
	}
	return false
}

// startPlacing puts the results of the ticks that wait in place, in a goroutine
// of its own, unless that of ticks before is under way, or there was no room.
func (h *Head) startPlacing() {
	if h.ticks.placing != nil || len(h.ticks.waiting) == 0 || time.Since(h.ticks.fullAt) < tickEvery/2 {
		return
	}
	h.ticks.placing, h.ticks.waiting = h.ticks.waiting, nil
	var all []placing
	for _, t := range h.ticks.placing {
		all = append(all, t.places...)
	}
	if len(all) == 0 { // nothing to wait for
		h.ticks.placed <- nil
		return
	}
	go func() { h.ticks.placed <- h.place(all) }()
}

// whenPlaced takes how that went, and does and tells the rest. With a full disk
// it is tried again.
func (h *Head) whenPlaced(err error) error {
	ticks := h.ticks.placing
	h.ticks.placing = nil
	if errors.Is(err, spool.ErrFull) {
		h.noRoom(err)
		h.ticks.waiting = append(ticks, h.ticks.waiting...)
		return nil
	}
	if err != nil {
		return fmt.Errorf("a result cannot be put in place, so dsched ends: %w", err)
	}
	for _, t := range ticks {
		for b, size := range t.told {
			b.told = size
		}
		h.lookAt(t.logged)
		h.tellWatchers(t.logged)
		for _, a := range t.actions {
			h.act(a)
		}
		for _, f := range t.after {
			f()
		}
	}
	h.startPlacing()
	return nil
}

// places is where the results of a tick go.
func (h *Head) places(t *tick) (all []placing) {
	for _, a := range t.actions {
		var p placing
		var ref sched.Ref
		switch a := a.(type) {
		case sched.Publish:
			ref, p = a.Ref, placing{attempt: a.Attempt, try: a.Try}
			if a.Out {
				p.try = 0
			}
		case sched.Drop:
			ref, p = a.Ref, placing{attempt: a.Attempt, try: a.Try, drop: true, nothing: a.Nothing}
		default:
			continue
		}
		b := h.batches[ref.Batch]
		if b == nil { // set aside while the disk was full: the next start puts it in place
			continue
		}
		var err error
		switch p.job, err = b.Name(int(ref.Job)); {
		case errors.As(err, new(*spool.Problem)): // so does the next start, when the batch is mended
			h.log.Error("spool damaged; a result is not put in place", "attempt", string(p.attempt), "problem", err.Error())
			continue
		case err != nil:
			h.ticks.failed = unreadable(err)
			return nil
		}
		p.batch = b.Batch
		all = append(all, p)
	}
	return all
}

// unreadable ends dsched: what the log cannot say must be neither done nor told.
func unreadable(err error) error {
	return fmt.Errorf("what happened to a job cannot be logged, so dsched ends: %w", err)
}

// placeOne puts one result in place, or removes what one has left that had to leave.
func (h *Head) placeOne(p placing) error {
	switch {
	case p.drop:
		moved, err := h.store.Shed(p.batch, p.job, p.try, p.nothing)
		if moved {
			h.sweeper.wake()
		}
		return err
	case p.try == 0:
		return h.store.Publish(p.batch, p.job, p.attempt)
	}
	return h.store.Aside(p.batch, p.job, p.try, p.attempt)
}

// place puts results in place, durably: a node is told that one is safe only
// after that.
func (h *Head) place(all []placing) error {
	for _, p := range all {
		err := h.placeOne(p)
		var odd *spool.Problem
		switch {
		case err == nil:
		case errors.As(err, &odd):
			h.log.Error("result not where the log says", "problem", odd.Error())
		case spool.OfPath(err): // of this batch alone
			h.log.Error("what an attempt left is not in its place before the next start", "batch", p.batch.ID, "job", p.job, "why", err)
		default:
			return err
		}
	}
	return h.store.SyncPublished()
}
