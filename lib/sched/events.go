package sched

import (
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
)

// A Ref names a job by numbers: the shell's number of its batch, and its line
// in jobs.jsonl, from 0, or [AllJobs].
type Ref struct{ Batch, Job uint32 }

// Config is what a Machine is made with.
type Config struct {
	Lease      time.Duration    // how long a silent node keeps its attempts; 0: 15 minutes
	CrashLimit int              // a job lost so many times in a row is failed; 0: 5
	Token      func() job.Token // draws the ids of attempts; nil: job.NewToken

	// Clock is the time of day at a moment, for what is told people; nil: none is told.
	Clock func(time.Duration) string

	// Takes is how long a job takes, about, that has run for so long; 0 if that is not
	// known, nil: it never is. It is for what is told people, and decides nothing.
	Takes func(ref Ref, ran time.Duration) time.Duration
}

// takes is Takes as who explains asks for it.
func (c *Config) takes() func(batch, job uint32, ran time.Duration) time.Duration {
	if c.Takes == nil {
		return nil
	}
	return func(batch, job uint32, ran time.Duration) time.Duration { return c.Takes(Ref{batch, job}, ran) }
}

// MaxClasses is the number of classes of the jobs of one batch. With more of them those of
// the last fail, with a reason, as soon as the batch is added. A submission of which that is
// so is refused: see [job.Requests].
const MaxClasses = policy.MaxClasses

// An Event is something that happened and that the machine must know: one of
// the types below. Events that carry a Session are
// ignored when that session is not, or no longer, the session of a node.
// Everything in them that comes from a node is believed only as far as it
// concerns attempts that were given to that node.
type Event interface{ apply(m *Machine) }

// AddBatch makes a batch known, with all of its jobs queued. A batch with a lower
// number is older, and goes first of those of its owner that have its priority. A
// number in use is ignored; it is free again after BatchGone.
type AddBatch struct {
	Batch  uint32
	ID     job.BatchID
	Owner  int       // whose it is: the number of the user
	Spec   *job.Spec // not kept; nil: no capabilities, whole nodes
	Jobs   int
	Asks   []Ask                // what each job asks for; nil: all as in Spec. Not kept.
	Own    []int16              // the priority of each job, which is added to that of the batch; nil: none has one. Not to be changed.
	Again  []uint8              // how often each job is tried again that fails; nil: all as in Spec. Not to be changed.
	Needs  *job.Needs           // which jobs need which; nil: none needs another. Not to be changed.
	Name   func(job int) string // the name of a job, for reasons; called by any goroutine, also after BatchGone
	Once   bool                 // retry: never: each job is started at most once unless its owner retries it
	Replay bool                 // records follow by Machine.Replay: nothing is started until Ready or Loaded
	Closed bool                 // the head's log says that it is closed (it is loaded for a retry)
}

// AddJobs makes more jobs of a batch known, queued, behind those that it has. In a
// replay it stands where the log has the record of it; else the shell appends that
// record, and what comes of the event is done when it is durable.
type AddJobs struct {
	Batch uint32
	Spec  *job.Spec  // of the batch, as in AddBatch
	Jobs  int        // how many more
	Asks  []Ask      // what each of them asks for; nil: all as in Spec. Not kept.
	Own   []int16    // the priority of each of them, as in AddBatch. Not kept.
	Again []uint8    // how often each of them is tried again that fails; nil: all as in Spec. Not kept.
	Needs *job.Needs // which jobs of the whole batch need which; nil: none needs another. Not to be changed.
}

// Ready says that all records of a batch that was added with Replay are
// replayed.
type Ready struct{ Batch uint32 }

// Loaded says that all batches that are open are added and replayed: leases
// start now, nodes may come, batches that turn out to be over are closed. It
// is given once, before the first NodeUp; it implies Ready for every batch.
type Loaded struct{}

// BatchGone drops a batch and all that is known of its attempts: after
// Closed was written to the head's log, or when the batch is damaged or
// deleted. Attempts of it that a node names later are unknown (Hold).
type BatchGone struct{ Batch uint32 }

// Leased says that a silent node keeps its attempts for so long from now on, also
// one that is silent already; 0 is 15 minutes.
type Leased struct{ For time.Duration }

// Preferred says whether priorities count beside the batches of others from now on, whoever has
// set them; else only those that an operator has set do.
type Preferred struct{ ForAll bool }

// Counted is what the site counts over all nodes, from now on. It is not logged: the
// shell says it before Loaded, and when it has changed.
type Counted struct{ Site job.Counts }

// NodeUp says that a node has said hello in a new session, proven to be that
// node. Sessions are numbered by the shell, never twice, from 1. Nothing is
// given to the node before ListEnd. If the node has another session still, the
// new one is refused (the shell pings the old one first, and gives NodeDown).
type NodeUp struct {
	Session uint64
	Node    node.Name
	UID     int    // whose jobs, of a cluster
	Boot    string // differs after a restart of the machine
	State   string // differs after the node lost its directory
	Machine string // the id of its machine; not for the decision, as the next
	Number  uint64 // of the session, as the node's directory knows it; 0: not known
	Offer   node.Offer
}

// Offered says that a node offers something else than before. It may be less
// than what it has been given.
type Offered struct {
	Session uint64
	Offer   node.Offer
}

// Item is one attempt of the list that a node sends when it connects.
type Item struct {
	Session uint64
	Attempt job.Token
	Phase   job.Phase
	CPUs    int         // that it occupies; used only for attempts unknown to the head, 0: all of the node's
	GPUs    []int       // the indexes of those that it has; nil: none, or that is not known
	Also    job.Lodging // of the other nodes of its machine; used as CPUs is
	Ended   *Result     // set if and only if Phase is Returning
	Ran     float64     // seconds that its processes have run, without pauses; 0: they have not begun, or that is not known
}

// Visit says what an attempt of another node of the machine has of the node: with no cpus
// nothing any more. It counts while the head does not know better.
type Visit struct {
	Session uint64
	Attempt job.Token
	CPUs    int
	Memory  int64
	GPUs    []int // indexes
}

// Built says that a batch is built on a node: jobs of it go there before they
// go elsewhere. A node that runs a job of a batch has built it, too.
type Built struct {
	Session uint64
	Batch   uint32
}

// ListEnd says that the node's list is complete: what was given to it and is
// not in the list is not on it.
type ListEnd struct{ Session uint64 }

// NodeDown says that a session is over. Leases run on.
type NodeDown struct{ Session uint64 }

// NodeGone is the operator's word that a node never comes back, or that the
// shell knows its directory to be lost: all that was given to it is lost. It is
// ignored while the node is connected.
type NodeGone struct{ Node node.Name }

// Removed is the operator's word that a node is let in no longer; with Back, that it is let in
// again. It keeps what was given to it, as any node that is silent, but no job waits for it.
// The machine does not log it.
type Removed struct {
	Node node.Name
	Back bool
}

// Drain is the operator's word that a node is to be given nothing: what runs there
// goes on, and what was given to it and has not begun goes elsewhere. With nobody as
// By it is given jobs again, and does not rest. The machine does not log it: the shell says it again
// after each start, before Loaded.
type Drain struct {
	Node node.Name
	By   string // who has said so; not for the decision
}

// HadState tells which state id a node had last in an earlier life of the head, and the seq of
// the record of it. Attempts that were started before that were given to another directory.
// It is given before Loaded.
type HadState struct {
	Node  node.Name
	State string
	Since uint64
}

// Heard says that a message of the session arrived, whatever it was: it renews
// the lease. The other events with a session do so by themselves.
type Heard struct{ Session uint64 }

// Phase says how far an attempt is. Ended says more than Returning.
type Phase struct {
	Session uint64
	Attempt job.Token
	Phase   job.Phase
	Ran     float64 // as in an Item
}

// A Result is how an attempt ended on its node.
type Result = job.Result

// Ended says that an attempt is over on its node, and the node holds what it
// left until it is told Have or Forget. It may come any number of times.
type Ended struct {
	Session uint64
	Attempt job.Token
	Result  Result
}

// Staged is the shell's word on a transfer that it was asked for by Grant.
// With Err nil every byte of the manifest is on the head's disk, checked and
// durable. It counts even when the session has ended meanwhile.
type Staged struct {
	Attempt   job.Token
	Manifest  string // of what was staged: must be the one of the attempt's Result
	List      []byte // that manifest as a list, of a small result: its records have it (job.Record)
	Said      string // the last line that it has printed, of one that did not end well
	Err       error  // the transfer failed; it is granted again after a while
	Permanent bool   // with Err: trying again is of no use. What is on the node stays there (Hold).
	NoRoom    bool   // with Err: for want of space: the job is shown as stranded
}

// Asks says how much disk the job of an attempt asks for, which the jobs of a queue do not
// have in common.
type Asks struct {
	Attempt job.Token
	Disk    int64 // bytes
}

// Unreadable says that what an attempt is to go on with cannot be read on the head.
type Unreadable struct {
	Attempt job.Token
	Why     string
}

// Gone says that nothing of an attempt is left on its node, after Have or
// Forget. It lets the head forget the attempt, and close its batch.
type Gone struct {
	Session uint64
	Attempt job.Token
}

// Cancel gives a job up for good. A job that is over, and a request that was
// already taken for this job, change nothing.
type Cancel struct {
	Ref     Ref
	By      string
	Request job.Token
	Reason  string
}

// Unwanted says that a batch is to be deleted. If all of its jobs are over, what
// is left of it on nodes and is not on its way is let go: it may have no room on
// the head before something is deleted.
type Unwanted struct{ Batch uint32 }

// Retry queues a job again that failed or was cancelled. A job in another
// state, one that needs another which is in such a state still, and a request that
// was already taken for this job, change nothing.
type Retry struct {
	Ref     Ref
	By      string
	Request job.Token
	Anew    int // its batch is built anew before it is started: the time now, in Unix seconds; 0: it is not
}

// HoldJobs has the queued ones of these jobs wait until they are released: no attempt
// of them is started until then. With Release the held ones of them are queued
// again. A request that was already taken for a job changes nothing of it. Where
// these are all such jobs of the batch there is one record, about the batch. With
// Freeze the attempts of those that run stand still, too, which a release ends.
type HoldJobs struct {
	Batch   uint32
	Jobs    []uint32
	By      string
	Request job.Token
	Release bool
	Freeze  bool
}

// SetBatch changes what is asked for of a batch whose jobs are not all over. Of those
// whose time is set these are the ones that had another; what that is the shell
// keeps, as it follows from the records. Where they and the others are all such jobs
// of the batch there is one record, about the batch. A request that was already taken
// changes nothing.
type SetBatch struct {
	Batch   uint32
	Set     job.Set
	Timed   []uint32
	Others  int // whose time is set, and who have it already
	By      string
	Request job.Token
}

// Tick lets time pass. It is given at least once a second: leases end in it,
// transfers that failed are granted again, long work goes on.
type Tick struct{}
