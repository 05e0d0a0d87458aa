package policy

import (
	"iter"
	"slices"
	"time"

	"distribute/lib/capability"
	"distribute/lib/job"
	"distribute/lib/node"
)

// A Lab is all that a decision depends on: the nodes, what waits for them, whose it is,
// and which nodes are kept for what. The ledger keeps it. A decision changes which nodes are
// kept, and what it has found out of owners and queues (Turn, Alone, Roomiest).
type Lab struct {
	Now     time.Duration // for how long the head has been running
	Loaded  time.Duration // when all batches had been read in
	Lease   time.Duration // how long a silent node keeps what it has
	ForAll  bool          // a priority counts beside the batches of others, too, whoever has set it
	Nodes   []*Node       // in the order in which they became known
	Batches []*Batch      // in the order in which they became known
	Classes []*Class
	Owners  map[int]*Owner // by number
	Kept    []*Reservation // the latest last
	Site    *Site

	named    map[string]*Class // the classes by their names
	slots    []int             // that classes have had and none has
	machines map[string][]*Node
}

// SettleTime is how long after its start the head waits for nodes before it takes those
// that are there for all there are.
const SettleTime = time.Minute

// A Batch is what a decision looks at of a batch.
type Batch struct {
	Num      uint32 // the lower, the older
	Ready    bool   // its log is read in
	Early    bool   // it was there when the head was started
	Stopped  bool   // so many of its jobs failed that no other is started
	Mixed    bool   // more classes than there may be: no job of the last queue is started
	Owner    *Owner
	Priority int     // higher goes first
	ForAll   bool    // an operator has set that: it counts beside the batches of others, too
	Own      []int16 // what each job has besides; nil: none has any
	Most     int     // jobs that run at once; 0: no bound
	Running  int     // jobs with an attempt that has not ended

	Queues   []*Queue // one for each class
	Avoiding []*Queue // of jobs that keep away from nodes

	FailedBuilds map[*Node]struct{}      // where its build failed
	Suspect      map[*Node]struct{}      // the same, before it is in the log
	Pace         map[*Node]time.Duration // how long its last attempt ran there; there means that it is built
	Quick        bool                    // an attempt was short on some node
	Refusals     map[*Node]Refusal       // by which it is not tried for a while

	// For what is told people.
	Boxed bool   // its jobs run in containers
	Said  string // the last line that the last build that failed has printed

	lab *Lab
}

// A Refusal is that a node gave a job of a batch back: it had no room on its disk, or
// does not run it for who submitted it. Nobody is to blame, and the node may do other
// work meanwhile.
type Refusal struct {
	Until  time.Duration // 0: it may be tried
	Long   time.Duration // doubled each time, also where it was tried again sooner
	Barred bool          // for whose it is
	Why    string
}

// LongestRefusal is how long a batch is kept from a node at most that had no room
// on its disk for a job of it, before it is tried again.
const LongestRefusal = 5 * time.Minute

// lasts says that time alone does not end it.
func (r Refusal) lasts() bool { return r.Until != 0 && (r.Barred || r.Long >= LongestRefusal) }

// refusedBy says that a node gave a job of the batch back a while ago.
func (b *Batch) refusedBy(p *Node) bool { return b.Refusals[p].Until != 0 }

// BuildFailed says that the build of the batch failed on a node.
func (b *Batch) BuildFailed(p *Node) bool {
	_, failed := b.FailedBuilds[p]
	_, suspect := b.Suspect[p]
	return failed || suspect
}

// Full says that as many jobs of the batch run as may.
func (b *Batch) Full() bool { return b.Most > 0 && b.Running >= b.Most }

// Attempts are sent ahead to a node on which the last one of their batch was short: one for
// each that runs, and so many more as are over within AheadFor, in which the head makes some
// more starts durable.
const (
	short    = 5 * time.Second
	AheadFor = 100 * time.Millisecond
	maxAhead = 8 // for each that runs
)

// NoPace says that a batch is built on a node, and nothing of how long it runs.
const NoPace = time.Duration(-1)

// Ahead is how many attempts of the batch may wait on a node for each that runs there; 0 if
// its last one there was not short.
func (b *Batch) Ahead(p *Node) int {
	ran, ok := b.Pace[p]
	if !ok || ran == NoPace || ran >= short {
		return 0
	}
	return int(min(max(1, AheadFor/max(1, ran)), maxAhead))
}

// All is all queues of a batch.
func (b *Batch) All() iter.Seq[*Queue] {
	return func(yield func(*Queue) bool) {
		for _, some := range [][]*Queue{b.Queues, b.Avoiding} {
			for _, q := range some {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// MaxClasses is how many classes the jobs of a batch may be of: one for each request that
// they may make, one for what the batch asks for if none of them does, and one for all
// jobs that go beyond them in a batch of an earlier release.
const MaxClasses = job.MaxRequests + 2

// A Class is all jobs that ask for the same of a node.
type Class struct {
	Name  string
	Wants []capability.Expr
	Share Share          // no cpus: the whole node
	Ranks int            // of each job; 0: it has none
	Each  Share          // of one of these
	Cards bool           // and all its GPUs: gpu is wanted, and no number of them
	Users int            // queues in all
	Asked bool           // only a question is about it: nodes keep nothing of it
	Kept  []*Reservation // the nodes that are kept for it, the latest last
	slot  int            // its number among the classes that there are
}

// A Queue is the jobs of one batch and one class that wait for a node, and keep away from
// the same nodes.
type Queue struct {
	Batch *Batch
	Class *Class
	Index int // in Batch.Queues; MaxClasses for one of Batch.Avoiding
	Jobs  *Line
	Says  *Declared // of the batch and the class

	Roomiest int64 // bytes: the most disk of a node on which they could run now, or enough; 0: all have enough
	Avoidance
}

// An Avoidance is what the jobs of a queue keep away from; the zero one is nothing.
type Avoidance struct {
	FailedOn []*Node // where they failed, by their Index
	Memory   int64   // bytes: a node must have more
	Disk     int64   // bytes: a node's disk must be as large
	Old      bool    // it was read from a log: what other nodes there are is not known at once
	Alone    bool    // no other node could ever run them, so they go where they failed
}

// A Declared is what the jobs of a queue say that they need of time and disk, which makes
// no other class: the longest time, and the least disk.
type Declared struct {
	Limit int64 // seconds that the one may run that may for longest; below 0: one has no limit
	Disk  int64 // bytes of disk that each asks for at least, if any job is known
	said  bool  // a job is known
}

// Ask takes in what a job asks for.
func (d *Declared) Ask(seconds, disk int64) {
	d.Allow(seconds)
	if !d.said || disk < d.Disk {
		d.said, d.Disk = true, disk
	}
}

// Allow takes in that a job may run for so many seconds; 0: as long as it takes.
func (d *Declared) Allow(seconds int64) {
	if seconds == 0 {
		d.Limit = -1
	} else if d.Limit >= 0 {
		d.Limit = max(d.Limit, seconds)
	}
}

// Longest is how long a job runs at most; 0 if one of them has no limit.
func (d *Declared) Longest() time.Duration {
	return time.Duration(max(0, d.Limit)) * time.Second
}

// A Node is what a decision looks at of a node.
type Node struct {
	Name    node.Name
	Index   int           // in Lab.Nodes; below 0 for a cluster, which is not there
	Session uint64        // 0: not connected
	Listed  bool          // what it has is known
	Boot    string        // "": nothing was heard of it since the head was started
	Heard   time.Duration // when it was heard last
	Removed bool          // it is let in no longer

	Drained     string        // by whom it was: it is given nothing
	HaltedUntil time.Duration // it is given nothing, for it is paused and its offer did not say so
	PausesAt    time.Duration // by its hours; 0: it does not
	RestsUntil  time.Duration // it is given nothing, because jobs fail there; 0: it does not rest

	Beside  []*Node // the others of its machine, where that is several nodes
	machine string  // see join

	Offer   node.Offer
	Offered time.Duration     // when it said so
	Facts   *capability.Facts // of what it has when nothing is lent back
	Has     Share             // what may be given of it
	Could   Share             // the same, with what it has taken back for a while

	Used    Share // of the attempts that have room there
	Active  int   // these
	Waiting int   // attempts that wait for room
	Waits   Share // and what they will have
	Unknown bool  // it has attempts that the head does not know

	LastGiven time.Duration  // when it was given its latest attempt
	Runs      iter.Seq[*Run] // its attempts that have not ended, in the order in which they were started
	Back      iter.Seq[*Run] // the same, the latest first
	able      []bool         // of each class, by its slot
	fits      struct {       // what fitting has found for classes by these facts
		by *capability.Facts
		of map[*Class]job.Cards
	}
	Kept    *Reservation // nil: it is kept for nobody
	Expects *Run         // waits elsewhere, and is asked back for it; nil: none
	site    *Site
	free    struct { // what is free of its GPUs, with those and what is used of them
		of   [2]job.Cards
		room job.Room
	}
}

// A Run is an attempt that has not ended on its node.
type Run struct {
	Token  job.Token
	Job    uint32 // its number in the batch
	Queue  *Queue // in which it waited
	Share  Share
	Active bool          // it has room; else it waits for it
	Idle   bool          // it only waits, is wanted, and may be asked back
	Began  time.Duration // when it was given to its node; 0: in an earlier life of the head
}

// AddNode makes a node known.
func (l *Lab) AddNode(p *Node) {
	p.Index, p.site = len(l.Nodes), l.Site
	l.Nodes = append(l.Nodes, p)
	for _, c := range l.Classes {
		p.Judge(c)
	}
}

// AddBatch makes a batch known.
func (l *Lab) AddBatch(b *Batch) {
	b.lab = l
	l.Batches = append(l.Batches, b)
}

// DropBatch forgets a batch, and the classes that only it had.
func (l *Lab) DropBatch(b *Batch) {
	for _, q := range b.Queues {
		l.dropClass(q.Class)
	}
	l.Batches = slices.DeleteFunc(l.Batches, func(o *Batch) bool { return o == b })
}

// ClassFor is the class that is known and the same as one, or that one, for one more
// queue.
func (l *Lab) ClassFor(of *Class) *Class {
	c := l.named[of.Name]
	if c == nil {
		c = of
		if n := len(l.slots); n > 0 {
			c.slot, l.slots = l.slots[n-1], l.slots[:n-1]
		} else {
			c.slot = len(l.Classes)
		}
		if l.named == nil {
			l.named = map[string]*Class{}
		}
		l.named[c.Name] = c
		l.Classes = append(l.Classes, c)
		for _, p := range l.Nodes {
			p.Judge(c)
		}
	}
	c.Users++
	return c
}

func (l *Lab) dropClass(c *Class) {
	if c.Users--; c.Users > 0 {
		return
	}
	l.Classes = slices.DeleteFunc(l.Classes, func(d *Class) bool { return d == c })
	delete(l.named, c.Name)
	l.slots = append(l.slots, c.slot)
}
