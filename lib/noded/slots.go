package noded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"distribute/lib/proc"
	"distribute/lib/timing"
)

// A want is somebody who waits for a share of the node.
type want struct {
	share
	order   int           // of the attempt; lower ones go first
	slot    Slot          // one without an order, if there was one
	given   chan struct{} // closed when the share is his, or
	refused error         // why it never will be
}

// acquire waits until a share is free, and takes it and a supervisor.
// Who arrived first goes first: nobody is overtaken by one who needs less, only
// while he waits for the head or for a build.
func (n *daemon) acquire(ctx context.Context, order int, s share) (*share, Slot, error) {
	w, err := n.await(ctx, order, s)
	if err != nil {
		return nil, nil, err
	}
	if w.slot == nil {
		if w.slot, err = n.Machine.NewSlot(); err != nil {
			n.release(nil, &w.share, nil)
		}
	}
	return &w.share, w.slot, err
}

// errOver says that a node whose share was wanted is at its end, and with it this process.
var errOver = fmt.Errorf("%w: its node ends", errStopped)

// await waits until a share is free, and takes it, and a supervisor if one has nothing to do.
func (n *daemon) await(ctx context.Context, order int, s share) (*want, error) {
	w := &want{order: order, share: s, given: make(chan struct{})}
	n.do(func() {
		if w.refused = n.never(w); w.refused != nil {
			close(w.given)
			return
		}
		at, _ := slices.BinarySearchFunc(n.queue, order, func(w *want, order int) int { // behind those of the same order
			if w.order <= order {
				return -1
			}
			return 1
		})
		n.queue = slices.Insert(n.queue, at, w)
		n.pump()
	})
	select {
	case <-w.given:
		return w, w.refused
	case <-ctx.Done():
	case <-n.over:
		return nil, errOver
	}
	n.do(func() {
		select {
		case <-w.given:
			if w.refused == nil {
				n.give(&w.share)
				n.putSlot(w.slot)
			}
		default:
			n.queue = slices.DeleteFunc(n.queue, func(o *want) bool { return o == w })
		}
		n.pump()
	})
	return nil, errors.Join(ctx.Err(), errStopped)
}

// release gives the share of an attempt, or of a build, back, and the supervisor if
// it can be used again. When the daemon ends the supervisor is let go.
func (n *daemon) release(a *attempt, s *share, slot Slot) {
	ok := n.do(func() {
		n.giveUp(a, s)
		n.putSlot(slot)
		n.pump()
	})
	switch {
	case ok:
		s.leaveBeside()
	case slot != nil:
		slot.Close()
	}
}

// giveUp gives the share of an attempt, or of a build, back, none of whose processes lives.
func (n *daemon) giveUp(a *attempt, s *share) {
	if a != nil && a.runs() {
		n.setStage(a, stageExited)
	}
	n.give(s)
}

// maxIdle is how many supervisors that have nothing to do are kept. To start one takes
// milliseconds; each has some 3 MB and perhaps an inotify instance.
const maxIdle = 8

// maxWatching is how many orders may run of which the supervisor has an inotify instance: a user
// has 128 for all programs. With more, each new one looks for pauses at intervals.
const maxWatching = 16

// idleFor is how long more than one supervisor stay that have nothing to do.
var idleFor = timing.Wait(10 * time.Second)

// putSlot keeps a supervisor for the next order, or lets it go if enough have nothing to do.
func (n *daemon) putSlot(s Slot) {
	switch {
	case s == nil:
	case len(n.slots) < maxIdle:
		if n.slots = append(n.slots, s); !n.ending {
			n.endIdleLater()
		}
	default:
		s.Close()
	}
}

// takeSlot takes a supervisor that has nothing to do; nil: there is none. Those that somebody
// has killed are let go.
func (n *daemon) takeSlot() Slot {
	for last := len(n.slots) - 1; last >= 0; last-- {
		s := n.slots[last]
		n.slots, n.fewest = n.slots[:last], min(n.fewest, last)
		select {
		case <-s.Reports(): // closed: one without an order says nothing
			s.Close()
		default:
			return s
		}
	}
	return nil
}

// endIdleLater lets supervisors go in a while, if there is more than one.
func (n *daemon) endIdleLater() {
	n.fewest, n.ending = len(n.slots), len(n.slots) > 1
	if n.ending {
		time.AfterFunc(idleFor, func() { n.do(n.endIdle) })
	}
}

// endIdle lets those supervisors go that had nothing to do for a while, but one.
func (n *daemon) endIdle() {
	for range min(n.fewest, len(n.slots)-1) { // the last one is taken first
		n.slots[0].Close()
		n.slots = n.slots[1:]
	}
	n.endIdleLater()
}

// pump gives what is free to those who wait. An attempt that arrived earlier is
// waited for while it is made ready here.
func (n *daemon) pump() {
	for len(n.queue) > 0 && n.has(n.queue[0]) {
		w := n.queue[0]
		for _, a := range n.attempts {
			if a.Order < w.order && a.firstInLine() {
				return
			}
		}
		if w.refused = n.admits(&w.share); w.refused != nil {
			close(w.given)
			n.queue = n.queue[1:]
			continue
		}
		n.take(&w.share)
		if w.guest == nil {
			w.slot = n.takeSlot()
		}
		close(w.given)
		n.queue = n.queue[1:]
	}
}

// supervise gives an order to a supervisor and waits until it is done with it,
// however that came, or the daemon ends: then the supervisor goes on alone. If
// ctx is cancelled by a stop the order is stopped. It returns how the order ended
// if the supervisor tells, and the supervisor if it can be used again; what is
// not told is on disk. The error says that nothing of it ran. Stuck is called by
// the state if what runs does not die.
func (n *daemon) supervise(ctx context.Context, s Slot, o *proc.Order, what string, stuck func()) (*proc.Status, Slot, error) {
	if o.Pause != nil {
		n.do(func() { o.Pause.Poll = len(n.held) > maxWatching })
	}
	if n.Ordered != nil {
		n.Ordered(o)
	}
	if err := s.Run(o); err != nil {
		n.Log.Error("cannot order a supervisor", "what", what, "why", err)
		s.Close()
		return nil, nil, nil
	}
	for cancelled := ctx.Done(); ; {
		select {
		case <-cancelled:
			if cancelled = nil; stops(ctx) {
				err := s.Stop(o.Token)
				if context.Cause(ctx) == errKilled {
					err = errors.Join(err, s.Stop(o.Token)) // the second leaves no time
				}
				if err != nil {
					n.Log.Warn("cannot ask a supervisor to stop", "what", what, "why", err)
				}
			}
		case r, ok := <-s.Reports():
			switch {
			case !ok:
				n.Log.Error("supervisor died", "what", what, "pid", s.Pid())
				s.Close()
				return nil, nil, nil
			case r.Passing && r.Paused:
				return nil, s, errPaused
			case r.Passing:
				return nil, s, fmt.Errorf("%w: %s", errRefused, r.Refused)
			case r.Refused != "":
				n.Log.Error("supervisor failed its order", "what", what, "why", r.Refused)
				return nil, s, nil
			case r.Stuck > 0:
				n.Log.Error("processes survive SIGKILL; the slot waits for them", "what", what, "processes", r.Stuck)
				n.do(stuck)
			case r.Ended != nil:
				return r.Ended, s, nil
			}
		case <-n.over:
			s.Close()
			return nil, nil, nil
		}
	}
}

// errRefused says that a supervisor could not begin, for now.
var errRefused = errors.New("it cannot be started now")

// stopAdopted ends what runs in dir under a supervisor of an earlier daemon. It
// is tried again for as long as that lives: it may not have begun yet.
func (n *daemon) stopAdopted(dir string) {
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		for wait := 10 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, time.Second) {
			alive, err := n.Machine.Alive(dir)
			if err != nil || !alive {
				return
			}
			if n.Machine.StopHeld(dir) == nil {
				return
			}
			linger(ctx, wait)
		}
	})
}
