package sched

import (
	"slices"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// State is where a job stands by its log; Cancelled if there is no such job.
// Paused, Stranded and Unreachable are ways of Running: see Live.
func (m *Machine) State(ref Ref) job.State {
	b := m.batches[ref.Batch]
	if b == nil || int64(ref.Job) >= int64(len(b.States)) {
		return job.Cancelled
	}
	return b.States[ref.Job]
}

// Recalls reports whether a token names an attempt that is not settled, or one that is and that
// the node of a session may still hold.
func (m *Machine) Recalls(session uint64, token job.Token) bool {
	k, ok := token.Key()
	p := m.session[session]
	return ok && (m.live[k] != nil || p != nil && p.gone[k] != nil)
}

// Closed says that Closed was said of a batch, and Reopened not since: both may
// come in one tick, so this is to be asked before a batch is dropped.
func (m *Machine) Closed(batch uint32) bool {
	b := m.batches[batch]
	return b != nil && b.closed
}

// Open is how many jobs of a batch are not over.
func (m *Machine) Open(batch uint32) int {
	if b := m.batches[batch]; b != nil {
		return b.open
	}
	return 0
}

// A Holder is a node that may hold attempts of a batch.
type Holder struct {
	Node      node.Name
	Connected bool
}

// Holders are the nodes that have attempts of a batch, or have not said yet
// that they let go of them: until they do, it is not closed.
func (m *Machine) Holders(batch uint32) (on []Holder) {
	b := m.batches[batch]
	if b == nil {
		return nil
	}
	for p := range m.everyone() {
		holds := p.hasOf(b)
		for _, note := range p.gone {
			holds = holds || note.ref.Batch == batch
		}
		if holds {
			on = append(on, Holder{p.Name, p.Session != 0})
		}
	}
	return on
}

// Settled calls f with every settled attempt of a batch that its node may still hold, in no
// particular order.
func (m *Machine) Settled(batch uint32, f func(job.Token)) {
	for p := range m.everyone() {
		for k, note := range p.gone {
			if note.ref.Batch == batch {
				f(remain{p, k, note}.token())
			}
		}
	}
}

// Waits says that attempts of a batch whose jobs are all over wait on their
// nodes: [Unwanted] lets them go.
func (m *Machine) Waits(batch uint32) bool {
	return len(m.unwanted(batch))+len(m.remains(batch)) > 0
}

// An Attempt is how a live attempt is shown.
type Attempt struct {
	Ref      Ref
	Token    job.Token
	Try      int
	Node     node.Name
	CPUs     int
	Ranks    int       // 0: it has none
	Phase    job.Phase // as its node said last; "" if nothing was heard of it since the head started
	State    job.State // of its job, by it: Running, Paused, Stranded or Unreachable; Queued: it waits there
	Current  bool      // it is its job's; else its job waits, runs elsewhere, or is over
	Stopping bool      // its job was cancelled, and its processes are there, or what it left is not home yet
	Result   *Result   // how it ended, when its node has said so; not to be changed
	Note     string    // of one that is stranded: for want of what

	Ran   time.Duration // how long its processes had run, without pauses, when its node told last; 0: they had not begun, or it did not say
	RanAt time.Duration // when that was

	Saved    job.Token // the attempt with whose saved files it began
	SavedTry int       // and its number

	Pause *node.Pause   // of one that is paused: by whom; not to be changed. nil: that is not known
	Said  time.Duration // when its node said so

	Frozen bool      // it is paused since Said, because somebody holds its job
	Since  time.Time // when the log says that it was frozen; zero: Said

	Until time.Duration // of an unreachable one: when its job goes elsewhere; 0: it waits for its node
}

func (m *Machine) shown(a *attempt) Attempt {
	b, p := m.batches[a.ref.Batch], a.peer
	s := Attempt{Ref: a.ref, Token: a.Token, Try: a.try, Node: p.Name, CPUs: a.all().CPUs, Ranks: a.Queue.Class.Ranks, Phase: a.phase, State: job.Running,
		Current: a.current, Stopping: m.stopping(a), Result: a.result, Note: a.note, Ran: max(0, a.ran), RanAt: a.ranAt, Saved: a.from.token, SavedTry: a.from.try}
	f, frozen := b.frozen[a.ref.Job]
	frozen = frozen && !p.abroad
	given := a.phase == job.PhaseWaiting || a.phase == job.PhaseSending
	begun := a.phase == job.PhaseBuilding || a.phase == job.PhaseRunning
	on := a.pausedOn()
	switch full := on != nil; {
	case a.stranded:
		s.State = job.Stranded
	case p.Session == 0 && !p.abroad:
		s.State = job.Unreachable
		if !b.once {
			s.Until = p.Heard + m.lab.Lease
		}
	case a.result != nil:
	case p.abroad && a.phase != job.PhaseRunning || !a.Active && !frozen && given:
		s.State = job.Queued
	case a.phase != job.PhasePaused && !(begun && (frozen || full)):
	case frozen && !full:
		s.State, s.Frozen, s.Said, s.Since = job.Paused, true, f.at, f.logged
	case full:
		s.State, s.Pause, s.Said = job.Paused, on.Offer.Pause, on.Offered
	default:
		s.State, s.Pause, s.Said = job.Paused, p.Offer.Pause, p.Offered
	}
	return s
}

// Live calls f with every attempt that is not settled, node by node.
func (m *Machine) Live(f func(Attempt)) {
	for p := range m.everyone() {
		for a := p.first; a != nil; a = a.after {
			f(m.shown(a))
		}
	}
}

// Guests calls f with every attempt of which ranks are on the node, that was given to
// another one of its machine.
func (m *Machine) Guests(name node.Name, f func(Attempt)) {
	if p := m.named[name]; p != nil {
		for _, g := range p.guests {
			f(m.shown(g.of))
		}
	}
}

// Current is the attempt that a running job has.
func (m *Machine) Current(ref Ref) (Attempt, bool) {
	return m.one(ref, func(a *attempt) bool { return a.current })
}

// Stopping is the attempt of a job that was cancelled that is stopping yet; see stops.
func (m *Machine) Stopping(ref Ref) (Attempt, bool) { return m.one(ref, m.stopping) }

// one is the first such attempt of a job.
func (m *Machine) one(ref Ref, such func(*attempt) bool) (Attempt, bool) {
	if b := m.batches[ref.Batch]; b != nil {
		for a := b.of[ref.Job]; a != nil; a = a.next {
			if such(a) {
				return m.shown(a), true
			}
		}
	}
	return Attempt{}, false
}

// Attempt is the live attempt of a token.
func (m *Machine) Attempt(t job.Token) (Attempt, bool) {
	k, ok := t.Key()
	if a := m.live[k]; ok && a != nil {
		return m.shown(a), true
	}
	return Attempt{}, false
}

// Knows says that a node has had a session.
func (m *Machine) Knows(n node.Name) bool { return m.named[n] != nil }

// A Node is how a node is shown. Its Note says why it rests; the rest of that
// and Seen are the shell's to fill in.
type Node struct {
	node.Row
	Heard   time.Duration // when it was heard last; of one that never was, when the head was loaded
	Unheard bool          // nothing was heard of it since then
	Until   time.Duration // when that state ends by itself, if it is resting or silent
	Wait    int           // jobs that wait for a node which is not connected, and then go elsewhere
	Stay    int           // jobs that wait for it however long it takes
	Full    int           // results that have no room on the head
	Stuck   int           // attempts whose processes do not die
	Given   string        // of one that rests: what it says of an attempt that it has handed back
	Pause   *node.Pause   // what is taken back of one that is connected; not to be changed
	Said    time.Duration // when it said so
}

// Nodes is a row for each node and cluster that was connected or was given an attempt, by
// name.
func (m *Machine) Nodes() (rows []Node) {
	for p := range m.everyone() {
		if r := m.row(p); p.Session != 0 || r.Jobs > 0 || p.state != "" { // else it is known from an old log alone
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b Node) int { return strings.Compare(string(a.Node), string(b.Node)) })
	return oneEach(rows)
}

// oneEach makes one row of those of users who have jobs at a cluster of the same name.
func oneEach(rows []Node) []Node {
	var all []Node
	for _, r := range rows {
		if n := len(all); n == 0 || all[n-1].Node != r.Node {
			all = append(all, r)
			continue
		}
		o := &all[len(all)-1]
		o.Jobs, o.Wait, o.Stay, o.Full, o.Stuck = o.Jobs+r.Jobs, o.Wait+r.Wait, o.Stay+r.Stay, o.Full+r.Full, o.Stuck+r.Stuck
		o.Heard, o.Unheard = max(o.Heard, r.Heard), o.Unheard && r.Unheard
		if r.State == node.Busy {
			o.State = r.State
		}
	}
	return all
}

func (m *Machine) row(p *peer) Node {
	r := Node{Row: node.Row{Node: p.Name, State: node.Lost, CPUs: p.Offer.CPUs, Memory: p.Offer.Memory, Arch: p.Offer.Arch,
		GPUs: p.Could.GPUs.Cards(), Counted: p.Offer.Counted, Containment: p.Offer.Containment, Capability: p.Offer.Capabilities},
		Heard: p.Heard, Unheard: p.Boot == "" && !p.came}
	for a := p.first; a != nil; a = a.after {
		if a.result == nil {
			r.Jobs++
		}
		if a.stranded {
			r.Full++
		}
		if a.phase == job.PhaseStuck {
			r.Stuck++
		}
		if a.current && m.batches[a.ref.Batch].once && !p.abroad {
			r.Stay++
		} else if a.current {
			r.Wait++
		}
	}
	if p.Session != 0 {
		r.Jobs += len(p.held) + len(p.lodged) + len(p.guests)
		r.CPUsUsed, r.MemoryUsed, r.GPUsUsed = p.Used.CPUs, p.Used.Memory, p.Used.GPUs
		r.CountedUsed = p.Used.Counts
		r.Pause, r.Said = p.Offer.Pause, p.Offered
	}
	switch {
	case p.abroad && p.first != nil:
		r.State = node.Busy
	case p.abroad:
		r.State = node.Idle
	case p.Session == 0 && m.lab.Now-p.Heard < m.lab.Lease:
		r.State, r.Until = node.Silent, p.Heard+m.lab.Lease
	case p.Session == 0:
	case p.Offer.Pause.Full() || p.HaltedUntil != 0 && p.RestsUntil == 0:
		r.State = node.Paused
	case p.Drained != "":
		r.State = node.Draining
	case p.RestsUntil != 0:
		r.State, r.Until, r.Note, r.Given = node.Resting, p.RestsUntil, p.restWhy, p.restOf
	default:
		if r.State, r.Note = node.Busy, m.tell.Note(p.Node); r.Jobs == 0 {
			r.State = node.Idle
		}
	}
	return r
}
