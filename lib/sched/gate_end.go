package sched

import (
	"cmp"
	"slices"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
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
	b.Stopped = g.fails >= g.stop
}

// A sweep ends the jobs that have a list which can never be done.
type sweep struct {
	list uint32 // from 1
	by   uint32 // the job that is told of, if it failed
	next int    // of its waiters
	told string // as whose name it is told, and how that ended
	how  job.State
}

// recallAll asks for the attempts of a batch that wait on their nodes.
func (m *Machine) recallAll(b *batch) {
	var idle []*attempt
	for _, first := range b.of {
		for a := first; a != nil; a = a.next {
			if a.peer.Listed && !a.peer.abroad && a.idles() {
				idle = append(idle, a)
			}
		}
	}
	slices.SortFunc(idle, func(a, b *attempt) int { return cmp.Compare(a.order, b.order) })
	for _, a := range idle {
		a.recalled = true
		m.do(Recall{a.peer.Session, a.Token})
	}
}

// startSweeps starts those of all lists of a batch: after a replay, and when jobs were added
// or released.
func (g *gates) startSweeps() {
	g.failing = g.failing[:0]
	for k := range g.lists {
		g.startSweep(uint32(k)+1, g.needs.List(uint32(k) + 1)[0])
	}
}

// endSome ends jobs of a batch that cannot, or shall not, be started any more, because
// of others of it, so many at most, and says how many.
func (m *Machine) endSome(b *batch, most int) (n int) {
	if b.gates == nil || b.open == 0 {
		return 0
	}
	if b.Stopped && len(b.of) > 0 {
		m.recallAll(b)
	}
	for called := ""; n < most; n++ {
		i, rec, ok := b.nextEnd(&called)
		if !ok {
			break
		}
		m.log(Ref{b.Num, i}, rec)
		m.stopVoid(b, i, "its job is over")
	}
	return n
}

// nextEnd is the next job of a batch that is to be ended, and how. Why its rest is called
// off is found once.
func (b *batch) nextEnd(called *string) (i uint32, rec job.Record, ok bool) {
	g := b.gates
	if b.Stopped {
		if i, ok := b.waiting(); ok {
			return i, over(job.Cancelled, unit.Count(g.fails, "job")+" failed (stop_after)"), true
		}
	}
	if g.canary.bad > 0 && g.rest.N > 0 {
		if *called == "" {
			who, how := b.spoiler(0, g.canaries())
			*called = "canary " + who + " " + words(how)
		}
		return g.rest.First(), over(job.Cancelled, *called), true
	}
	for ; len(g.failing) > 0; g.failing = g.failing[1:] {
		s := &g.failing[0]
		for all := g.waiters.row(s.list - 1); s.next < len(all) && g.lists[s.list-1].bad > 0; s.next++ {
			if b.States[all[s.next]] == job.Queued {
				if s.told == "" {
					s.told, s.how = b.spoiler(s.by, g.needs.List(s.list))
				}
				return all[s.next], over(s.how, "needs "+s.told+", which "+words(s.how)), true
			}
		}
	}
	return 0, rec, false
}

// over is the record of a job that comes to such an end without having been tried.
func over(how job.State, why string) job.Record {
	kind := job.KindFailed
	if how == job.Cancelled {
		kind = job.KindCancelled
	}
	return job.Record{Kind: kind, Outcome: job.Outcome{Reason: why}}
}

func words(how job.State) string {
	if how == job.Cancelled {
		return "was cancelled"
	}
	return "failed"
}

// waiting is a job of the batch that is queued.
func (b *batch) waiting() (i uint32, ok bool) {
	for q := range b.All() {
		if q.Jobs.N > 0 {
			return q.Jobs.First(), true
		}
	}
	for _, s := range []*policy.Set{b.gates.shut, b.gates.rest} {
		if s.N > 0 {
			return s.First(), true
		}
	}
	return 0, false
}

// canaries are the numbers of the canaries.
func (g *gates) canaries() []uint32 {
	all := make([]uint32, g.first)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// spoiler is one of jobs that failed or was cancelled: by, or else the first.
func (b *batch) spoiler(by uint32, of []uint32) (name string, how job.State) {
	if spoils(b.States[by]) {
		return b.name(int(by)), b.States[by]
	}
	for _, i := range of {
		if spoils(b.States[i]) {
			return b.name(int(i)), b.States[i]
		}
	}
	return "another job", job.Failed
}
