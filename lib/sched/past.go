package sched

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// What a machine goes by that does not follow from the logs of open batches it tells
// its shell by Past, and is told it by Remember when the head was started again.

// A Past is what owners have used lately, and what speaks against nodes, at a moment
// of the machine's clock.
type Past struct {
	At     time.Duration
	Owners []Used
	Nodes  []Standing
	Works  bool // somebody's attempts take something now: soon more will be used
}

// Used is what the jobs of an owner have used.
type Used struct {
	Owner int
	CPU   float64 // seconds of a cpu, of which half count after each hour
}

// A Standing is what speaks against a node. A moment may lie before the head was
// started, and is less than 0 then.
type Standing struct {
	Node node.Name
	Boot string // of its machine: with another all of this is forgotten

	Heard time.Duration // of it, last

	Rest   time.Duration // until when it rests; 0: it does not
	Why    string        // it does
	Given  string        // what it said of an attempt that it handed back
	Blamed bool          // it rests for jobs that failed

	Fast  []Ref         // jobs that failed at once, in a row
	Since time.Duration // when the first of them began
	Rests int           // how often it rested for such

	Only   []Ref         // jobs that failed only there
	Proofs int           // how often it rested for such
	Proven time.Duration // when the last of these rests ends

	Leaves  bool          // it had its jobs leave
	Left    time.Duration // when it did so last
	Leaving time.Duration // how long it rested for that
}

// Is says that both are the same, but that one may have been heard of a while later.
func (s Standing) Is(o Standing) bool {
	if later := s.Heard - o.Heard; later.Abs() < time.Hour {
		s.Heard = o.Heard
	}
	return reflect.DeepEqual(s, o)
}

// forgetAfter is how long after a node was heard of last, and rests no more, what
// speaks against it is remembered: names that do not come again are forgotten.
const forgetAfter = 24 * time.Hour

// Rests goes up whenever a node begins to rest, or goes on before its time, or what
// speaks against it is forgotten: what Past says then is to be safe before anything is
// done or told because of it.
func (m *Machine) Rests() uint64 { return m.rests }

// Past is what is to be remembered, the nodes by their names. It costs a look at every
// owner and every node.
func (m *Machine) Past() Past {
	past := Past{At: m.now}
	for _, uid := range slices.Sorted(maps.Keys(m.owners)) {
		o := *m.owners[uid] // whose turn stays as it is
		o.reckon(m.now)
		past.Works = past.Works || o.rate > 0
		if o.used >= 1 {
			past.Owners = append(past.Owners, Used{uid, o.used})
		}
	}
	note := func(p *peer) {
		if s, any := m.standing(p); any {
			past.Nodes = append(past.Nodes, s)
		}
	}
	for _, p := range m.peers {
		note(p)
	}
	for _, p := range m.absent {
		note(p)
	}
	slices.SortFunc(past.Nodes, func(a, b Standing) int { return cmp.Compare(a.Node, b.Node) })
	return past
}

// standing is what is to be remembered of a node, if anything is that may still count.
func (m *Machine) standing(p *peer) (s Standing, any bool) {
	s = Standing{Node: p.name, Boot: orElse(p.boot, p.before), Heard: p.heard, Rests: p.rests}
	over := m.now >= p.rest // or it does not rest
	if over && m.now-p.heard > forgetAfter {
		return Standing{Node: p.name}, false
	}
	if !over {
		s.Rest, s.Why, s.Given, s.Blamed = p.rest, p.restWhy, p.restOf, p.blamed
	}
	if len(p.jobs) > 0 {
		s.Fast, s.Since = slices.Clone(p.jobs), p.since
	}
	if !over || !p.blamed {
		s.Only = slices.Clone(p.only)
	}
	if p.proofs > 0 && m.now-p.proven <= longRest {
		s.Proofs, s.Proven = p.proofs, p.proven
	}
	if l := p.leaving; l.starts > 0 && m.now-l.before-l.length < leaveAgain {
		s.Leaves, s.Left, s.Leaving = true, l.before, l.length
	}
	return s, s.against()
}

// against says that something speaks against a node.
func (s *Standing) against() bool {
	return s.Rest != 0 || s.Rests+len(s.Fast)+len(s.Only)+s.Proofs > 0 || s.Leaves
}

func (e Remember) apply(m *Machine) {
	if m.loaded {
		return
	}
	passed := max(0, m.now-e.At).Seconds()
	for _, u := range e.Owners {
		if used := u.CPU * math.Exp(-decay*passed); used >= 0 && used <= math.MaxInt32*maxCPUs {
			o := m.ownerOf(u.Owner)
			o.used, o.at = used, m.now
			o.reckon(m.now)
		}
	}
	m.turn++
	for _, s := range e.Nodes {
		p := &peer{name: s.Node, heard: m.ago(s.Heard)}
		m.remember(p, &s)
		if _, any := m.standing(p); any && len(m.absent) < MaxNodes {
			m.absent[s.Node] = p
		}
		if known := m.named[s.Node]; known != nil {
			m.remind(known)
		}
	}
}

// remember takes in what spoke against a node. By a clock that was set back nothing
// lasts for longer than it could.
func (m *Machine) remember(p *peer, s *Standing) {
	p.before = s.Boot
	p.jobs, p.since, p.rests = lastOf(s.Fast), m.ago(s.Since), max(0, s.Rests)
	p.only, p.proofs, p.proven = lastOf(s.Only), max(0, s.Proofs), min(max(s.Proven, m.now-longAgo), m.now+longRest)
	switch {
	case s.Rest > m.now:
		p.rest, p.restWhy, p.restOf, p.blamed = min(s.Rest, m.now+longRest), s.Why, s.Given, s.Blamed
	case s.Blamed:
		p.only = nil // that rest is over
	}
	if s.Leaves { // what it had before it has left in the same pause
		m.starts = max(1, m.starts)
		p.leaving = leaving{before: m.ago(s.Left), starts: m.starts, length: min(max(0, s.Leaving), longRest)}
	}
}

// remind gives a node that becomes known what was remembered of it, as far as that
// still counts.
func (m *Machine) remind(p *peer) {
	if before := m.absent[p.name]; before != nil {
		s, _ := m.standing(before)
		m.remember(p, &s)
		delete(m.absent, p.name)
	}
}

// longAgo is as long ago as anything is remembered to be.
const longAgo = 365 * 24 * time.Hour

// ago is a moment that was remembered, if it can have been.
func (m *Machine) ago(moment time.Duration) time.Duration {
	return min(max(moment, m.now-longAgo), m.now)
}

// lastOf is the last of some jobs, as many as are kept against a node.
func lastOf(jobs []Ref) []Ref { return slices.Clone(jobs[max(0, len(jobs)-maxBlame):]) }

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

// acquit forgets what speaks against a node.
func (m *Machine) acquit(p *peer) {
	if s, _ := m.standing(p); s.against() {
		m.rests++
	}
	p.rest, p.suspicion, p.leaving, p.before = 0, suspicion{}, leaving{}, ""
}
