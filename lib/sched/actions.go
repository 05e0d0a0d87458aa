package sched

import (
	"distribute/lib/job"
	"distribute/lib/node"
)

// An Action is what the shell must do: one of the types below. The shell makes
// every Log and LogNode of a tick durable, in their order, before it performs
// any other action of that tick; the others it performs in their order, so
// that a Publish is finished (and its directories synced) before the Have that
// follows. An action for a session that has ended meanwhile is dropped.
type Action interface{ action() }

// Log appends a record to the log of the job's batch. Seq, Time and Job (the
// name) are unset: the shell fills them in. A record about a whole batch has no Job.
type Log struct {
	Ref  Ref
	Rec  job.Record
	Jobs []uint32 // of a record about a whole batch: those that it changes, in order; not to be changed
}

// LogNode appends a record of kind "node" to the head's log, if it says something new: a
// node began a session.
type LogNode struct {
	Node    node.Name
	State   string
	Machine string // as in NodeUp
	Number  uint64 // as in NodeUp
}

// Start gives an attempt to a node: wire message start.
type Start struct {
	Session uint64
	Ref     Ref
	Attempt job.Token
	Try     int
	CPUs    int
	GPUs    []int       // the indexes of those that it gets, or of the one of which it gets a part
	Also    []job.Visit // what it gets of other nodes of the machine
	Saved   job.Token   // the attempt that it goes on with, if one has saved something
	Anew    int         // when its batch was to be built anew; see job.Record
}

// Keep answers an attempt in a node's list: it is wanted, let it go on; or, if Still,
// have it stand still until it comes without that. It is also said when that changes,
// or for how long it may run, which the shell adds.
type Keep struct {
	Session uint64
	Attempt job.Token
	Still   bool
}

// Stop tells a node to end an attempt: wire message stop. The node answers
// with Ended once nothing of it runs: Unstarted when nothing had.
type Stop struct {
	Session uint64
	Attempt job.Token
	Why     string
}

// Recall asks for an attempt that waits on a node: wire message stop with
// "unstarted" set. The node answers with Ended and Unstarted if nothing of it has
// started, and else ignores it.
type Recall struct {
	Session uint64
	Attempt job.Token
	Why     string
}

// Have tells a node that what the attempt left is safe, or not wanted: it
// deletes all of it and answers Gone.
type Have struct {
	Session uint64
	Attempt job.Token
}

// Forget tells a node that an attempt that never started is not needed: it
// deletes its note of it and answers Gone. A node on which it did start must
// not obey; it says Ended in its time.
type Forget struct {
	Session uint64
	Attempt job.Token
}

// Hold tells a node to keep all of an attempt and to go on with it: the head
// does not know it (its log was rolled back), took it for lost, or cannot take its
// result. A Have may follow. The shell logs Why as an error: an operator must look.
type Hold struct {
	Session uint64
	Attempt job.Token
	Why     string
}

// Grant asks for the result of an attempt that ended: the shell queues the
// transfer and says Staged when it is over, one way or the other.
type Grant struct {
	Session  uint64
	Ref      Ref
	Attempt  job.Token
	Try      int
	Manifest string
	Bytes    int64 // as the node says: for what is free on the disk, not for an allocation
	Entries  int   // in the same way
}

// Publish renames what was staged of an attempt to its place: to out/ if it is
// the job's result, else to attempts/. The log already says so.
type Publish struct {
	Ref     Ref
	Attempt job.Token
	Try     int
	Out     bool
}

// Drop removes what an attempt has left that had to leave, but for what it printed:
// a later one has saved more, or saved nothing as well, or its job is over. With
// Nothing that is removed too. The log already says so.
type Drop struct {
	Ref     Ref
	Attempt job.Token
	Try     int
	Nothing bool
}

// Closed says that every job of a batch is over and that nothing of it is left
// on any node, as far as is known: the shell appends "closed" to the head's log
// in a later tick, then gives BatchGone.
type Closed struct{ Batch uint32 }

// Reopened says that a batch for which Closed was said is open again: "opened"
// must be durable before the records that follow.
type Reopened struct{ Batch uint32 }

// Refuse ends a session that has just begun, and tells the node why.
type Refuse struct {
	Session uint64
	Why     string
	Later   bool // and it may come again later
}

// Odd is for the shell's log alone: a node said something that no node of ours
// says. It had no effect.
type Odd struct {
	Session uint64
	Attempt job.Token // as the node wrote it: to be quoted
	Why     string
}

// Strayed is for the shell's log alone: a node has an attempt that was given to another
// node. See [stray].
type Strayed struct {
	Session uint64
	Attempt job.Token
	Of      node.Name
}

func (Log) action()      {}
func (LogNode) action()  {}
func (Start) action()    {}
func (Keep) action()     {}
func (Stop) action()     {}
func (Recall) action()   {}
func (Have) action()     {}
func (Forget) action()   {}
func (Hold) action()     {}
func (Grant) action()    {}
func (Publish) action()  {}
func (Drop) action()     {}
func (Closed) action()   {}
func (Reopened) action() {}
func (Refuse) action()   {}
func (Odd) action()      {}
func (Strayed) action()  {}
