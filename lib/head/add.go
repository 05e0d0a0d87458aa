package head

import (
	"errors"
	"fmt"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// addsTo says that a submission is to be added to a batch that is there, of its user.
// Else the answer to its name stands.
func (t *tool) addsTo(m *wire.Submit, b *spool.Batch, err error) bool {
	return m.Add && errors.Is(err, spool.ErrTaken) && b != nil && b.Head.UID == t.peer.UID
}

// add adds the jobs of a submission to the batch of its name. It waits for others who
// add to it.
func (t *tool) add(m *wire.Submit, sub *spool.Submission) (*wire.Accepted, error) {
	n, b, err := t.toAdd(m.Batch)
	if err != nil {
		return nil, err
	}
	defer t.settled(func() { t.endAdd(n) })
	a, err := sub.Add(b.Batch)
	if err != nil {
		return nil, err
	}
	defer a.End()
	if err := t.putSecrets(b, sub); err != nil {
		return nil, err
	}
	if a.Jobs == 0 {
		return &wire.Accepted{Ref: m.Ref, Batch: b.ID, Same: true, Jobs: b.Jobs()}, nil
	}
	said, err := b.asksOf(a.Jobs, a.Scan)
	if err != nil {
		return nil, err
	}
	var whom *job.Needs
	if b.needs || said.needs {
		if whom, err = a.Needs(); err != nil {
			return nil, err
		}
	}
	var ended string
	if !t.settled(func() {
		if t.aside[n] != "" {
			return
		}
		if ended = t.machine.EndsAdded(n, a.Jobs); ended == "" {
			t.added(n, a, m, said, whom)
		}
	}) {
		return nil, errEnding
	}
	if err := t.keptIn(sched.Ref{Batch: n}); err != nil {
		return nil, err
	}
	if ended != "" {
		return nil, &wire.Error{Status: cli.Input, Text: fmt.Sprintf(
			"jobs added to %q would be cancelled at once: %s (dretry what failed first, or make another batch of these)", b.ID, ended)}
	}
	return &wire.Accepted{Ref: m.Ref, Batch: b.ID, Jobs: b.Jobs(), Added: a.Jobs}, nil
}

// toAdd is a batch to which jobs are to be added, and its number. It is not forgotten
// until endAdd.
func (t *tool) toAdd(id job.BatchID) (n uint32, b *batch, err error) {
	if !t.do(func() {
		if n, err = t.number(id); err == nil {
			b = t.batches[n]
			b.adding++
		}
	}) {
		return 0, nil, errEnding
	}
	if err == nil && !t.owns(b.Head.UID) { // the name has passed to another's
		t.do(func() { t.endAdd(n) })
		err = &wire.Error{Status: cli.Later, Text: fmt.Sprintf("%q was deleted meanwhile: try again", id)}
	}
	return n, b, err
}

// endAdd lets a batch be forgotten again.
func (h *Head) endAdd(n uint32) {
	if b := h.batches[n]; b != nil {
		b.adding--
		h.close(n)
	}
}

// added takes jobs that are added into the state.
func (h *Head) added(n uint32, a *spool.Addition, m *wire.Submit, said askedJobs, whom *job.Needs) {
	b := h.batches[n]
	from := b.known
	rec := a.Added()
	rec.By, rec.Request = b.Head.Owner, m.Ref
	b.known += a.Jobs
	b.needs = b.needs || said.needs
	if b.limits != nil || said.limits != nil {
		usual := limitOf(b.Head.Spec.Resources.Time)
		b.limits = padded(append(padded(b.limits, from, usual), said.limits...), b.known, usual)
	}
	h.tools.count(b.Head.UID, user{jobs: a.Jobs})
	jobs := make([]uint32, a.Jobs)
	for i := range jobs {
		jobs[i] = uint32(from + i)
	}
	// Its record comes behind those of what was decided of the jobs before it.
	h.ticks.actions = append(h.ticks.actions, sched.Log{Ref: sched.Ref{Batch: n, Job: sched.AllJobs}, Rec: rec, Jobs: jobs})
	h.apply(sched.AddJobs{Batch: n, Spec: &b.Head.Spec, Jobs: a.Jobs, Asks: said.asks, Own: said.own, Again: said.again, Needs: whom})
}

// padded is a list with others at its end, so that it is so long.
func padded(list []uint32, length int, other uint32) []uint32 {
	for len(list) < length {
		list = append(list, other)
	}
	return list
}
