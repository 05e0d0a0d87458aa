package noded

import (
	"context"
	"errors"
	"time"

	"distribute/lib/job"
	"distribute/lib/pause"
)

// The head may freeze one attempt while the node is not paused: the supervisor of the
// attempt reads a pause of that attempt alone, a file in the node's own place, beside
// the pauses of people. So the freeze outlasts restarts of this daemon, and an attempt
// that the head and a person froze runs on when both have thawed it.

// stand freezes or thaws an attempt, as the head says. One that has not begun is given
// back instead, since its job is held on the head.
func (n *daemon) stand(a *attempt, still bool) {
	switch {
	case a.result != nil:
		return
	case still && !a.began():
		n.endAttempt(a, endStopped, "its job is held", errStopped)
		return
	}
	own := ownNone
	if still {
		own = ownFrozen
	}
	if a.own == own || a.own == ownLeave {
		return
	}
	if still || a.own == ownFrozen {
		n.Log.Info("the head freezes or thaws an attempt", "job", a.Job, "attempt", a.Token, "frozen", still)
	}
	a.own = own
	n.tellPhase(a)
	n.keepWord(a)
}

// hasPause takes in that an attempt has a pause file of an earlier daemon, which froze it
// or asked it to leave; the latter has its time for that, also if its ending is noted.
// An attempt that is not here is nil, and one that is over stays as it is.
func (n *daemon) hasPause(a *attempt, out bool) {
	switch {
	case a == nil || !a.began():
	case out:
		a.own, a.end = ownLeave, endAsked
	default:
		a.own = ownFrozen
		n.tellPhase(a)
	}
}

// lengthen has an attempt run for longer than it was to, as the head says: in seconds,
// 0 is as long as it likes. None is made shorter.
func (n *daemon) lengthen(a *attempt, seconds int64) {
	if a.stage < stageRunning { // it is looked at again when that is started
		a.longer = &seconds
		return
	}
	limit := a.longer
	if s := a.Started(); limit == nil && s != nil {
		limit = &s.Time
	}
	if a.result != nil || limit == nil || *limit == 0 || seconds != 0 && seconds <= *limit {
		return
	}
	n.Log.Info("an attempt may run for longer", "job", a.Job, "attempt", a.Token, "seconds", seconds)
	a.longer = &seconds
	n.keepWord(a)
}

// keepWord writes the pause file and the longer limit of an attempt that runs, in a goroutine
// of its own.
func (n *daemon) keepWord(a *attempt) {
	if !a.keeping {
		a.keeping = true
		n.work.Go(func() { n.keepWords(a) })
	}
}

// A said is what is written down of an attempt that runs.
type said struct {
	own    ownPause
	longer *int64 // nil: not a longer limit than that it was started with
	over   bool
}

// keepWords writes them until what is on disk is the latest.
func (n *daemon) keepWords(a *attempt) {
	ctx, cancel := n.untilOver()
	defer cancel()
	now := func() said {
		s := said{own: a.own, over: a.result != nil}
		if a.began() {
			s.longer = a.longer
		}
		return s
	}
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
		n.Log.Error("cannot write the pause file or the limit of an attempt; trying again", "attempt", a.Token, "frozen", s.own == ownFrozen, "why", err)
		linger(ctx, wait)
		wait = min(2*wait, time.Minute)
	}
}

func (n *daemon) writeWord(a *attempt, s said) (err error) {
	place := pause.OwnPlace(n.desk.Dir())
	switch {
	case s.own == ownLeave && !s.over:
		err = n.Machine.Leave(place, string(a.Token))
	case s.own != ownUnsaid:
		err = n.Machine.Still(place, string(a.Token), s.own == ownFrozen && !s.over)
	}
	if s.longer != nil {
		err = errors.Join(err, a.SetLimit(*s.longer))
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
				n.Log.Warn("cannot remove the pause file of a finished attempt", "attempt", p.Attempt, "why", err)
			}
		}
	}
}
