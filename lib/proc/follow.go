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
	lookCosts   = 12 * time.Microsecond // for each process
	givesWay    = 20 * time.Millisecond // at most
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
			nap(leavesFor)
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

// mostStopped waits until those of the first group have stopped that are looked at:
// when all were told at once most have then. It does not wait long. It says how many
// it knows of, 0 if one of them is not of the group or has not stopped.
func (h *halt) mostStopped() (known int) {
	const often = 200 * time.Microsecond
	some, known := h.sample()
	begin := time.Now()
	for _, pid := range some {
		for {
			p, err := stat(pid)
			if err != nil || p.gone() || p.all(stopped) {
				break
			}
			if p.group != h.first {
				known = 0
				break
			}
			if time.Since(begin) > stopsWithin {
				return 0
			}
			nap(often)
		}
	}
	return known
}

// sample is the first process and some of those that the kernel lists below it, and
// how many it has listed.
func (h *halt) sample() (some []int, known int) {
	ids := []int{h.first}
	for i := 0; i < len(ids) && len(ids) < smallTree; i++ {
		ids = append(ids, childrenOf(ids[i])...)
	}
	known = len(ids)
	for i := 0; i < known; i += 1 + known/smallTree {
		some = append(some, ids[i])
	}
	return some, known
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
			nap(wait)
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
