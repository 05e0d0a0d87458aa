package sched

import (
	"fmt"
	"time"
)

// A node on which one job after another fails at once swallows a whole queue,
// since it is always free: it is rested (L47).
const (
	fast       = 10 * time.Second // a job that fails within it says something of its node
	suspicious = 3                // different jobs that failed fast in a row
	mixedBatch = 10               // the same, of a batch that has had good ends there
	firstRest  = time.Minute      // doubled each time
	longRest   = time.Hour
)

// What has been seen of a batch on a node.
const (
	passed     = 1 << iota // a job ended well
	failedFast             // a job failed at once
)

// A suspicion is what speaks against a node. It is not in the log.
type suspicion struct {
	fails int           // jobs that failed fast, in a row
	again Ref           // the last of them
	since time.Duration // when the first of them began
	rests int           // how often the node was rested for them: while it is not 0, the node gets one job at a time
}

// blame takes in how an attempt ended by itself, for its node.
func (m *Machine) blame(a *attempt, r *Result) {
	if r.Unstarted || r.BuildFailed || r.Lost || a.stopped || a.void {
		return
	}
	b, p := m.batches[a.ref.Batch], a.peer
	ran := seconds(r.Runtime)
	switch {
	case r.OK():
		b.note(p, passed)
		p.suspicion = suspicion{}
		return
	case ran >= fast:
		p.suspicion = suspicion{}
		return
	}
	b.note(p, failedFast)
	if p.fails > 0 && p.again == a.ref {
		return
	}
	if p.fails == 0 {
		p.since = m.now - max(0, ran)
	}
	p.fails++
	p.again = a.ref
	limit := suspicious
	if b.seen[p]&passed != 0 {
		limit = mixedBatch
	}
	if p.fails >= limit && p.rest == 0 && m.othersCan(a) { // what ends while it rests was begun before
		m.rest(p)
	}
}

// refused lets a node rest for a moment that hands back what it is given.
func (m *Machine) refused(p *peer, why string) {
	if until := m.now + resting; until > p.rest {
		p.rest, p.restWhy, p.restOf = until, "it hands back what it is given", orElse(why, "not started")
	}
}

// rest lets a node rest for its failures.
func (m *Machine) rest(p *peer) {
	length := longRest
	if p.rests < 6 { // 2^6 minutes are more
		length = firstRest << p.rests
	}
	p.rests++
	p.rest = m.now + length
	p.restOf = ""
	p.restWhy = fmt.Sprintf("%d jobs failed within %v", p.fails, max(time.Second, (m.now-p.since).Round(time.Second)))
	for a := p.first; a != nil && p.listed; a = a.after { // what waits there for room need not fail, too
		if a.idles() {
			a.recalled = true
			m.do(Recall{p.session, a.token})
		}
	}
}

// idles says that an attempt only waits on its node, and is wanted there.
func (a *attempt) idles() bool {
	return !a.active && a.result == nil && !a.recalled && !a.stopped && a.current && a.phase == Waiting
}

// A leaving is how often a node has its jobs leave, or gives them back because it
// is paused. It is not in the log.
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
		a.peer.rest, a.peer.restWhy, a.peer.restOf = until, why, said
	}
}

// othersCan says that it is the node's fault, as far as one can tell: there is
// another node for the batch of an attempt, and its jobs have not failed at once
// elsewhere, unless they have also ended well elsewhere.
func (m *Machine) othersCan(a *attempt) bool {
	b, q := m.batches[a.ref.Batch], m.queueOf(a.ref)
	var able, better, worse bool
	for _, p := range m.peers {
		if p == a.peer {
			continue
		}
		better = better || b.seen[p]&passed != 0
		worse = worse || b.seen[p]&failedFast != 0
		able = able || p.listed && p.rest == 0 && p.fits[q.c] && !b.shuns(p)
	}
	return able && (better || !worse)
}

func (b *batch) note(p *peer, what uint8) {
	if b.seen == nil {
		b.seen = map[*peer]uint8{}
	}
	b.seen[p] |= what
}
