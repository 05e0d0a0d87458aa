package sched

import (
	"fmt"
	"maps"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// known says that a phase is one of ours.
func known(phase job.Phase) bool {
	switch phase {
	case job.PhaseWaiting, job.PhaseSending, job.PhaseBuilding, job.PhaseRunning, job.PhasePaused, job.PhaseStuck, job.PhaseReturning:
		return true
	}
	return false
}

// find is the live attempt that a node means by a token. If there is none it
// answers what is to be said: of settled attempts by told, of unknown ones Hold,
// of those of other nodes nothing.
func (m *Machine) find(p *peer, token job.Token, told func(*settledNote)) *attempt {
	k, ok := token.Key()
	if !ok {
		m.do(Odd{p.Session, token, "it names an attempt by what is no token"})
		return nil
	}
	if a := m.live[k]; a != nil {
		if a.peer == p {
			return a
		}
		if _, told := p.strays[k]; !told {
			m.do(Odd{p.Session, token, fmt.Sprintf("it names an attempt of %s", a.peer.Name)})
		}
		return nil
	}
	if note := p.gone[k]; note != nil {
		told(note)
		return nil
	}
	m.do(Hold{p.Session, token, "the head does not know this attempt"})
	return nil
}

func (e Item) apply(m *Machine) {
	p := m.from(e.Session)
	if p == nil {
		return
	}
	if p.Listed {
		m.do(Odd{e.Session, e.Attempt, "its list goes on after the end"})
		return
	}
	if !known(e.Phase) || (e.Phase == job.PhaseReturning) != (e.Ended != nil) {
		m.do(Odd{e.Session, e.Attempt, fmt.Sprintf("its list has an attempt in phase %.40q", e.Phase)})
		e.Phase, e.Ended = job.PhaseRunning, nil // it is there: it must not count as lost
	}
	if m.stray(p, e) {
		return
	}
	a := m.find(p, e.Attempt, func(n *settledNote) {
		n.listed = p.Session
		m.answerSettled(p, n, e.Attempt, e.Ended)
	})
	if a == nil {
		m.hold(p, e)
		return
	}
	a.listed = p.Session
	m.mark(a)
	a.told = e.GPUs
	a.ran, a.ranAt = seconds(e.Ran), m.lab.Now
	m.takeCards(a)
	if a.result != nil && e.Ended == nil {
		if a.boot == p.Boot { // else the end was lost with the power of the machine
			m.do(Odd{e.Session, e.Attempt, "an attempt that had ended runs"})
		}
		a.result, a.refused = nil, false
		a.returnBeside()
		m.count(a)
	}
	if e.Ended != nil {
		a.result, a.phase = nil, job.PhaseReturning
		m.count(a)
		m.adopt(a, good(e.Ended) || m.saves(a, e.Ended))
		m.ended(a, *e.Ended)
		return
	}
	if a.worked && a.boot != p.Boot && !p.abroad && (works(e.Phase) || !a.current) {
		if a.current {
			m.lose(a, fmt.Sprintf("%s was restarted under it", p.Name), job.FateLost)
		} // else it was lost already, and is not adopted: that would be a loss that does not count
		m.stop(a, "its machine was restarted under it")
		a.phase = e.Phase
		return
	}
	a.phase = e.Phase
	m.saw(a)
	m.answerRunning(a)
}

// hold counts the cpus and GPUs of an attempt that the head does not know but the node
// runs, so that no more is given to the node than it has room for.
func (m *Machine) hold(p *peer, e Item) {
	k, ok := e.Attempt.Key()
	if !ok || p.abroad || e.Ended != nil || e.Phase == job.PhaseWaiting || len(p.held) >= maxHeld || p.gone[k] != nil {
		return
	}
	if e.CPUs < 1 {
		e.CPUs = max(1, p.Could.CPUs) // what its owner uses now is offered later
	}
	u := unknown{gpus: job.AllCards(e.GPUs)}
	u.own = u.of(p, e.CPUs)
	maps.DeleteFunc(e.Also, func(name string, _ int) bool { return job.CheckName(name) != nil }) // it may be long
	if p.lodges+len(e.Also) <= maxHeld {
		u.also = e.Also
		p.lodges += len(e.Also)
	}
	p.held[k] = u
	p.Unknown = true
}

// An unknown is what an attempt has that its node lists, and the head does not know.
type unknown struct {
	own  policy.Share // of that node
	also job.Lodging  // of others of the machine
	gpus job.Cards    // of all of them
}

// of returns a share of a node with so many cpus, and the GPUs that the node offers.
func (u *unknown) of(p *peer, cpus int) policy.Share {
	has := p.Could.Cards.Minus(p.Could.Cards.Minus(u.gpus))
	return policy.Share{CPUs: min(cpus, policy.MaxCPUs), GPUs: job.GPUs(has.Len()) * job.OneGPU, Cards: has}
}

// answerSettled answers a node that still has a settled attempt. It may delete
// what is safe or not wanted. What the head had taken for lost and is there
// after all is kept, for an operator to look at.
func (m *Machine) answerSettled(p *peer, n *settledNote, token job.Token, ended *Result) {
	switch s := m.State(n.ref); {
	case ended == nil:
		m.do(Stop{p.Session, token, "its job went on without it"})
	case ended.Fate.Unstarted():
		m.do(Forget{p.Session, token})
	case n.kept || ended.Manifest == "" || s == job.Done || s == job.Cancelled:
		m.do(Have{p.Session, token})
	default:
		k, _ := token.Key()
		m.keep(remain{p, k, n}, "its result comes after the head was told that it is lost")
	}
}

// answerRunning answers a node that connects and has an attempt that is not
// over.
func (m *Machine) answerRunning(a *attempt) {
	b := m.batches[a.ref.Batch]
	m.adopt(a, true)
	switch {
	case a.current:
		m.tellWay(a)
	case a.void:
		m.stop(a, "its job is over")
	case a.phase == job.PhaseWaiting && b.States[a.ref.Job] == job.Running:
		m.stop(a, "its job runs elsewhere")
	case (a.phase == job.PhaseWaiting || a.phase == job.PhaseSending) && b.States[a.ref.Job] == job.Held:
		m.stop(a, "its job is held")
	default:
		m.tellWay(a)
	}
}

// adopt makes a returned attempt its job's again when the job waits.
func (m *Machine) adopt(a *attempt, wanted bool) {
	if b := m.batches[a.ref.Batch]; wanted && !a.current && !a.void && b.States[a.ref.Job] == job.Queued {
		rec := a.record(job.KindAdopt, job.Outcome{})
		all := a.all()
		rec.CPUs, rec.Memory, rec.GPUs, rec.Counted = all.CPUs, all.Memory, all.GPUs, all.Counts
		m.log(a.ref, rec)
	}
}

func (e Built) apply(m *Machine) {
	p, b := m.from(e.Session), m.batches[e.Batch]
	if p == nil || b == nil {
		return
	}
	if _, ok := b.Pace[p.Node]; !ok {
		b.Pace[p.Node] = policy.NoPace
	}
}

func (e Phase) apply(m *Machine) {
	p := m.from(e.Session)
	if p == nil {
		return
	}
	a := m.find(p, e.Attempt, func(n *settledNote) { n.listed = p.Session })
	if a != nil {
		a.listed = p.Session
	}
	switch {
	case a == nil || a.result != nil || e.Phase == job.PhaseReturning:
	case !known(e.Phase):
		m.do(Odd{e.Session, e.Attempt, fmt.Sprintf("it says phase %.40q", e.Phase)})
	case e.Phase != job.PhaseWaiting, p.abroad && a.phase == job.PhaseRunning: // a cluster may begin it again
		m.mark(a)
		a.phase, a.ran, a.ranAt = e.Phase, seconds(e.Ran), m.lab.Now
		m.saw(a)
	}
}

// works says that something of an attempt runs in a phase, or would.
func works(phase job.Phase) bool {
	return phase == job.PhaseBuilding || phase == job.PhaseRunning || phase == job.PhasePaused || phase == job.PhaseStuck
}

// saw takes in what the phase of an attempt tells of its node.
func (m *Machine) saw(a *attempt) {
	if a.phase != job.PhaseWaiting && a.phase != job.PhaseSending {
		m.resolve(a)
	}
	if works(a.phase) {
		a.worked, a.boot = true, a.peer.Boot
	}
	if a.phase == job.PhaseRunning {
		delete(m.batches[a.ref.Batch].unread, a.ref.Job)
		m.built(a, policy.NoPace)
	}
}

func (e Ended) apply(m *Machine) {
	p := m.from(e.Session)
	if p == nil {
		return
	}
	if m.strayEnded(p, e.Attempt, &e.Result) {
		return
	}
	a := m.find(p, e.Attempt, func(n *settledNote) {
		n.listed = p.Session
		m.answerSettled(p, n, e.Attempt, &e.Result)
	})
	if a == nil {
		m.unhold(p, e.Attempt)
		return
	}
	a.listed = p.Session
	switch {
	case a.result == nil:
		m.ended(a, e.Result)
	case p.abroad && !a.moving: // of a session before; a folder has no list, and may have changed
		a.result, a.stranded, a.note = nil, false, ""
		m.ended(a, e.Result)
	case e.Result.Fate == job.FateLost && a.result.Fate != job.FateLost:
		m.spoiled(a, e.Result)
	}
}

// spoiled takes in that the node cannot send what an attempt left, of which it
// has said before how it ended.
func (m *Machine) spoiled(a *attempt, r Result) {
	r.Manifest = ""
	a.result, a.moving, a.stranded, a.note = &r, false, false, ""
	m.finish(a, "")
}

func (m *Machine) unhold(p *peer, token job.Token) {
	k, _ := token.Key()
	if u, ok := p.held[k]; ok {
		delete(p.held, k)
		p.Unknown = len(p.held)+len(p.lodged) > 0
		if p.Listed {
			p.vacate(u.own, true)
		}
		m.recountLodged(p)
		p.lodges -= len(u.also)
	}
}

// good says that a result makes its job done.
func good(r *Result) bool {
	return r.OK() && r.Manifest != "" && !r.Fate.Unstarted() && r.Fate != job.FateBuildFailed && r.Fate != job.FateLost
}

// ended takes in that an attempt is over on its node. What it left is brought
// home first; what becomes of the job is decided when it is there.
func (m *Machine) ended(a *attempt, r Result) {
	b := m.batches[a.ref.Batch]
	if a.peer.abroad {
		r = fromAbroad(r)
	}
	switch {
	case len(a.beside) > 0 && (r.Fate == job.FateNodePaused || r.Fate.Evicted()): // of which of its nodes it says nothing
		m.haltBeside(a)
	case a.peer.abroad || a.recalled || a.stopped || r.Fate.Unstarted() && (a.stilled || b.still(a.ref.Job)):
	case r.Fate == job.FateNoMemory:
		m.refuseRoom(b, a.peer, r.Reason)
	case r.Fate.Evicted():
		m.hadToLeave(a, "its jobs have to leave it again and again", r.Reason)
	case !r.Fate.Unstarted():
	case r.Fate == job.FateNodePaused:
		a.peer.HaltedUntil = m.lab.Now + resting
		m.hadToLeave(a, "it hands back what it is given", orElse(r.Reason, "paused"))
	case a.peer.Paused():
	case r.Fate == job.FateNoRoom && a.peer.DiskBelow(a.disk): // others of its batch may ask for less
	case r.Fate == job.FateNoRoom:
		m.refuseRoom(b, a.peer, r.Reason)
	case r.Fate == job.FateBarred:
		m.bar(b, a.peer, r.Reason)
	case a.unread != "":
		m.refuseRoom(b, a.peer, unreadable(a))
	default:
		m.refused(a.peer, r.Reason)
	}
	m.blame(a, &r)
	m.idle(a)
	m.resolve(a)
	if r.OK() && r.Manifest == "" {
		r.Reason = "it ended well, but its node has no result of it"
	}
	a.result, a.phase = &r, job.PhaseReturning
	m.count(a)
	switch {
	case r.Fate.Unstarted(), r.Fate == job.FateLost, r.Fate.Evicted():
	case r.Fate == job.FateBuildFailed:
		b.Suspect[a.peer.Node] = struct{}{}
	default:
		ran := seconds(r.Runtime)
		if !r.OK() { // the next may fail, too: few of them wait there
			ran = max(ran, policy.AheadFor)
		}
		m.built(a, ran)
	}
	if r.Fate.Unstarted() || r.Manifest == "" {
		m.finish(a, "")
		return
	}
	m.grant(a)
}

func (m *Machine) grant(a *attempt) {
	if a.moving || a.peer.Session == 0 || a.result == nil {
		return
	}
	a.moving, a.refused = true, false
	m.do(Grant{a.peer.Session, a.ref, a.Token, a.try, a.result.Manifest, a.result.Bytes, a.result.Entries})
}

func (e Staged) apply(m *Machine) {
	k, ok := e.Attempt.Key()
	a := m.live[k]
	if !ok || a == nil || a.result == nil || a.result.Manifest == "" {
		return // settled meanwhile, or its batch is gone
	}
	a.moving = false
	m.mark(a)
	switch {
	case e.Err == nil && e.Manifest == a.result.Manifest:
		a.stranded, a.note, a.said, a.list = false, "", e.Said, e.List
		m.finish(a, e.Manifest)
	case e.Err != nil && e.Permanent:
		m.refuse(a, e.Err)
	default:
		a.stranded, a.note = e.NoRoom, ""
		if e.NoRoom {
			a.note = e.Err.Error()
		}
		if e.NoRoom || a.retryAt != 0 { // it failed before
			a.stopping = false
		}
		a.retryAt = m.lab.Now + regrant
		m.again = append(m.again, a)
	}
}

// refuse deals with a result that cannot be brought home: its job fails, and
// the node keeps what it has until the job is done by another attempt, or cancelled.
func (m *Machine) refuse(a *attempt, err error) {
	why := "its result could not be brought home: " + err.Error()
	if a.current {
		rec := a.record(job.KindFailed, a.result.Outcome)
		rec.Reason, rec.Fate = why, job.FateLost
		m.log(a.ref, rec)
	}
	if s := m.State(a.ref); s == job.Done || s == job.Cancelled {
		m.abandon(a)
		return
	}
	a.refused = true
	if a.peer.Session != 0 {
		m.do(Hold{a.peer.Session, a.Token, why})
	}
}

// finish decides what an attempt that is over means for its job, once what it
// left (if anything) is safe on the head as manifest.
func (m *Machine) finish(a *attempt, manifest string) {
	b, r := m.batches[a.ref.Batch], a.result
	out := false
	switch {
	case r.Fate.Unstarted() && a.unread != "":
		m.unread(a)
	case r.Fate == job.FateNoRoom && a.current && a.peer.DiskBelow(a.disk):
		rec := a.record(job.KindBack, job.Outcome{Reason: orElse(r.Reason, "no room")})
		rec.Fate, rec.Disk = r.Fate, a.disk
		m.log(a.ref, rec)
	case r.Fate.Unstarted():
		m.handBack(a, orElse(r.Reason, "not started"))
	case r.Fate == job.FateBuildFailed && a.current:
		// With what the build has printed: a power cut between two records would have the
		// head wait for ever for what it takes for lost.
		rec := a.record(job.KindBack, job.Outcome{Reason: ReasonBuild})
		rec.Fate = r.Fate
		a.brings(&rec, manifest)
		m.log(a.ref, rec)
	case r.Fate == job.FateLost:
		m.handBack(a, orElse(r.Reason, "lost by "+string(a.peer.Name)))
	case good(r) && !a.void && !b.States[a.ref.Job].Over():
		m.log(a.ref, a.final(job.KindDone, manifest))
		out = true
	case a.current && r.Fate.Evicted():
		m.evicted(a, manifest)
	case a.current:
		m.failed(a, manifest)
	}
	if !a.dead {
		m.log(a.ref, a.final(job.KindLate, manifest))
	}
	if manifest != "" {
		m.do(Publish{a.ref, a.Token, a.try, out})
	}
	if session := a.peer.Session; session != 0 && r.Fate.Unstarted() {
		m.do(Forget{session, a.Token})
	} else if session != 0 {
		m.do(Have{session, a.Token})
		if a.result.Fate != job.FateNoMemory {
			m.retrySoon(a.peer) // who was ended for want of room has left none
		}
	}
}

// handBack puts the job of a current attempt back that never started or is lost.
func (m *Machine) handBack(a *attempt, why string) {
	if a.current {
		m.lose(a, why, a.result.Fate)
	}
}

// final is the record that settles an attempt.
func (a *attempt) final(kind job.Kind, manifest string) job.Record {
	rec := a.record(kind, a.result.Outcome)
	a.brings(&rec, manifest)
	return rec
}

// brings notes in a record what is safe on the head of an attempt, as manifest.
func (a *attempt) brings(rec *job.Record, manifest string) {
	if manifest != "" {
		rec.Manifest, rec.List, rec.Files, rec.Bytes = manifest, a.list, a.result.Files, a.result.Bytes
	}
}

func orElse(s, dflt string) string {
	if s == "" {
		return dflt
	}
	return s
}

func (e Tick) apply(m *Machine) {
	m.despair(m.ticked)
	m.ticked = m.lab.Now
	m.retryRefusals()
	for _, p := range m.peers {
		m.stopStrays(p)
		if p.RestsUntil != 0 && m.lab.Now >= p.RestsUntil {
			m.rested(p)
		}
		if p.HaltedUntil != 0 && m.lab.Now >= p.HaltedUntil {
			p.HaltedUntil = 0
		}
		if m.loaded && m.lab.Now-p.Heard >= m.lab.Lease && (p.first != nil || p.Session != 0) {
			m.expire(p)
		}
	}
	waiting := m.again[:0]
	for _, a := range m.again {
		switch {
		case a.dead || a.moving || a.result == nil || a.peer.Session == 0:
		case m.lab.Now >= a.retryAt:
			m.grant(a)
		default:
			waiting = append(waiting, a)
		}
	}
	clear(m.again[len(waiting):])
	m.again = waiting
}

// expire gives up what a node has that was silent for too long. A session that
// lasts all the same has nothing at its other end.
func (m *Machine) expire(p *peer) {
	if p.Session != 0 {
		m.do(Refuse{Session: p.Session, Why: fmt.Sprintf("%s was silent for %v", p.Name, m.lab.Lease)})
		m.down(p)
	}
	if !p.expired {
		p.expired = true
		m.countAll(p)
	}
	for a := p.first; a != nil; {
		next := a.after
		if a.current && !m.batches[a.ref.Batch].once {
			m.lose(a, fmt.Sprintf("%s was silent for %v", p.Name, m.lab.Lease), job.FateLost)
		}
		a = next
	}
}
