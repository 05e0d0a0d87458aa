package sched

import (
	"fmt"
	"math"
	"slices"

	"distribute/lib/job"
)

// AllJobs is the Job of a Ref that means all jobs of its batch.
const AllJobs = math.MaxUint32

func (e HoldJobs) apply(m *Machine) {
	from, kind := job.Queued, job.KindHold
	if e.Release {
		from, kind = job.Held, job.KindRelease
	}
	b := m.batches[e.Batch]
	if b == nil || !b.ready {
		return
	}
	jobs := b.those(e.Jobs, e.Request, func(s job.State) bool { return s == from })
	rec := job.Record{Kind: kind, By: e.By, Request: e.Request}
	if len(jobs) > 1 && len(jobs) == b.counts[from] {
		m.logAll(b, rec, jobs)
	} else {
		for _, i := range jobs {
			m.log(Ref{b.num, i}, rec)
		}
	}
	if b.gates != nil {
		b.gates.look() // once a list, however many jobs that have it were released
	}
}

// those is the jobs of a list that are in such a state and for which the request was
// not taken, each once, in order.
func (b *batch) those(list []uint32, id job.Token, in func(job.State) bool) []uint32 {
	list = slices.DeleteFunc(slices.Clone(list), func(i uint32) bool {
		return int64(i) >= int64(len(b.state)) || !in(b.state[i]) || b.took(i, id)
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// logAll is log for a record about a whole batch, which moves these jobs.
func (m *Machine) logAll(b *batch, rec job.Record, jobs []uint32) {
	ref := Ref{b.num, AllJobs}
	m.do(Log{Ref: ref, Rec: rec, Jobs: jobs})
	if err := m.fold(b, ref, &rec); err != nil {
		panic("sched: decided on an illegal move: " + err.Error())
	}
}

// foldAll is fold for a record about a whole batch.
func (m *Machine) foldAll(b *batch, rec *job.Record) error {
	switch {
	case !rec.Kind.Whole():
		return fmt.Errorf("%s is no event of a whole batch", rec.Kind)
	case rec.Kind == job.KindSet && rec.Set != nil:
		b.set(m, rec.Set)
	}
	for i, s := range b.state {
		if next, ok := s.Next(rec.Kind); ok {
			m.setState(b, uint32(i), next)
		}
	}
	if rec.Request != "" {
		b.asked[request{AllJobs, rec.Request}] = struct{}{}
	}
	return nil
}
