package noded

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"distribute/lib/account"
	"distribute/lib/desk"
	"distribute/lib/dial"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pause"
	"distribute/lib/presence"
	"distribute/lib/proc"
	"distribute/lib/timing"
	"distribute/lib/wire"
)

// Times of a node.
const (
	worthFrom = 2 * time.Second // attempts that ran so long are synced before they are over
	packers   = 4               // attempts that are packed at the same time
)

var grace = timing.Wait(10 * time.Second) // between SIGTERM and SIGKILL

// Settings is what a node knows before it starts.
type Settings struct {
	Addr   string     // of the head
	Terms  dial.Terms // on which it is dialled
	Name   node.Name
	Batch  job.BatchID // of whose owner's jobs Tell tells; empty: of the user's own
	Offer  node.Offer  // Containment is found by Run
	Dir    string      // the node's directory
	Env    []string    // what jobs get of the daemon's environment
	Path   string      // PATH
	Cores  []int       // the numbers of the cpus that jobs may run on; nil: those that this process may
	Nodes  int         // that this machine is, this one among them; 0: only this one
	Part   *pause.Part // of what the machine is to give back; nil: the node is the machine
	Caps   *desk.Caps  // nil: the disk is not looked at
	Beside *Beside     // what these have in common; nil: there is only this one
	Log    *slog.Logger
	Once   bool   // the daemon ends with its first session
	Up     func() // nil, or called when what an earlier daemon left has been taken over

	Keep    bool              // the directories of attempts stay when the head has what is in them
	Ordered func(*proc.Order) // nil, or called with each run before it begins, by any goroutine

	// What may change while the node runs comes through Changes, if that is not nil:
	// it counts from then on in the place of Offer, Most, Caps, As, Pausers, Ports and Presence.
	Changes  <-chan Given
	Measured bool  // jobs that say nothing of memory are admitted by what they use
	Most     int64 // bytes of memory that all jobs together get; 0: fifteen sixteenths of what is offered

	// CardUsers is the processes that compute on each GPU, by its index, and of which GPUs that is
	// not known, and why; nil if nobody looks here.
	CardUsers func(ctx context.Context) (users map[int][]int, unknown map[int]error)

	// Pausers is the numbers of the users who may pause the node, beside root and
	// its own; nil: all. Pauses says that it goes by pauses, which a machine that a
	// simulation brings does not unless this is set.
	Pausers []int

	// Ports is the first and the last that jobs of several ranks get, to meet at; 0: the
	// usual ones.
	Ports  [2]int
	Pauses bool

	// Presence is when the node pauses by itself, and Host where it looks for people:
	// the zero value is this machine.
	Presence presence.Config
	Host     presence.Host

	// As is the account as which the jobs of a submitter run, or why there is
	// none; nil accounts, and a nil As, are the user of the daemon. RunsAs is
	// node.Submitter, the name of the account if it is one for all, or empty if
	// that is always the user of the daemon.
	As     func(ctx context.Context, submitter string) (*account.Account, error)
	RunsAs string

	// JobGroup is the number of the group of the jobs that run as others, which may not
	// write where pauses are; 0: there is none.
	JobGroup int

	// What a simulation brings: nil is the machine that the program runs on,
	// Terms.Dial, and proc.Uptime. Dial is also what -stdio brings.
	Machine Machine
	Dial    func(ctx context.Context, addr string) (net.Conn, error)
	Uptime  func() time.Duration            // also runs while the machine sleeps
	Stand   func() (Stand, <-chan struct{}) // how the pauses stand, and what is closed when that changes; nil: they are read

	boot   string
	spread string                                                         // as cgroup, of attempts whose ranks are on several nodes
	bounds bool                                                           // the kernel bounds the memory of all jobs together
	cgroup string                                                         // below which trees get their cgroups; empty: none
	ticks  func(ctx context.Context, every time.Duration) <-chan struct{} // by Uptime; nil: none
	cpuIDs []int                                                          // the numbers of the cpus that this process may run on; empty: not known
}

// Run is the life of a node, from the lock of its directory until ctx ends or
// the directory fails. It leaves the jobs running. The error is [desk.ErrInUse]
// if another has the directory.
func Run(ctx context.Context, s Settings) error {
	s.fill()
	boot, err := s.Machine.Boot()
	if err != nil {
		return err
	}
	open := desk.Open
	if s.RunsAs != "" {
		open = desk.OpenPassable
	}
	d, err := open(s.Dir, boot)
	if err != nil {
		return err
	}
	defer d.Close()
	s.boot = boot
	if s.cgroup, err = s.Machine.Cgroup(string(s.Name), s.Dir); err != nil {
		s.Log.Info("no cgroup can be made; jobs are held by best effort", "why", err)
		s.Offer.Containment = proc.BestEffort
	} else {
		s.Offer.Containment = proc.ByCgroup
	}
	s.bound()
	if s.cgroup != "" {
		defer os.Remove(s.cgroup) // if nothing runs on
	}
	if s.cgroup != "" && s.Beside.machine != "" {
		if s.spread, err = s.Machine.Cgroup(pause.Parts, s.Beside.whole); err != nil {
			return err
		}
		defer os.Remove(s.spread)
	}
	return newDaemon(&s, d).run(ctx)
}

// fill sets what is not set.
func (s *Settings) fill() {
	if s.Machine == nil {
		s.Machine, s.cpuIDs, s.Pauses = thisMachine{proc.Absolute(s.Dir)}, proc.CPUs(), true
		if s.Cores != nil {
			s.cpuIDs = s.Cores
		}
		if s.Uptime == nil {
			s.ticks = proc.Ticks // a simulation's clock is not the kernel's
		}
	}
	if s.Uptime == nil {
		s.Uptime = proc.Uptime
	}
	if s.Beside == nil {
		s.Beside = &Beside{}
	}
	s.Offer.Machine = s.Beside.machine
}

// A daemon is the node. The state below acts belongs to the goroutine of run;
// the others do input and output and send acts to it.
type daemon struct {
	*Settings
	desk    *desk.Desk
	claims  claims
	packing chan struct{}
	link    *link    // to the head
	pausing *pausing // nil: nothing pauses this node
	started uint64   // when this process was, in ticks after boot

	patienceNews chan struct{} // the head has said how long jobs wait; room for one
	presenceNews chan struct{} // the settings of presence may have changed; room for one
	nowNews      chan struct{} // what dpause is told may have changed; room for one

	now   atomic.Pointer[Given] // see given; changed by the state
	cards struct {
		sync.Mutex // of the look that is under way
		looked     bool
		at         time.Time
		told       []string // which GPUs it is not known of who uses them, and why
	}

	acts chan func()
	over chan struct{} // closed when run ends
	work sync.WaitGroup

	attempts     map[job.Token]*attempt
	unreadable   []job.Token       // attempts whose notes are damaged, until the head has heard of it
	batches      map[string]*batch // that are known of, by [desk.Build.Note]
	builds       map[string]*build // what they have built, by directory
	forgotten    bool              // there may be something of these to be removed
	free         int               // cpus
	stock        stock             // what else of the node is free
	held         map[*share]bool   // what runs has
	bounded      int64             // bytes of memory that all jobs together get
	queue        []*want           // for cpus
	pause        standing          // what is paused
	frozen       atomic.Bool       // pause.frozen, for nodes beside this one
	patience     *float64          // seconds that the head lets jobs wait for the end of a pause; nil: for ever
	slots        []Slot            // supervisors without an order; the last one is taken first
	fewest       int               // so many of them there were at least since endIdleLater was called
	ending       bool              // endIdle will be called
	leaving      leaving
	watching     bool       // somebody looks at the disk
	spaceTold    int64      // bytes of it that are free or can be had, as the head heard last
	meter        meter      // of memory
	cardsWatched bool       // somebody looks at the GPUs
	settling     bool       // somebody sees to results that are not synced
	loose        []*attempt // that have such a result since the last look
	trimming     bool       // somebody brings the cache under its cap
	trimAgain    bool       // more may have come over it meanwhile
	letGo        recent     // deleted in this session: a start that comes late is not for a new attempt
	noted        int        // the order of the last attempt that was noted; of the goroutine that obeys the head
}

// An attempt is one that the head gave to this node and that has not been deleted. Its
// fields belong to the state, but for seen; its directory, and what is in an attemptRun,
// belong to its goroutine.
type attempt struct {
	*desk.Attempt
	cpus    int         // that it has when it runs
	stage   stage       // how far it is
	builds  string      // the directory of what its batch builds for it, once that is known
	copied  bool        // its directory has what is built there
	clock   *proc.Clock // how long its processes have run; nil: they have not begun, or that is not known
	phase   job.Phase   // that the head was told last; see tellPhase
	unknown bool        // the head said that it does not know it, so it is not started; at any stage
	result  *job.Result // once it is over

	end ending // why it is to end
	why string // that in words

	own     ownPause // what its pause file is to say
	longer  *int64   // seconds that the head has let it run since it was given, 0: for ever; nil: not, or not longer
	keeping bool     // a goroutine writes own and longer down

	elsewhere bool               // it waits for its portion of a node beside its own
	halted    map[node.Name]bool // nodes beside its own on which it has ranks, and that are paused

	has  *share  // of the node, from when it got that; its last one if it runs no more
	disk diskUse // as far as it was looked at

	metFull bool // the disk was full while it ran

	cancel context.CancelCauseFunc // ends its context; nil: it does not go on yet
	done   chan struct{}           // closed when it is over
	seen   seen                    // its large files, when they were hashed; of its goroutine until it is over, then of the up stream
}

func newDaemon(s *Settings, d *desk.Desk) *daemon {
	s.fill()
	n := &daemon{Settings: s, desk: d, claims: claims{on: map[string]chan struct{}{}}, packing: make(chan struct{}, packers),
		acts: make(chan func()), over: make(chan struct{}), attempts: map[job.Token]*attempt{}, held: map[*share]bool{},
		batches: map[string]*batch{}, builds: map[string]*build{}, leaving: newLeaving(), free: s.Offer.CPUs, stock: newStock(s.Offer, s.cpuIDs, s.sharesCPUs()),
		patienceNews: make(chan struct{}, 1), presenceNews: make(chan struct{}, 1), nowNews: make(chan struct{}, 1)}
	n.link = newLink(n)
	g := n.given()
	g.cpus = n.stock.cpus.all
	n.now.Store(g)
	n.bounded = g.most()
	return n
}

// run is the node's life. When ctx ends it leaves the jobs running.
func (n *daemon) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	n.Beside.join(n) // before the others ask for what its attempts have, which it takes over now
	defer n.Beside.leave(n)
	if err := n.takeOver(ctx); err != nil {
		close(n.over)
		return err
	}
	n.returnBeside(ctx)
	if s, err := n.Machine.NewSlot(); err == nil {
		n.slots = append(n.slots, s)
	}
	n.beginWatch(ctx)
	n.beginPauses(ctx)
	n.followStand(ctx)
	n.goOn()
	var last error
	n.work.Go(func() {
		if last = n.link.run(ctx); n.Once {
			stop()
		}
	})
	n.work.Go(n.takeLeave)
	n.work.Go(func() { n.tellSpace(ctx) })
	n.watchCards()
	n.keepInputs()
	n.Log.Info("node is up", "name", n.Name, "head", n.Addr, "cpus", n.given().Offer.CPUs, "dir", n.Dir, "containment", n.given().Offer.Containment)
	if n.Up != nil {
		n.Up()
	}
	for ctx.Err() == nil {
		select {
		case act := <-n.acts:
			if err := durable.Step("node.state"); err != nil {
				return err
			}
			act()
		case g := <-n.Changes:
			n.change(g)
		case <-ctx.Done():
		}
	}
	close(n.over)
	for _, a := range n.attempts {
		if a.cancel != nil {
			a.cancel(nil)
		}
	}
	n.work.Wait()
	if n.Pauses {
		n.leaveNow()
	}
	running := 0
	for _, a := range n.attempts {
		if a.began() {
			running++
		}
	}
	for _, s := range n.slots {
		s.Close()
	}
	n.Log.Info("node is down", "jobs_left_running", running)
	return last
}

// do lets the state's goroutine call f and waits for it; false if the daemon is
// at its end, and f was not called.
func (n *daemon) do(f func()) bool {
	called := make(chan struct{})
	select {
	case n.acts <- func() { f(); close(called) }:
		<-called
		return true
	case <-n.over:
		return false
	}
}

// takeOver takes up what an earlier daemon left in the directory, which goes on
// with goOn. When ctx ends it waits for no damaged attempt.
func (n *daemon) takeOver(ctx context.Context) error {
	bs, err := n.desk.Builds()
	if err != nil && (bs == nil || passing(err)) {
		return err
	}
	if err != nil {
		n.Log.Error("cannot use builds in the node's directory", "why", err)
	}
	for _, b := range bs {
		if b.IsBatch() {
			n.batches[b.Note()] = &batch{Build: b}
		}
		if b.IsBuilt() {
			n.builds[b.Dir] = &build{Build: b, used: madeAt(b.Dir), stale: b.IsStale()}
		}
	}
	as, err := n.desk.Attempts()
	if err != nil && (as == nil || passing(err)) {
		return err
	}
	if err != nil {
		n.Log.Error("cannot use parts of the node's directory", "why", err)
	}
	n.unreadable = desk.Unreadable(err)
	n.endUnreadable(ctx)
	if err := n.desk.Settle(as); err != nil {
		return err
	}
	slices.SortFunc(as, func(a, b *desk.Attempt) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Token, b.Token))
	})
	if len(as) > 0 {
		n.noted = as[len(as)-1].Order
	}
	for _, a := range as {
		err := n.resume(a)
		for ; passing(err); err = n.resume(a) {
			n.Log.Warn("cannot take up an attempt now; trying again", "job", a.Job, "attempt", a.Token, "why", err)
			time.Sleep(time.Second)
		}
		if err != nil {
			n.Log.Log(context.Background(), n.damageLevel(a), "an attempt cannot be taken up and counts as lost", "job", a.Job, "attempt", a.Token, "why", err)
			n.ended(n.attempts[a.Token], lostByDamage(), &wire.Ended{})
		}
	}
	return nil
}

// unreadableWithin bounds the wait for the end of the attempts whose notes are damaged.
const unreadableWithin = time.Minute

// endUnreadable ends what still runs of the attempts whose notes are damaged, all at once. Nothing
// says which cpus they have, and the head is told that they are lost.
func (n *daemon) endUnreadable(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, unreadableWithin)
	defer cancel()
	var all sync.WaitGroup
	for _, t := range n.unreadable {
		all.Go(func() {
			if err := n.endDamaged(ctx, t); err != nil {
				n.Log.Error("cannot end a damaged attempt; it runs beside others", "attempt", t, "why", err)
			}
		})
	}
	all.Wait()
}

// endDamaged ends what still runs of an attempt whose note is damaged.
func (n *daemon) endDamaged(ctx context.Context, t job.Token) error {
	dir := n.desk.UnreadableDir(t)
	n.stopAdopted(dir)
	if err := n.Machine.AwaitFree(ctx, dir); err != nil {
		return err
	}
	release, _, err := n.Machine.Reclaim(ctx, dir, string(t), n.cgroup)
	if err != nil {
		return err
	}
	return release()
}

// lostByDamage returns how an attempt ended that cannot be taken up.
func lostByDamage() *job.Result {
	return &job.Result{Fate: job.FateLost, Outcome: job.Outcome{Reason: "what its node kept of it is damaged"}}
}

// goOn has the attempts go on that takeOver took up, in the order in which they
// came. Only now is it known what holds them back.
func (n *daemon) goOn() {
	n.adoptBuilds()
	n.forgotten = true
	n.clear()
	as := slices.SortedFunc(maps.Values(n.attempts), func(a, b *attempt) int { return cmp.Compare(a.Order, b.Order) })
	for _, a := range as {
		if a.result == nil {
			n.begin(a)
		}
	}
	n.stopUnneeded()
}

// damageLevel is at which level damage of an attempt is told. A power cut damages
// what was not synced, and nobody must act for that: it is run again.
func (n *daemon) damageLevel(a *desk.Attempt) slog.Level {
	if n.desk.ThisBoot(a) {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// resume takes up one attempt as it is found on disk.
func (n *daemon) resume(da *desk.Attempt) error {
	a := n.add(da)
	a.metFull = da.MetFull()
	if r := da.Result(); r != nil {
		a.result = r
		n.setStage(a, stageOver)
		close(a.done)
		n.settleLater(a)
		return nil
	}
	started := da.Started()
	alive, err := n.Machine.Alive(da.Dir)
	if err != nil {
		return err
	}
	switch {
	case alive:
		if h, ok := n.holder(da.Dir); ok && h.Began != 0 { // else its supervisor is of an earlier release
			a.clock = &h.Clock
		}
		n.setStage(a, stageAdopted)
		n.watchDisk()
		a.has = a.shareIn(started)
		n.retake(a.has)
	case started != nil:
		n.setStage(a, stageExited)
	default:
		if err := da.Sweep(); err != nil {
			return err
		}
	}
	if why := da.Ending(); started != nil && why != "" {
		a.setEnding(endingFor(why), why)
	}
	n.Log.Info("attempt taken up", "job", a.Job, "attempt", a.Token, "stage", a.stage)
	return nil
}

// add makes an attempt known.
func (n *daemon) add(da *desk.Attempt) *attempt {
	a := &attempt{Attempt: da, cpus: da.CPUs, phase: job.PhaseWaiting, done: make(chan struct{})}
	if a.cpus < 1 || a.cpus > n.given().Offer.CPUs {
		a.cpus = n.given().Offer.CPUs
	}
	n.attempts[a.Token] = a
	return a
}

// begin starts the attempt's goroutine. Its context ends with a stop, and with
// the daemon.
func (n *daemon) begin(a *attempt) {
	ctx, cancel := context.WithCancelCause(context.Background())
	a.cancel = cancel
	n.sendBack(a)
	if a.stage == stageAdopted && a.stopped() {
		n.stopAdopted(a.Dir) // an earlier daemon was about to
	}
	run := &attemptRun{attempt: a}
	if s := a.Started(); s != nil { // before another attempt can have the cache trimmed
		n.pinLists(run, s.Shared)
	}
	n.work.Go(func() {
		defer cancel(nil)
		n.live(ctx, run)
	})
}

// ended makes it known that an attempt is over, by a message that may hold its result.
func (n *daemon) ended(a *attempt, r *job.Result, news *wire.Ended) {
	a.result = r
	n.setStage(a, stageOver)
	close(a.done)
	if a.own == ownFrozen || a.own == ownLeave {
		n.keepWord(a)
	}
	if b := n.buildOf(a); b != nil {
		b.used = time.Now()
	}
	n.stopUnneeded()
	n.roomChanged()
	tell(n.nowNews)
	n.Log.Info("attempt over", "job", a.Job, "attempt", a.Token, "ok", r.OK(), "reason", r.Reason)
	news.Attempt, news.Result = a.Token, *r
	n.link.tell(news)
}
