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
		m.logAll(b, rec, nil)
	}
	for _, i := range meant {
		m.tellKept(b, i)
	}
}

// differs is what of a set is of a whole batch and other than it is, but for the time.
func (b *batch) differs(s *job.Set) (of job.Set) {
	if p := s.Priority; p != nil && *p != b.Priority {
		of.Priority = p
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

// set takes in what is asked for of a batch from now on.
func (b *batch) set(s *job.Set) {
	if s.Priority != nil {
		b.Priority = *s.Priority
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
