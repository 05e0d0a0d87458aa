package sched

import (
	"slices"
	"time"

	"distribute/lib/capability"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/explain"
	"distribute/lib/sched/policy"
)

// A Machine holds the state of all open batches and of all nodes, and decides.
// It is used by one goroutine.
type Machine struct {
	cfg  Config
	lab  *policy.Lab    // what decisions look at
	tell explain.Teller // of what it decides

	batches map[uint32]*batch
	live    map[key]*attempt // not settled
	peers   []*peer          // in the order in which they became known, as in lab.Nodes
	marked  []*attempt       // of which it is to be seen how their jobs run now
	changes []Change         // which is another way than before
	abroad  []*peer          // clusters to which people take jobs, which are not among these
	named   map[node.Name]*peer
	drained map[node.Name]string // by whom
	session map[uint64]*peer
	starts  uint64        // counts starts, to order attempts on a node
	ticked  time.Duration // when leases were last looked at
	loaded  bool

	actions  []Action            // of the event at hand, or the decision
	again    []*attempt          // whose transfer failed, to be granted again
	refusing map[*batch]struct{} // which a node is not given for a while
}

// A key is a token as bytes.
type key = job.Key

// A batch is what is kept of a batch: about six bytes a job that waits.
type batch struct {
	*policy.Batch
	job.History // the States of its jobs, and what is kept of attempts that had to leave

	id      job.BatchID
	uid     int // of its owner
	once    bool
	closed  bool                   // Closed was said
	tries   []uint32               // the number of the last attempt
	class   []uint16               // index into Queues; nil: all are of the first
	trials  map[uint32]*trial      // of jobs that failed and are tried again
	tried   map[*policy.Queue]int  // how many of these have each queue of Avoiding
	again   []uint8                // how often each job may be; nil: all as often
	often   int                    //
	counts  [job.Cancelled + 1]int // jobs in each state
	open    int                    // jobs that are not over
	unacked int                    // settled attempts that their nodes may still hold
	remains map[uint32][]remain    // results of settled attempts of each job that their nodes were told to keep
	of      map[uint32]*attempt    // the live attempts of each job that has any
	losses  map[uint32]int         // losses in a row
	asked   map[request]struct{}   // requests taken
	seen    map[*peer]*endings     // how its jobs ended there
	saved   map[uint32]saved       // what jobs go on with
	less    []job.Less             // attempts of which less is kept, by the last record
	frozen  map[uint32]freeze      // jobs that run and whose attempts stand still
	unread  map[uint32]int         // how often a job was given back since that cannot be read
	anew    int                    // when it was asked last to build it anew; see job.Record
	anewBy  job.Token              // by which request
	gates   *gates                 // nil: its jobs wait for nodes only
	name    func(job int) string   // of a job
}

type request struct {
	job uint32
	id  job.Token
}

// An attempt is live from its start until it is settled.
type attempt struct {
	policy.Run // its token, what it has of its node, and since when

	// The fold of the log.
	ref     Ref
	key     key
	try     int
	peer    *peer
	from    saved    // what it began with
	anew    int      // when its batch was to be built anew before it started; 0: never
	unread  string   // why what it should have begun with cannot be read
	disk    int64    // bytes that its job asks for, if it is known to ask for some
	current bool     // it is its job's attempt
	beside  []*guest // what it has of other nodes of its machine
	runs    bool     // it is counted among the running ones of its batch
	counted bool     // it has what it was given of what is counted
	void    bool     // its job was over since it started: it cannot be accepted
	takes   int64    // what its owner is charged for it
	next    *attempt // another live one of the same job

	// What is known from its node.
	order    uint64 // of its start
	before   *attempt
	after    *attempt // its neighbours in the list of its node
	phase    job.Phase
	ran      time.Duration // see Attempt.Ran
	ranAt    time.Duration
	seq      uint64 // of the record that started it, in an earlier life of the head; 0: of this one, or it was found again
	worked   bool   // it was seen building or running
	boot     string // of its node, then
	listed   uint64 // the session in whose list it was named last
	recalled bool
	stopped  bool
	stilled  bool          // its node was told that it stands still, and hands it back if it has not begun
	result   *Result       // it has ended
	moving   bool          // granted
	refused  bool          // its result cannot be brought home, and its node was told to keep it
	stranded bool          // no room for its result
	note     string        // in words
	said     string        // the last line that it has printed, once its result is here
	list     []byte        // the manifest of a small result, likewise
	retryAt  time.Duration // when to grant again
	dead     bool          // settled or dropped: only stale lists name it

	stopping bool // see stops

	told []int // the indexes of its GPUs, as its node has said last

	way    way // how its job runs by it, as was told last
	marked bool
}

// A peer is a node as the machine knows it.
type peer struct {
	*policy.Node
	abroad bool // it is a cluster to which people take jobs
	uid    int  // of whose jobs, if it is one
	came   bool // and somebody was there since the head was started

	first, last *attempt             // live attempts given to it, in order of start
	guests      []*guest             // what attempts have of it that were given to nodes beside it, in order of start
	gone        map[key]*settledNote // settled attempts that it may still hold

	expired  bool // it was silent for a lease: what it was given may run elsewhere
	state    string
	had      HadState        // of an earlier life of the head
	logged   LogNode         // that was logged last
	states   int             // new ones since statesAt
	statesAt time.Duration   //
	held     map[key]unknown // attempts unknown to the head, and strays
	lodges   int             // entries in their also
	lodged   []policy.Share  // what unknown attempts of nodes beside it have of it, as counted
	visits   map[key]visit   // what attempts of nodes beside it have of it, as it says itself
	strays   map[key]*stray
	cooldown
}

// runs is the attempts of a node that have not ended, as a decision looks at them, in the
// order in which they were started.
func (p *peer) runs(yield func(*policy.Run) bool) {
	guests := p.guests
	for a := p.first; a != nil; a = a.after {
		for ; len(guests) > 0 && guests[0].of.order < a.order; guests = guests[1:] {
			if !yield(&guests[0].Run) {
				return
			}
		}
		if a.result == nil && !yield(a.run()) {
			return
		}
	}
	for _, g := range guests {
		if !yield(&g.Run) {
			return
		}
	}
}

// back is runs, the latest first.
func (p *peer) back(yield func(*policy.Run) bool) {
	guests := p.guests
	for a := p.last; a != nil; a = a.before {
		for n := len(guests) - 1; n >= 0 && guests[n].of.order > a.order; n-- {
			if !yield(&guests[n].Run) {
				return
			}
			guests = guests[:n]
		}
		if a.result == nil && !yield(a.run()) {
			return
		}
	}
	for _, g := range slices.Backward(guests) {
		if !yield(&g.Run) {
			return
		}
	}
}

func (a *attempt) run() *policy.Run {
	a.Idle = a.idles()
	return &a.Run
}

// A settledNote is what is kept of a settled attempt until its node has let it go.
type settledNote struct {
	ref    Ref
	kept   bool // what it left is on the head
	listed uint64
}

// usualLease is how long a silent node keeps what it has if nothing else is said.
const usualLease = 15 * time.Minute

// New makes a machine without batches and nodes.
func New(cfg Config) *Machine {
	if cfg.Lease <= 0 {
		cfg.Lease = usualLease
	}
	if cfg.CrashLimit <= 0 {
		cfg.CrashLimit = 5
	}
	if cfg.Token == nil {
		cfg.Token = job.NewToken
	}
	lab := &policy.Lab{Lease: cfg.Lease, Site: &policy.Site{}, Owners: map[int]*policy.Owner{}}
	return &Machine{cfg: cfg, lab: lab, tell: explain.Teller{Lab: lab, Clock: cfg.Clock, Takes: cfg.takes()},
		batches: map[uint32]*batch{}, live: map[key]*attempt{}, named: map[node.Name]*peer{}, drained: map[node.Name]string{},
		session: map[uint64]*peer{}, refusing: map[*batch]struct{}{}}
}

// Apply takes an event and returns what is to be done, in order. now is the
// time for which the head has been running, without the time it was stopped
// or asleep; it never decreases. The slice is valid until the next call. Nothing is
// started by it: see Decide. The cost depends on what the event is about.
func (m *Machine) Apply(ev Event, now time.Duration) []Action {
	m.begin(now)
	ev.apply(m)
	return m.actions
}

// Decide starts what can be started, and ends what cannot, after any number of events,
// and returns what is to be done, as Apply does. The cost depends on the numbers of
// nodes, batches, and classes of jobs, and of what is decided, not on the number of jobs
// that wait.
func (m *Machine) Decide(now time.Duration) []Action {
	m.begin(now)
	if m.loaded {
		m.endUntried()
		m.place()
		m.close()
	}
	m.findChanges()
	return m.actions
}

func (m *Machine) begin(now time.Duration) {
	m.lab.Now = max(m.lab.Now, now)
	clear(m.actions)
	m.actions = m.actions[:0]
}

func (m *Machine) do(a Action) { m.actions = append(m.actions, a) }

// log says a record and folds it: the only way in which an event changes what
// lasts.
func (m *Machine) log(ref Ref, rec job.Record) {
	b := m.batches[ref.Batch]
	m.reopen(b)
	m.do(Log{Ref: ref, Rec: rec})
	if err := m.fold(b, ref, &rec); err != nil {
		panic("sched: decided on an illegal move: " + err.Error())
	}
	for _, l := range b.less {
		m.do(Drop{ref, l.Attempt, l.Try, l.Nothing})
	}
	if rec.Kind == job.KindBack {
		m.holdFrozen(ref)
	}
	if why := whyOver[rec.Kind]; why != "" {
		m.stopVoid(b, ref.Job, why)
	}
	if rec.Kind == job.KindDone || rec.Kind == job.KindCancelled {
		m.releaseKept(b, ref.Job)
	}
}

// reopen says, before a record of a batch that is closed, that it is open again.
func (m *Machine) reopen(b *batch) {
	if b.closed {
		b.closed = false
		m.do(Reopened{b.Num})
	}
}

// peerOf is the node of a name, or what a user has at a cluster, made known by the first
// use of its name.
func (m *Machine) peerOf(name node.Name, uid int) *peer {
	p := m.named[name.Of(uid)]
	if p == nil {
		p = &peer{Node: &policy.Node{Name: name, Heard: m.lab.Now, Facts: &capability.Facts{Node: string(name)}}, gone: map[key]*settledNote{}}
		p.Runs, p.Back = p.runs, p.back
		p.uid = uid
		m.named[name.Of(uid)] = p
		if p.abroad = name.Abroad(); p.abroad {
			p.Index = -1 - len(m.abroad)
			m.abroad = append(m.abroad, p)
			return p
		}
		p.Drained = m.drained[name]
		m.lab.AddNode(p.Node)
		m.peers = append(m.peers, p)
	}
	return p
}

// from is the node of a session that lives; hearing of it renews its lease.
func (m *Machine) from(session uint64) *peer {
	p := m.session[session]
	if p != nil {
		p.Heard = m.lab.Now
	}
	return p
}
