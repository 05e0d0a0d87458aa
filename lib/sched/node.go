package sched

import (
	"fmt"
	"time"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
	"distribute/lib/timing"
)

// MaxNodes is how many nodes a Machine knows, connected or not.
const MaxNodes = 10_000

// MaxStates is how many new state ids a node may show within statesIn: each is
// logged, and takes what the node had from it.
const (
	MaxStates = 30
	statesIn  = time.Hour
)

// maxHeld is how many attempts unknown to the head have their cpus counted, of a node.
const maxHeld = 1 << 12

var (
	regrant = timing.Wait(10 * time.Second) // until a transfer that failed is tried again
	resting = timing.Wait(10 * time.Second) // of a node that hands back what it is given
)

func (e NodeUp) apply(m *Machine) {
	switch p := m.named[e.Node.Of(e.UID)]; {
	case e.Session == 0 || m.session[e.Session] != nil:
		m.do(Odd{Session: e.Session, Why: "a session with this number is there already"})
		return
	case !m.loaded:
		m.do(Refuse{Session: e.Session, Why: "the head is starting, try again"})
		return
	case p != nil && p.Session != 0:
		m.do(Refuse{Session: e.Session, Why: fmt.Sprintf("a node named %s is connected", e.Node)})
		return
	case e.Node.Abroad() && !m.MayClaim(e.Node, e.UID):
		m.do(Refuse{Session: e.Session, Later: true, Why: fmt.Sprintf("jobs are at too many clusters already, %d are the limit for a user", MaxClusters)})
		return
	case p == nil && !e.Node.Abroad() && len(m.peers) >= MaxNodes:
		m.do(Refuse{Session: e.Session, Why: fmt.Sprintf("%d nodes are known, which is the limit: dsched forgets those that are gone when it is started again", MaxNodes)})
		return
	case p != nil && !p.mayBe(e.State, m.lab.Now):
		m.do(Refuse{Session: e.Session, Later: true, Why: fmt.Sprintf("node %s has come with %d new state ids within an hour, which is the limit: does each start make its directory anew?", e.Node, MaxStates)})
		return
	}
	p := m.peerOf(e.Node, e.UID)
	p.Heard, p.Session, p.Listed, p.Removed, p.expired = m.lab.Now, e.Session, false, false, false
	m.session[e.Session] = p
	if p.abroad {
		p.came = true
		return
	}
	if l := (LogNode{e.Node, e.State, e.Machine, e.Number}); l != p.logged {
		p.logged = l
		m.do(l)
	}
	if p.state != e.State {
		p.states++
		if was := p.directory(); was != "" && was != e.State {
			m.wipe(p, string(p.Name)+" lost its directory")
		}
	}
	if p.Boot != e.Boot {
		m.acquit(p)
	}
	p.Boot, p.state = e.Boot, e.State
	p.held, p.lodges, p.visits, p.strays, p.Unknown = map[key]unknown{}, 0, map[key]visit{}, nil, false
	m.inherit(p)
	m.unbar(p)
	m.take(p, e.Offer)
}

// mayBe says whether a node may come with a state id now.
func (p *peer) mayBe(state string, now time.Duration) bool {
	if now-p.statesAt >= statesIn {
		p.statesAt, p.states = now, 0
	}
	return state == p.state || p.states < MaxStates
}

func (e HadState) apply(m *Machine) {
	if p := m.named[e.Node]; p != nil {
		p.had = e
	}
}

func (e Leased) apply(m *Machine) {
	if m.lab.Lease = e.For; e.For <= 0 {
		m.lab.Lease = usualLease
	}
}

func (e Heard) apply(m *Machine) { m.from(e.Session) }

func (e NodeDown) apply(m *Machine) {
	if p := m.session[e.Session]; p != nil {
		m.down(p)
	}
}

// down ends the session of a node; all that it was told and that is not in the
// log is to be told again.
func (m *Machine) down(p *peer) {
	delete(m.session, p.Session)
	p.Session, p.Listed, p.Expects, p.held, p.lodged, p.visits, p.strays, p.Unknown = 0, false, nil, nil, nil, nil, nil, false
	p.Used, p.Active, p.Waiting, p.Waits = policy.Share{}, 0, 0, policy.Share{}
	for a := p.first; a != nil; a = a.after {
		m.resolve(a)
		a.moving, a.recalled, a.stopped = false, false, false
		a.stopping = a.stopping && m.lab.Now-p.Heard < policy.SettleTime // see despair, which finds later ones
		m.count(a)
	}
	for _, g := range p.guests {
		g.counted = false
	}
	if p.abroad {
		m.letGoAll(p) // who comes next brings back what is not settled, and nothing else
	}
}

func (e NodeGone) apply(m *Machine) {
	for p := range m.everyone() {
		if p.Name == e.Node && p.Session == 0 {
			m.wipe(p, string(p.Name)+" was given up")
			p.logged.Machine, p.logged.Number = "", 0
			m.recountLodged(p)
		}
	}
}

func (e Removed) apply(m *Machine) {
	if p := m.named[e.Node]; p != nil {
		p.Removed = !e.Back
	}
}

// wipe loses all that a node had.
func (m *Machine) wipe(p *peer, why string) {
	for a := p.first; a != nil; {
		next := a.after
		m.vanish(a, why, true)
		a = next
	}
	m.letGoAll(p)
}

// letGoAll forgets all settled attempts of a node.
func (m *Machine) letGoAll(p *peer) {
	for k := range p.gone {
		m.letGo(p, k)
	}
}

// letGo forgets a settled attempt.
func (m *Machine) letGo(p *peer, k key) {
	note := p.gone[k]
	delete(p.gone, k)
	if b := m.batches[note.ref.Batch]; b != nil {
		b.unacked--
	}
}

func (e Gone) apply(m *Machine) {
	p := m.from(e.Session)
	if p == nil {
		return
	}
	k, ok := e.Attempt.Key()
	if s := p.strays[k]; s != nil && s.over {
		delete(p.strays, k)
	} else if p.gone[k] != nil {
		m.letGo(p, k)
	} else if !ok || m.live[k] != nil {
		m.do(Odd{e.Session, e.Attempt, "it says that nothing is left of an attempt that is not settled"})
	}
}

// startedIn reports whether an attempt of an earlier life of the head was given to its node
// when this had that directory already, and was not found on it later.
func (a *attempt) startedIn(had HadState) bool { return had.Since > 0 && a.seq > had.Since }

// vanish ends an attempt of which nothing is left on its node. wiped says that
// this is no proof that it never started. Of an attempt of an earlier life of the head it is
// not known whether it was seen at work, and the worst is assumed; but one that is not to be
// started twice has never begun if its node has the same directory without it, for nodes note
// these durably before they run.
func (m *Machine) vanish(a *attempt, why string, wiped bool) {
	if a.current {
		fate := job.FateUnstarted
		if once := m.batches[a.ref.Batch].once; a.worked || once && wiped || a.phase == "" && !(once && a.startedIn(a.peer.had)) {
			fate = job.FateLost
		}
		m.lose(a, why, fate)
	}
	if !a.dead {
		m.log(a.ref, a.record(job.KindLate, job.Outcome{Reason: why}))
	}
}

// lose gives up a current attempt: its job waits again, or fails when it was
// lost too often or must not be started twice. A lost attempt may have taken its node
// down, and may still run; what is lost on a cluster is gone, and counts as evicted.
func (m *Machine) lose(a *attempt, why string, fate job.Fate) {
	b := m.batches[a.ref.Batch]
	rec := a.record(job.KindBack, job.Outcome{Reason: why})
	rec.Fate = fate
	switch n := b.losses[a.ref.Job] + 1; {
	case fate != job.FateLost:
	case b.once:
		rec.Kind = job.KindFailed
		rec.Reason = why + "; it is never started twice"
	case a.peer.abroad:
		rec.Fate = job.FateEvicted
	case n >= m.cfg.CrashLimit:
		rec.Kind = job.KindFailed
		rec.Reason = fmt.Sprintf("lost %d times in a row, the last time: %s", n, why)
	}
	m.log(a.ref, rec)
}

// record starts a record about an attempt.
func (a *attempt) record(kind job.Kind, o job.Outcome) job.Record {
	return job.Record{Kind: kind, Attempt: a.Token, Try: a.try, Node: string(a.peer.Name), Outcome: o, Said: a.said}
}

// whyOver is why the attempts are stopped of a job that such a record ends.
var whyOver = map[job.Kind]string{
	job.KindDone:      "another attempt has brought the result",
	job.KindFailed:    "the job failed",
	job.KindCancelled: "cancelled",
}

// stopVoid stops all attempts of a job that are void and run still.
func (m *Machine) stopVoid(b *batch, i uint32, why string) {
	for a := b.of[i]; a != nil; a = a.next {
		if a.void {
			m.stop(a, why)
		}
	}
}

// stop tells a node to end an attempt, once a session. A node whose list is
// not complete is told when it names the attempt, or later.
func (m *Machine) stop(a *attempt, why string) {
	if a.result == nil && !a.stopped && a.peer.Session != 0 && (a.peer.Listed || a.listed == a.peer.Session) {
		a.stopped = true
		m.do(Stop{a.peer.Session, a.Token, why})
	}
}

func (e ListEnd) apply(m *Machine) {
	p := m.from(e.Session)
	if p == nil || p.Listed {
		return
	}
	for a := p.first; a != nil; {
		next := a.after
		if a.listed != p.Session && !p.abroad {
			m.vanish(a, fmt.Sprintf("%s came back without it", p.Name), false)
		}
		a = next
	}
	for k, note := range p.gone {
		if note.listed != p.Session {
			m.letGo(p, k)
		}
	}
	if len(p.gone) == 0 {
		p.gone = map[key]*settledNote{} // a map keeps the room that it once had
	}
	p.Listed = true
	m.learnCards(p)
	m.recount(p)
	m.recountLodged(p)
	m.takeBack(p)
}

// occupy counts one more attempt on the node, which has room there, or waits for it.
func (p *peer) occupy(s policy.Share, room bool) {
	if room {
		p.Used, p.Active = p.Used.Plus(s), p.Active+1
	} else {
		p.Waits, p.Waiting = p.Waits.Plus(s), p.Waiting+1
	}
}

// vacate counts one less.
func (p *peer) vacate(s policy.Share, room bool) {
	if room {
		p.Used, p.Active = p.Used.Minus(s), p.Active-1
	} else {
		p.Waits, p.Waiting = p.Waits.Minus(s), p.Waiting-1
	}
}

// recount counts the room of a node anew: what runs first, then what waits, in
// order, as far as it fits.
func (m *Machine) recount(p *peer) {
	if p.abroad {
		return
	}
	p.Used, p.Active, p.Waiting, p.Waits = policy.Share{}, 0, 0, policy.Share{}
	for _, u := range p.held {
		p.occupy(u.own, true)
	}
	m.lodge(p)
	for _, s := range p.lodged {
		p.occupy(s, true)
	}
	p.Unknown = len(p.held)+len(p.lodged) > 0
	for _, known := range []bool{true, false} { // who has GPUs of which it is not known which has some of the rest
		for _, g := range p.guests {
			if known == g.Share.Settled() {
				g.Share = p.Given(g.Queue.Class, g.Share)
				g.occupy()
			}
		}
		for a := p.first; a != nil; a = a.after {
			if known == a.Share.Settled() {
				a.Active = a.result == nil && a.phase != job.PhaseWaiting
				if a.result == nil {
					a.Share = p.Given(a.Queue.Class, a.Share)
					p.occupy(a.Share, a.Active)
				}
				m.count(a)
			}
		}
	}
	m.promote(p)
}

// promote gives room to the attempts that wait on a node, in their order, as
// the node itself does.
func (m *Machine) promote(p *peer) {
	if !p.Listed || p.Waiting == 0 || p.Paused() {
		return
	}
	for a := p.first; a != nil; a = a.after {
		if a.Active || a.result != nil || a.dead {
			continue
		}
		if !policy.Fits(p.Has, p.Used.Bare(), a.Share.Bare()) && p.Active > 0 {
			return
		}
		a.Active = true
		p.vacate(a.Share, false)
		p.occupy(a.Share, true)
		m.count(a)
	}
}

// idle takes an attempt out of the count of its node.
func (m *Machine) idle(a *attempt) {
	p := a.peer
	a.leaveBeside()
	if a.dead || a.result != nil && !a.Active || p.abroad || !m.batches[a.ref.Batch].Ready {
		return // it is not counted
	}
	if p.Listed { // else it is counted when the list is complete
		p.vacate(a.Share, a.Active)
	}
	a.Active = false
}

// resolve ends a recall: the attempt came back, started, or is out of reach.
func (m *Machine) resolve(a *attempt) {
	if !a.recalled {
		return
	}
	a.recalled = false
	for _, p := range m.peers {
		if p.Expects == &a.Run {
			p.Expects = nil
		}
	}
}
