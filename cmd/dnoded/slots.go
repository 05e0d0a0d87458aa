package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"distribute/lib/proc"
)

// A want is somebody who waits for cpus.
type want struct {
	seq   int // lower ones go first
	cpus  int
	given chan struct{} // closed when the cpus are his
}

// acquire waits until so many cpus are free, and takes them. Who arrived first
// goes first: nobody is overtaken by one who needs less.
func (n *daemon) acquire(ctx context.Context, seq, cpus int) error {
	w := &want{seq, cpus, make(chan struct{})}
	n.do(func() {
		at, _ := slices.BinarySearchFunc(n.queue, seq, func(w *want, seq int) int { return w.seq - seq })
		n.queue = slices.Insert(n.queue, at, w)
		n.pump()
	})
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	case <-n.over:
	}
	n.do(func() {
		select {
		case <-w.given:
			n.free += w.cpus
		default:
			n.queue = slices.DeleteFunc(n.queue, func(o *want) bool { return o == w })
		}
		n.pump()
	})
	return errors.Join(ctx.Err(), errStopped)
}

func (n *daemon) release(cpus int) {
	n.do(func() {
		n.free += cpus
		n.pump()
	})
}

// pump gives free cpus to those who wait.
func (n *daemon) pump() {
	for len(n.queue) > 0 && n.queue[0].cpus <= n.free {
		n.free -= n.queue[0].cpus
		close(n.queue[0].given)
		n.queue = n.queue[1:]
	}
}

// takeSlot is a supervisor without an order, started now if none is left.
func (n *daemon) takeSlot() (*proc.Slot, error) {
	var s *proc.Slot
	n.do(func() {
		if last := len(n.slots) - 1; last >= 0 {
			s, n.slots = n.slots[last], n.slots[:last]
		}
	})
	if s != nil {
		return s, nil
	}
	return proc.NewSlot()
}

// putSlot gives a supervisor back, or lets it go when the daemon ends.
func (n *daemon) putSlot(s *proc.Slot) {
	if !n.do(func() { n.slots = append(n.slots, s) }) {
		s.Close()
	}
}

// supervise gives an order to a supervisor and waits until it is done with it,
// however that came, or the daemon ends: then the supervisor goes on alone. If
// ctx is cancelled by a stop the order is stopped. What became of it is on disk.
func (n *daemon) supervise(ctx context.Context, s *proc.Slot, o *proc.Order, what string) {
	if err := s.Run(o); err != nil {
		n.log.Error("an order could not be given", "what", what, "why", err)
		s.Close()
		return
	}
	for cancelled := ctx.Done(); ; {
		select {
		case <-cancelled:
			if cancelled = nil; context.Cause(ctx) == errStopped {
				if err := s.Stop(o.Token); err != nil {
					n.log.Warn("a supervisor cannot be asked to stop", "what", what, "why", err)
				}
			}
		case r, ok := <-s.Reports():
			switch {
			case !ok:
				n.log.Error("a supervisor died", "what", what, "pid", s.Pid())
				s.Close()
				return
			case r.Refused != "":
				n.log.Error("a supervisor did not do its order", "what", what, "why", r.Refused)
				n.putSlot(s)
				return
			case r.Stuck > 0:
				n.log.Error("processes do not die of SIGKILL; the slot waits for them", "what", what, "processes", r.Stuck)
			case r.Ended != nil:
				n.putSlot(s)
				return
			}
		case <-n.over:
			s.Close()
			return
		}
	}
}

// stopAdopted ends what runs in dir under a supervisor of an earlier daemon. It
// is tried again for as long as that lives: it may not have begun yet.
func (n *daemon) stopAdopted(dir string) {
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		for wait := 10 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, time.Second) {
			alive, err := proc.Alive(dir)
			if err != nil || !alive {
				return
			}
			if proc.StopHeld(dir) == nil {
				return
			}
			pause(ctx, wait)
		}
	})
}
