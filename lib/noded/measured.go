package noded

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"time"

	"distribute/lib/job"
	"distribute/lib/proc"
	"distribute/lib/timing"
	"distribute/lib/unit"
)

// Where jobs that say nothing of memory are admitted by what they use, a job is begun
// as long as there is memory for it, and when that runs low the one that began last
// is given back. One that can save itself is asked to, as long as there is some left.
// One of several nodes of a machine is watched, too, where the kernel does not bound what
// its jobs have together: more than its part is another's.

const (
	memoryMark = 8    // one part in so many of the node's memory is to stay free
	memoryGone = 16   // with less than that left nobody has time to save what he has
	memoryCost = 5    // so many times what a look cost passes before the next
	maxKnown   = 1000 // batches of which it is kept what their jobs use
)

var memoryEvery = timing.Wait(time.Second)

// A meter knows what jobs use of the memory. It belongs to the state.
type meter struct {
	on      bool                  // somebody looks
	looked  bool                  // ever
	free    int64                 // bytes that the machine had by the last look
	other   int64                 // that jobs use of which it is not known which
	known   map[job.BatchID]int64 // what a job of a batch is taken to use
	order   []job.BatchID         // of these, in which they came
	begun   int                   // attempts that were begun
	leaving *attempt              // that is being given back
	told    bool                  // that others than the jobs here have the memory
}

// learn notes what a job of a batch uses: no other is taken to use less.
func (m *meter) learn(b job.BatchID, uses int64) {
	if m.known == nil {
		m.known = map[job.BatchID]int64{}
	}
	if _, there := m.known[b]; !there {
		if m.order = append(m.order, b); len(m.order) > maxKnown {
			delete(m.known, m.order[0])
			m.order = m.order[1:]
		}
	}
	m.known[b] = max(m.known[b], uses)
}

// correct takes in that a job of a batch is over that has used so much at most. One
// that used more than others do does not keep these from being begun for ever.
func (m *meter) correct(b job.BatchID, most int64) {
	if known, there := m.known[b]; there && most > 0 {
		m.known[b] = known - (known-most)/4
	}
}

// busy says that one is being given back.
func (m *meter) busy() bool { return m.leaving != nil && m.leaving.runs() }

// memory is how much jobs may use together. What a person takes back counts only where jobs
// are measured: elsewhere only the kernel takes memory from jobs.
func (n *daemon) memory() int64 {
	if !n.given().Measured {
		return n.given().Offer.Memory
	}
	return n.unlentMemory()
}

// unlentMemory is how much of the offered memory is not given back to a person.
func (n *daemon) unlentMemory() int64 { return n.given().Offer.Memory - n.pause.give.Memory }

// looks says that it is looked how much memory jobs use.
func (n *daemon) looks() bool { return n.given().Measured || !n.bounds && n.Nodes > 1 }

// mark is how much memory is to stay free.
func (n *daemon) mark() int64 {
	if !n.given().Measured {
		return 0
	}
	return n.memory() / memoryMark
}

// unused is how much memory nobody has, nor will have as far as is known of the
// batches of those who run.
func (n *daemon) unused() int64 {
	left, free := n.memory()-n.meter.other, n.meter.free
	for s := range n.held {
		claim := max(s.uses, s.memory)
		if s.measured() {
			claim = max(claim, n.meter.known[s.batch])
		}
		left -= claim
		free -= claim - s.uses
	}
	return min(left, free)
}

// admits says why one who says nothing of memory cannot be begun now; nil if he can:
// with what he is taken to use there is still as much free as is to stay free, so that
// he is not the next to go. Where nothing runs anybody can.
func (n *daemon) admits(s *share) error {
	if !n.given().Measured || !s.measured() || s.batch == "" || len(n.held) == 0 || n.memory() <= 0 {
		return nil
	}
	mark := n.mark()
	known, unused := n.meter.known[s.batch], n.unused()
	if unused >= max(known, s.memory)+mark && !n.meter.busy() {
		return nil
	}
	why := fmt.Sprintf("%s of memory are free", unit.FormatBytes(max(0, unused)))
	switch {
	case s.memory > known:
		why += fmt.Sprintf(", it asks for %s or more, and %s are to stay free", unit.FormatBytes(s.memory), unit.FormatBytes(mark))
	case known > 0:
		why += fmt.Sprintf(", others of its batch used %s, and %s are to stay free", unit.FormatBytes(known), unit.FormatBytes(mark))
	}
	return &noRoomError{why}
}

// watchMemory begins to look, if nobody does and it is wanted.
func (n *daemon) watchMemory() {
	if !n.looks() || n.meter.on {
		return
	}
	n.meter.on = true
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		for wait := memoryEvery; ; {
			if linger(ctx, wait); ctx.Err() != nil {
				return
			}
			began := time.Now()
			n.measure()
			wait = max(memoryEvery, memoryCost*time.Since(began))
			var on bool
			n.do(func() {
				on = n.looks() && len(n.held) > 0
				n.meter.on = on
			})
			if !on {
				return
			}
		}
	})
}

// measureFirst looks before one is admitted, unless somebody looks all the time and has begun to.
func (n *daemon) measureFirst() {
	first := false
	n.do(func() { first = n.given().Measured && !(n.meter.on && n.meter.looked) })
	if first {
		n.measure()
	}
}

// measure looks once, and gives the one back that began last if memory runs low.
func (n *daemon) measure() {
	var most int64
	var begun int
	n.do(func() { most, begun = n.memory()-n.mark(), n.meter.begun })
	pids, here := n.supervisors()
	use, err := n.Machine.Memory(pids, most)
	if err != nil {
		n.Log.Warn("cannot read the memory use of jobs", "why", err)
		return
	}
	for pid, fraction := range here {
		if all, ok := use.Of[pid]; ok {
			use.Of[pid] = int64(float64(all) * fraction)
		}
	}
	var goes *attempt
	var why string
	if n.do(func() { goes, why = n.measured(use, begun) }); goes == nil {
		return
	}
	if err := goes.SetEnding(why); err != nil {
		n.Log.Warn("cannot write why an attempt is ended", "job", goes.Job, "attempt", goes.Token, "why", err)
	}
	n.do(func() {
		if goes.runs() && !n.askToSave(goes, why, n.left(use)) {
			n.endAttempt(goes, endingFor(why), why, errKilled)
		}
	})
}

// left is how much memory nobody has; less than 0 where jobs have more than there is for
// them.
func (n *daemon) left(use *proc.MemoryUse) int64 {
	left := n.memory() - use.Sum()
	if n.given().Measured {
		left = min(left, use.Free)
	}
	return left
}

// askToSave asks an attempt to save what it has and go, as a pause does with which jobs
// leave, if its batch says how, and there is time: so much memory is left. One that
// stands still has none. It says whether it has done so.
func (n *daemon) askToSave(a *attempt, why string, left int64) bool {
	switch {
	case a.end != endNot || a.own == ownFrozen || n.pause.frozen, why == job.ReasonNodeMemory,
		!a.has.saves || n.pausing == nil, left < n.memory()/memoryGone:
		return false
	}
	n.Log.Info("attempt asked to save and leave for want of memory", "job", a.Job, "attempt", a.Token, "why", why)
	a.setEnding(endAsked, why)
	a.own = ownLeave
	n.keepWord(a)
	return true
}

// supervisors is those of what runs. One of an attempt that an earlier daemon began, or of
// a build or of a node beside this one, is known as soon as it says of itself who it is. Of
// an attempt whose ranks are on several nodes here is the fraction of them that is on this one.
func (n *daemon) supervisors() (pids []int, here map[int]float64) {
	here = map[int]float64{}
	var unknown []*attempt
	var builds []string
	var guests []*share
	n.do(func() {
		for s := range n.held {
			if s.guest != nil {
				guests = append(guests, s)
			}
		}
		for _, a := range n.attempts {
			if a.runs() && a.has.pid > 0 && len(a.has.beside) > 0 {
				here[a.has.pid] = float64(a.has.ranks) / float64(a.has.allRanks())
			}
			switch {
			case a.runs() && a.has.pid > 0:
				pids = append(pids, a.has.pid)
			case a.stage == stageAdopted:
				unknown = append(unknown, a)
			}
		}
		for _, b := range n.builds {
			if b.run != nil && b.run.begun {
				builds = append(builds, b.Dir)
			}
		}
	})
	for _, a := range unknown {
		if pid, err := n.Machine.Holder(a.Dir); err == nil {
			n.do(func() { a.has.pid = pid })
			pids = append(pids, pid)
		}
	}
	for _, dir := range builds {
		if pid, err := n.Machine.Holder(dir); err == nil {
			pids = append(pids, pid)
		}
	}
	for _, s := range guests {
		if pid, err := n.Machine.Holder(s.guest.a.Dir); err == nil {
			n.do(func() { s.pid = pid })
			pids, here[pid] = append(pids, pid), float64(s.ranks)/float64(s.guest.ranks)
		}
	}
	return pids, here
}

// measured takes in a look at the memory, before which so many attempts were begun: what
// is below the supervisor of a later one may be of the one that it had before. It says
// which is to be ended, if one is, and why.
func (n *daemon) measured(use *proc.MemoryUse, begun int) (goes *attempt, why string) {
	n.meter.looked, n.meter.free, n.meter.other = true, use.Free, use.Sum()
	var running []*attempt
	for _, a := range n.attempts {
		if !a.runs() || a.has.begun > begun {
			continue
		}
		running = append(running, a)
		if uses, ok := use.Of[a.has.pid]; ok {
			n.meter.other -= uses
			a.has.uses, a.has.most = uses, max(a.has.most, uses)
			n.meter.learn(a.has.batch, uses)
		}
	}
	for s := range n.held {
		if uses, ok := use.Of[s.pid]; ok && s.guest != nil {
			n.meter.other -= uses
			s.uses, s.most = uses, max(s.most, uses)
		}
	}
	slices.SortFunc(running, func(a, b *attempt) int { return cmp.Or(b.has.begun-a.has.begun, b.Order-a.Order) })
	switch last := n.meter.leaving; {
	case n.memory() <= 0:
		return nil, ""
	case n.meter.busy() && last.end == endAsked && n.left(use) < n.memory()/memoryGone:
		return last, last.why // it has no time any more
	case n.meter.busy() || len(running) == 0:
		return nil, ""
	}
	goes, why = n.relieve(running, use)
	n.meter.leaving = goes
	return goes, why
}

// relieve has the one go back that began last, if memory runs low, unless it is the
// last. That one is ended if it alone uses more than the node offers at all. One at a
// time goes.
func (n *daemon) relieve(running []*attempt, use *proc.MemoryUse) (goes *attempt, why string) {
	last := running[0]
	switch {
	case len(running) > 1:
		return n.relieveMany(running, use)
	case last.has.measured() && !last.stopped() && use.Of[last.has.pid] > n.given().Offer.Memory:
		return last, job.ReasonNodeMemory
	}
	return nil, ""
}

// relieveMany does that where several run. If these use less together than is missing,
// builds have the memory, or others on the machine, and none of them goes for it.
func (n *daemon) relieveMany(running []*attempt, use *proc.MemoryUse) (goes *attempt, why string) {
	left, theirs := n.left(use), int64(0)
	for _, a := range running {
		theirs += use.Of[a.has.pid]
	}
	switch missing := n.mark() - left; {
	case missing <= 0:
		n.meter.told = false
		return nil, ""
	case theirs < missing:
		if !n.meter.told {
			n.meter.told = true
			n.Log.Warn("memory low, not by jobs here; none is sent back", "left", max(0, left), "jobs", theirs)
		}
		return nil, ""
	}
	i := slices.IndexFunc(running, func(a *attempt) bool { return a.has.measured() && !a.has.never && a.end == endNot })
	if i < 0 {
		return nil, ""
	}
	had := "no memory"
	if left > 0 {
		had = fmt.Sprintf("only %s of memory", unit.FormatBytes(left))
	}
	return running[i], "the node had " + had + " left, and it began last"
}

// ranOut takes into a result that memory ran out, of which its job had said nothing:
// it is given back, or has failed if there was nobody else who had some when it ended.
// One that somebody has killed while it stood still, as the kernel does for want of
// memory, has used none up: it is given back.
func (n *daemon) ranOut(a *attempt, st *proc.Status, r *job.Result) {
	killed := st.NoMemory && st.Had == 0 && n.given().Measured && a.has != nil && !a.has.alone && a.has.measured() && !a.has.never
	killedStill := st.Frozen && st.Signal == int(syscall.SIGKILL) && st.Stopped == "" && st.Had == 0 && a.has != nil && !a.has.never
	switch {
	case r.OK(), r.Fate == job.FateLost:
	case (a.end == endAsked || a.end == endMemory) && (st.Stopped == proc.StoppedOrder || r.Fate.Evicted()):
		r.Fate, r.Reason = job.FateNoMemory, a.why
	case killedStill:
		r.Fate, r.Reason = job.FateNoMemory, "killed while it stood still"
	case killed:
		r.Fate, r.Reason = job.FateNoMemory, "the memory of its node was used up, by it and others"
	case a.why == job.ReasonNodeMemory:
		r.Reason = a.why
	}
}
