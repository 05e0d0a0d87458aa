package noded

import (
	"cmp"
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// A stage is how far an attempt is on its node. Only setStage changes it.
type stage uint8

// The stages, in the order of a life.
const (
	stageGiven    stage = iota // the head gave it, and nothing was done for it yet
	stageFetching              // the head is asked for its spec, its inputs or its saved files
	stageBuilding              // its batch is being built
	stageStalled               // it waits for room on the disk, or for its next try
	stageReady                 // all that it needs is here, and it waits for its share of the node
	stageRunning               // a supervisor of this daemon runs it
	stageAdopted               // a supervisor of an earlier daemon runs it
	stageStuck                 // its processes do not die of SIGKILL
	stageExited                // none of its processes lives, and its result is not known yet
	stagePacking               // it ran for long, and its result is being packed
	stageOver                  // it has a result
	numStages
)

// stages is what belongs to each: the phase that the head is told when it changes ("": that
// of the stage before), and the legal moves. Any other stage may move to over.
var stages = [numStages]struct {
	name  string
	phase job.Phase
	next  []stage
}{
	stageGiven:    {"given", "", []stage{stageFetching, stageBuilding, stageStalled, stageReady, stageAdopted, stageExited}}, // the last two when it is found on disk
	stageFetching: {"fetching", job.PhaseSending, []stage{stageBuilding, stageStalled, stageReady}},
	stageBuilding: {"building", job.PhaseBuilding, []stage{stageStalled, stageReady}},
	stageStalled:  {"stalled", "", []stage{stageFetching, stageBuilding, stageReady}},
	stageReady:    {"ready", "", []stage{stageStalled, stageRunning}},
	stageRunning:  {"running", job.PhaseRunning, []stage{stageReady, stageStuck, stageExited}}, // ready again if its supervisor could not begin
	stageAdopted:  {"adopted", job.PhaseRunning, []stage{stageExited}},
	stageStuck:    {"stuck", job.PhaseStuck, []stage{stageExited}},
	stageExited:   {"exited", "", []stage{stagePacking}},
	stagePacking:  {"packing", job.PhaseReturning, nil},
	stageOver:     {"over", job.PhaseReturning, nil},
}

func (s stage) String() string { return stages[s].name }

// runs says that processes of the attempt may be alive.
func (a *attempt) runs() bool { return stageRunning <= a.stage && a.stage <= stageStuck }

// began says that the attempt runs, or ran, and has no result yet.
func (a *attempt) began() bool { return stageRunning <= a.stage && a.stage < stageOver }

// firstInLine says that attempts that were given later wait until this one has its share.
func (a *attempt) firstInLine() bool {
	return !a.unknown && !a.elsewhere && (a.stage == stageGiven || a.stage == stageReady)
}

const illegalMove = "an attempt made an illegal move, which is a mistake of this program"

// setStage moves an attempt to another stage, and tells the head its phase. A move that
// is not legal is logged as an error, and not made.
func (n *daemon) setStage(a *attempt, to stage) {
	switch {
	case a.stage == to:
		return
	case to != stageOver && !slices.Contains(stages[a.stage].next, to), a.stage == stageOver:
		n.Log.Error(illegalMove, "job", a.Job, "attempt", a.Token, "from", a.stage, "to", to)
		return
	}
	waited := a.firstInLine()
	switch a.stage = to; to {
	case stageRunning:
		a.clock = &proc.Clock{Began: n.Uptime()}
	case stageReady: // nothing of it has begun, if it was to run before
		a.clock = nil
	}
	n.tellPhase(a)
	if waited && !a.firstInLine() {
		n.pump()
	}
}

// tellPhase tells the head how far an attempt is, if that is news. Of one that is over
// it is told the result instead.
func (n *daemon) tellPhase(a *attempt) {
	phase := stages[a.stage].phase
	if phase == job.PhaseRunning && (n.pause.frozen || a.own == ownFrozen || len(a.halted) > 0) {
		phase = job.PhasePaused
	}
	if phase == "" || phase == a.phase {
		return
	}
	now := n.Uptime()
	switch {
	case a.clock == nil:
	case phase == job.PhasePaused:
		a.clock.Hold(now)
	default:
		a.clock.Release(now)
	}
	if a.phase = phase; a.stage != stageOver {
		n.link.tell(&wire.Phase{Attempt: a.Token, Phase: phase, Ran: a.ranFor(now)})
	}
}

// ranFor is how many seconds the processes of an attempt have run, without pauses; 0 if they
// have not begun, or that is not known.
func (a *attempt) ranFor(now time.Duration) float64 {
	if a.clock == nil {
		return 0
	}
	return max(0.001, a.clock.Ran(now).Round(time.Millisecond).Seconds())
}

// An ending is why an attempt is to end before it does so by itself.
type ending uint8

// The endings. One further down this list replaces one above it; none replaces the last two
// ([attempt.stopped]).
const (
	endNot     ending = iota
	endPaused         // it is given back before it starts, since its node is paused
	endAsked          // it is asked to save its files and leave, for want of memory
	endMemory         // it is killed for want of memory, and its job is put back
	endStopped        // it is stopped
)

// stopped says that the attempt is to end at once.
func (a *attempt) stopped() bool { return a.end >= endMemory }

// setEnding notes why an attempt is to end; false if it is to end already for the same or a
// stronger reason.
func (a *attempt) setEnding(end ending, why string) bool {
	if a.stopped() || end <= a.end {
		return false
	}
	a.end, a.why = end, why
	return true
}

// endingFor is the ending for want of memory, by the text of its reason: an attempt that
// alone used more than its node has is not put back.
func endingFor(why string) ending {
	if why == job.ReasonNodeMemory {
		return endStopped
	}
	return endMemory
}

// endAttempt ends an attempt, unless it is to end already: its context is cancelled, which
// ends its preparation or its supervisor; one of an earlier daemon is told by a file.
func (n *daemon) endAttempt(a *attempt, end ending, why string, cause error) {
	if !a.setEnding(end, why) {
		return
	}
	n.Log.Info("attempt is to end", "job", a.Job, "attempt", a.Token, "why", cmp.Or(why, cause.Error()))
	if a.cancel(cause); a.stage == stageAdopted {
		n.stopAdopted(a.Dir)
	}
}

// An ownPause is what the pause file of one attempt says. Its supervisor obeys it in addition
// to the node's pauses.
type ownPause uint8

const (
	ownUnsaid ownPause = iota // the head has said nothing
	ownNone                   // the head has said that it is not frozen: there is no file
	ownFrozen                 // the head has said that it is frozen
	ownLeave                  // its processes are asked to save their files and leave (endAsked)
)
