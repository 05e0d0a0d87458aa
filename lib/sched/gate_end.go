package sched

import (
	"slices"

	"distribute/lib/job"
	"distribute/lib/unit"
)

// tally counts the failed jobs since the last retry, those that were tried: when there
// are so many, no other of the batch is started.
func (m *Machine) tally(b *batch, rec *job.Record) {
	g := b.gates
	if g == nil || g.stop == 0 {
		return
	}
	switch {
	case rec.Kind == job.KindFailed && rec.Attempt != "":
		g.fails++
	case rec.Kind == job.KindRetry:
		g.fails = 0
	}
	b.Stopped = g.stops()
}

// stops reports whether so many jobs have failed that no other of the batch is started.
func (g *gates) stops() bool { return g.stop > 0 && g.fails >= g.stop }

// EndsAdded returns why jobs would be cancelled at once if so many were added to a batch;
// "" if they would not. It does not look at what each of them needs.
func (m *Machine) EndsAdded(batch uint32, jobs int) (why string) {
	b := m.batches[batch]
	if b == nil || b.gates == nil {
		return ""
	}
	g := b.gates
	if stop := g.spec.StopsAfter(len(b.States) + jobs); stop > 0 && g.fails >= stop {
		return g.whyStopped()
	}
	if g.lists[0].bad > 0 {
		_, why = b.spoiled(0, g.canaries[0])
	}
	return why
}

// whyStopped returns the reason of jobs that are cancelled because others failed.
func (g *gates) whyStopped() string { return unit.Count(g.fails, "job") + " failed (stop_after)" }

// A sweep ends the jobs that wait for a list which can never be done.
type sweep struct {
	list uint32
	by   uint32 // the job that is told of, if it failed or was cancelled
	next int    // of its waiters
	how  job.State
	why  string // "": that is not found yet
	held string // the same of jobs that are held, which are cancelled
}

// startSweep ends, from the next decision on, the jobs that wait for a list, if they can
// never have all of it, perhaps since job by failed.
func (g *gates) startSweep(k, by uint32) {
	if g.lists[k].bad > 0 {
		g.failing = append(g.failing, sweep{list: k, by: by})
	}
}

// startSweeps starts those of all lists of a batch: after a replay, and when jobs were added
// or released.
func (g *gates) startSweeps() {
	g.failing = g.failing[:0]
	for k := range g.lists {
		g.startSweep(uint32(k), 0)
	}
}

// endSome ends jobs of a batch that cannot, or shall not, be started any more, because
// of others of it, so many at most, and says how many.
func (m *Machine) endSome(b *batch, most int) (n int) {
	if b.gates == nil || b.open == 0 {
		return 0
	}
	if b.Stopped {
		for _, a := range b.attempts(func(a *attempt) bool { return a.peer.Listed && !a.peer.abroad && a.idles() }) {
			m.recall(a, b.gates.whyStopped())
		}
	}
	for ; n < most; n++ {
		i, rec, ok := b.nextEnd()
		if !ok {
			break
		}
		m.log(Ref{b.Num, i}, rec)
	}
	return n
}

// nextEnd is the next job of a batch that is to be ended, and how.
func (b *batch) nextEnd() (i uint32, rec job.Record, ok bool) {
	g := b.gates
	if b.Stopped {
		if i, ok := b.waiting(); ok {
			return i, over(job.Cancelled, g.whyStopped()), true
		}
	}
	for ; len(g.failing) > 0; g.failing = g.failing[1:] {
		s := &g.failing[0]
		for all := g.waiters.row(s.list); s.next < len(all) && g.lists[s.list].bad > 0; s.next++ {
			switch b.States[all[s.next]] {
			case job.Queued:
				if s.why == "" {
					s.how, s.why = b.spoiled(s.list, s.by)
				}
				return all[s.next], over(s.how, s.why), true
			case job.Held: // one that needs what failed is told so when it is released
				if s.held == "" {
					s.held = b.calledOff(s.list)
				}
				if s.held == "" {
					continue
				}
				return all[s.next], over(job.Cancelled, s.held), true
			}
		}
	}
	return 0, rec, false
}

// spoiled is how jobs end that wait for a list of which one failed or was cancelled: job i
// if it is in the list, for others of it may have ended for what i did; else the first.
func (b *batch) spoiled(k, i uint32) (how job.State, why string) {
	list := b.gates.list(k)
	if !spoils(b.States[i]) || !slices.Contains(b.gates.in.row(i), k) {
		i = list[slices.IndexFunc(list, func(i uint32) bool { return spoils(b.States[i]) })]
	}
	return b.spoiledBy(k, i)
}

// spoiledBy is spoiled for what job i did.
func (b *batch) spoiledBy(k, i uint32) (how job.State, why string) {
	how, name := b.States[i], b.name(int(i))
	words := "failed"
	if how == job.Cancelled {
		words = "was cancelled"
	}
	if k == 0 {
		return job.Cancelled, "canary " + name + " " + words
	}
	return how, "needs " + name + ", which " + words
}

// calledOff returns why jobs that wait for a list are cancelled also if they are held; ""
// if they are not: somebody may have the job that failed tried again.
func (b *batch) calledOff(k uint32) (why string) {
	if k > 0 && b.gates.lists[k].off == 0 {
		return ""
	}
	list := b.gates.list(k)
	i := slices.IndexFunc(list, func(i uint32) bool { return b.States[i] == job.Cancelled })
	if i < 0 {
		_, why = b.spoiled(k, list[0])
	} else {
		_, why = b.spoiledBy(k, list[i])
	}
	return why
}

// over is the record of a job that comes to such an end without having been tried.
func over(how job.State, why string) job.Record {
	kind := job.KindFailed
	if how == job.Cancelled {
		kind = job.KindCancelled
	}
	return job.Record{Kind: kind, Outcome: job.Outcome{Reason: why}}
}

// waiting is a job of the batch that is queued.
func (b *batch) waiting() (i uint32, ok bool) {
	for q := range b.All() {
		if q.Jobs.N > 0 {
			return q.Jobs.First(), true
		}
	}
	if s := b.gates.shut; s.N > 0 {
		return s.First(), true
	}
	return 0, false
}
