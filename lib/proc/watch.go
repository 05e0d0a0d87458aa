package proc

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// How often a tree is looked at where the kernel does not count its memory: one that may
// not have more than so much every second, and while it grows as often as a processor
// needs to fill some hundred MiB; the others ever less often, for the record only.
const (
	lookFirst  = 50 * time.Millisecond
	lookEvery  = time.Second
	lookSeldom = 30 * time.Second
)

// A watch looks after the limits of an order that runs which the kernel does not enforce:
// its time, and where there is no controller its memory.
type watch struct {
	s     *supervisor
	o     *Order
	quit  chan struct{}
	done  chan struct{}
	pids  []int // of the first processes
	count bool  // the kernel does not count memory
	bound bool  // nor limits it, and it is to be limited
	peak  int64 // of the memory, as far as it was looked at
	most  int64 // the same of that one of several first processes, with those below it, that had most
	rank  *int  // which of several has had more than it may
}

// watchOver begins a watch.
func (s *supervisor) watchOver(o *Order, g *group, pids []int) *watch {
	w := &watch{s: s, o: o, pids: pids, quit: make(chan struct{}), done: make(chan struct{}), count: true, bound: o.Memory > 0}
	if g != nil {
		_, counted := g.number("memory.peak")
		_, limited := g.number("memory.max")
		w.count, w.bound = !counted, w.bound && !limited
	}
	go w.run()
	return w
}

// over ends the watch.
func (w *watch) over() {
	close(w.quit)
	<-w.done
}

// run sleeps until it is time to look at the memory or the time is up.
func (w *watch) run() {
	defer close(w.done)
	look, was, limit := lookSeldom, int64(0), w.o.Time
	switch {
	case w.bound:
		look = lookFirst
	case w.count:
		look = lookEvery
	}
	for lookAt := look; w.count || w.bound || limit > 0; {
		wait := lookAt
		wall, _ := w.s.clock.times(Uptime())
		if limit > 0 && wall >= limit {
			if longer := LongerLimit(w.o.Dir, w.o.Token, limit); longer != limit {
				limit = longer
				continue
			}
			if w.s.stop(w.o.Token, StoppedTime) {
				limit = 0
			}
		}
		if limit > 0 {
			wait = min(wait, max(lookFirst, limit-wall)) // the clock may stand still
		}
		select {
		case <-w.quit:
			return
		case <-time.After(wait):
		}
		if lookAt -= wait; lookAt > 0 {
			continue
		}
		if w.count || w.bound {
			look, was = w.look(look, was)
		}
		lookAt = look
	}
}

// look measures the tree, which had so much memory a while ago, and says when to look
// again and what it has now.
func (w *watch) look(after time.Duration, was int64) (next time.Duration, has int64) {
	pids := descendantPids()
	n := resident(pids)
	if w.bound && n > w.o.Memory || n > w.peak {
		n = proportional(pids, n)
	}
	w.peak = max(w.peak, n)
	for k := range min(len(w.pids), len(w.o.Ranks)) { // a stop may have come before the rest was started
		if w.lookAtRank(k) {
			w.rank = &k
			w.s.stop(w.o.Token, StoppedMemory)
			return lookEvery, n
		}
	}
	switch {
	case !w.bound:
		return min(2*after, lookSeldom), n
	case n > w.o.Memory:
		w.s.stop(w.o.Token, StoppedMemory)
	case n-was > w.o.Memory/32:
		return lookFirst, n
	}
	return min(2*after, lookEvery), n
}

// lookAtRank measures one of several first processes with those below it, and says whether
// they have more than they may. What has lost its parent is below none. When it has been
// waited for another process may have its number, of whomever.
func (w *watch) lookAtRank(k int) (beyond bool) {
	pids := append(pidsBelow(w.pids[k]), w.pids[k])
	n, most := resident(pids), w.o.Ranks[k].Memory
	if n > w.most || w.bound && n > most {
		n = proportional(pids, n)
	}
	if !w.s.awaits(w.pids[k]) {
		return false
	}
	w.most = max(w.most, n)
	return w.bound && most > 0 && n > most
}

// awaits says whether a first process has not been waited for.
func (s *supervisor) awaits(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.firsts, pid)
}

// resident is the main memory that processes have, in bytes. What several of them
// share is counted for each.
func resident(pids []int) (sum int64) {
	page := int64(os.Getpagesize())
	for _, pid := range pids {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
		if f := bytes.Fields(b); err == nil && len(f) > 1 {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			sum += n * page
		}
	}
	return sum
}

// proportional is resident, but that what is shared counts once. The kernel goes
// through all pages for it, a millisecond for some hundred MiB, so it is for those
// of whom it matters. Of a process that may not be looked at it is not known; then
// the answer is rough, which is what resident said.
func proportional(pids []int, rough int64) (sum int64) {
	if len(pids) < 2 {
		return rough
	}
	for _, pid := range pids {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
		if err == unix.ESRCH || os.IsNotExist(err) {
			continue
		}
		pss, ok := kibOf(string(b), "Pss")
		if err == nil && !ok {
			continue // it has ended, or begins
		}
		if err != nil {
			return rough
		}
		sum += pss
	}
	return sum
}
