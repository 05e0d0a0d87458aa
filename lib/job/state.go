package job

import (
	"fmt"

	"distribute/lib/line"
)

// A State is where a job stands. Logs move a job between Queued, Held,
// Running, Done, Failed and Cancelled only; the others are ways of Running
// that are known from the nodes.
type State uint8

const (
	Queued      State = iota // waits for a node
	Held                     // waits for its owner to release it
	Running                  // an attempt was given to a node
	Paused                   // running, and stopped by the person at the node
	Stranded                 // over on its node, whose result has no room on the head
	Unreachable              // running on a node that is not connected
	Done                     // its result is accepted and in out/
	Failed                   // its last attempt failed and it will not be tried again
	Cancelled                // somebody gave it up
	numStates
)

var stateNames = [numStates]string{"queued", "held", "running", "paused", "stranded",
	"unreachable", "done", "failed", "cancelled"}

func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// ParseState is the inverse of String.
func ParseState(s string) (State, bool) {
	for i, n := range stateNames {
		if n == s {
			return State(i), true
		}
	}
	return 0, false
}

// Over says that nothing more will happen to the job unless somebody retries it.
func (s State) Over() bool { return s >= Done && s < numStates }

// Logged is the state as logs have it: the ways of Running are Running.
func (s State) Logged() State {
	switch s {
	case Paused, Stranded, Unreachable:
		return Running
	}
	return s
}

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(b []byte) error {
	v, ok := ParseState(string(b))
	if !ok {
		return fmt.Errorf("unknown state %q", b)
	}
	*s = v
	return nil
}

// AppendJSON appends the state's name as a text.
func (s State) AppendJSON(b []byte) []byte { return line.AppendText(b, s.String()) }

// ScanJSON reads that.
func (s *State) ScanJSON(from *line.Scan) bool {
	b, ok := from.Text()
	return ok && s.UnmarshalText(b) == nil
}

// A Kind says what a record of a batch's log tells.
type Kind string

const (
	KindBatch     Kind = "batch"     // the first line: who submitted what
	KindStart     Kind = "start"     // an attempt is given to a node (logged before the node is told)
	KindDone      Kind = "done"      // an attempt's result is accepted: the commit of the result
	KindFailed    Kind = "failed"    // the job failed, with the attempt that was its last, if any
	KindBack      Kind = "back"      // an attempt came to nothing, the job waits again
	KindAdopt     Kind = "adopt"     // an attempt that was given up is found running, and runs on
	KindCancelled Kind = "cancelled" // somebody gave the job up
	KindRetry     Kind = "retry"     // somebody wants a job that is over and not done tried again
	KindHold      Kind = "hold"      // the job waits for release
	KindRelease   Kind = "release"   // the job waits for a node again
	KindFreeze    Kind = "freeze"    // the attempts of a running job stand still until its release
	KindThaw      Kind = "thaw"      // and go on
	KindSet       Kind = "set"       // something else is asked for of jobs than when they were submitted
	KindAdded     Kind = "added"     // the batch has more jobs, queued, from then on
	KindLate      Kind = "late"      // what an attempt left after its job went on without it is in attempts/
)

// Kinds of head.jsonl.
const (
	KindOpened  Kind = "opened"  // a batch has jobs that are not over
	KindClosed  Kind = "closed"  // every job of a batch is over
	KindDeleted Kind = "deleted" // a batch is deleted
	KindNode    Kind = "node"    // a node began a session
	KindDrained Kind = "drained" // a node is given nothing
	KindResumed Kind = "resumed" // and is again
)

// Whole says that a record of the kind may name no job: then it is about the whole
// batch, and moves each job of it whose move is legal.
func (k Kind) Whole() bool {
	return k == KindHold || k == KindRelease || k == KindSet || k == KindAdded
}

// Next is the state of a job in state s after a record of kind k, and whether
// that move is legal. It is the whole table of legal moves (dspool(5)).
func (s State) Next(k Kind) (State, bool) {
	switch k {
	case KindStart, KindAdopt:
		return Running, s == Queued
	case KindDone:
		return Done, s == Queued || s == Held || s == Running
	case KindFailed:
		return Failed, s == Queued || s == Running
	case KindBack:
		return Queued, s == Running
	case KindCancelled:
		return Cancelled, s == Queued || s == Held || s == Running
	case KindRetry:
		return Queued, s == Failed || s == Cancelled
	case KindHold:
		return Held, s == Queued
	case KindRelease:
		return Queued, s == Held
	case KindFreeze, KindThaw:
		return s, s == Running
	case KindSet:
		return s, !s.Over()
	case KindLate:
		return s, true
	}
	return s, false
}
