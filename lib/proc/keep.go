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
	stopper stopper // of a tree without one, or of what has left it
	lent    returnedCPUs
	over    chan struct{}
	done    chan struct{}

	frozen   bool          // the tree is held, or is to be
	running  int           // so many of it are not
	saveBy   time.Duration // by its run clock, when an evicted one must have saved itself; 0: no matter
	told     Hold
	recorded int // how often that was recorded
}

// maxRecorded is how often it is recorded that an order stands still, or goes on, so
// that it stays small. It is even: the last time says that it goes on.
const maxRecorded = 1000

// How often a tree that a pause holds or restricts is looked at again: its user may have
// let it go on, and what was started since is to be kept to its cpus where the kernel
// does not do that.
const (
	checkSoon   = 500 * time.Millisecond
	checkSeldom = 4 * time.Second
)

// mind begins to see to the pauses of an order that has been started; nil if it
// has none.
func (s *supervisor) mind(o *Order, g *group, out *lookout) *keeper {
	if out == nil {
		return nil
	}
	k := &keeper{s: s, o: o, out: out, group: g, over: make(chan struct{}), done: make(chan struct{})}
	k.stopper = stopper{top: os.Getpid(), lead: s.signalGroup}
	if g != nil {
		k.stopper.held = inside(g.dir)
	}
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
		stays := now.stays
		if left := k.saves(); left > 0 && (stays == 0 || left < stays) {
			stays = left
		}
		if stays > 0 && (!again || stays < wait) {
			timer = time.After(stays)
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
	case (d.out || k.s.isEvicted() && !d.frozen) && k.evict(d.memory):
		return false
	case d.frozen:
		k.freeze()
		k.lendMemory(d.memory)
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
	if k.group != nil {
		var err error
		if running, err = k.group.freeze(k.over); err != nil {
			running = max(1, running)
		}
	}
	return running + k.stopper.stop(k.over)
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
	k.stopper.release()
	if k.group != nil {
		k.group.thaw()
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
		return
	}
	if s.clock.release(Uptime()); s.killAt > 0 {
		s.armKill()
	}
}

// tell reports how the tree stands to the pauses, if that has changed.
func (k *keeper) tell() {
	h := Hold{Frozen: k.frozen, Running: k.running, Evicted: k.s.isEvicted(), CPUs: k.lent.left}
	if h.same(k.told) {
		return
	}
	if h.Frozen != k.told.Frozen && k.recorded < maxRecorded {
		k.recorded++
		k.s.recordClock(k.o.Token)
	}
	k.told = h
	_, h.Paused = k.s.clock.times(Uptime())
	k.s.report(Report{Hold: &h})
}

// evict asks the tree to save itself and go, and sees to it that it goes when its time
// for that is over, in which a pause does not count. It has all cpus for that, and what is
// left of the memory. One that somebody has stopped has its time for that instead, unless
// it is held: then evict returns false.
func (k *keeper) evict(memory int64) bool {
	begun, stopped := k.s.setEvicted()
	if stopped {
		k.saveBy = 0
		return !k.frozen
	}
	k.thaw()
	k.lend(demand{memory: memory})
	wall, _ := k.s.clock.times(Uptime())
	if begun {
		how := k.o.Checkpoint
		if how == nil {
			how = &Checkpoint{Signal: int(CheckpointSignal), Grace: CheckpointGrace}
		}
		if k.saveBy = wall; askToSave(unix.Signal(how.Signal)) > 0 {
			k.saveBy += how.Grace
		}
	}
	if k.saveBy > 0 && wall >= k.saveBy {
		k.saveBy = 0
		k.s.expel()
	}
	return true
}

// saves is how long the tree has yet to save itself; 0 if it need not, or is held.
func (k *keeper) saves() time.Duration {
	if k.saveBy == 0 || k.frozen {
		return 0
	}
	wall, _ := k.s.clock.times(Uptime())
	return max(k.saveBy-wall, time.Millisecond)
}
