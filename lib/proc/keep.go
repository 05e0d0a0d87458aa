package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// A keeper sees to what pauses ask of the order at hand, from its start until the
// first process has ended. Its fields are those of its own goroutine.
type keeper struct {
	s    *supervisor
	o    *Order
	out  *lookout
	tree *tree
	lent returnedCPUs // what of its cpus is given back
	over chan struct{}
	done chan struct{}

	frozen  bool // the tree is held, or is to be
	running int  // so many of it are not
	named   bool // this process is called [ArgvHeld]
	told    Hold
}

// How often a tree that is held is looked at again: somebody may have let a process
// of it go on, or moved one out of the group. A glance at what was there is had more
// often, but for no more than a thousandth of a processor.
const (
	checkSoon   = 500 * time.Millisecond
	checkSeldom = 4 * time.Second
	glanceEvery = 250 * time.Millisecond
	glanceCost  = 1000
)

// mind begins to see to the pauses of an order that has been started; nil if it
// has none.
func (s *supervisor) mind(o *Order, g *group, out *lookout) *keeper {
	if out == nil {
		return nil
	}
	k := &keeper{s: s, o: o, out: out, tree: newTree(g), over: make(chan struct{}), done: make(chan struct{})}
	k.tree.halt.first, k.tree.halt.lead = s.lead()
	k.tree.halt.ended = s.reaped.Load
	k.tree.told = func() { k.name(true) }
	k.lent.group, k.lent.parent = g, o.Cgroup
	k.lent.cpus = o.CPUs
	go k.run()
	return k
}

// lead is the process group of the first process, and what signals it, and says that
// it has, as long as the first process has not been waited for: nobody else has its
// number then.
func (s *supervisor) lead() (group int, signal func(unix.Signal) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid := s.pid
	return pid, func(sig unix.Signal) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return pid != 0 && s.pid == pid && unix.Kill(-pid, sig) == nil
	}
}

// end returns when the keeper does no more. The tree is as it is then: what is
// held is swept like the rest.
func (k *keeper) end() {
	if k != nil {
		close(k.over)
		<-k.done
		k.name(false)
	}
}

// run looks at the pauses whenever they may have changed, and does what they want.
func (k *keeper) run() {
	defer close(k.done)
	wait := checkSoon
	// What was read before the start holds, unless there are news since.
	state, err := k.out.last, error(nil)
	for was := (demand{}); ; {
		now := k.out.demand(state)
		if !now.same(was) {
			wait = checkSoon
		}
		was = now
		again := k.meet(now)
		if err != nil {
			again = true
		}
		var timer <-chan time.Time
		if again {
			timer = time.After(wait)
			wait = min(2*wait, checkSeldom)
		}
		if now.stays > 0 && (!again || now.stays < wait) {
			timer = time.After(now.stays)
		}
		if !k.rest(timer) {
			return
		}
		state, err = k.out.read()
	}
}

// rest returns true when the pauses are to be looked at: they may have changed, it
// is time to, or what is held does not stand still. False says that the first
// process has ended.
func (k *keeper) rest(timer <-chan time.Time) bool {
	for every := glanceEvery; ; {
		var glance <-chan time.Time
		if k.frozen && k.running == 0 {
			glance = time.After(every)
		}
		select {
		case <-k.over:
			return false
		case <-k.out.news:
			return true
		case <-k.s.look:
			return true
		case <-timer:
			return true
		case <-glance:
		}
		begin := time.Now()
		if !k.tree.stands() {
			return true
		}
		every = min(max(glanceEvery, glanceCost*time.Since(begin)), checkSeldom)
	}
}

// meet does what is wanted, and says whether it must be looked after though
// nothing else happens.
func (k *keeper) meet(d demand) (again bool) {
	switch {
	case d.out && k.evict():
		return false
	case d.frozen:
		k.freeze()
		return true
	}
	k.thaw()
	again = k.lend(d)
	return again
}

// freeze holds the tree, or sees to it that it is held.
func (k *keeper) freeze() {
	if !k.frozen {
		k.s.setFrozen(true)
		k.frozen = true
	}
	running, err := k.tree.hold(k.over)
	if err != nil {
		running = max(1, running)
	}
	k.running = running
	k.tell()
}

// name calls this process by whether it holds its tree.
func (k *keeper) name(held bool) {
	if held == k.named {
		return
	}
	if k.named = held; held {
		call(ArgvHeld)
	} else {
		call(Argv0)
	}
}

// thaw lets the tree go on, if it was held.
func (k *keeper) thaw() {
	if !k.frozen {
		return
	}
	k.name(false)
	k.tree.release()
	k.frozen, k.running = false, 0
	k.s.setFrozen(false)
	k.tell()
}

// setFrozen notes that the order stands still, from before its tree is held until
// after it has been let go, and stops its clock meanwhile.
func (s *supervisor) setFrozen(frozen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen = frozen; frozen {
		s.clock.hold(Uptime())
	} else {
		s.clock.release(Uptime())
	}
}

// tell reports how the tree stands to the pauses, if that has changed.
func (k *keeper) tell() {
	h := Hold{Frozen: k.frozen, Running: k.running, Evicted: k.s.isEvicted(), CPUs: k.lent.left}
	if h.same(k.told) {
		return
	}
	k.told = h
	_, h.Paused = k.s.clock.times(Uptime())
	k.s.report(Report{Hold: &h})
}

// evict asks the tree to save itself and go, and returns when its first process has
// ended, whatever the pauses say meanwhile. One that somebody has stopped has its
// time for that instead, unless it is held: then evict returns false.
func (k *keeper) evict() bool {
	switch begun, stopped := k.s.setEvicted(); {
	case stopped:
		return !k.frozen
	case !begun:
		return true
	}
	k.thaw()
	k.lend(demand{})
	k.tell()
	how := k.o.Checkpoint
	if how == nil {
		how = &Checkpoint{Signal: int(CheckpointSignal), Grace: CheckpointGrace}
	}
	if askToSave(unix.Signal(how.Signal)) > 0 && !k.wait(how.Grace) {
		return true
	}
	k.s.expel()
	<-k.over
	return true
}

// wait returns true after d, or false when the first process has ended.
func (k *keeper) wait(d time.Duration) bool {
	select {
	case <-k.over:
		return false
	case <-time.After(d):
		return true
	}
}
