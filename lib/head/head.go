package head

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// How the state's goroutine works through what comes in.
const (
	maxStep   = 2 * time.Second // of the clock at once: what is longer, dsched was stopped
	maxBatchN = 4096            // things taken in before they are made durable together
)

var tickEvery = time.Second

// A Head is the state of dsched. One goroutine owns it (run); the others do I/O and hand
// it functions to call (do). What guards itself, and what is written once, others use, too.
type Head struct {
	Closed func()         // nil, or called when a batch is closed; set before Serve
	Hangup chan os.Signal // nil, or where SIGHUP has come since before Open; set before Serve

	spool  *spool.Spool
	store  *spool.Head
	set    atomic.Pointer[settings] // what head.yaml says now
	terms  dial.Terms               // on which it listens
	log    *slog.Logger
	uid    int
	proven func(net.Conn) (dial.Peer, error) // who is at the other end
	names  account.Memory[int, named]        // of users

	in   chan func()
	over context.Context // ends when run has
	stop func()          // ends it
	clock
	wall func() time.Time // the time of day

	machine   *sched.Machine
	batches   map[uint32]*batch
	byID      map[job.BatchID]uint32
	aside     map[uint32]job.BatchID // batches that were open and turned out to be damaged
	unread    []job.BatchID          // open, as far as is known, and damaged: since the start, or set aside
	lastBatch uint32

	ticks     ticks
	nodes     nodes
	tools     tools
	transfers transfers

	door    *door   // who is let in as a node
	turned  logRate // peers that have not proven who they are
	desks   desks   // that the head dials
	sweeper *sweeper
}

// nodes are those that are connected, and what is known of others.
type nodes struct {
	sessions map[uint64]*session
	byName   map[node.Name]uint64
	joins    map[job.Token]*session // also of those that have not said yet what they offer
	last     uint64                 // the number of the session that began last
	probe    time.Duration          // how long an old session may take to answer; 0: probeWithin
	homes    map[node.Name]home
	aside    map[node.Name]bool      // those that had a job of a batch when that was set aside
	copies   map[node.Name]node.Name // names under which a copy of the directory of a node was refused last
	removed  map[node.Name]bool      // by operators, since dsched was started, and not back
	byLine   map[node.Name]bool      // whose last session was by a line of the list, or whose line was removed
}

// tools are what people's tools have of the head.
type tools struct {
	operators account.Memory[string, numbered]
	users     map[int]*user // by their numbers
	most      fairShare     // that each may have
	watchers  map[*watcher]bool
	reading   *quota // of jobs in memory for what they ask: maxReading
	pulling   *quota // of bytes of manifests that they get: maxPulling
	table     keptTable
	sending   sendings
	rest      int64 // bytes that are read of what is refused: maxRest
}

// transfers are the results that come home, and what is printed.
type transfers struct {
	room    *room
	large   int64 // bytes from which on a result is a large one; 0: largeResult
	staging holds
	small   *queue[*grant]       // results that came with their ends
	sealing *semaphore.Weighted  // of results that are being made durable: maxSeals
	copying map[buildOf]*logCopy // of what builds printed, into the spool
}

// A clock is for how long dsched has been seen running.
type clock struct {
	now      time.Duration
	lastWake time.Time
}

// A batch is an open batch, and what nodes ask of it.
type batch struct {
	*spool.Batch
	spec    []byte // as JSON
	specSum string
	told    int64 // bytes of its log that watchers have been told of

	priority int      // as it is now
	atOnce   int      // how many of its jobs may run at once, as it is now; 0: no bound
	known    int      // jobs that are in the state: while the log is replayed there may be more
	limits   []uint32 // seconds that each job may run, if they differ
	needs    bool     // some job needs others
	adding   int      // who is about to add jobs: it is not forgotten
	pace     pace
	logs     map[string]logState // by nodes
	hidden   job.Secrets         // values of secrets that others have replaced
}

// logged notes where what the build printed on a node is.
func (b *batch) logged(node string, state logState) {
	if b.logs == nil {
		b.logs = map[string]logState{}
	}
	b.logs[node] = state
}

// limit is how many seconds a job may run; 0: as long as it likes.
func (b *batch) limit(i int) int64 {
	if b.limits != nil {
		return int64(b.limits[i])
	}
	return b.Head.Spec.Resources.Time
}

func newBatch(b *spool.Batch) (*batch, error) {
	spec, err := json.Marshal(b.Head.Spec)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(spec)
	return &batch{Batch: b, spec: spec, specSum: hex.EncodeToString(sum[:]), told: b.Durable(), priority: b.Head.Spec.Priority, atOnce: b.Head.Spec.MaxRunning, known: b.Head.Jobs}, nil
}

// do has f called by the state's goroutine and waits until it was. What f
// reads may not be durable yet; see settled. It says false if dsched ends.
func (h *Head) do(f func()) bool {
	done := make(chan struct{})
	select {
	case h.in <- func() { f(); close(done) }:
	case <-h.over.Done():
		return false
	}
	select {
	case <-done:
		return true
	case <-h.over.Done():
		return false
	}
}

// settled is do, and waits until everything that f began is durable and done.
func (h *Head) settled(f func()) bool {
	done := make(chan struct{})
	if !h.do(func() { f(); h.ticks.after = append(h.ticks.after, func() { close(done) }) }) {
		return false
	}
	select {
	case <-done:
		return true
	case <-h.over.Done():
		return false
	}
}

// apply tells the machine what happened.
func (h *Head) apply(ev sched.Event) {
	h.ticks.actions = append(h.ticks.actions, h.machine.Apply(ev, h.clock.tell())...)
	h.ticks.undecided = true
}

// decide has the machine decide, once for all that was applied since the last time.
func (h *Head) decide() {
	if !h.ticks.undecided {
		return
	}
	h.ticks.undecided = false
	h.ticks.actions = append(h.ticks.actions, h.machine.Decide(h.clock.tell())...)
	if changes := h.machine.Changed(); len(changes) > 0 && len(h.tools.watchers) > 0 {
		changes = slices.Clone(changes)
		h.ticks.after = append(h.ticks.after, func() { h.tellWays(changes) })
	}
}

// tell is the time by it. Leases are counted on it: a stopped or suspended head must not
// take its nodes for lost.
func (c *clock) tell() time.Duration {
	t := time.Now()
	c.now += min(max(t.Sub(c.lastWake), 0), maxStep)
	c.lastWake = t
	return c.now
}

// record appends what a of the machine's actions says to a log, after readNames.
func (h *Head) record(a sched.Action) {
	switch a := a.(type) {
	case sched.Log:
		b := h.batches[a.Ref.Batch]
		rec := a.Rec
		if a.Ref.Job == sched.AllJobs {
			h.recordAll(b, &rec, a.Jobs)
			return
		}
		if rec.Kind == job.KindStart || rec.Kind == job.KindAdopt {
			rec.Limit = b.limit(int(a.Ref.Job))
		}
		h.store.Append(b.Batch, &rec)
		h.ticks.logged = append(h.ticks.logged, logged{batch: b.Batch, rec: &rec, priority: b.priority, ref: a.Ref})
		h.say(b, &rec)
		b.pace.see(&rec)
	case sched.Drop:
		h.store.Owe(h.batches[a.Ref.Batch].Batch)
	case sched.LogNode:
		h.recordHome(a.Node, home{state: a.State, machine: a.Machine, session: a.Number})
	case sched.Reopened:
		h.ticks.closing = slices.DeleteFunc(h.ticks.closing, func(n uint32) bool { return n == a.Batch })
		b := h.batches[a.Batch].Batch // which those who follow what is not over may not have read
		h.ticks.logged = append(h.ticks.logged, logged{batch: b, upto: b.Durable()})
	}
}

// recordAll appends a record about a whole batch to its log, and has those who follow
// told of the jobs that it changes.
func (h *Head) recordAll(b *batch, rec *job.Record, jobs []uint32) {
	h.store.Append(b.Batch, rec)
	h.log.Info(string(rec.Kind), "batch", string(b.ID), "jobs", len(jobs), "by", rec.By)
	l := logged{batch: b.Batch, rec: rec, priority: b.priority}
	if len(h.tools.watchers) > 0 && len(jobs) > 0 {
		l.jobs = make([]string, 0, len(jobs))
		err := b.Scan(func(i int, j *spool.Brief) error {
			if len(jobs) > 0 && jobs[0] == uint32(i) {
				l.jobs, jobs = append(l.jobs, j.Name), jobs[1:]
			}
			return nil
		})
		if err != nil { // who follows misses it, and it stands in the log all the same
			h.log.Error("cannot tell those who follow of a change", "batch", string(b.ID), "why", err)
		}
	}
	h.ticks.logged = append(h.ticks.logged, l)
}

// say logs one line for a change of a job's state.
func (h *Head) say(b *batch, rec *job.Record) {
	attrs := []any{"job", string(b.ID.Job(rec.Job))}
	if rec.Try > 0 {
		attrs = append(attrs, "attempt", rec.Try)
	}
	if rec.Node != "" {
		attrs = append(attrs, "node", rec.Node)
	}
	if rec.Exit != nil {
		attrs = append(attrs, "exit", *rec.Exit)
	}
	for _, s := range [][2]string{{"signal", rec.Signal}, {"reason", rec.Reason}, {"by", rec.By}} {
		if s[1] != "" {
			attrs = append(attrs, s[0], s[1])
		}
	}
	if !rec.NodeEnded.IsZero() {
		attrs = append(attrs, "node_started", rec.NodeStarted, "node_ended", rec.NodeEnded)
	}
	h.log.Info(string(rec.Kind), attrs...)
}

// act does one thing that was decided, and is durable now.
func (h *Head) act(a sched.Action) {
	switch a := a.(type) {
	case sched.Start:
		h.start(a)
	case sched.Keep:
		h.keep(a)
	case sched.Stop:
		h.tell(a.Session, &wire.Stop{Attempt: a.Attempt, Why: a.Why})
	case sched.Recall:
		h.tell(a.Session, &wire.Stop{Attempt: a.Attempt, Why: a.Why, Unstarted: true})
	case sched.Have:
		h.tell(a.Session, &wire.Have{Attempt: a.Attempt})
	case sched.Forget:
		h.tell(a.Session, &wire.Forget{Attempt: a.Attempt})
	case sched.Hold:
		h.hold(a)
	case sched.Grant:
		h.grant(a)
	case sched.Refuse:
		if s := h.nodes.sessions[a.Session]; s != nil {
			status := cli.NotAllowed
			if a.Later {
				status = cli.Later
			}
			s.tell(&wire.Error{Status: status, Text: a.Why})
			s.out.close()
		}
	case sched.Closed:
		h.close(a.Batch)
	case sched.Odd:
		if s := h.nodes.sessions[a.Session]; s != nil {
			s.log.Warn("protocol violation by node", "attempt", string(a.Attempt), "why", a.Why)
		}
	case sched.Strayed:
		if s := h.nodes.sessions[a.Session]; s != nil {
			s.log.Warn("node has an attempt that was given to another node; was it renamed?", "attempt", string(a.Attempt), "given_to", string(a.Of))
		}
	}
}

func (h *Head) keep(a sched.Keep) {
	m := &wire.Keep{Attempt: a.Attempt, Still: a.Still}
	if at, live := h.machine.Attempt(a.Attempt); live && h.batches[at.Ref.Batch] != nil {
		m.Time = h.batches[at.Ref.Batch].limit(int(at.Ref.Job))
	}
	h.tell(a.Session, m)
}

func (h *Head) tell(session uint64, m wire.Message) {
	if s := h.nodes.sessions[session]; s != nil {
		s.tell(m)
	}
}

func (h *Head) hold(a sched.Hold) {
	if s := h.nodes.sessions[a.Session]; s != nil && !s.letGo(h, a.Attempt) {
		s.log.Error("node has an attempt unknown to this head; it keeps the files, and its log says where", "attempt", string(a.Attempt), "why", a.Why)
		s.tell(&wire.Hold{Attempt: a.Attempt})
	}
}

// maxInline is how long a job may be to go along with its start.
const maxInline = wire.MaxLine / 2

func (h *Head) start(a sched.Start) {
	s, b := h.nodes.sessions[a.Session], h.batches[a.Ref.Batch]
	if s == nil || b == nil {
		return
	}
	line, err := b.JobLine(int(a.Ref.Job))
	var j job.Job
	if err == nil {
		j, err = b.Job(int(a.Ref.Job))
	}
	if err != nil {
		h.log.Error("cannot read a job's line", "batch", b.ID, "job", a.Ref.Job, "why", err)
		return
	}
	m := &wire.Start{Attempt: a.Attempt, Job: b.ID.Job(j.Name), Try: a.Try, CPUs: a.CPUs, GPUs: a.GPUs, Also: a.Also, User: b.Head.Owner, Spec: b.specSum, Time: b.otherTime(int(a.Ref.Job), &j), Never: b.Head.Spec.Retry == job.Never, Saved: a.Saved, Anew: a.Anew}
	if inline(line, &j) {
		m.Work = &j
	}
	if r := cmp.Or(j.Resources, &b.Head.Spec.Resources); r.Disk > 0 {
		h.apply(sched.Asks{Attempt: a.Attempt, Disk: r.Disk})
	}
	s.tell(m)
}

// inline says that a job fits in a message. As one it may be six times as long
// as its line in the spool, where fewer characters are written as escapes.
func inline(line []byte, j *job.Job) bool {
	if len(line) <= maxInline/6 || len(line) > maxInline {
		return len(line) <= maxInline
	}
	text, err := json.Marshal(j)
	return err == nil && len(text) <= maxInline
}

func (h *Head) grant(a sched.Grant) {
	s, b := h.nodes.sessions[a.Session], h.batches[a.Ref.Batch]
	if s == nil || b == nil {
		return
	}
	g := &grant{session: s, batch: b.Batch, attempt: a.Attempt, sum: a.Manifest, bytes: a.Bytes, entries: a.Entries,
		room: promise{room: h.transfers.room, stream: &s.landed}}
	if live, ok := h.machine.Attempt(a.Attempt); ok && live.Result != nil && !live.Result.OK() {
		if name, err := b.Name(int(a.Ref.Job)); live.Result.Fate == job.FateBuildFailed {
			g.prints = job.BuildOutput
		} else if err == nil { // without its name nothing is said of it
			g.prints = job.OutputName(name)
			if k := live.Result.Rank; k != nil && *k > 0 {
				g.prints = job.RankOutputName(name, *k)
			}
		}
	}
	if g.takeSmall() {
		h.transfers.small.put(g)
	} else {
		s.asks.put(g)
	}
}

// close begins to close a batch that is over. The spool writes that down in a
// later commit than what made it so.
func (h *Head) close(n uint32) {
	if b := h.batches[n]; b != nil && h.machine.Closed(n) { // it may have been opened again since
		h.store.CloseBatch(b.Batch)
		h.ticks.closing = append(h.ticks.closing, n)
	}
}

// closed forgets the batches that a commit has closed.
func (h *Head) closed(ns []uint32) {
	for _, n := range ns {
		b := h.batches[n]
		if b == nil || !h.machine.Closed(n) || h.reopens(n) || b.adding > 0 {
			continue // opened again meanwhile; its next record says so
		}
		h.log.Info("closed", "batch", string(b.ID))
		if h.Closed != nil {
			h.Closed()
		}
		moved, err := h.store.Sweep(b.Batch)
		if err != nil {
			h.log.Warn("cannot remove leftovers in staging/", "batch", string(b.ID), "why", err)
		}
		if moved {
			h.sweeper.wake()
		}
		h.forget(n)
		for _, s := range h.nodes.sessions {
			s.tell(&wire.Forget{Build: b.ID})
		}
	}
}

// reopens says that what the next tick records opens a batch again, whether or
// not it is over again by then.
func (h *Head) reopens(n uint32) bool {
	return slices.Contains(h.ticks.actions, sched.Action(sched.Reopened{Batch: n}))
}

// forget drops a batch from the state.
func (h *Head) forget(n uint32) {
	b := h.batches[n]
	delete(h.batches, n)
	delete(h.byID, b.ID)
	h.tools.count(b.Head.UID, user{batches: -1, jobs: -b.Jobs()})
	h.apply(sched.BatchGone{Batch: n})
	if err := b.Close(); err != nil {
		h.log.Error("cannot close a batch's files", "batch", string(b.ID), "why", err)
	}
}

// open reads a batch and takes it into the state.
func (h *Head) open(b *spool.Batch, closed bool) (uint32, error) {
	asked, err := readAsked(b)
	if err != nil {
		return 0, err
	}
	return h.enlist(asked, closed)
}

// An asked batch is one with what its jobs ask for, as it is submitted.
type asked struct {
	*batch
	askedJobs
	whom *job.Needs // which of them need which
}

// askedJobs is what jobs ask for.
type askedJobs struct {
	asks   []sched.Ask
	again  []uint8
	own    []int16 // priorities
	limits []uint32
	needs  bool
}

// readAsked reads all of a batch's jobs, and finds who needs whom: a second for a
// million who need one another. It may be called by any goroutine.
func readAsked(b *spool.Batch) (a asked, err error) {
	if a.batch, err = newBatch(b); err != nil {
		return a, err
	}
	if a.askedJobs, err = a.batch.asksOf(b.Jobs(), b.Scan); err != nil {
		return a, err
	}
	a.batch.limits, a.batch.needs = a.askedJobs.limits, a.askedJobs.needs
	a.whom, err = a.batch.needed()
	return a, err
}

// enlist takes a batch into the state, of whose jobs it reads no line. One that is there
// already, because somebody asked for it as soon as it was in the spool, is not opened
// twice.
func (h *Head) enlist(nb asked, closed bool) (uint32, error) {
	b := nb.Batch
	if n, there := h.byID[b.ID]; there {
		return n, b.Close()
	}
	if h.lastBatch == math.MaxUint32 {
		return 0, fmt.Errorf("this dsched has seen %d batches: restart it", h.lastBatch)
	}
	h.lastBatch++
	n := h.lastBatch
	h.batches[n], h.byID[b.ID] = nb.batch, n
	h.unread = slices.DeleteFunc(h.unread, func(id job.BatchID) bool { return id == b.ID }) // it was another one
	h.tools.count(b.Head.UID, user{batches: 1, jobs: b.Jobs()})
	h.apply(sched.AddBatch{Batch: n, ID: b.ID, Owner: b.Head.UID, Spec: &b.Head.Spec, Jobs: nb.known, Asks: part(nb.asks, 0, nb.known),
		Own: part(nb.own, 0, nb.known), Again: part(nb.again, 0, nb.known), Needs: nb.whom, Name: nb.nameOf, Once: b.Head.Spec.Retry == job.Never, Replay: true, Closed: closed})
	err := b.Replay(func(i int, rec *job.Record) error {
		if rec.Kind == job.KindAdded {
			from, to := nb.known, nb.known+rec.Jobs
			nb.known = to
			h.apply(sched.AddJobs{Batch: n, Spec: &b.Head.Spec, Jobs: rec.Jobs, Asks: part(nb.asks, from, to), Own: part(nb.own, from, to), Again: part(nb.again, from, to), Needs: nb.whom})
			return nil
		}
		nb.take(i, rec.Set)
		ref := sched.Ref{Batch: n, Job: sched.AllJobs}
		if i >= 0 {
			ref.Job = uint32(i)
		}
		nb.pace.see(rec)
		return h.machine.Replay(ref, rec)
	})
	if err != nil {
		h.forget(n)
		return 0, err
	}
	h.apply(sched.Ready{Batch: n})
	if !closed && len(h.tools.watchers) > 0 {
		h.ticks.logged = append(h.ticks.logged, logged{batch: b, upto: b.Durable()})
	}
	return n, nil
}

// part is some of what is said of each job, nil if nothing is.
func part[T any](all []T, from, to int) []T {
	if all == nil {
		return nil
	}
	return all[from:to:to]
}

// asksOf is what each of so many jobs of the batch asks for, how often it is tried again, and
// how many seconds it may run, nil if that is the same for all; and whether some needs others.
func (b *batch) asksOf(jobs int, scan func(func(i int, j *spool.Brief) error) error) (a askedJobs, err error) {
	common := b.Head.Spec.Resources
	usual := sched.AskOf(common, nil)
	known := map[sched.Ask]sched.Ask{usual: usual} // so that texts that are equal are one
	often := func(n int) uint8 { return uint8(min(max(0, n), job.MaxRetries)) }
	err = scan(func(i int, j *spool.Brief) error {
		a.needs = a.needs || j.Needs != nil
		if ask := sched.AskOf(j.Resources, j.Capabilities); ask != usual || a.asks != nil {
			if a.asks == nil {
				a.asks = slices.Repeat([]sched.Ask{usual}, jobs) // with the first job that asks for something else
			}
			if _, is := known[ask]; !is {
				known[ask] = ask
			}
			a.asks[i] = known[ask]
		}
		if j.Retries != b.Head.Spec.Retries || a.again != nil {
			if a.again == nil {
				a.again = slices.Repeat([]uint8{often(b.Head.Spec.Retries)}, jobs)
			}
			a.again[i] = often(j.Retries)
		}
		if j.Priority != 0 || a.own != nil {
			if a.own == nil {
				a.own = make([]int16, jobs)
			}
			a.own[i] = int16(min(max(-job.MaxPriority, j.Priority), job.MaxPriority))
		}
		if j.Time != common.Time || a.limits != nil {
			if a.limits == nil {
				a.limits = slices.Repeat([]uint32{limitOf(common.Time)}, jobs)
			}
			a.limits[i] = limitOf(j.Time)
		}
		return nil
	})
	return a, err
}

// needed is which of its jobs need which, when asks has looked at them.
func (b *batch) needed() (*job.Needs, error) {
	if !b.needs {
		return nil, nil
	}
	return b.Needs()
}

// nameOf is the name of a job for what is told people: its number, if it cannot be
// read any more.
func (b *batch) nameOf(i int) string {
	name, err := b.Name(i)
	if err != nil {
		return fmt.Sprint("number ", i+1)
	}
	return name
}
