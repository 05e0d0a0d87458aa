package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/check"
	"distribute/lib/dial"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/proc"
	"distribute/spool"
)

// A world is one history: a head, nodes, people, what is between them, and what
// becomes of it all. Everything of it runs in one synctest bubble, so its clock
// is its own: an hour passes when nobody has anything to do.
type world struct {
	t    *testing.T
	base string // below which all disks lie
	r    *rand.Rand
	net  *simNet
	plan plan

	nodes  []*simNode
	people []*person
	head   simHead
	cancel map[*owner]context.CancelFunc
	hands  sync.WaitGroup // all that runs
	began  time.Time
	ctx    context.Context // ends with the history
	end    context.CancelFunc
	calm   bool // the faults are over

	mu      sync.Mutex // guards the rest
	gens    map[string]int
	disks   map[string]*simDisk
	acts    []string // what was done to it
	log     bytes.Buffer
	faults  []string // what it did wrong
	runs    map[job.Token]*simRun
	facts   map[job.ID]*fact
	stall   map[string]time.Duration // of the syncs of a machine
	broken  map[string]bool          // the next sync of a machine fails
	full    bool                     // the head's disk
	trap    *trap
	never   map[job.BatchID]bool // batches of which no job is started twice
	rolled  bool                 // the spool was put back to an older state
	deleted map[job.BatchID]bool // somebody asked for that
	built   map[job.BatchID]bool // batches that are built
}

// A plan is what is decided of a history before it begins.
type plan struct {
	acts    int           // at most
	gap     time.Duration // between two, on average
	disk    time.Duration // the longest sync
	rolls   bool          // the spool may be put back
	without string        // a sync that does not happen: see mutations
}

// A fact is what somebody was told of a job, or has asked for.
type fact struct {
	state   job.State // Done, Failed or Cancelled: it was told; else nothing was
	retries int       // that somebody asked for
	retried bool      // since the state was told somebody asked for another try
	token   job.Token // whose result it is
}

// A simHead is the head, one incarnation after another.
type simHead struct {
	disk *simDisk
	own  *owner
	h    *head // nil: down, or not yet up
	over chan struct{}
	old  string // an older copy of the spool
}

// newRoot is the directory of the next incarnation of a machine's disk.
func (w *world) newRoot(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gens[name]++
	return filepath.Join(w.base, fmt.Sprintf("%s.%d", name, w.gens[name]))
}

func (w *world) addDisk(d *simDisk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disks[filepath.Base(d.root)] = d
}

// sync finds the disk that a file is on.
func (w *world) sync(f *os.File, all bool) error {
	rel, ok := strings.CutPrefix(f.Name(), w.base+"/")
	name, _, _ := strings.Cut(rel, "/")
	w.mu.Lock()
	d := w.disks[name]
	w.mu.Unlock()
	if !ok || d == nil {
		w.wrong("a sync of %q, which is on no disk", f.Name())
		return nil
	}
	return d.sync(f, all)
}

// step is asked at each step of a write path: the head's disk may be full.
func (w *world) step(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.full {
		return nil
	}
	for _, of := range []string{"log.write", "submit.", "stage.", "seal.", "publish.", "commit."} {
		if strings.HasPrefix(name, of) {
			return fmt.Errorf("%s: %w", name, syscall.ENOSPC)
		}
	}
	return nil
}

// newDisk is a disk of a machine with the faults of this history.
func (w *world) newDisk(machine, root string) *simDisk {
	d := newSimDisk(root)
	d.sleep = func() time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		if s := w.stall[machine]; s > 0 {
			return s
		}
		return time.Duration(w.r.Int64N(int64(w.plan.disk)))
	}
	d.fail = func(string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.broken[machine] {
			w.broken[machine] = false
			return syscall.EIO
		}
		return nil
	}
	d.near = func(name string, after bool) { w.spring(machine, name, after) }
	if w.plan.without != "" {
		d.lose = mutations[w.plan.without]
	}
	w.addDisk(d)
	return d
}

// A trap waits for a sync, to do harm in the middle of it or right after it.
type trap struct {
	machine, of string
	after       bool
	sprung      chan struct{}
}

// traps are syncs that are worth it, by the ends of their names.
var traps = map[bool][]string{
	true:  {"/log.jsonl", "/head.jsonl", "/staging", "/out", "/manifests", "/attempts", "/lab", "/jobs.jsonl", "/result.txt", "/tree", "/manifest.jsonl"},
	false: {"/attempts", "/spec.json", "~", "/result.txt", "/work", "/output"},
}

// spring holds a sync up for a moment if there is a trap for it.
func (w *world) spring(machine, name string, after bool) {
	w.mu.Lock()
	t := w.trap
	hit := t != nil && t.machine == machine && t.after == after && strings.HasSuffix(name, t.of)
	if hit {
		w.trap = nil
	}
	w.mu.Unlock()
	if hit {
		close(t.sprung)
		time.Sleep(time.Second)
	}
}

func (w *world) at() time.Duration { return time.Since(w.began).Round(time.Millisecond) }

// act notes what is done to the world.
func (w *world) act(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%v %s", w.at(), fmt.Sprintf(format, a...))
	w.acts = append(w.acts, line)
	fmt.Fprintln(&w.log, "=====", line)
}

// wrong notes what must not be.
func (w *world) wrong(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%v %s", w.at(), fmt.Sprintf(format, a...))
	w.faults = append(w.faults, line)
	fmt.Fprintln(&w.log, "##### WRONG", line)
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.faults) > 0
}

// Write takes a line of a log.
func (w *world) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log.Len() < 4<<20 {
		fmt.Fprintf(&w.log, "%v ", w.at())
		w.log.Write(b)
	}
	return len(b), nil
}

func (w *world) logger(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})).With("who", who)
}

func (w *world) dialer(own *owner, peer dial.Peer) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := w.net.dial(ctx, own, peer)
		if err != nil {
			return nil, &dial.Error{Addr: addr, Err: err}
		}
		return c, nil
	}
}

// nodePeer is what the head knows of a node's stream: nothing, as over TCP on
// loopback.
func (w *world) nodePeer() dial.Peer { return dial.Peer{UID: -1, Local: w.plan.acts%2 == 0} }

func (w *world) toolPeer() dial.Peer {
	return dial.Peer{UID: os.Getuid(), User: "ana", Proven: true, Local: true}
}

// startHead starts dsched on the disk as it is.
func (w *world) startHead() {
	s := &w.head
	if s.own != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	own, over, root := &owner{host: "head"}, make(chan struct{}), s.disk.root
	s.own, s.over = own, over
	w.cancel[own] = cancel
	w.hands.Go(func() {
		defer close(over)
		h, err := newHead(root, w.logger("head"))
		if err != nil {
			w.headEnded(own, err)
			return
		}
		if ctx.Err() != nil { // killed while it started
			h.store.Close()
			return
		}
		h.proven = w.net.proven
		w.mu.Lock()
		if s.own == own {
			s.h = h
		}
		w.mu.Unlock()
		l := w.net.listen(own)
		err = h.serveOn(ctx, []net.Listener{l}, func(ctx context.Context) { h.takeAll(w.incoming(ctx, root)) }, func() {})
		w.headEnded(own, err)
	})
}

// incoming names the files of incoming/, at the start and once a minute.
func (w *world) incoming(ctx context.Context, root string) <-chan string {
	names := make(chan string)
	go func() {
		defer close(names)
		for {
			list, _ := os.ReadDir(filepath.Join(root, "incoming"))
			for _, e := range list {
				if strings.HasPrefix(e.Name(), ".") {
					continue
				}
				select {
				case names <- e.Name():
				case <-ctx.Done():
				}
			}
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return
			}
		}
	}()
	return names
}

// headEnded takes in that dsched has ended by itself, which it may when its disk
// fails or is full.
func (w *world) headEnded(own *owner, err error) {
	w.mu.Lock()
	mine := w.head.own == own
	w.mu.Unlock()
	if !mine || err == nil {
		return
	}
	if errors.Is(err, spool.ErrBroken) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC) {
		return
	}
	w.wrong("dsched ended by itself: %v", err)
}

// haltHead kills dsched, or cuts the power of its machine.
func (w *world) haltHead(power bool) {
	s, to := &w.head, w.newRoot("head")
	next := (*simDisk)(nil)
	if power {
		next = s.disk.cut(to, w.r)
	} else {
		next = s.disk.kill(to)
	}
	w.addDisk(next)
	w.set(func() { s.disk = next })
	if w.r.IntN(3) == 0 {
		w.inspect("head", to, check.Torn, check.Left)
	}
	w.stopHead(power) // last: what it does when it ends is not seen any more
}

func (w *world) stopHead(power bool) {
	s := &w.head
	w.mu.Lock()
	own := s.own
	s.own, s.h = nil, nil
	w.mu.Unlock()
	if own != nil {
		w.net.end(own, power)
		w.cancel[own]()
	}
}

// headOver says that dsched has ended by itself.
func (w *world) headOver() bool {
	if w.head.own == nil {
		return false
	}
	select {
	case <-w.head.over:
		return true
	default:
		return false
	}
}

// begins notes that an attempt runs, and what it will leave. It must be its
// first time (I5), and within what the node offers (I9).
func (w *world) begins(n *simNode, o *simOrder) *simRun {
	id := ""
	for _, e := range o.Env {
		if text, ok := strings.CutPrefix(e, "DISTRIBUTE_ID="); ok {
			id = text
		}
	}
	n.mu.Lock()
	used := 0
	for _, other := range n.orders {
		used += other.cpus
	}
	n.mu.Unlock()
	if used > n.cpus {
		w.wrong("I9: %s runs %d cpus and offers %d", n.name, used, n.cpus)
	}
	w.mu.Lock()
	twice := w.runs[job.Token(o.Token)]
	r := &simRun{token: job.Token(o.Token), job: job.ID(id), node: n, rel: o.rel,
		text: fmt.Sprintf("%s %s %s\n", id, o.Token, n.name), more: strings.Repeat(o.Token, w.r.IntN(200))}
	earlier := 0
	for _, other := range w.runs {
		if other.job == r.job {
			earlier++
		}
	}
	w.runs[r.token] = r
	once := w.never[r.job.Batch()] && !w.rolled && earlier > w.fact(r.job).retries
	w.mu.Unlock()
	if once {
		w.wrong("I15: %s must not be started twice, and runs again on %s", id, n.name)
	}
	if twice != nil {
		w.wrong("I5: attempt %s of %s runs a second time, on %s after %s", r.token, id, n.name, twice.node.name)
	}
	return r
}

// isBuilt says that a batch has a build.
func (w *world) isBuilt(id job.BatchID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.built[id]
}

func (w *world) ends(r *simRun, st *proc.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.over, r.ok = true, st.Exit != nil && *st.Exit == 0 && st.Stopped == ""
}

// odd is an error of a supervisor's own files. After power was cut anything goes.
func (w *world) odd(o *simOrder, err error) error {
	select {
	case <-o.lost:
	default:
		w.wrong("a supervisor cannot write: %v", err)
	}
	return errDead
}

// excuse notes which results of a node may vanish, because it lost power before
// they were on its disk.
func (w *world) excuse(n *simNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.runs {
		if r.node == n && !r.excused {
			_, kept := n.disk.durably(r.rel + "/result.json")
			r.excused = !kept
		}
	}
}

func (w *world) excuseAll(n *simNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.runs {
		r.excused = r.excused || r.node == n
	}
}

// newWorld makes the disks and the machines of a history.
func newWorld(t *testing.T, base string, seed uint64, p plan) *world {
	w := &world{t: t, base: base, r: rand.New(&source64{src: rand.NewPCG(seed, 7)}), plan: p, began: time.Now(),
		cancel: map[*owner]context.CancelFunc{}, gens: map[string]int{}, disks: map[string]*simDisk{},
		runs: map[job.Token]*simRun{}, facts: map[job.ID]*fact{}, never: map[job.BatchID]bool{}, deleted: map[job.BatchID]bool{}, built: map[job.BatchID]bool{}, stall: map[string]time.Duration{}, broken: map[string]bool{}}
	w.net = newSimNet(w.r)
	w.ctx, w.end = context.WithCancel(context.Background())
	root := w.newRoot("head")
	if err := spool.Init(root); err != nil {
		t.Fatal(err)
	}
	lease := []string{"1m", "2m", "10m"}[w.r.IntN(3)]
	if err := os.WriteFile(filepath.Join(root, "head.yaml"), []byte("lease: "+lease+"\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	w.head.disk = w.newDisk("head", root)
	for i := range 1 + w.r.IntN(3) {
		n := &simNode{w: w, name: fmt.Sprintf("ws%d", i), cpus: 2 + w.r.IntN(2), orders: map[string]*simOrder{}}
		root := w.newRoot(n.name)
		if err := os.Mkdir(root, 0o700); err != nil {
			t.Fatal(err)
		}
		n.disk = w.newDisk(n.name, root)
		w.nodes = append(w.nodes, n)
	}
	w.act("lease %s, %d nodes", lease, len(w.nodes))
	return w
}

// A source64 lets many goroutines draw from one source.
type source64 struct {
	mu  sync.Mutex
	src rand.Source
}

// Uint64 draws.
func (s *source64) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.Uint64()
}

// live runs a history from its beginning to its end.
func (w *world) live() {
	defer durable.Observe(&durable.Observer{Step: w.step, Sync: w.sync})()
	w.startHead()
	for _, n := range w.nodes {
		n.start()
	}
	for i := range 1 + w.r.IntN(3) {
		p := newPerson(w, i)
		w.people = append(w.people, p)
		w.hands.Go(p.live)
	}
	w.harm()
	if !w.failed() {
		w.heal()
	}
	w.end()
	w.stopHead(false)
	for _, n := range w.nodes {
		n.mu.Lock()
		n.leave(false)
		n.drop()
		n.mu.Unlock()
	}
	for _, d := range w.disks {
		d.mu.Lock()
		d.dead = true
		d.mu.Unlock()
	}
	w.hands.Wait()
	for _, cancel := range w.cancel {
		cancel()
	}
}

// sleep lets time pass until everything waits.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A later is what ends a fault.
type later struct {
	at time.Time
	do func()
}

// harm does things to the world at random times, and looks at it after each.
func (w *world) harm() {
	var laters []later
	until := func(longest time.Duration, do func()) {
		laters = append(laters, later{time.Now().Add(time.Duration(w.r.Int64N(int64(longest)))), do})
	}
	for range w.plan.acts {
		gap := w.plan.gap
		if w.r.IntN(2) == 0 {
			gap /= 100 // in the middle of what the last act has begun
		}
		w.sleep(time.Duration(w.r.ExpFloat64() * float64(gap)))
		laters = slices.DeleteFunc(laters, func(l later) bool {
			due := !l.at.After(time.Now())
			if due {
				l.do()
			}
			return due
		})
		w.tend()
		w.harmOnce(until)
		synctest.Wait()
		w.look()
		if w.failed() {
			return
		}
	}
	for _, l := range laters {
		l.do()
	}
}

// tend starts dsched again where it has ended because its disk failed: what the
// disk does not have now it does not have.
func (w *world) tend() {
	if w.headOver() {
		w.act("dsched has ended, and starts again")
		w.haltHead(true)
		w.startHead()
	}
}

// harmOnce does one thing.
func (w *world) harmOnce(until func(time.Duration, func())) {
	n := w.nodes[w.r.IntN(len(w.nodes))]
	power := w.r.IntN(2) == 0
	how := map[bool]string{false: "killed", true: "without power"}[power]
	switch x := w.r.IntN(110) - 10; {
	case x < 8 && w.plan.rolls:
		w.rollBack()
	case x < 8:
		t := &trap{"head", "", w.r.IntN(2) == 0, make(chan struct{})}
		if w.r.IntN(3) == 0 {
			t.machine = n.name
		}
		some := traps[t.machine == "head"]
		t.of = some[w.r.IntN(len(some))]
		w.set(func() { w.trap = t })
		select {
		case <-t.sprung:
			synctest.Wait()
			w.act("%s %s at a sync of %s (done: %v)", t.machine, how, t.of, t.after)
		case <-time.After(20 * time.Second):
			w.set(func() { w.trap = nil })
			return
		}
		if t.machine == "head" {
			w.haltHead(power)
			until(10*time.Second, w.startHead)
		} else {
			n.halt(power)
			until(10*time.Second, n.start)
		}
	case x < 14:
		w.act("head %s", how)
		w.haltHead(power)
		if w.r.IntN(3) == 0 {
			until(3*time.Minute, w.startHead)
		} else {
			until(3*time.Second, w.startHead)
		}
	case x < 30:
		w.act("%s %s", n.name, how)
		n.halt(power)
		if w.r.IntN(3) == 0 {
			until(5*time.Minute, n.start)
		} else {
			until(3*time.Second, n.start)
		}
	case x < 33:
		w.act("%s installed anew", n.name)
		n.halt(true)
		n.wipe()
		until(time.Minute, n.start)
	case x < 48:
		w.act("%s cut off", n.name)
		w.net.partition(n.name, true)
		until(time.Duration(1+w.r.IntN(200))*time.Second, func() {
			w.act("%s back", n.name)
			w.net.partition(n.name, false)
		})
	case x < 65:
		host := []string{n.name, "ana"}[w.r.IntN(2)]
		w.act("streams of %s reset", host)
		w.net.reset(w.net.of(host))
	case x < 70:
		d := time.Duration(1+w.r.IntN(2000)) * time.Millisecond
		w.act("the network takes %v", d)
		w.net.mu.Lock()
		w.net.slow = d
		w.net.mu.Unlock()
	case x < 76:
		who := []string{"head", n.name}[w.r.IntN(2)]
		d := time.Duration(1+w.r.IntN(30)) * time.Second
		w.act("the disk of %s takes %v a sync", who, d)
		w.set(func() { w.stall[who] = d })
		until(40*time.Second, func() { w.set(func() { w.stall[who] = 0 }) })
	case x < 79:
		w.act("the next sync of the head fails")
		w.set(func() { w.broken["head"] = true })
	case x < 84:
		w.act("the head's disk is full")
		w.set(func() { w.full = true })
		until(time.Minute, func() { w.act("the head's disk has room"); w.set(func() { w.full = false }) })
	case x < 87:
		if n.killSupervisor() {
			w.act("a supervisor of %s killed", n.name)
		}
	default:
		w.act("nothing for a while")
		w.sleep(time.Duration(w.r.IntN(60)) * time.Second)
	}
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// rollBack keeps a copy of the spool, and the second time puts the spool back
// to it: an operator who had a backup.
func (w *world) rollBack() {
	copied := w.head.disk.kill(w.newRoot("backup"))
	w.stopHead(false)
	synctest.Wait()
	if w.head.old == "" {
		w.act("a backup of the spool")
		w.head.old = copied.root
	} else {
		w.act("the spool is put back to the backup")
		w.sleep(10 * time.Second) // what was on its way to people has come
		old := &simDisk{root: w.head.old, saved: map[inode]*image{}, known: map[inode]bool{}}
		copied = old.kill(w.newRoot("head"))
		w.set(func() { w.rolled = true; clear(w.facts) })
	}
	next := w.newDisk("head", copied.root)
	w.set(func() { w.head.disk = next })
	w.startHead()
}

// heal ends all faults; then everything must come right.
func (w *world) heal() {
	w.act("everything is healed")
	w.set(func() { w.full, w.calm = false, true; clear(w.stall); clear(w.broken) })
	w.net.mu.Lock()
	w.net.slow = 10 * time.Millisecond
	w.net.mu.Unlock()
	for _, n := range w.nodes {
		w.net.partition(n.name, false)
		n.start()
	}
	w.startHead()
	w.sleep(time.Minute) // what its disk has not done yet may still fail
	w.tend()
	w.sleep(2 * time.Minute)
	w.look()
	if w.headOver() {
		w.wrong("dsched is down three minutes after the last fault")
		return
	}
	w.nodesAreBack()
	for range 240 {
		if w.allOver() {
			w.atRest()
			return
		}
		w.sleep(15 * time.Second)
		w.look()
		if w.failed() {
			return
		}
	}
	w.stuckJobs()
}
