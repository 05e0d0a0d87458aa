package sched

import (
	"math"
	"slices"
	"time"

	"distribute/lib/job"
)

// AllJobs is the Job of a Ref that means all jobs of its batch.
const AllJobs = math.MaxUint32

func (e HoldJobs) apply(m *Machine) {
	b := m.batches[e.Batch]
	if b == nil || !b.Ready {
		return
	}
	rec := job.Record{Kind: job.KindFreeze, By: e.By, Request: e.Request}
	if e.Release {
		rec.Kind = job.KindThaw
	}
	for _, i := range b.those(e.Jobs, e.Request, func(s job.State) bool { return s == job.Running }) {
		if m.Holds(Ref{b.Num, i}, e.Release, e.Freeze) {
			m.log(Ref{b.Num, i}, rec)
			m.tellKept(b, i)
		}
	}
	from := job.Queued
	if rec.Kind = job.KindHold; e.Release {
		from, rec.Kind = job.Held, job.KindRelease
	}
	jobs := b.those(e.Jobs, e.Request, func(s job.State) bool { return s == from })
	if len(jobs) > 1 && len(jobs) == b.counts[from] {
		m.logAll(b, rec, jobs)
	} else {
		for _, i := range jobs {
			m.log(Ref{b.Num, i}, rec)
		}
	}
	if e.Release {
		m.released(b, jobs)
	}
}

// Holds says that a hold, or a release, would change a job.
func (m *Machine) Holds(ref Ref, release, freeze bool) bool {
	switch m.State(ref) {
	case job.Queued:
		return !release
	case job.Held:
		return release
	case job.Running:
		_, frozen := m.batches[ref.Batch].frozen[ref.Job]
		return frozen == release && (release || freeze && !m.runsAbroad(ref))
	}
	return false
}

// released has the attempts go on that stood still with jobs which are queued again,
// and those count that have ended well meanwhile.
func (m *Machine) released(b *batch, jobs []uint32) {
	if len(b.of) > 0 {
		for _, i := range jobs {
			for a := b.of[i]; a != nil; a = a.next {
				m.adopt(a, (a.result == nil || good(a.result)) && !a.stopped && a.peer.Session != 0 && a.listed == a.peer.Session)
			}
			m.tellKept(b, i)
		}
	}
	if b.gates != nil {
		b.gates.startSweeps() // once a list, however many jobs that have it were released
	}
}

// A freeze is who had a job that runs stand still, and when.
type freeze struct {
	by     string
	at     time.Duration
	logged time.Time // if that was in an earlier life of the head
}

// still says that attempts of a job are to stand still: it is frozen, or held.
func (b *batch) still(i uint32) bool {
	_, frozen := b.frozen[i]
	return frozen || b.States[i] == job.Held
}

// tellKept tells the nodes of a job's attempts how these go on, when that has changed. No
// cluster is told.
func (m *Machine) tellKept(b *batch, i uint32) {
	for a := b.of[i]; a != nil; a = a.next {
		if !a.peer.abroad && a.result == nil && !a.void && a.peer.Session != 0 && a.listed == a.peer.Session {
			m.tellWay(a)
		}
	}
}

// tellWay tells the node of an attempt how it goes on.
func (m *Machine) tellWay(a *attempt) {
	still := m.batches[a.ref.Batch].still(a.ref.Job)
	a.stilled = a.stilled || still
	m.do(Keep{a.peer.Session, a.Token, still})
}

// foldFreeze takes in what a record says of whether the attempts of a job stand still.
// One that comes to nothing, or back from a cluster, leaves the job to be held: see
// [Machine.holdFrozen].
func (m *Machine) foldFreeze(b *batch, i uint32, rec *job.Record) {
	switch rec.Kind {
	case job.KindFreeze:
		if b.frozen == nil {
			b.frozen = map[uint32]freeze{}
		}
		b.frozen[i] = freeze{rec.By, m.lab.Now, rec.Time}
	case job.KindThaw, job.KindHold, job.KindDone, job.KindFailed, job.KindCancelled:
		delete(b.frozen, i)
	}
}

// holdFrozen holds a job whose attempt stood still and came to nothing.
func (m *Machine) holdFrozen(ref Ref) {
	b := m.batches[ref.Batch]
	if f, frozen := b.frozen[ref.Job]; frozen && b.States[ref.Job] == job.Queued {
		m.log(ref, job.Record{Kind: job.KindHold, By: f.by})
	}
}

// those is the jobs of a list that are in such a state and for which the request was
// not taken, each once, in order.
func (b *batch) those(list []uint32, id job.Token, in func(job.State) bool) []uint32 {
	list = slices.DeleteFunc(slices.Clone(list), func(i uint32) bool {
		return int64(i) >= int64(len(b.States)) || !in(b.States[i]) || b.took(i, id)
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// logAll is log for a record about a whole batch, which moves these jobs.
func (m *Machine) logAll(b *batch, rec job.Record, jobs []uint32) {
	ref := Ref{b.Num, AllJobs}
	m.reopen(b)
	m.do(Log{Ref: ref, Rec: rec, Jobs: jobs})
	if err := m.fold(b, ref, &rec); err != nil {
		panic("sched: decided on an illegal move: " + err.Error())
	}
}

// foldWhole is fold for a record about a whole batch.
func (m *Machine) foldWhole(b *batch, rec *job.Record) (err error) {
	if rec.Kind == job.KindSet && rec.Set != nil {
		set := *rec.Set
		set.ForAll = rec.First != 0
		b.set(&set)
	}
	b.less, err = b.Fold(job.WholeBatch, rec, func(i int, from job.State) { m.stateChanged(b, uint32(i), from) })
	if rec.Request != "" {
		b.asked[request{AllJobs, rec.Request}] = struct{}{}
	}
	return err
}
