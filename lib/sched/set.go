package sched

import "distribute/lib/job"

func (e SetBatch) apply(m *Machine) {
	b := m.batches[e.Batch]
	if b == nil || !b.Ready || b.open == 0 || b.took(AllJobs, e.Request) || e.Set.Check() != nil {
		return
	}
	if e.Set.Time == nil {
		e.Timed = nil
	}
	of := b.differs(&e.Set)
	meant := b.those(e.Timed, e.Request, func(s job.State) bool { return !s.Over() })
	timed := meant
	if len(timed) > 0 && len(timed)+e.Others == b.open {
		of.Time, timed = e.Set.Time, nil
	}
	rec := job.Record{Kind: job.KindSet, By: e.By, Request: e.Request}
	for _, i := range timed {
		rec.Set = &job.Set{Time: e.Set.Time}
		m.log(Ref{b.Num, i}, rec)
	}
	if of != (job.Set{}) {
		rec.Set = &of
		if of.ForAll {
			rec.First = 1
		}
		m.logAll(b, rec, nil)
	}
	for _, i := range meant {
		m.tellKept(b, i)
	}
}

// differs is what of a set is of a whole batch and other than it is, but for the time.
func (b *batch) differs(s *job.Set) (of job.Set) {
	if p := s.Priority; p != nil && (*p != b.Priority || s.Lifts() != b.ForAll) {
		of.Priority, of.ForAll = p, s.Lifts()
	}
	if n := s.MaxRunning; n != nil && *n != b.Most {
		of.MaxRunning = n
	}
	return of
}

// Differs says that [SetBatch] would give a batch another priority, or another bound.
func (m *Machine) Differs(batch uint32, s *job.Set) bool {
	b := m.batches[batch]
	return b != nil && b.differs(s) != job.Set{}
}

// ForAll says that an operator has set the priority of a batch: it counts beside the batches
// of others, too.
func (m *Machine) ForAll(batch uint32) bool {
	b := m.batches[batch]
	return b != nil && b.ForAll
}

func (e Preferred) apply(m *Machine) { m.lab.ForAll = e.ForAll }

// set takes in what is asked for of a batch from now on.
func (b *batch) set(s *job.Set) {
	if s.Priority != nil {
		b.Priority, b.ForAll = *s.Priority, s.Lifts()
	}
	if s.MaxRunning != nil {
		b.Most = *s.MaxRunning
	}
	for q := range b.All() {
		if s.Time != nil {
			q.Says.Limit = 0
			q.Says.Allow(*s.Time)
		}
	}
}
