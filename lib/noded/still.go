package noded

import (
	"context"
	"errors"
	"time"

	"distribute/lib/job"
	"distribute/lib/pause"
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
	if a.running && (a.phase == job.PhaseRunning || a.phase == job.PhasePaused) {
		n.setPhase(a, n.runPhase(a))
	}
	n.keepWord(a)
}

// hasPause takes up an attempt that an earlier daemon had stand still, so that the head
// hears of it as it is, or asked to go, so that it has the time for that. One that is
// not here, or over, is nil, or left as it is.
func (n *daemon) hasPause(a *attempt, out bool) {
	switch {
	case a == nil || !a.started || a.result != nil:
		return
	case out:
		a.leaves, a.stopped = true, false
		return
	}
	if a.told, a.still = true, true; a.running {
		a.phase = n.runPhase(a)
	}
}

// lengthen has an attempt run for longer than it was to, as the head says: in seconds,
// 0 is as long as it likes. None is made shorter.
func (n *daemon) lengthen(a *attempt, seconds int64) {
	switch {
	case !a.started:
		a.asked = &seconds
		return
	case a.result != nil || a.limit == 0 || seconds != 0 && seconds <= a.limit:
		return
	}
	n.Log.Info("an attempt may run for longer", "job", a.Job, "attempt", a.Token, "seconds", seconds)
	a.limit, a.longer = seconds, true
	n.keepWord(a)
}

// keepWord has what the head has said of an attempt that runs written down, in a
// goroutine of its own.
func (n *daemon) keepWord(a *attempt) {
	if !a.keeping {
		a.keeping = true
		n.work.Go(func() { n.keepWords(a) })
	}
}

// A said is what the head has said of an attempt that runs.
type said struct {
	still, told  bool
	leaves       bool // this is not of the head
	limit        int64
	longer, over bool
}

// keepWords writes it down, until the last of it is.
func (n *daemon) keepWords(a *attempt) {
	ctx, cancel := n.untilOver()
	defer cancel()
	now := func() said { return said{a.still, a.told, a.leaves, a.limit, a.longer, a.result != nil} }
	for wait := time.Second; ; {
		var s said
		if !n.do(func() { s = now() }) {
			return
		}
		err := n.writeWord(a, s)
		done := false
		if err == nil {
			n.do(func() {
				done = now() == s
				a.keeping = !done
			})
		}
		switch {
		case done || n.atEnd(ctx):
			return
		case err == nil || n.desk.MakeRoom(err):
			continue
		}
		n.Log.Error("what the head has said of an attempt cannot be kept; trying again", "attempt", a.Token, "still", s.still, "limit", s.limit, "why", err)
		linger(ctx, wait)
		wait = min(2*wait, time.Minute)
	}
}

func (n *daemon) writeWord(a *attempt, s said) (err error) {
	place := pause.OwnPlace(n.desk.Dir())
	switch {
	case s.leaves && !s.over:
		err = n.Machine.Leave(place, string(a.Token))
	case s.told || s.leaves:
		err = n.Machine.Still(place, string(a.Token), s.still && !s.over)
	}
	if s.longer && !s.over {
		err = errors.Join(err, a.SetLimit(s.limit))
	}
	return err
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
