package noded

import (
	"context"
	"time"

	"distribute/lib/job"
	"distribute/lib/wire"
)

// leaveEvery is how often at most deletions are made durable: all of them
// together cost one sync.
const leaveEvery = 50 * time.Millisecond

// Leaving is which attempts are deleted and may be back after a power cut. The
// head is told that one is gone only when it cannot be: it closes the batch then,
// and would not know what comes back. It belongs to the state.
type leaving struct {
	on     map[job.Token]bool
	left   []job.Token   // deleted, and the deletion not yet durable
	none   chan struct{} // closed when on is empty
	wakeup chan struct{} // has room for one
}

func newLeaving() leaving {
	none := make(chan struct{})
	close(none)
	return leaving{map[job.Token]bool{}, nil, none, make(chan struct{}, 1)}
}

// begin notes that an attempt is being deleted.
func (l *leaving) begin(t job.Token) {
	if len(l.on) == 0 {
		l.none = make(chan struct{})
	}
	l.on[t] = true
}

// deleted notes that attempts are deleted, and wakes who makes that durable.
func (l *leaving) deleted(ts ...job.Token) {
	l.left = append(l.left, ts...)
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
}

// end notes that the deletion of attempts is durable.
func (l *leaving) end(ts []job.Token) {
	for _, t := range ts {
		delete(l.on, t)
	}
	if len(l.on) == 0 {
		close(l.none)
	}
}

// remove deletes an attempt's directory, and says so to the head when that is
// durable.
func (n *daemon) remove(a *attempt) {
	delete(n.attempts, a.Token)
	n.stopUnneeded()
	n.letGo.add(a.Token)
	n.leaving.begin(a.Token)
	n.work.Go(func() {
		if err := n.desk.Discard(a.Attempt); err != nil {
			n.Log.Error("cannot remove the files of an attempt", "attempt", a.Token, "why", err)
		}
		n.do(func() {
			n.leaving.deleted(a.Token)
			n.clear()
			n.roomChanged()
		})
	})
}

// takeLeave makes deletions durable and tells the head of them, until the daemon
// is at its end.
func (n *daemon) takeLeave() {
	ctx, cancel := n.untilOver()
	defer cancel()
	for {
		select {
		case <-n.leaving.wakeup:
		case <-n.over:
			return
		}
		var left []job.Token
		n.do(func() { left, n.leaving.left = n.leaving.left, nil })
		if len(left) == 0 {
			continue
		}
		wait := leaveEvery
		if err := n.desk.SyncAttempts(); err != nil {
			n.Log.Error("cannot make the removal of attempts durable; trying again", "why", err)
			n.do(func() { n.leaving.deleted(left...) })
			wait = time.Second
		} else {
			n.do(func() {
				n.leaving.end(left)
				for _, t := range left {
					n.link.tell(&wire.Gone{Attempt: t})
				}
			})
		}
		linger(ctx, wait)
	}
}

// allLeft waits until nothing is being deleted, and calls f with the state then;
// it says false if the daemon is at its end, or ctx.
func (n *daemon) allLeft(ctx context.Context, f func()) bool {
	for {
		var none chan struct{}
		ok := n.do(func() {
			if none = n.leaving.none; len(n.leaving.on) == 0 {
				f()
				none = nil
			}
		})
		if !ok || none == nil {
			return ok
		}
		select {
		case <-none:
		case <-ctx.Done():
			return false
		case <-n.over:
			return false
		}
	}
}
