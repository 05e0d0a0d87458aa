package sched

import (
	"fmt"
	"math"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/explain"
	"distribute/lib/sched/policy"
)

// ReasonBuild is the reason of a back whose batch could not be built on its node, and
// what the reason of a failed begins with whose batch could not be built on any.
const ReasonBuild = explain.ReasonBuild

// ReasonAhead is why a job waits that a busy node has already.
const ReasonAhead = "given to its node, where it begins as soon as another job ends"

// ReasonBox is that of a batch of which no container could be started on any node.
const ReasonBox = explain.ReasonBox

// Replay folds a record of a batch that was added with Replay and is not ready
// yet. An error says that the record cannot follow those before it (the log is
// damaged), and nothing was changed.
func (m *Machine) Replay(ref Ref, rec *job.Record) error {
	b := m.batches[ref.Batch]
	if b == nil || b.Ready {
		return fmt.Errorf("record %d: batch %d takes no replay", rec.Seq, ref.Batch)
	}
	if err := m.fold(b, ref, rec); err != nil {
		return fmt.Errorf("record %d: %w", rec.Seq, err)
	}
	return nil
}

// fold takes a record into the state that lasts. It is the only code that
// changes that state, for live events and for replay alike.
func (m *Machine) fold(b *batch, ref Ref, rec *job.Record) error {
	i := int(ref.Job)
	if ref.Job == AllJobs {
		i = job.WholeBatch
	}
	next, err := b.Next(i, rec)
	if err != nil {
		return err
	}
	if i == job.WholeBatch {
		return m.foldWhole(b, rec)
	}
	if err := m.foldAttempt(b, ref, rec); err != nil {
		return err
	}
	switch rec.Kind {
	case job.KindDone, job.KindFailed, job.KindCancelled:
		delete(b.losses, ref.Job)
		delete(b.saved, ref.Job)
		delete(b.unread, ref.Job)
		for a := b.of[ref.Job]; a != nil; a = a.next {
			if rec.Kind == job.KindCancelled {
				m.stops(a)
			}
			a.current, a.void = false, true
		}
	case job.KindRetry:
		delete(b.losses, ref.Job)
		clear(b.FailedBuilds)
		if rec.Anew > b.anew {
			b.anew, b.anewBy = rec.Anew, rec.Request
		}
		b.Said = ""
		clear(b.Suspect)
	}
	if rec.Set != nil && rec.Set.Time != nil {
		b.queue(ref.Job).Says.Allow(*rec.Set.Time)
	}
	m.foldFreeze(b, ref.Job, rec)
	for a := b.of[ref.Job]; a != nil; a = a.next { // those that the record has not ended
		m.count(a)
	}
	m.tally(b, rec)
	if rec.Request != "" {
		b.asked[request{ref.Job, rec.Request}] = struct{}{}
	}
	if b.less, err = b.Fold(i, rec, func(i int, from job.State) { m.stateChanged(b, uint32(i), from) }); err != nil {
		return err
	}
	if next.Over() {
		b.forget(ref.Job)
	}
	return nil
}

// foldAttempt takes in what a record says of its attempt. It changes nothing
// when it returns an error.
func (m *Machine) foldAttempt(b *batch, ref Ref, rec *job.Record) error {
	if rec.Kind == job.KindStart {
		return m.foldStart(b, ref, rec)
	}
	named := rec.Kind == job.KindDone || rec.Kind == job.KindBack || rec.Kind == job.KindAdopt || rec.Kind == job.KindLate ||
		rec.Kind == job.KindFailed && rec.Attempt != ""
	if !named {
		if rec.Kind == job.KindFailed && b.States[ref.Job] == job.Running {
			return fmt.Errorf("failed without an attempt, of a job that is running")
		}
		return nil
	}
	k, ok := rec.Attempt.Key()
	a := m.live[k]
	if !ok || a == nil || a.ref != ref {
		return m.foldSettled(k, ref, rec)
	}
	switch {
	case rec.Kind == job.KindAdopt && a.void:
		return fmt.Errorf("attempt %s is adopted after its job was over", rec.Attempt)
	case rec.Kind == job.KindDone && a.void:
		return fmt.Errorf("attempt %s is accepted after its job was over", rec.Attempt)
	case (rec.Kind == job.KindBack || rec.Kind == job.KindFailed) != a.current && rec.Kind != job.KindDone:
		return fmt.Errorf("%s of attempt %s, whose job goes on with current=%v", rec.Kind, rec.Attempt, a.current)
	}
	if !b.Ready {
		m.witness(b, a, rec)
	}
	switch rec.Kind {
	case job.KindAdopt:
		a.current, a.seq = true, 0
		delete(b.losses, ref.Job) // it was not lost after all
	case job.KindDone, job.KindLate:
		m.settle(a, rec.Manifest != "")
	case job.KindFailed:
		a.current = false
		if rec.Fate != job.FateLost {
			m.settle(a, rec.Manifest != "")
		}
	case job.KindBack:
		m.foldBack(b, a, rec)
	}
	return nil
}

func (m *Machine) foldBack(b *batch, a *attempt, rec *job.Record) {
	a.current = false
	switch {
	case rec.Fate == job.FateEnded || rec.Disk > 0:
		m.foldTried(b, a, rec)
	case rec.Fate == job.FateBuildFailed:
		b.FailedBuilds[a.peer.Node], b.Said = struct{}{}, rec.Said
	}
	if rec.Saved {
		if b.saved == nil {
			b.saved = map[uint32]saved{}
		}
		b.saved[a.ref.Job] = saved{a.Token, a.try}
	}
	if rec.Fate == job.FateLost {
		b.losses[a.ref.Job]++
		return
	}
	m.settle(a, rec.Manifest != "")
}

func (m *Machine) foldStart(b *batch, ref Ref, rec *job.Record) error {
	k, ok := rec.Attempt.Key()
	switch {
	case !ok:
		return rec.Attempt.Check()
	case m.live[k] != nil:
		return fmt.Errorf("attempt %s starts a second time", rec.Attempt)
	case rec.Node == "" || rec.Try < 1 || rec.CPUs < 0:
		return fmt.Errorf("attempt %s starts without a node, a number, or cpus", rec.Attempt)
	}
	p := m.peerOf(node.Name(rec.Node), b.uid)
	if p.gone[k] != nil {
		return fmt.Errorf("attempt %s starts a second time", rec.Attempt)
	}
	m.starts++
	got := policy.Share{}
	if !p.abroad {
		got = m.queueOf(ref).Class.Share
	}
	if got.CPUs = rec.CPUs; !p.abroad && rec.GPUs > 0 { // also of a job that has all of its node
		got.GPUs = rec.GPUs
	}
	a := &attempt{Run: policy.Run{Token: rec.Attempt, Job: ref.Job, Queue: m.queueOf(ref), Share: got}, ref: ref, key: k, try: rec.Try, peer: p, current: true,
		from: b.saved[ref.Job], next: b.of[ref.Job], order: m.starts, seq: rec.Seq, anew: b.anew}
	m.addPortions(a, rec.Also)
	b.of[ref.Job] = a
	m.live[k] = a
	p.append(a)
	b.tries[ref.Job] = uint32(min(rec.Try, math.MaxUint32))
	return nil
}

// foldSettled takes a record of an attempt that is settled: a late that tells
// of what a returned attempt left after all. Its node may have let go of it
// since, which the log does not tell; so any other late is taken as well.
func (m *Machine) foldSettled(k key, ref Ref, rec *job.Record) error {
	if p := m.named[node.Name(rec.Node).Of(m.batches[ref.Batch].uid)]; p != nil {
		if note := p.gone[k]; note != nil && note.ref == ref && rec.Kind == job.KindLate {
			note.kept = note.kept || rec.Manifest != ""
			return nil
		}
	}
	return fmt.Errorf("%s of attempt %q, which was not started or is settled", rec.Kind, string(rec.Attempt))
}

// settle ends an attempt: only a note stays until its node has let it go.
func (m *Machine) settle(a *attempt, kept bool) {
	b, p := m.batches[a.ref.Batch], a.peer
	m.drop(a)
	p.gone[a.key] = &settledNote{ref: a.ref, kept: kept, listed: a.listed}
	b.unacked++
}

// drop takes an attempt out of all lists.
func (m *Machine) drop(a *attempt) {
	b := m.batches[a.ref.Batch]
	m.idle(a)
	m.resolve(a)
	a.dead = true
	m.count(a)
	a.peer.remove(a)
	delete(m.live, a.key)
	first := b.of[a.ref.Job]
	if first == a {
		first = a.next
	} else {
		for o := first; o != nil; o = o.next {
			if o.next == a {
				o.next = a.next
			}
		}
	}
	if first != nil {
		b.of[a.ref.Job] = first
	} else {
		delete(b.of, a.ref.Job)
	}
}

func (p *peer) append(a *attempt) {
	a.before = p.last
	if p.last == nil {
		p.first = a
	} else {
		p.last.after = a
	}
	p.last = a
}

func (p *peer) remove(a *attempt) {
	if a.before == nil {
		p.first = a.after
	} else {
		a.before.after = a.after
	}
	if a.after == nil {
		p.last = a.before
	} else {
		a.after.before = a.before
	}
}
