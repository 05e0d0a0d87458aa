package head

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/dial"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/node"
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

	nodes   []*simNode
	people  []*person
	head    simHead
	cancel  map[*owner]context.CancelFunc
	hands   sync.WaitGroup // all that runs
	began   time.Time
	ctx     context.Context // ends with the history
	end     context.CancelFunc
	calm    bool // the faults are over
	keptFor int  // looks for which nothing was open but what a node keeps that was given up

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
	hurt    bool                     // something was not written on it since dsched started
	trap    *trap
	words   map[node.Name]*nodeWord
	never   map[job.BatchID]bool // batches of which no job is started twice
	clock   time.Duration        // how far the head's is off
	clocks  [2]time.Duration     // the least and the greatest that it ever was
	few     bool                 // dsched gets no descriptors for what is submitted and for results
	filled  bool                 // the disks of the nodes are full
	unsaid  bool                 // what was said about nodes is taken back
	bared   bool                 // the spool was a copy without its empty directories
	rolled  bool                 // the spool was put back to an older state
	doomed  map[job.BatchID]bool // somebody asked for its deletion
	deleted map[job.BatchID]int  // deletions that were asked for and not refused
	built   map[job.BatchID]bool // batches that are built
}

// A plan is what is decided of a history before it begins.
type plan struct {
	acts    int           // at most
	gap     time.Duration // between two, on average
	disk    time.Duration // the longest sync
	rolls   bool          // the spool may be put back
	gates   bool          // jobs wait for others of their batch
	verbs   bool          // several users say everything that users can say
	words   bool          // and operators
	renames bool          // nodes get other names
	cluster bool          // jobs are taken to a cluster
	theme   string        // what is frequent: see themes
	never   bool          // most jobs are never started twice
	long    bool          // many paths are as long as they may be
	without string        // a sync that does not happen: see mutations
}

// A fact is what somebody was told of a job, or has asked for.
type fact struct {
	state   job.State // Done, Failed or Cancelled: it was told; else nothing was
	retries int       // that somebody asked for
	cancels bool      // somebody has asked for that
	retried bool      // since the state was told somebody asked for another try
	token   job.Token // whose result it is
	held    bool      // it was told to be
	still   bool      // it was told to be, or to stand still
	freed   bool      // somebody has asked for its release
	allowed *int64    // the seconds that it may run, as was told while nothing was wrong; nil: it was not
	since   time.Time // when allowed was told
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
	for _, of := range []string{"cache.", "attempt."} {
		if w.filled && strings.HasPrefix(name, of) {
			return fmt.Errorf("%s: %w", name, syscall.ENOSPC)
		}
	}
	for _, of := range []string{"submit.", "stage.", "seal."} {
		if w.few && strings.HasPrefix(name, of) {
			return fmt.Errorf("%s: %w", name, syscall.EMFILE)
		}
	}
	if !w.full {
		return nil
	}
	for _, of := range []string{"log.write", "submit.", "stage.", "seal.", "publish.", "commit."} {
		if strings.HasPrefix(name, of) {
			w.hurt = true
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
		if s := w.stall[machine]; s > 0 && w.plan.theme == themeFresh { // of two, either may be done first
			return time.Duration(w.r.Int64N(int64(s)))
		} else if s > 0 {
			return s
		}
		return time.Duration(w.r.Int64N(int64(w.plan.disk)))
	}
	d.fail = func(string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.broken[machine] {
			w.broken[machine] = false
			w.hurt = w.hurt || machine == "head"
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
	if bytes.Contains(b, []byte("an attempt made an illegal move")) || bytes.Contains(b, []byte("protocol violation")) && !w.isRolled() && !(w.hasCopies() && bytes.Contains(b, []byte("it names an attempt of"))) {
		w.wrong("%s", b)
	}
	w.givenUp(string(b))
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

// newWorld makes the disks and the machines of a history.
func newWorld(t *testing.T, base string, seed uint64, p plan) *world {
	w := &world{t: t, base: base, r: rand.New(&source64{src: rand.NewPCG(seed, 7)}), plan: p, began: time.Now(),
		cancel: map[*owner]context.CancelFunc{}, gens: map[string]int{}, disks: map[string]*simDisk{},
		runs: map[job.Token]*simRun{}, facts: map[job.ID]*fact{}, words: map[node.Name]*nodeWord{}, never: map[job.BatchID]bool{}, doomed: map[job.BatchID]bool{}, deleted: map[job.BatchID]int{}, built: map[job.BatchID]bool{}, stall: map[string]time.Duration{}, broken: map[string]bool{}}
	w.net = newSimNet(w.r)
	w.ctx, w.end = context.WithCancel(context.Background())
	root := w.newRoot("head")
	if err := spool.Init(root, os.Getegid()); err != nil {
		t.Fatal(err)
	}
	lease := []string{"1m", "2m", "10m"}[w.r.IntN(3)]
	if err := os.WriteFile(filepath.Join(root, "head.yaml"), []byte("lease: "+lease+"\ncounted: {lic: 2}\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	w.head.disk = w.newDisk("head", root)
	for i := range 1 + w.r.IntN(3) {
		n := &simNode{w: w, name: fmt.Sprintf("ws%d", i), cpus: 2 + w.r.IntN(2), orders: map[string]*simOrder{}, stills: map[string]bool{}, pause: simPause{news: make(chan struct{})}}
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
	if w.plan.words {
		r := rand.New(rand.NewPCG(w.r.Uint64(), 1))
		w.hands.Go(func() { w.operate(r) })
	}
	w.harm()
	if !w.failed() {
		w.heal()
	}
	w.end()
	w.stopHead(false)
	w.endTwins()
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

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}
