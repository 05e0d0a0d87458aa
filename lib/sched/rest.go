package sched

import (
	"fmt"
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
	"distribute/lib/timing"
)

// A node on which one job after another fails at once swallows a whole queue,
// since it is always free: it is rested (L47).
const (
	fast       = 10 * time.Second // a job that fails within it says something of its node
	suspicious = 3                // different jobs that failed fast in a row
	mixedBatch = 10               // the same, of a batch of which others ended well there, or run for longer
	longRest   = time.Hour
	maxBlame   = 100 // jobs that are kept against a node
)

var firstRest = timing.Wait(time.Minute) // doubled each time

// An endings is what has been seen of a batch on a node: jobs that ended well, or failed at
// once.
type endings struct {
	passed bool   // some ended well
	last   []bool // whether the last ones did, at most lastSeen
}

// lastSeen is so many as have to fail in a row until a node rests: what is wrong with the jobs
// of a batch from one of them on is seen on other nodes at the same time.
const lastSeen = mixedBatch

// add takes in how a job ended.
func (e *endings) add(well bool) {
	e.passed = e.passed || well
	if len(e.last) == lastSeen {
		e.last = append(e.last[:0], e.last[1:]...)
	}
	e.last = append(e.last, well)
}

// lead returns how many more of the last ones ended well than failed.
func (e *endings) lead() (n int) {
	for _, well := range e.last {
		if well {
			n++
		} else {
			n--
		}
	}
	return n
}

// A cooldown is a time in which a node is given nothing, and what led to it. It is in no
// log: a head that is started again begins anew.
type cooldown struct {
	restWhy string // why the node rests until RestsUntil
	restOf  string // what was said of an attempt that was handed back
	blamed  bool   // it rests for jobs that failed

	length time.Duration // of the last rest for jobs that failed or had to leave: the next is twice as long
	calm   time.Duration // when that rest ends

	failed []failure // of jobs in a row, the last of each in their order, within longRest or soon after a rest

	left   time.Duration // when jobs had to leave last, that were given after the time before
	starts uint64        // so many attempts had been started by then; 0: none had to leave
}

// A failure is that of a job that failed fast.
type failure struct {
	ref   Ref
	began time.Duration
}

// against returns the place of a job among those that count against the node; -1 if it does not.
func (c *cooldown) against(ref Ref) int {
	return slices.IndexFunc(c.failed, func(f failure) bool { return f.ref == ref })
}

// trusted takes in that a job has run on a node: not everything fails there at once.
func (c *cooldown) trusted() { c.failed, c.length = nil, 0 }

// cool lets a node rest, for twice as long as the last time if that was within an hour,
// and for so long at first.
func (m *Machine) cool(p *peer, first time.Duration, why, said string) {
	if m.lab.Now-p.calm > longRest {
		p.length = 0
	}
	p.length = min(max(first, 2*p.length), longRest)
	p.calm = m.lab.Now + p.length
	if p.calm > p.RestsUntil {
		p.RestsUntil, p.restWhy, p.restOf, p.blamed = p.calm, why, said, false
	}
}

// refused lets a node rest for a moment that hands back what it is given.
func (m *Machine) refused(p *peer, why string) {
	if until := m.lab.Now + resting; until > p.RestsUntil {
		p.RestsUntil, p.restWhy, p.restOf, p.blamed = until, "it hands back what it is given", orElse(why, "not started"), false
	}
}

// rested ends the rest of a node.
func (m *Machine) rested(p *peer) {
	p.RestsUntil, p.blamed = 0, false
}

// acquit ends the rest of a node, and forgets what led to it.
func (m *Machine) acquit(p *peer) {
	if p.RestsUntil != 0 {
		m.rested(p)
	}
	p.cooldown = cooldown{}
}

// blame takes in how an attempt ended by itself, for its node.
func (m *Machine) blame(a *attempt, r *Result) {
	if r.Fate.Unstarted() || r.Fate == job.FateBuildFailed || r.Fate == job.FateLost || r.Fate.Evicted() && !r.OK() || r.NoInput() || a.stopped || a.void || a.peer.abroad {
		return
	}
	b, p := m.batches[a.ref.Batch], a.peer
	if r.OK() {
		b.seenOn(p).add(true)
		p.trusted()
		return
	}
	if m.atFault(a) {
		return
	}
	ran := seconds(r.Runtime)
	if ran >= fast {
		p.trusted()
		return
	}
	if r.OwnLimit() { // it would have ended so anywhere
		return
	}
	b.seenOn(p).add(false)
	m.excuse(b)
	if !m.othersCan(a) {
		return
	}
	p.failed = slices.DeleteFunc(p.failed, func(f failure) bool { return m.lab.Now-max(f.began, p.calm) > longRest })
	again := p.against(a.ref)
	if again >= 0 {
		p.failed = slices.Delete(p.failed, again, again+1)
	}
	if p.failed = append(p.failed, failure{a.ref, m.lab.Now - max(0, ran)}); again >= 0 {
		return
	}
	if len(p.failed) > maxBlame {
		p.failed = p.failed[1:]
	}
	limit := suspicious
	if b.seenOn(p).passed || m.longRuns(b, p) > 0 {
		limit = mixedBatch
	}
	if len(p.failed) >= limit && p.RestsUntil == 0 { // what ends while it rests was begun before
		m.cool(p, firstRest, fmt.Sprintf("%d jobs failed within %v", len(p.failed), max(time.Second, (m.lab.Now-p.failed[0].began).Round(time.Second))), "")
		p.blamed = true
		m.recallIdle(p)
	}
}

// excuse forgets failures of a batch, now that one more of its jobs failed at once: on each node
// beside which more of its last jobs failed so than ended well or run for longer. The batch may be
// to blame, and a rest to which only its jobs have led ends.
func (m *Machine) excuse(b *batch) {
	its := func(f failure) bool { return f.ref.Batch == b.Num }
	lead := m.leadBeside(b, nil)
	for _, p := range m.peers {
		if !slices.ContainsFunc(p.failed, its) || lead-m.leadOn(b, p) >= 0 {
			continue
		}
		if p.failed = slices.DeleteFunc(p.failed, its); len(p.failed) == 0 && p.blamed && p.RestsUntil != 0 {
			p.length /= 2
			m.rested(p)
		}
	}
}

// recallIdle asks for what waits on a node for room: it need not fail, too.
func (m *Machine) recallIdle(p *peer) {
	for a := p.first; a != nil && p.Listed; a = a.after {
		if a.idles() {
			m.recall(a, "its node rests, as jobs fail there")
		}
	}
}

// idles says that an attempt only waits on its node, and is wanted there.
func (a *attempt) idles() bool {
	return !a.Active && a.result == nil && !a.recalled && !a.stopped && a.current && a.phase == job.PhaseWaiting
}

// atFault says that the job of an attempt that failed has failed on another node
// before: then it is to blame, and none of the nodes where it failed. One that rests
// for want of knowing this goes on.
func (m *Machine) atFault(a *attempt) bool {
	b := m.batches[a.ref.Batch]
	t := b.trials[a.ref.Job]
	if t == nil || !slices.ContainsFunc(t.on, func(p *policy.Node) bool { return p != a.peer.Node }) {
		return false
	}
	for _, on := range t.on {
		p := m.named[on.Name.Of(b.uid)]
		if p == nil {
			continue // a cluster that is forgotten
		}
		i := p.against(a.ref)
		if i < 0 {
			continue
		}
		p.failed = slices.Delete(p.failed, i, i+1)
		if p.blamed && len(p.failed) < suspicious {
			p.length /= 2
			m.rested(p)
		}
	}
	return true
}

// othersCan says that it is the node's fault, as far as one can tell: there is
// another node that can run the job of an attempt, and of the last jobs of its batch on the
// other nodes not more have failed at once than have ended well or run for longer.
func (m *Machine) othersCan(a *attempt) bool {
	b, q := m.batches[a.ref.Batch], m.queueOf(a.ref)
	able := slices.ContainsFunc(m.peers, func(p *peer) bool {
		return p != a.peer && p.Open() && q.Suits(p.Node) && !b.BuildFailed(p.Node)
	})
	return able && m.leadBeside(b, a.peer) >= 0
}

// leadBeside returns how many more of the last jobs of a batch ended well, or run for longer, than
// failed at once, on all nodes but one.
func (m *Machine) leadBeside(b *batch, but *peer) (lead int) {
	for _, p := range m.peers {
		if p != but {
			lead += m.leadOn(b, p)
		}
	}
	return lead
}

// leadOn returns the same of one node.
func (m *Machine) leadOn(b *batch, p *peer) int {
	lead := m.longRuns(b, p)
	if e := b.seen[p]; e != nil {
		lead += e.lead()
	}
	return lead
}

// longRuns returns how many jobs of a batch run on a node that did not fail there at once, as far as
// was heard.
func (m *Machine) longRuns(b *batch, p *peer) (n int) {
	heard := m.lab.Now
	if p.Session == 0 {
		heard = p.Heard
	}
	for a := p.first; a != nil; a = a.after {
		if a.ref.Batch == b.Num && a.result == nil && a.phase == job.PhaseRunning && a.ran+heard-a.ranAt >= fast {
			n++
		}
	}
	return n
}

// seenOn returns what has been seen of a batch on a node, to be added to.
func (b *batch) seenOn(p *peer) *endings {
	if b.seen == nil {
		b.seen = map[*peer]*endings{}
	}
	if b.seen[p] == nil {
		b.seen[p] = &endings{}
	}
	return b.seen[p]
}

// witness takes in, of a record that is replayed, how an attempt ended by itself: where
// jobs of its batch end well, and where they fail at once.
func (m *Machine) witness(b *batch, a *attempt, rec *job.Record) {
	if a.peer.abroad {
		return
	}
	failed := (rec.Kind == job.KindFailed || rec.Kind == job.KindBack) && rec.Fate == job.FateEnded && !rec.NoInput()
	switch {
	case rec.Kind == job.KindDone:
		b.seenOn(a.peer).add(true)
	case failed && rec.Memory == 0 && !rec.OwnLimit() && seconds(rec.Runtime) < fast && !m.atFault(a):
		b.seenOn(a.peer).add(false)
	}
}

// leaveAgain is within what time after a node was given jobs again it counts as once more
// that these have to leave.
const leaveAgain = 10 * time.Minute

// hadToLeave takes in that an attempt had to leave its node, or was given back for a
// pause. Once is what a desk is for; a node that does so again and again, each time
// with a job that it was just given, rests for longer each time.
func (m *Machine) hadToLeave(a *attempt, why, said string) {
	p := a.peer
	if a.order <= p.starts {
		return // it was there before: the same pause
	}
	again := p.starts > 0 && m.lab.Now-max(p.left, p.calm) < leaveAgain
	p.left, p.starts = m.lab.Now, m.starts
	if again {
		m.cool(p, resting, why, said)
	}
}
