package main

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

// run owns the state until ctx ends or the disk fails.
func (h *head) run(ctx context.Context) error {
	sealer := make(chan struct{})
	go func() {
		defer close(sealer)
		h.sealSmall()
	}()
	defer func() { // the spool is not given back meanwhile
		h.small.close()
		close(h.over)
		<-sealer
	}()
	clock := time.NewTicker(tickEvery)
	defer clock.Stop()
	for {
		if h.failed == nil {
			h.begin()
		}
		if h.failed != nil {
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
			h.dropStalled()
		case err = <-h.committed:
			err = h.whenCommitted(err)
		case err = <-h.placed:
			err = h.whenPlaced(err)
		case err := <-h.stocked:
			h.whenStocked(err)
		case <-ctx.Done():
			return h.end()
		}
		if err != nil {
			h.failed = err
		} else {
			h.drain()
		}
	}
}

// broken ends dsched, for an error that it cannot go on after. What was synced
// and failed is not synced again: the kernel says so once only.
func (h *head) broken(err error) {
	if errors.Is(err, spool.ErrBroken) {
		h.do(func() { h.failed = fmt.Errorf("the spool cannot be written, so dsched ends: %w", err) })
	}
}

// fail waits for what is under way, of which nothing is done or told any more.
func (h *head) fail() error {
	if h.committing != nil && !h.full {
		<-h.committed
	}
	if h.placing != nil {
		<-h.placed
	}
	if h.stocking {
		<-h.stocked
	}
	return h.failed
}

// drain takes in what waits already, so that one tick is for all of it.
func (h *head) drain() {
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
func (h *head) end() error {
	for {
		var err error
		switch {
		case h.committing != nil && !h.full:
			err = h.whenCommitted(<-h.committed)
		case h.placing != nil:
			err = h.whenPlaced(<-h.placed)
		case h.stocking:
			h.whenStocked(<-h.stocked)
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
func (h *head) begin() {
	t := h.committing
	if t != nil && !h.full || h.full && time.Since(h.fullAt) < tickEvery {
		return
	}
	h.decide()
	switch {
	case t == nil && len(h.actions)+len(h.after) == 0 && !h.store.Pending():
		return
	case t == nil:
		t = &tick{}
	}
	for _, a := range h.actions {
		h.record(a)
	}
	t.actions, t.after = append(t.actions, h.actions...), append(t.after, h.after...)
	t.closing, t.logged = append(t.closing, h.closing...), append(t.logged, h.logged...)
	h.actions, h.after, h.closing, h.logged = nil, nil, nil, nil
	t.places = h.places(t)
	if h.failed != nil {
		return
	}
	h.committing, h.full = t, false
	on := h.store.Tick()
	go func() { h.committed <- on.Commit() }()
}

// whenCommitted takes how a commit went, and does what need not wait for the
// results. With a full disk nothing is lost: it is tried again, and nothing is
// done or said meanwhile.
func (h *head) whenCommitted(err error) error {
	if errors.Is(err, spool.ErrFull) {
		h.noRoom(err)
		h.full = true
		return nil
	}
	t := h.committing
	h.committing = nil
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
	h.waiting = append(h.waiting, t)
	h.startPlacing()
	return nil
}

// noRoom notes that the disk is full.
func (h *head) noRoom(err error) {
	if time.Since(h.fullAt) > 2*tickEvery {
		h.log.Error("disk full: nothing is accepted or started until there is room", "why", err)
	}
	h.fullAt = time.Now()
}

// restock has the ballast made anew, in a goroutine of its own, if it is gone.
func (h *head) restock() {
	if h.stocking || !h.store.Bare() {
		return
	}
	h.stocking = true
	go func() { h.stocked <- h.store.Restock(h.room.reserved()) }()
}

// whenStocked takes how that went. Without a ballast dsched goes on.
func (h *head) whenStocked(err error) {
	h.stocking = false
	if err != nil && !errors.Is(err, spool.ErrFull) {
		h.log.Warn("cannot make the ballast", "why", err)
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
func (h *head) startPlacing() {
	if h.placing != nil || len(h.waiting) == 0 || time.Since(h.fullAt) < tickEvery/2 {
		return
	}
	h.placing, h.waiting = h.waiting, nil
	var all []placing
	for _, t := range h.placing {
		all = append(all, t.places...)
	}
	if len(all) == 0 { // nothing to wait for
		h.placed <- nil
		return
	}
	go func() { h.placed <- h.place(all) }()
}

// whenPlaced takes how that went, and does and tells the rest. With a full disk
// it is tried again.
func (h *head) whenPlaced(err error) error {
	ticks := h.placing
	h.placing = nil
	if errors.Is(err, spool.ErrFull) {
		h.noRoom(err)
		h.waiting = append(ticks, h.waiting...)
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
func (h *head) places(t *tick) (all []placing) {
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
		var err error
		if p.job, err = b.Name(int(ref.Job)); err != nil {
			h.failed = unreadable(err)
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
func (h *head) placeOne(p placing) error {
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
func (h *head) place(all []placing) error {
	for _, p := range all {
		err := h.placeOne(p)
		var odd *spool.Problem
		if errors.As(err, &odd) {
			h.log.Error("result not where the log says", "problem", odd.Error())
		} else if err != nil {
			return err
		}
	}
	return h.store.SyncPublished()
}
