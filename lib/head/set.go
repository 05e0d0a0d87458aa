package head

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// set changes what is asked for of jobs, and returns the ids of those that are not
// over and for which something is different then. named is who head.yaml names as an operator.
//
// A priority that an operator sets counts for all, and its owner does not change that. Of the
// own batches of whoever runs dsched that is so only if he is named: he may be alone there.
func (t *tool) set(m *wire.Change, named bool, ids []job.ID, refs []sched.Ref) (changed []job.ID, err error) {
	forAll := func(n uint32) bool { return named || !t.owns(t.batches[n].Head.UID) }
	for n := range byBatch(refs) {
		if m.Set.Priority != nil && t.machine.ForAll(n) && !forAll(n) {
			return nil, &wire.Error{Status: cli.NotAllowed, Text: fmt.Sprintf(
				"an operator has set the priority of %s: only operators may change it, and give it back by dset -p 0", t.batches[n].ID)}
		}
	}
	for n, jobs := range byBatch(refs) {
		b, of := t.batches[n], ids[:len(jobs)]
		ids = ids[len(jobs):]
		set := *m.Set
		set.ForAll = set.Priority != nil && forAll(n)
		whole := t.machine.Differs(n, &set)
		var timed []uint32
		others := 0
		for k, i := range jobs {
			if t.machine.State(sched.Ref{Batch: n, Job: i}).Over() {
				continue
			}
			other := m.Set.Time != nil && *m.Set.Time != b.limit(int(i))
			if other {
				timed = append(timed, i)
			} else if m.Set.Time != nil {
				others++
			}
			if whole || other {
				changed = append(changed, of[k])
			}
		}
		if (whole || len(timed) > 0) && !m.Dry {
			t.setBatch(b, sched.SetBatch{Batch: n, Set: set, Timed: timed, Others: others, By: t.peer.User, Request: m.Ref})
		}
	}
	return changed, nil
}

// setBatch changes what is asked for of a batch. What asks next is told how it is now,
// and not how it was when a commit was made last.
func (h *Head) setBatch(b *batch, ev sched.SetBatch) {
	before := len(h.ticks.actions)
	h.apply(ev)
	for _, a := range h.ticks.actions[before:] {
		switch a, ok := a.(sched.Log); {
		case !ok:
		case a.Ref.Job == sched.AllJobs:
			b.take(-1, a.Rec.Set)
		default:
			b.take(int(a.Ref.Job), a.Rec.Set)
		}
	}
}

// take takes in what a record sets of the batch, or of job i.
func (b *batch) take(i int, s *job.Set) {
	if s == nil {
		return
	}
	if s.Priority != nil {
		b.priority = *s.Priority
	}
	if s.MaxRunning != nil {
		b.atOnce = *s.MaxRunning
	}
	if s.Time == nil {
		return
	}
	if b.limits == nil {
		b.limits = slices.Repeat([]uint32{limitOf(b.Head.Spec.Resources.Time)}, b.Jobs())
	}
	if i < 0 {
		for k := range b.known {
			b.limits[k] = limitOf(*s.Time)
		}
		return
	}
	b.limits[i] = limitOf(*s.Time)
}

// limitOf is seconds as they are kept.
func limitOf(seconds int64) uint32 { return uint32(min(max(0, seconds), math.MaxUint32)) }

// otherTime is how many seconds a job may run, if that is not what it or its batch
// says.
func (b *batch) otherTime(i int, j *job.Job) *int64 {
	says := b.Head.Spec.Resources.Time
	if j.Resources != nil {
		says = j.Resources.Time
	}
	if limit := b.limit(i); limit != says {
		return &limit
	}
	return nil
}

// applySets changes what a job, and its batch, say to what is asked for now, if the batch is
// open.
func (h *Head) applySets(of *spool.Batch, i int, spec *job.Spec, j *job.Job) {
	b := h.batches[h.byID[of.ID]]
	if b == nil || b.Head.Submission != of.Head.Submission || i >= b.known {
		return
	}
	spec.Priority, spec.MaxRunning = b.priority, b.atOnce
	if time := b.otherTime(i, j); time != nil {
		r := *cmp.Or(j.Resources, &spec.Resources)
		r.Time, j.Resources = *time, &r
	}
}
