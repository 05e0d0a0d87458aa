package sched

import (
	"fmt"
	"reflect"
	"time"

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
	if p == nil {
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
	was := p.offer
	was.Disk, was.DiskSize, was.Kept, was.Soon = o.Disk, o.DiskSize, o.Kept, o.Soon
	return p.offer.Space() != o.Space() && reflect.DeepEqual(&was, o)
}

// paused says that a node is given nothing because somebody has taken it back.
func (p *peer) paused() bool { return p.offer.Pause.Full() || p.halt != 0 || p.drained != "" }

// takeBack asks for what a node that is paused or drained has not begun with, to be
// done elsewhere.
func (m *Machine) takeBack(p *peer) {
	if !p.listed || !p.offer.Pause.Full() && p.drained == "" {
		return
	}
	for a := p.first; a != nil; a = a.after {
		if a.result == nil && !a.recalled && !a.stopped && a.current && (a.phase == job.PhaseWaiting || a.phase == job.PhaseSending) {
			a.recalled = true
			m.do(Recall{p.session, a.token})
		}
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
	m.stopVoid(b, a.ref.Job, "the job failed")
}

// evicted puts the job of a current attempt back that was asked to leave its
// node. Nobody is to blame.
func (m *Machine) evicted(a *attempt, manifest string) {
	rec := a.final(job.KindBack, manifest)
	rec.Fate, rec.Saved = a.result.Fate, manifest != "" && m.saves(a, a.result)
	rec.Reason = orElse(rec.Reason, "asked to leave "+string(a.peer.name))
	if m.batches[a.ref.Batch].never && !rec.Saved {
		rec.Kind = job.KindFailed
		rec.Reason += "; it is never started twice"
	}
	m.log(a.ref, rec)
	if rec.Kind == job.KindFailed {
		m.stopVoid(m.batches[a.ref.Batch], a.ref.Job, "the job failed")
	}
}

// leavesAt tells when a node will be paused by its hours, if that is soon.
func (m *Machine) leavesAt(p *peer) string {
	if m.cfg.Clock == nil || !m.leaves(p) {
		return ""
	}
	return "pauses at " + m.cfg.Clock(p.soon)
}

// pausedWhy tells by whom a node is paused or drained, and until when.
func (m *Machine) pausedWhy(p *peer) string {
	pause := p.offer.Pause
	if p.drained != "" {
		return fmt.Sprintf("%s drained by %s", p.name, p.drained)
	}
	if pause == nil {
		return fmt.Sprintf("%s is paused", p.name)
	}
	if len(pause.By) == 0 {
		return fmt.Sprintf("%s paused (%s)%s", p.name, pause.Who(), m.until(p))
	}
	return fmt.Sprintf("%s paused by %s%s", p.name, pause.Who(), m.until(p))
}

// until is when the pause of a node ends, in words.
func (m *Machine) until(p *peer) string {
	if p.offer.Pause.Left == 0 || m.cfg.Clock == nil {
		return ""
	}
	return " until " + m.cfg.Clock(p.offered+time.Duration(p.offer.Pause.Left*float64(time.Second)))
}

// lentWhy tells what of a node is lent back, and until when. Without that it offers less
// than it could only where somebody else is on its GPUs.
func (m *Machine) lentWhy(p *peer) string {
	pause := p.offer.Pause
	if pause == nil || pause.Give == nil {
		return fmt.Sprintf("%s has %s left, and somebody else uses the rest", p.name, p.has.gpus.Words("gpu"))
	}
	return fmt.Sprintf("%s lent back %s to %s%s", p.name, pause.Give, pause.Who(), m.until(p))
}
