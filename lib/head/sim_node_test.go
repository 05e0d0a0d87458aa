package head

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/proc"
)

// A simNode is a machine with a node on it: a boot, a disk, supervisors that
// outlive the daemon, and the daemon, one incarnation after another. What a
// supervisor leaves in an order's directory is what one of lib/proc does.
type simNode struct {
	w    *world
	name string
	cpus int

	mu      sync.Mutex // guards the rest
	boot    int
	disk    *simDisk
	daemon  *nodeDaemon // nil: down
	pause   simPause
	clock   time.Duration // how far it is off
	ahead   bool          // it was ahead once
	renamed bool          // it has its other name
	wiped   bool          // it was installed anew once
	putBack bool          // its disk was put back to an image once
	broken  bool          // everything that begins fails at once
	orders  map[string]*simOrder
	image   *simDisk        // an older copy of its disk
	twin    *simNode        // the machine to which its directory was copied
	copied  bool            // it began as a copy of another
	called  node.Name       // its name on the head, if that is not its own
	stills  map[string]bool // the tokens of those that are to stand still
}

// A nodeDaemon is one incarnation of a node's daemon, and the machine as it
// sees it.
type nodeDaemon struct {
	*simNode
	root string
	own  *owner
	ctx  context.Context // ends with the incarnation
	over chan struct{}
}

// simGPUs is what each node has of them.
var simGPUs = []node.GPU{{Index: 0}, {Index: 1}}

// A simOrder is an order that a supervisor has: it holds the lock.
type simOrder struct {
	*proc.Order
	rel   string
	cpus  int
	cards job.Cards // what it has of GPUs
	slot  *simSlot
	lost  chan struct{} // closed: power is gone, or its supervisor was killed
	stop  chan struct{} // closed: it is to end
	over  chan struct{} // closed: the lock is free
	ended bool          // stop is closed
	began time.Time
	last  bool // it writes its status: it is not killed any more
}

// A simSlot is a supervisor.
type simSlot struct {
	d       *nodeDaemon
	reports chan proc.Report
	mu      sync.Mutex // guards closed
	closed  bool
}

// A simRun is what one run of an attempt did: who says that it ran knows what
// it must have left.
type simRun struct {
	token   job.Token
	job     job.ID
	node    *simNode
	rel     string
	text    string // of its file
	at      string // the path of its second file
	more    string // what is in that
	began   int    // the step from which it went on
	saved   int    // the step that it saved
	over    bool
	ok      bool
	abroad  bool          // on the cluster
	excused bool          // its node lost power before its end was on the disk
	limit   time.Duration // that it was given; 0: none
	ran     time.Duration // until its end, without pauses
	timed   bool          // its limit has ended it
	dropped bool          // power was cut, or its supervisor killed, while it ran
	gone    bool          // its directory is gone, and that was looked at
}

var errDead = errors.New("this incarnation is over")

func (d *nodeDaemon) rel(dir string) string { return strings.TrimPrefix(dir, d.root+"/") }

func (d *nodeDaemon) dead() bool { return d.ctx.Err() != nil }

func (d *nodeDaemon) Boot() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("boot-%s-%d", d.name, d.boot), nil
}

func (d *nodeDaemon) ID() string { return "machine-" + d.name }

func (d *nodeDaemon) Stays(string) bool { return true }

func (d *nodeDaemon) Cgroup(string, string) (string, error) { return "", errors.New("simulated") }

func (d *nodeDaemon) NewSlot() (noded.Slot, error) {
	if d.dead() {
		return nil, errDead
	}
	return &simSlot{d: d, reports: make(chan proc.Report, 64)}, nil
}

func (d *nodeDaemon) order(dir string) *simOrder {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.orders[d.rel(dir)]
}

func (d *nodeDaemon) Alive(dir string) (bool, error) {
	if d.dead() {
		return false, errDead
	}
	return d.order(dir) != nil, nil
}

func (d *nodeDaemon) Holder(string) (int, error) { return 0, errors.New("simulated") }

func (d *nodeDaemon) Memory([]int, int64) (*proc.MemoryUse, error) { return &proc.MemoryUse{}, nil }

func (d *nodeDaemon) AwaitFree(ctx context.Context, dir string) error {
	for {
		o := d.order(dir)
		if d.dead() {
			return errDead
		}
		if o == nil {
			return nil
		}
		select {
		case <-o.over:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ctx.Done():
		}
	}
}

func (d *nodeDaemon) StopHeld(dir string) error {
	if o := d.order(dir); o != nil && !d.dead() {
		d.stop(o)
		return nil
	}
	return errors.New("nobody holds it")
}

// Still notes that an order is to stand still, or not: it is on no disk, and as
// lasting as one.
func (d *nodeDaemon) Still(_, token string, still bool) error {
	if d.dead() {
		return errDead
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stills[token] != still {
		d.stills[token] = still
		close(d.pause.news)
		d.pause.news = make(chan struct{})
	}
	return nil
}

// Leave is not asked for where no memory is measured.
func (d *nodeDaemon) Leave(_, token string) error {
	d.w.wrong("%s is asked to leave for want of memory", token)
	return errDead
}

func (d *nodeDaemon) Reclaim(ctx context.Context, dir, token, _ string) (func() error, int, error) {
	if d.dead() {
		return nil, 0, errDead
	}
	if d.order(dir) != nil {
		return nil, 0, proc.ErrHeld
	}
	return func() error { return nil }, 0, nil
}

// stop asks an order to end.
func (n *simNode) stop(o *simOrder) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !o.ended {
		o.ended = true
		close(o.stop)
	}
}

func (s *simSlot) Pid() int                    { return 1 }
func (s *simSlot) Reports() <-chan proc.Report { return s.reports }

func (s *simSlot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// say reports to the daemon, if that listens; end: it is the last word.
func (s *simSlot) say(r proc.Report, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.d.dead() {
		return
	}
	if end {
		s.closed = true
		close(s.reports)
		return
	}
	s.reports <- r
}

func (s *simSlot) Run(o *proc.Order) error {
	if s.d.dead() {
		return errDead
	}
	env := func(name string) (value string) {
		for _, e := range o.Env {
			if text, ok := strings.CutPrefix(e, name+"="); ok {
				value = text
			}
		}
		return value
	}
	cpus, _ := strconv.Atoi(env("DISTRIBUTE_CPUS"))
	gpus, _ := job.ParseGPUs(env("DISTRIBUTE_GPUS"))
	var cards []int
	for text := range strings.SplitSeq(env("CUDA_VISIBLE_DEVICES"), ",") {
		if i, err := strconv.Atoi(text); err == nil {
			cards = append(cards, i)
		}
	}
	n := s.d.simNode
	if gpus.Cards() != len(cards) {
		n.w.wrong("I9: a job on %s has %s, and finds the GPUs %v", n.name, gpus.Words("GPU"), cards)
	}
	so := &simOrder{Order: o, rel: s.d.rel(o.Dir), cpus: cpus, cards: job.CardsOf(gpus, cards), slot: s,
		lost: make(chan struct{}), stop: make(chan struct{}), over: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pause.Frozen {
		s.say(proc.Report{Refused: "paused", Passing: true, Paused: true}, false)
		return nil
	}
	if n.orders[so.rel] != nil {
		s.say(proc.Report{Refused: "its lock is held"}, false)
		return nil
	}
	n.orders[so.rel] = so
	n.w.hands.Go(func() { n.carryOut(so) })
	return nil
}

func (s *simSlot) Stop(token string) error {
	n := s.d.simNode
	n.mu.Lock()
	var mine *simOrder
	for _, o := range n.orders {
		if o.slot == s && o.Token == token {
			mine = o
		}
	}
	n.mu.Unlock()
	if mine != nil {
		n.stop(mine)
	}
	return nil
}

// path is where a file of the node is now.
func (n *simNode) path(elem ...string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return filepath.Join(append([]string{n.disk.root}, elem...)...)
}

// carryOut is the life of a supervisor with one order.
func (n *simNode) carryOut(o *simOrder) {
	st, err := n.run(o)
	n.mu.Lock()
	if n.orders[o.rel] == o {
		delete(n.orders, o.rel)
	}
	n.mu.Unlock()
	close(o.over)
	switch {
	case errors.Is(err, errDead):
		o.slot.say(proc.Report{}, true)
	case err != nil:
		o.slot.say(proc.Report{Refused: err.Error()}, false)
	default:
		o.slot.say(proc.Report{Ended: st}, false)
	}
}

// run runs an order to its status; errDead if it was lost on the way.
func (n *simNode) run(o *simOrder) (*proc.Status, error) {
	switch run, err := proc.ReadRun(n.path(o.rel), o.Token); {
	case err != nil:
		return nil, err
	case run.Ended != nil:
		return run.Ended, nil
	case run.Void:
		return nil, errors.New("it was given up")
	}
	d := o.slot.d
	o.began = time.Now()
	boot, _ := d.Boot()
	st := &proc.Status{Token: o.Token, Boot: boot, Started: n.now(), Contained: proc.BestEffort}
	if strings.HasPrefix(o.rel, "builds/") {
		return n.build(o, st)
	}
	r := n.w.begins(n, o)
	if b, err := os.ReadFile(n.path(o.rel, "work/built.txt")); n.w.isBuilt(r.job.Batch()) && (err != nil || string(b) != "built\n") {
		n.w.wrong("%s runs on %s without what its build left: %q, %v", r.job, n.name, b, err)
	}
	if want, known := n.w.inputOf(r.job); known {
		if got, err := os.ReadFile(n.path(o.rel, "work/in/data")); err != nil || string(got) != want {
			n.w.wrong("%s runs on %s without its input: %d bytes, and not %d: %v", r.job, n.name, len(got), len(want), err)
		}
	}
	seconds, _ := strconv.ParseFloat(o.Argv[1], 64)
	exit, _ := strconv.Atoi(o.Argv[2])
	if n.isBroken() {
		seconds, exit = 0.5, 1
	} else if len(o.Argv) > 3 && o.Argv[3] == n.name {
		exit = 1
	}
	write := func(name, text string) error {
		f, err := os.OpenFile(n.path(o.rel, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(write("output", r.text), write("work/result.txt", r.text)); err != nil {
		return nil, n.w.odd(o, err)
	}
	o.slot.say(proc.Report{Started: 2}, false)
	if err := n.lives(o, r, st, time.Duration(seconds*float64(time.Second))); err != nil {
		return nil, err
	}
	if st.Signal == 0 && st.Exit == nil {
		if err := errors.Join(writeAt(n.path(o.rel, "work"), r.at, r.more), os.RemoveAll(n.path(o.rel, "work/step"))); err != nil {
			return nil, n.w.odd(o, err)
		}
		st.Exit = &exit
	}
	if err := n.end(o, st); err != nil {
		return nil, err
	}
	n.w.ends(r, st)
	return st, nil
}

// writeAt writes a file below a directory, at a path of whatever length.
func writeAt(dir, at, text string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return errors.Join(root.MkdirAll(filepath.Dir(at), 0o700), root.WriteFile(at, []byte(text), 0o600))
}

// build runs a build, which fails on some nodes.
func (n *simNode) build(o *simOrder, st *proc.Status) (*proc.Status, error) {
	exit := 0
	if len(n.name+o.Argv[1])%7 == 0 {
		exit = 1
	}
	end := time.NewTimer(3 * time.Second)
	defer end.Stop()
	select {
	case <-end.C:
		err := errors.Join(os.WriteFile(n.path(o.rel, "output"), []byte("building\n"), 0o600), os.WriteFile(n.path(o.rel, "tree/built.txt"), []byte("built\n"), 0o600))
		if err != nil {
			return nil, n.w.odd(o, err)
		}
		st.Exit = &exit
	case <-o.stop:
		st.Signal, st.Stopped = 15, proc.StoppedOrder
	case <-o.lost:
		return nil, errDead
	}
	return st, n.end(o, st)
}

// end writes how an order ended, wherever the disk is by now.
func (n *simNode) end(o *simOrder, st *proc.Status) error {
	st.Ended = n.now()
	st.Wall = time.Since(o.began) - st.Paused
	n.mu.Lock()
	o.last = true
	n.mu.Unlock()
	for {
		at := n.path()
		if err := n.keep(o, st); err != nil {
			return err
		}
		if n.path() == at {
			return nil // else the daemon was killed meanwhile, which is nothing to a supervisor
		}
	}
}

// keep writes a status as a supervisor does.
func (n *simNode) keep(o *simOrder, st *proc.Status) error {
	err := proc.Append(n.path(o.rel), proc.Line{Ended: st})
	if err == nil && st.Wall >= 2*time.Second {
		err = durable.SyncFile(n.path(o.rel, proc.RecordFile))
	}
	select {
	case <-o.lost:
		return errDead
	default:
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return n.w.odd(o, err)
	}
	return err
}

// now is the time of day as the machine has it.
func (n *simNode) now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Add(n.clock).UTC()
}

func (n *simNode) setClock(off time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock, n.ahead = off, n.ahead || off > 0
}

// start starts the daemon on the disk as it is.
func (n *simNode) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.daemon != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &nodeDaemon{simNode: n, root: n.disk.root, own: &owner{host: n.name}, ctx: ctx, over: make(chan struct{})}
	n.daemon = d
	name := n.knownAs()
	n.w.cancel[d.own] = cancel
	n.w.hands.Go(func() {
		defer close(d.over)
		err := noded.Run(ctx, noded.Settings{Addr: "sim://head", Name: name, Dir: d.root, Log: n.w.logger(n.name),
			Offer: node.Offer{CPUs: n.cpus, Memory: 1 << 31, GPUs: simGPUs}, Machine: d, Uptime: n.w.at, Stand: n.standing, Dial: n.w.dialer(d.own, n.w.nodePeer())})
		if err != nil && !d.dead() {
			n.w.wrong("%s ended by itself: %v", n.name, err)
		}
	})
}

// halt ends the daemon: killed, its jobs go on and all that it wrote is there;
// without power nothing runs any more, and what was not synced may be gone.
func (n *simNode) halt(power bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.leave(power) // last: what it does when it ends is not seen any more
	to := n.w.newRoot(n.name)
	if !power {
		n.setDisk(n.disk.keep(to))
		return
	}
	n.w.excuse(n)
	n.drop()
	n.boot++
	n.setDisk(n.disk.cut(to, n.w.r))
	if n.w.r.IntN(3) == 0 {
		n.w.inspect(n.name, to, check.Torn, check.Left)
	}
}

// leave ends the daemon, and not its supervisors; it needs mu.
func (n *simNode) leave(power bool) {
	if d := n.daemon; d != nil {
		n.daemon = nil
		n.w.net.end(d.own, power)
		n.w.cancel[d.own]()
	}
}

// drop ends all orders without a word; it needs mu.
func (n *simNode) drop() {
	for rel, o := range n.orders {
		n.w.drops(o)
		delete(n.orders, rel)
		close(o.lost)
	}
}

// drops notes that an attempt is lost on its way.
func (w *world) drops(o *simOrder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.runs[job.Token(o.Token)]; r != nil {
		r.dropped = true
	}
}

// setDisk needs mu.
func (n *simNode) setDisk(d *simDisk) {
	n.disk = d
	n.w.addDisk(d)
}

// wipe makes the machine one that was installed anew.
func (n *simNode) wipe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wiped = true
	n.w.excuseAll(n)
	root := n.w.newRoot(n.name)
	if err := os.Mkdir(root, 0o700); err != nil {
		panic(err)
	}
	old := n.disk
	next := newSimDisk(root)
	next.near, next.sleep, next.fail, next.lose = old.near, old.sleep, old.fail, old.lose
	n.setDisk(next)
}

// killSupervisor kills the supervisor of some order.
func (n *simNode) killSupervisor() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for rel, o := range n.orders {
		if !o.last {
			n.w.drops(o)
			delete(n.orders, rel)
			close(o.lost)
			return true
		}
	}
	return false
}
