package sched

import (
	"fmt"
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/timing"
)

// A node on which one job after another fails at once swallows a whole queue,
// since it is always free: it is rested (L47).
const (
	fast       = 10 * time.Second // a job that fails within it says something of its node
	suspicious = 3                // different jobs that failed fast in a row
	mixedBatch = 10               // the same, of a batch that has had good ends there
	longRest   = time.Hour
	maxBlame   = 100 // jobs that are kept against a node
)

var firstRest = timing.Wait(time.Minute) // doubled each time

// What has been seen of a batch on a node.
const (
	passed     = 1 << iota // a job ended well
	failedFast             // a job failed at once
)

// A suspicion is what speaks against a node. It is in no log: a head that is started
// again begins anew.
type suspicion struct {
	jobs   []Ref         // that failed fast, in a row
	since  time.Duration // when the first of them began
	rests  int           // how often the node was rested for them: while it is not 0, the node gets one job at a time
	only   []Ref         // jobs that failed here and ended well elsewhere
	proofs int           // how often the node was rested for them, each time soon after the one before
	proven time.Duration // when the last of these rests ends
	blamed bool          // it rests for any of these
}

// trusted ends the suspicion that something fails at once whatever it is.
func (s *suspicion) trusted() { s.jobs, s.rests = nil, 0 }

// blame takes in how an attempt ended by itself, for its node.
func (m *Machine) blame(a *attempt, r *Result) {
	if r.Fate.Unstarted() || r.Fate == job.FateBuildFailed || r.Fate == job.FateLost || r.Fate.Evicted() && !r.OK() || a.stopped || a.void || a.peer.abroad {
		return
	}
	b, p := m.batches[a.ref.Batch], a.peer
	if r.OK() {
		b.note(p, passed)
		p.trusted()
		if i := slices.IndexFunc(p.only, func(ref Ref) bool { return ref.Batch == b.num }); i >= 0 {
			p.only = slices.Delete(p.only, i, i+1)
		}
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
	b.note(p, failedFast)
	if slices.Contains(p.jobs, a.ref) {
		return
	}
	if len(p.jobs) == 0 {
		p.since = m.now - max(0, ran)
	}
	p.jobs = noted(p.jobs, a.ref)
	limit := suspicious
	if b.seen[p]&passed != 0 {
		limit = mixedBatch
	}
	if len(p.jobs) >= limit && p.rest == 0 && m.othersCan(a) { // what ends while it rests was begun before
		m.rest(p, p.rests, fmt.Sprintf("%d jobs failed within %v", len(p.jobs), max(time.Second, (m.now-p.since).Round(time.Second))))
		p.rests++
	}
}

// noted is some jobs and one more, the last of them.
func noted(jobs []Ref, ref Ref) []Ref {
	if jobs = append(jobs, ref); len(jobs) > maxBlame {
		jobs = jobs[1:]
	}
	return jobs
}

// atFault says that the job of an attempt that failed has failed on another node
// before: then it is to blame, and none of the nodes where it failed. One that rests
// for want of knowing this goes on.
func (m *Machine) atFault(a *attempt) bool {
	t := m.batches[a.ref.Batch].trials[a.ref.Job]
	if t == nil || !slices.ContainsFunc(t.on, func(p *peer) bool { return p != a.peer }) {
		return false
	}
	for _, p := range t.on {
		i := slices.Index(p.jobs, a.ref)
		if i < 0 {
			continue
		}
		p.jobs = slices.Delete(p.jobs, i, i+1)
		if p.blamed && len(p.jobs) < suspicious && len(p.only) < suspicious {
			p.rest, p.blamed, p.rests = 0, false, max(0, p.rests-1)
			m.changed++
			m.touch(p)
		}
	}
	return true
}

// passedElsewhere takes in that a job has ended well that failed on other nodes: as
// one of several that is their fault, unless jobs of its batch end well there, too.
func (m *Machine) passedElsewhere(a *attempt, on []*peer) {
	for _, p := range on {
		if p == a.peer || slices.Contains(p.only, a.ref) {
			continue
		}
		p.only = noted(p.only, a.ref)
		why := fmt.Sprintf("%d jobs failed only here", len(p.only))
		switch {
		case len(p.only) < suspicious:
		case p.rest != 0 && p.blamed:
			p.restWhy = why
			m.changed++
		case p.rest == 0 && m.able(a.ref, p):
			if m.now-p.proven > longRest {
				p.proofs = 0
			}
			m.rest(p, p.proofs, why)
			p.proofs++
			p.proven = p.rest
		}
	}
}

// rested ends the rest of a node whose time is over. What has been proven against it
// has had its punishment.
func (m *Machine) rested(p *peer) {
	if p.rest = 0; p.blamed {
		p.blamed, p.only = false, nil
	}
	m.changed++
	m.touch(p)
}

// refused lets a node rest for a moment that hands back what it is given.
func (m *Machine) refused(p *peer, why string) {
	if until := m.now + resting; until > p.rest {
		p.rest, p.restWhy, p.restOf, p.blamed = until, "it hands back what it is given", orElse(why, "not started"), false
		m.changed++
	}
}

// rest lets a node rest for its failures, after so many rests for the same.
func (m *Machine) rest(p *peer, after int, why string) {
	length := longRest
	if after < 6 { // 2^6 minutes are more
		length = firstRest << after
	}
	p.rest, p.restWhy, p.restOf, p.blamed = m.now+length, why, "", true
	m.changed++
	for a := p.first; a != nil && p.listed; a = a.after { // what waits there for room need not fail, too
		if a.idles() {
			a.recalled = true
			m.do(Recall{p.session, a.token})
		}
	}
}

// idles says that an attempt only waits on its node, and is wanted there.
func (a *attempt) idles() bool {
	return !a.active && a.result == nil && !a.recalled && !a.stopped && a.current && a.phase == job.PhaseWaiting
}

// A leaving is how often a node has its jobs leave, or gives them back because it
// is paused. It is in no log.
type leaving struct {
	before time.Duration // when it did so last, of a job that it was given after the time before
	starts uint64        // so many attempts had been started by then; 0: it never did
	length time.Duration // of its last rest for that
}

// leaveAgain is how soon after such a node was given jobs again it counts as the
// same story that they have to leave again.
const leaveAgain = 10 * time.Minute

// left takes in that an attempt had to leave its node, or was given back for a
// pause. Once is what a desk is for; a node that does so again and again, each time
// with a job that it was just given, rests for longer each time.
func (m *Machine) left(a *attempt, why, said string) {
	l := &a.peer.leaving
	if a.order <= l.starts {
		return // it was there before: the same pause
	}
	length := time.Duration(0)
	if l.starts > 0 && m.now-l.before-l.length < leaveAgain {
		length = min(max(resting, 2*l.length), longRest)
	}
	*l = leaving{before: m.now, starts: m.starts, length: length}
	if until := m.now + length; length > 0 && until > a.peer.rest {
		a.peer.rest, a.peer.restWhy, a.peer.restOf, a.peer.blamed = until, why, said, false
		m.changed++
	}
}

// othersCan says that it is the node's fault, as far as one can tell: there is
// another node for the batch of an attempt, and its jobs have not failed at once
// elsewhere, unless they have also ended well elsewhere.
func (m *Machine) othersCan(a *attempt) bool {
	b := m.batches[a.ref.Batch]
	var better, worse bool
	for _, p := range m.peers {
		if p == a.peer {
			continue
		}
		better = better || b.seen[p]&passed != 0
		worse = worse || b.seen[p]&failedFast != 0
	}
	return (better || !worse) && m.able(a.ref, a.peer)
}

// able says that another node than p can run a job.
func (m *Machine) able(ref Ref, p *peer) bool {
	b, q := m.batches[ref.Batch], m.queueOf(ref)
	return slices.ContainsFunc(m.peers, func(o *peer) bool {
		return o != p && o.listed && o.rest == 0 && q.suits(o) && !b.shuns(o)
	})
}

func (b *batch) note(p *peer, what uint8) {
	if b.seen == nil {
		b.seen = map[*peer]uint8{}
	}
	b.seen[p] |= what
}

// acquit forgets what speaks against a node.
func (m *Machine) acquit(p *peer) {
	if p.rest != 0 {
		m.changed++
		m.touch(p)
	}
	p.rest, p.suspicion, p.leaving = 0, suspicion{}, leaving{}
}

// witness takes in, of a record that is replayed, how an attempt ended by itself: where
// jobs of its batch end well, and where they fail at once.
func (m *Machine) witness(b *batch, a *attempt, rec *job.Record) {
	if a.peer.abroad {
		return
	}
	failed := (rec.Kind == job.KindFailed || rec.Kind == job.KindBack) && rec.Fate == job.FateEnded
	switch {
	case rec.Kind == job.KindDone:
		b.note(a.peer, passed)
	case failed && rec.Memory == 0 && seconds(rec.Runtime) < fast && !m.atFault(a):
		b.note(a.peer, failedFast)
	}
}
