package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A halt is the stop of a tree by SIGSTOP, for where no group holds it. It is the
// best that can be had without one. Most of a tree is in the process group of its
// first process, which the kernel tells to stop at one instant. Of the others it
// stops one after the other, while those that are not stopped yet go on and start
// others, so the tree is gone through until nothing new is found and nothing runs.
// What was stopped before, by itself or by another of its tree, is noted and stays
// so at the end. What is in the kernel, as one that has called vfork(2) and waits for
// its child, or does not get a processor, stops when it comes back to its program: it
// is held if it does not run meanwhile.
type halt struct {
	top   int               // whose descendants are the tree
	other func(int) bool    // says which of them are held by other means; nil: none
	ours  map[name]struct{} // those that were sent SIGSTOP
	self  map[name]struct{} // those that were stopped before
	known map[int]name      // by pid, what of the tree was seen last
	below map[int]bool      // the pids of the tree, of top, and of what is held by other means
	seen  map[int]bool      // all pids of the machine
	going []name            // of known, what had not stopped when it was looked at last
	odd   map[name]struct{} // not of the tree, with parents that were not to be seen
	hot   map[int]struct{}  // whose children were new lately
	spent lastRuntimes      // of what was told to stop and has not
	boost boost

	zombies map[name]struct{} // what of the tree has ended and was not waited for
	dead    int               // how many of these there were so far

	told  func()        // called when it is worth while to look at the tree; nil: nobody
	slow  bool          // it is time to see to those
	few   int           // passes that are enough if ever something ends unseen
	ended func() uint64 // how many orphans of the tree have ended so far; nil: not known

	// The process group of the first process, which lead signals at once, and says so,
	// if that has not ended; 0: there is none.
	first  int
	lead   func(unix.Signal) bool
	led    bool   // it has been told to stop
	early  bool   // the first look after that, for which it had a moment
	doubt  []name // of it, what was found stopped without having been told by itself
	strays bool   // what is held may be of others too, or wait for who traces it
	alone  bool   // something was stopped before: those that are not are to be let go one by one
}

// name is what tells a process from all others of this boot.
type name struct {
	pid   int
	start uint64
}

func (p process) name() name { return name{p.pid, p.start} }

func newHalt(top int) *halt {
	return &halt{top: top, ours: map[name]struct{}{}, self: map[name]struct{}{}, known: map[int]name{}, odd: map[name]struct{}{}, hot: map[int]struct{}{}, spent: lastRuntimes{}, zombies: map[name]struct{}{}, few: manyPasses}
}

// A sighting is what a look at processes found of the tree.
type sighting struct {
	running int  // processes of it that were not stopped
	fresh   int  // of these, those that were sent SIGSTOP for the first time
	unclear bool // a process ended, or lost its parent, before its place in the tree was seen
	whole   bool // nothing was started on the machine meanwhile: all were seen

	last given // what had been given a number before the look
}

// Bounds of one hold. What runs after patientFor is in the kernel, and is looked at
// again later.
const (
	patientFor = 2 * time.Second
	chaseFor   = 2 * time.Millisecond
	manyPasses = 20
	smallTree  = 64
)

// hold stops the tree. It returns when a pass in which nothing was started on the
// whole machine has found all of the tree stopped. While others start things, two
// looks on end must have found that, of which the first may be what follows up a pass
// and the second is a pass in which nothing ended before it was seen that may have
// been of the tree, or a few passes in which something did. It returns too when over
// is closed or patientFor has passed, with how many processes of the tree run on.
func (h *halt) hold(over <-chan struct{}) (running int, err error) {
	h.early = h.strike()
	running, err = h.chaseAll(over)
	h.strays = h.strays || running > 0 || err != nil
	h.settle()
	return running, err
}

// strike tells the first group to stop before anything has been looked at, and waits
// a moment, if nothing is held yet. What the kernel is starting in the group is told
// too, or not started. Where that seems to have been all, it leaves the processors for
// as long to somebody who looks at the tree now as that takes.
func (h *halt) strike() bool {
	if h.first == 0 || h.other != nil || h.led || len(h.ours) > 0 || !h.lead(unix.SIGSTOP) {
		return false
	}
	h.led = true
	known := h.mostStopped()
	h.tell()
	nap(min(time.Duration(known)*lookCosts, givesWay))
	return true
}

// chaseAll is hold for what strike has not stopped, and sees that all is.
func (h *halt) chaseAll(over <-chan struct{}) (running int, err error) {
	begin, clean, quiet := time.Now(), 0, 0
	clear(h.hot)
	defer h.boost.lower()
	defer h.tell()
	for round, wait := 0, 50*time.Microsecond; ; round++ {
		h.slow, h.early = round >= 2, h.early && round == 0
		s, err := h.pass()
		if err != nil {
			return max(1, s.running), err
		}
		if quiet++; s.running > 0 {
			quiet = 0
		}
		if clean++; s.running > 0 || s.unclear {
			clean = 0
		}
		if quiet > 0 && s.whole || clean == 2 || quiet >= h.few {
			return 0, nil
		}
		select {
		case <-over:
			return s.running, nil
		default:
		}
		if time.Since(begin) > patientFor {
			return s.running, nil
		}
		if h.follow(s) {
			h.tell()
			clean = 1
			continue
		}
		if round > 0 {
			h.tell()
		}
		if !s.whole && h.chase() {
			s.running, clean, quiet = max(1, s.running), 0, 0
		}
		if round >= 3 && s.running > 0 && s.fresh == 0 {
			nap(wait)
			wait = min(2*wait, 20*time.Millisecond)
		}
	}
}

// tell calls told.
func (h *halt) tell() {
	if h.told != nil {
		h.told()
	}
}

// pass looks at every process once, in the order in which the kernel numbers them,
// parents before their children but for rare ones, and sends SIGSTOP to those of
// the tree that are not stopped.
func (h *halt) pass() (s sighting, err error) {
	s.last = lastGiven()
	ended, dead := h.orphans(), h.dead
	ids, err := pids()
	if err != nil {
		return s, err
	}
	h.known, h.below, h.seen, h.going = make(map[int]name, len(ids)), make(map[int]bool, len(ids)), make(map[int]bool, len(ids)), nil
	h.below[h.top] = true
	if h.place(ids, &s) && (h.ended == nil || h.orphans() != ended || h.dead > dead) {
		s.unclear = true
	}
	s.whole = s.last.stands()
	return s, nil
}

// place finds which of these processes are of the tree, as far as it is known, and
// sees to those. Lost says that one ended before it was seen.
func (h *halt) place(ids []int, s *sighting) (lost bool) {
	var others []process
	for _, pid := range ids {
		h.seen[pid] = true
		if pid == h.top {
			continue
		}
		if h.other != nil && h.other(pid) {
			h.below[pid] = true // the kernel has said that it is held
			continue
		}
		p, err := stat(pid)
		switch {
		case err != nil:
			lost = true
		case h.below[p.parent]:
			h.join(p, s)
		default:
			others = append(others, p)
		}
	}
	for grown := true; grown; {
		grown = false
		others = slices.DeleteFunc(others, func(p process) bool {
			if !h.below[p.parent] {
				return false
			}
			grown = true
			h.join(p, s)
			return true
		})
	}
	for _, p := range others {
		if _, before := h.odd[p.name()]; p.parent > 1 && !h.seen[p.parent] && !before {
			h.odd[p.name()], s.unclear = struct{}{}, true
		}
	}
	return lost
}

// join sees to a process of which it has turned out that it is of the tree.
func (h *halt) join(p process, s *sighting) {
	h.below[p.pid], h.known[p.pid] = true, p.name()
	h.meet(p, s)
}

// found takes a process that is stopped for one that was so before, unless it has
// been signalled. Of the first group settle finds out which it is.
func (h *halt) found(p process) {
	_, sent := h.ours[p.name()]
	_, before := h.self[p.name()]
	h.strays = h.strays || p.state == 't'
	switch {
	case sent || before:
	case h.led && p.group == h.first:
		h.ours[p.name()] = struct{}{}
		if p.state != 't' {
			h.doubt = append(h.doubt, p.name())
		}
	default:
		h.self[p.name()] = struct{}{}
		h.alone = true
	}
}

// settle finds out what of the first group was stopped before it was told to: for
// such a process the signal waits still.
func (h *halt) settle() {
	for _, who := range h.doubt {
		if pending(who.pid, unix.SIGSTOP) {
			delete(h.ours, who)
			h.self[who] = struct{}{}
			h.alone = true
		}
	}
	h.doubt = nil
}

func (h *halt) orphans() uint64 {
	if h.ended == nil {
		return 0
	}
	return h.ended()
}

// meet sees to one process of the tree.
func (h *halt) meet(p process, s *sighting) {
	switch {
	case p.gone():
		if _, before := h.zombies[p.name()]; !before {
			h.zombies[p.name()] = struct{}{}
			h.dead++
		}
		return
	case h.other != nil && h.other(p.pid):
		return
	case p.all(stopped):
		h.found(p)
		return
	}
	if _, before := h.ours[p.name()]; !before {
		if len(h.ours) > 0 && len(h.hot) < smallTree {
			h.hot[p.parent] = struct{}{}
		}
		h.ours[p.name()] = struct{}{}
		s.fresh++
	}
	h.going = append(h.going, p.name())
	if h.early && p.group == h.first {
		s.running++
		return
	}
	h.strays = h.strays || p.group != h.first
	if err := signalSame(p.pid, p.start, unix.SIGSTOP); errors.Is(err, errNotSame) || errors.Is(err, unix.ESRCH) {
		return
	}
	if h.slow && p.state == 'R' {
		h.boost.raise(p.pid)
	}
	if h.slow && p.bound() && h.spent.idle(p) {
		return
	}
	s.running++
}

// all says whether every thread of a process that has not ended is in one of the
// states. It looks at the threads only if there are others than the first.
func (p process) all(in func(state byte) bool) bool {
	if p.threads <= 1 {
		return in(p.state)
	}
	if p.state != 'Z' && !in(p.state) {
		return false
	}
	dir, err := os.Open("/proc/" + strconv.Itoa(p.pid) + "/task")
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, n := range names {
		t, err := statFile(int(dir.Fd()), n+"/stat", p.pid)
		if err == nil && t.state != 'Z' && t.state != 'X' && !in(t.state) {
			return false
		}
	}
	return true
}

// stopped is the states of what is stopped by a signal, or by who traces it.
func stopped(state byte) bool { return state == 'T' || state == 't' }

// chase goes after processes that start another and end, again and again: with
// their parents dead they are children of the supervisor, or of another that reaps
// orphans, as the kernel lists them within microseconds. It says whether it has
// met one.
func (h *halt) chase() (met bool) {
	h.hot[h.top] = struct{}{}
	if len(h.known) <= smallTree {
		for pid := range h.known {
			h.hot[pid] = struct{}{}
		}
	}
	begin := time.Now()
	for empty := 0; empty < 10 && time.Since(begin) < chaseFor; empty++ {
		for parent := range h.hot {
			for _, pid := range childrenOf(parent) {
				p, err := stat(pid)
				if err != nil || h.known[pid] == p.name() {
					continue
				}
				h.known[pid] = p.name()
				var s sighting
				h.meet(p, &s)
				if s.fresh > 0 {
					met, empty = true, 0
				}
			}
		}
	}
	return met
}

// childrenOf is the children of a process's first thread, to which orphans go.
func childrenOf(pid int) (ids []int) {
	id := strconv.Itoa(pid)
	b, err := os.ReadFile("/proc/" + id + "/task/" + id + "/children")
	if err != nil {
		return nil
	}
	for f := range bytes.FieldsSeq(b) {
		if n, err := strconv.Atoi(string(f)); err == nil && n > 1 {
			ids = append(ids, n)
		}
	}
	return ids
}

// A given is the number that a process or a thread was given last.
type given string

func lastGiven() given { return given(lastPid()) }

// stands says whether no process was started on the machine since: nothing was given
// a number but threads of what was there, as this process and other daemons start
// some when they have much to do. What is stopped starts none.
func (g given) stands() bool {
	now := lastPid()
	if g == "" || now == string(g) {
		return g != ""
	}
	from, e1 := strconv.Atoi(string(g))
	to, e2 := strconv.Atoi(now)
	const few = 16
	if e1 != nil || e2 != nil || to < from || to-from > few {
		return false
	}
	for tid := from + 1; tid <= to; tid++ {
		if of := processOf(tid); of == 0 || of > from && of <= to {
			return false
		}
	}
	return true
}

// processOf is the process that a thread is of; 0 if it cannot be known.
func processOf(tid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			n, _ := strconv.Atoi(string(bytes.TrimSpace(v)))
			return n
		}
	}
	return 0
}

// lastPid is the number that was given last to a process or a thread, as text.
func lastPid() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	f := bytes.Fields(b)
	if len(f) != 5 {
		return ""
	}
	return string(f[4])
}

// stands says whether all of the tree that was seen last is there and stopped, or
// is bound to stop before it comes back to its program.
func (h *halt) stands() bool {
	for pid, who := range h.known {
		p, err := stat(pid)
		if err != nil || p.name() != who || !p.gone() && !p.all(stopped) && !p.bound() {
			return false
		}
	}
	return true
}

// release lets what was stopped go on, children before their parents: a shell that
// minds its children finds none of them stopped. A traced process that was about to
// stop for its tracer does so when that goes on, so it is looked for again. Nothing
// is looked at if all was stopped at one instant.
func (h *halt) release() {
	whole := h.led && !h.strays && !h.alone && h.lead(unix.SIGCONT)
	for wait := time.Millisecond; (h.led || len(h.ours) > 0) && !whole; wait *= 2 {
		ps := descendants(h.top)
		depth := depths(h.top, ps)
		slices.SortFunc(ps, func(a, b process) int { return depth[b.pid] - depth[a.pid] })
		traced, together := false, h.first != 0 && !h.alone
		for _, p := range ps {
			if _, sent := h.ours[p.name()]; !sent {
				continue
			}
			if !together || p.group != h.first {
				signalSame(p.pid, p.start, unix.SIGCONT)
			}
			traced = traced || p.state == 't'
		}
		if together {
			h.lead(unix.SIGCONT)
		}
		if !traced || wait > 100*time.Millisecond {
			break
		}
		time.Sleep(wait)
	}
	h.alone, h.led, h.strays = false, false, false
	clear(h.ours)
	clear(h.self)
	clear(h.spent)
	clear(h.known)
	clear(h.odd)
	clear(h.zombies)
}

// depths is how far below top each of its descendants is.
func depths(top int, ps []process) map[int]int {
	parent := map[int]int{}
	for _, p := range ps {
		parent[p.pid] = p.parent
	}
	depth := map[int]int{top: 0}
	var of func(pid, left int) int
	of = func(pid, left int) int {
		d, done := depth[pid]
		if up, ok := parent[pid]; !done && ok && left > 0 {
			d = of(up, left-1) + 1
			depth[pid] = d
		}
		return d
	}
	for _, p := range ps {
		of(p.pid, len(ps))
	}
	return depth
}
