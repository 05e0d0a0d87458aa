package proc

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// How often a tree is looked at where the kernel does not count its memory. One
// that may not have more than so much is looked at every second, and while it grows
// as often as a processor needs to fill some hundred MiB; the others ever less
// often, for the record only.
const (
	lookFirst  = 50 * time.Millisecond
	lookEvery  = time.Second
	lookSeldom = 30 * time.Second
)

// A watch looks after the limits of an order that runs which the kernel does not
// enforce. It has the memory's peak when it is over, or where the kernel counts that,
// how much of it was seen to be the tree's own.
type watch struct {
	s     *supervisor
	o     *Order
	g     *group
	quit  chan struct{}
	done  chan struct{}
	peak  int64
	own   int64 // not of files
	was   int64 // what the tree had when it was looked at last
	count bool  // the kernel does not count memory
	bound bool  // nor limits it, and it is to be limited
}

// watchOver begins a watch.
func (s *supervisor) watchOver(o *Order, g *group) *watch {
	w := &watch{s: s, o: o, g: g, quit: make(chan struct{}), done: make(chan struct{}), count: true}
	if g != nil {
		_, counted := g.number("memory.peak")
		_, limited := g.number("memory.max")
		w.count, w.bound = !counted, o.Memory > 0 && !limited
	} else {
		w.bound = o.Memory > 0
	}
	go w.run()
	return w
}

// over ends the watch.
func (w *watch) over() {
	close(w.quit)
	<-w.done
}

func (w *watch) run() {
	defer close(w.done)
	look, last, limit := lookEvery, time.Duration(-1), w.o.Time
	if w.bound {
		look = lookFirst
	}
	timer := time.NewTimer(0)
	<-timer.C
	for ended := false; ; {
		next, looks := look, true
		wall, _ := w.s.clock.times(Uptime())
		if left := limit - wall; limit > 0 && !ended {
			if left <= 0 {
				if more := longer(w.o.Dir, limit); more != limit {
					limit = more
					continue
				}
				ended = true
				w.s.stop(w.o.Token, StoppedTime)
				continue
			}
			if left < next {
				next, looks = left, false
			}
		}
		timer.Reset(next)
		select {
		case <-w.quit:
			return
		case <-timer.C:
		}
		if !looks {
			continue
		}
		if wall, _ = w.s.clock.times(Uptime()); wall == last {
			look = min(2*look, lookSeldom) // it is paused
			continue
		}
		last = wall
		look = w.look(look)
	}
}

// look measures the tree once, and says when to look again after it was looked at
// so long after the time before.
func (w *watch) look(after time.Duration) time.Duration {
	if !w.count {
		w.own = max(w.own, w.g.own())
	}
	if !w.count && !w.bound {
		return min(2*after, lookSeldom)
	}
	pids := descendantPids()
	n := resident(pids)
	if w.bound && n > w.o.Memory || n > w.peak {
		n = proportional(pids, n)
	}
	grown := n - w.was
	w.peak, w.was = max(w.peak, n), n
	switch {
	case !w.bound:
		return min(2*after, lookSeldom)
	case n > w.o.Memory:
		w.s.stop(w.o.Token, StoppedMemory)
	case grown > w.o.Memory/32:
		return lookFirst
	}
	return min(2*after, lookEvery)
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
