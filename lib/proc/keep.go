package proc

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A keeper sees to what pauses ask of the order at hand, from its start until the
// first process has ended. Its fields are those of its own goroutine.
type keeper struct {
	s       *supervisor
	o       *Order
	out     *lookout
	group   *group  // of its tree; nil: there is none
	stopper stopper // of a tree without one
	lent    returnedCPUs
	pids    []int // of the first processes
	over    chan struct{}
	done    chan struct{}

	frozen  bool // the tree is held, or is to be
	running int  // so many of it are not
	told    Hold
}

// How often a tree that a pause holds or restricts is looked at again: its user may have
// let it go on, and what was started since is to be kept to its cpus where the kernel
// does not do that.
const (
	checkSoon   = 500 * time.Millisecond
	checkSeldom = 4 * time.Second
)

// mind begins to see to the pauses of an order that has been started; nil if it
// has none.
func (s *supervisor) mind(o *Order, g *group, pids []int, out *lookout) *keeper {
	if out == nil {
		return nil
	}
	k := &keeper{s: s, o: o, out: out, group: g, pids: pids, over: make(chan struct{}), done: make(chan struct{})}
	k.stopper = stopper{top: os.Getpid(), lead: s.signalGroup}
	k.lent = returnedCPUs{group: g, parent: o.Cgroup, cpus: o.CPUs}
	go k.run()
	return k
}

// signalGroup signals the process groups of the first processes that have not been waited
// for: others may have the numbers of the rest.
func (s *supervisor) signalGroup(sig unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range s.firsts {
		unix.Kill(-pid, sig)
	}
}

// end returns when the keeper does no more. The tree is as it is then: what is
// held is swept like the rest.
func (k *keeper) end() {
	if k != nil {
		close(k.over)
		<-k.done
		k.rename()
	}
}

// run looks at the pauses whenever they may have changed, and does what they want.
func (k *keeper) run() {
	defer close(k.done)
	wait := checkSoon
	var err error
	for was := (demand{}); ; { // what was read before the start holds, unless there are news since
		now := k.out.demand()
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
		err = k.out.read()
	}
}

// rest returns true when the pauses are to be looked at again, and false when the first
// process has ended.
func (k *keeper) rest(timer <-chan time.Time) bool {
	select {
	case <-k.over:
		return false
	case <-k.out.news:
	case <-k.s.look:
	case <-timer:
	}
	return true
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
	if k.running = k.hold(); k.group == nil && k.running == 0 {
		call(ArgvHeld)
	}
	k.tell()
}

// hold holds every process of the tree, and says how many run on, which was tried for
// patientFor. It is cheap when they are held already.
func (k *keeper) hold() (running int) {
	if k.group == nil {
		return k.stopper.stop(k.over)
	}
	running, err := k.group.freeze(k.over)
	if err != nil {
		return max(1, running)
	}
	return running
}

// rename takes back [ArgvHeld].
func (k *keeper) rename() {
	if k.frozen && k.group == nil {
		call(Argv0)
	}
}

// thaw lets the tree go on, if it was held.
func (k *keeper) thaw() {
	if !k.frozen {
		return
	}
	k.rename()
	if k.group != nil {
		k.group.thaw()
	} else {
		k.stopper.release()
	}
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
