package sched

import (
	"fmt"
	"reflect"

	"distribute/lib/job"
	"distribute/lib/node"
)

// A saved is what the attempts of a job begin with; the zero one is nothing.
type saved struct {
	token job.Token // of the attempt that has saved it
	try   int
}

func (e Offered) apply(m *Machine) {
	p := m.from(e.Session)
	if p == nil || p.abroad {
		return
	}
	if !p.onlyRoom(&e.Offer) {
		m.unbarSoon(p) // it may have read its file again
	}
	m.take(p, e.Offer)
	m.takeBack(p)
}

// onlyRoom says that an offer differs from the last one, and only by what is free of the
// disk, of which a node tells by itself.
func (p *peer) onlyRoom(o *node.Offer) bool {
	was := p.Offer
	was.Disk, was.DiskSize, was.Kept, was.Soon = o.Disk, o.DiskSize, o.Kept, o.Soon
	return p.Offer.Space() != o.Space() && reflect.DeepEqual(&was, o)
}

// takeBack asks for what a node that is paused or drained has not begun with, to be
// done elsewhere, and for what is to have a later build.
func (m *Machine) takeBack(p *peer) {
	if !p.Listed {
		return
	}
	all := p.Offer.Pause.Full() || p.Drained != ""
	back := func(a *attempt) {
		switch {
		case m.outdated(a):
			m.recall(a, whyOutdated)
		case all && a.unbegun():
			m.recall(a, "its node is paused or drained")
		}
	}
	for a := p.first; a != nil; a = a.after {
		back(a)
	}
	for _, g := range p.guests {
		back(g.of)
	}
}

// unbegun says that an attempt has not begun on its node, which can be asked for it.
func (a *attempt) unbegun() bool {
	return a.result == nil && !a.recalled && !a.stopped && a.current && (a.phase == job.PhaseWaiting || a.phase == job.PhaseSending) && a.peer.Listed && !a.peer.abroad
}

// haltBeside takes in that an attempt came back because one of its nodes is paused. If its own
// is not, as far as that has said, the others are given nothing for a moment, or until they say
// what they offer.
func (m *Machine) haltBeside(a *attempt) {
	if a.peer.Offer.Pause != nil {
		return
	}
	for _, g := range a.beside {
		g.on.HaltedUntil = m.lab.Now + resting
	}
}

// saves says that what an attempt has saved is what its job goes on with: it has
// itself gone on with what was saved before, so that nothing goes back.
func (m *Machine) saves(a *attempt, r *Result) bool {
	return r.Fate.Evicted() && r.Saved && r.Manifest != "" && a.from == m.batches[a.ref.Batch].saved[a.ref.Job]
}

// maxUnread is how often a job is given back in a row because what it goes on with
// cannot be read on the head, before it is failed.
const maxUnread = 3

func (e Unreadable) apply(m *Machine) {
	k, ok := e.Attempt.Key()
	if a := m.live[k]; ok && a != nil && a.result == nil && a.from.try != 0 {
		a.unread = orElse(e.Why, "unreadable")
	}
}

func unreadable(a *attempt) string {
	return fmt.Sprintf("what attempt %d has saved cannot be read on the head: %s", a.from.try, a.unread)
}

// unread puts the job of an attempt back that could not get what it goes on with,
// or fails it when that was so too often. The node is not to blame.
func (m *Machine) unread(a *attempt) {
	b := m.batches[a.ref.Batch]
	if !a.current {
		return
	}
	n := b.unread[a.ref.Job] + 1
	if n < maxUnread {
		if b.unread == nil {
			b.unread = map[uint32]int{}
		}
		b.unread[a.ref.Job] = n
		m.lose(a, unreadable(a), a.result.Fate)
		return
	}
	delete(b.unread, a.ref.Job)
	rec := a.record(job.KindFailed, job.Outcome{Reason: fmt.Sprintf("%s; that was tried %d times", unreadable(a), n)})
	rec.Fate = a.result.Fate
	m.log(a.ref, rec)
}

// evicted puts the job of a current attempt back that was asked to leave its
// node. Nobody is to blame.
func (m *Machine) evicted(a *attempt, manifest string) {
	rec := a.final(job.KindBack, manifest)
	rec.Fate, rec.Saved = a.result.Fate, manifest != "" && m.saves(a, a.result)
	rec.Reason = orElse(rec.Reason, "asked to leave "+string(a.peer.Name))
	if m.batches[a.ref.Batch].once && !rec.Saved {
		rec.Kind = job.KindFailed
		rec.Reason += "; it is never started twice"
	}
	m.log(a.ref, rec)
}

func (e Drain) apply(m *Machine) {
	if p := m.named[e.Node]; p != nil && e.By == "" {
		m.acquit(p)
	}
	if m.drained[e.Node] == e.By {
		return
	}
	if m.drained[e.Node] = e.By; e.By == "" {
		delete(m.drained, e.Node)
	}
	if p := m.named[e.Node]; p != nil {
		p.Drained = e.By
		m.takeBack(p)
	}
}

// Drained is who has drained a node; "" if nobody has.
func (m *Machine) Drained(n node.Name) (by string) { return m.drained[n] }
