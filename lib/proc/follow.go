package proc

import (
	"strconv"
	"time"
)

// Bounds of following up a pass. Another pass is to be had for what followUpTo
// processes cost.
const (
	stopsWithin = 50 * time.Millisecond // a process that was told to, if it gets a processor now and then
	leavesFor   = 2 * time.Millisecond  // what is left to the kernel of a process that it says has stopped
	followUpTo  = 500
	fewRanges   = 100
)

// follow sees what a pass has begun to its end, without another: it waits until each
// process that was told to stop has done so, and looks at what was given a number on
// the machine since the pass. It says whether all of the tree has been seen stopped
// and nothing was started that has not been looked at. A process that the kernel was
// just starting during the pass it does not see.
//
// It costs about as much as the processes which ran, and leaves the processors alone
// while these stop: jobs get one only where nobody else wants it.
func (h *halt) follow(s sighting) bool {
	last := s.last
	for range fewRanges {
		if s.unclear || !h.awaitStopped() {
			return false
		}
		now := lastGiven()
		if now == last {
			time.Sleep(leavesFor)
			return now != ""
		}
		ids, few := last.since(now)
		if !few {
			return false
		}
		h.place(ids, &s)
		last = now
	}
	return false
}

// mostStopped waits until those of them have stopped that are looked at, one of
// sampled: when all were told at once most have then. It does not wait long.
func (h *halt) mostStopped() {
	const sampled, often = 16, 200 * time.Microsecond
	for i := len(h.going) - 1; i >= 0; i -= sampled {
		who := h.going[i]
		for begin := time.Now(); ; time.Sleep(often) {
			if p, err := stat(who.pid); err != nil || p.name() != who || p.all(stopped) {
				break
			}
			if time.Since(begin) > stopsWithin {
				return
			}
		}
	}
	time.Sleep(leavesFor)
}

// awaitStopped waits for those that were told to stop, and says whether all have.
func (h *halt) awaitStopped() bool {
	const soon = 50 * time.Microsecond
	wait, waited := soon, time.Duration(0)
	for len(h.going) > 0 {
		who := h.going[0]
		p, err := stat(who.pid)
		switch {
		case err != nil || p.name() != who || p.gone():
		case p.all(stopped):
			h.found(p)
		case waited > stopsWithin:
			return false
		default:
			time.Sleep(wait)
			waited += wait
			wait = min(2*wait, time.Millisecond)
			continue
		}
		h.going = h.going[1:]
		wait, waited = soon, 0
	}
	return true
}

// since is the processes that were given numbers after g, up to now, and live. Few
// says that it is worth while to look at them.
func (g given) since(now given) (ids []int, few bool) {
	from, e1 := strconv.Atoi(string(g))
	to, e2 := strconv.Atoi(string(now))
	if e1 != nil || e2 != nil || to < from || to-from > followUpTo {
		return nil, false
	}
	for pid := from + 1; pid <= to; pid++ {
		if processOf(pid) == pid {
			ids = append(ids, pid)
		}
	}
	return ids, true
}
