package noded

import (
	"context"
	"time"

	"distribute/lib/job"
	"distribute/lib/pause"
	"distribute/lib/wire"
)

// The head may have one attempt stand still while the node goes on: its supervisor goes
// by a pause of that attempt, which is a file in the node's own place, beside those
// of people. So it holds over restarts of this daemon, and what both have stopped
// goes on when both have let go.

// stand has an attempt stand still, or go on, as the head says. One that has not
// begun is given back: its job is held on the head.
func (n *daemon) stand(a *attempt, still bool) {
	switch {
	case a.result != nil:
		return
	case still && !a.started:
		if !a.stopped {
			a.stopped, a.why = true, "its job is held"
			a.cancel(errStopped)
		}
		return
	case a.told && a.still == still:
		return
	}
	if a.still != still {
		n.Log.Info("an attempt is to stand still, or to go on", "job", a.Job, "attempt", a.Token, "still", still)
	}
	a.told, a.still = true, still
	if a.running && (a.phase == wire.Running || a.phase == wire.Paused) {
		n.setPhase(a, n.runPhase(a))
	}
	if !a.standing {
		a.standing = true
		n.work.Go(func() { n.keepStand(a) })
	}
}

// keepStand writes down whether an attempt stands still, until that is done.
func (n *daemon) keepStand(a *attempt) {
	ctx, cancel := n.untilOver()
	defer cancel()
	place := pause.OwnPlace(n.desk.Dir())
	for wait := time.Second; ; {
		var still bool
		if !n.do(func() { still = a.still && a.result == nil }) {
			return
		}
		err := n.Machine.Still(place, string(a.Token), still)
		if err == nil {
			over := false
			n.do(func() {
				if over = still == (a.still && a.result == nil); over {
					a.standing = false
				}
			})
			if over {
				return
			}
			continue
		}
		if n.desk.MakeRoom(err) {
			continue
		}
		n.Log.Error("it cannot be kept that an attempt stands still; trying again", "attempt", a.Token, "still", still, "why", err)
		linger(ctx, wait)
		wait = min(2*wait, time.Minute)
	}
}

// dropStands removes the pauses of attempts that are not here any more, or over.
func (n *daemon) dropStands(ctx context.Context, of []pause.Pause) {
	for _, p := range of {
		gone := false
		n.do(func() {
			a := n.attempts[job.Token(p.Attempt)]
			gone = a == nil || a.result != nil
		})
		if gone && ctx.Err() == nil {
			if err := pause.Remove(p); err != nil {
				n.Log.Warn("the pause of an attempt that is over cannot be removed", "attempt", p.Attempt, "why", err)
			}
		}
	}
}
