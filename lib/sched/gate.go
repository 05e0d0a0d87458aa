package sched

import (
	"fmt"
	"slices"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// Gates is what has to pass before jobs of a batch may start: its canaries, and the
// jobs that they need. A gate only opens, for what is done stays done. All of it
// follows from the states of the jobs but for fails, so a replay has it again.
type gates struct {
	needs   *job.Needs // nil: no job needs another
	waiters table      // of each list, from 0, the jobs that have it
	in      table      // of each job, the lists that it is in, from 0
	lists   []gate
	canary  gate
	first   uint32      // so many jobs are canaries
	early   *policy.Set // these, and what they need; nil without canaries

	rest *policy.Set // jobs that wait for the canaries
	shut *policy.Set // jobs that wait for what they need, and not for canaries

	stop  int // after so many failed jobs the rest is cancelled; 0: never
	fails int // since the last retry; counted only if some number of them stops it

	failing []sweep // of lists that cannot be done
}

// A gate is a list of jobs that all have to be done.
type gate struct {
	left uint32 // of them are not done
	bad  uint32 // of these failed, or were cancelled
}

// A table is rows of numbers.
type table struct{ ends, all []uint32 }

func (t *table) row(i uint32) []uint32 {
	switch {
	case int(i) >= len(t.ends):
		return nil
	case i == 0:
		return t.all[:t.ends[0]]
	}
	return t.all[t.ends[i-1]:t.ends[i]]
}

// gather makes a table of so many rows of pairs, of which each calls f with all.
func gather(rows int, each func(f func(row, n uint32))) table {
	t := table{ends: make([]uint32, rows)}
	each(func(row, _ uint32) { t.ends[row]++ })
	sum := uint32(0)
	for i, n := range t.ends {
		t.ends[i], sum = sum, sum+n
	}
	t.all = make([]uint32, sum)
	each(func(row, n uint32) { t.all[t.ends[row]] = n; t.ends[row]++ })
	return t
}

// newGates is the gates of a batch whose jobs are all queued; nil if it has none.
func newGates(e *AddBatch) *gates {
	g := &gates{}
	if e.Spec != nil {
		g.first, g.stop = uint32(min(max(0, e.Spec.Canary), e.Jobs)), max(0, e.Spec.StopAfter)
	}
	if e.Needs != nil && len(e.Needs.Of) == e.Jobs {
		g.need(e.Needs)
	}
	if g.first > 0 {
		g.canary.left = g.first
		g.goEarly(e.Jobs)
	}
	if g.needs == nil && g.first == 0 && g.stop == 0 {
		return nil
	}
	g.rest, g.shut = policy.NewSet(e.Jobs), policy.NewSet(e.Jobs)
	return g
}

// regate makes the gates of a batch anew that has more jobs than before, from one on.
// A job that waits for a node may turn out to need one of these.
func (m *Machine) regate(b *batch, from int, needs *job.Needs) {
	was := b.gates
	e := AddBatch{Jobs: len(b.States), Needs: needs, Spec: &job.Spec{}}
	if was != nil {
		e.Spec.Canary, e.Spec.StopAfter = int(was.first), was.stop
	}
	g := newGates(&e)
	if b.gates = g; g == nil {
		return
	}
	if was != nil {
		g.fails = was.fails
	}
	for i, s := range b.States {
		if spoils(s) || s == job.Done {
			if uint32(i) < g.first {
				g.canary.turn(job.Queued, s)
			}
			for _, k := range g.in.row(uint32(i)) {
				g.lists[k].turn(job.Queued, s)
			}
		}
	}
	for i := range uint32(from) {
		if b.States[i] != job.Queued {
			continue
		}
		switch q := b.queue(i); {
		case b.free(i):
			q.Jobs.Add(i)
		case q.Jobs.Has(i):
			q.Jobs.Remove(i)
			fallthrough
		default:
			g.keep(i)
		}
	}
}

func (g *gates) need(n *job.Needs) {
	g.needs, g.lists = n, make([]gate, n.Lists())
	g.waiters = gather(n.Lists(), func(f func(row, n uint32)) {
		for i, k := range n.Of {
			if k > 0 {
				f(k-1, uint32(i))
			}
		}
	})
	g.in = gather(len(n.Of), func(f func(row, n uint32)) {
		for k := range g.lists {
			for _, i := range n.List(uint32(k) + 1) {
				f(i, uint32(k))
			}
		}
	})
	for k := range g.lists {
		g.lists[k].left = uint32(len(n.List(uint32(k) + 1)))
	}
}

// goEarly finds what goes before the rest: the canaries, and what they need.
func (g *gates) goEarly(jobs int) {
	g.early = policy.NewSet(jobs)
	var way []uint32
	for i := range g.first {
		g.early.Add(i)
		way = append(way, i)
	}
	seen := make([]bool, len(g.lists))
	for len(way) > 0 {
		i := way[len(way)-1]
		way = way[:len(way)-1]
		k := g.list(i)
		if k == 0 || seen[k-1] {
			continue
		}
		seen[k-1] = true
		for _, o := range g.needs.List(k) {
			if !g.early.Has(o) {
				g.early.Add(o)
				way = append(way, o)
			}
		}
	}
}

// list is the list of what a job needs, from 1; 0 if it needs none.
func (g *gates) list(i uint32) uint32 {
	if g.needs == nil {
		return 0
	}
	return g.needs.Of[i]
}

// afterCanary says that a job goes after the canaries, which are not all done.
func (g *gates) afterCanary(i uint32) bool { return g.canary.left > 0 && !g.early.Has(i) }

// free says that a job may start, as far as others of its batch go.
func (b *batch) free(i uint32) bool {
	g := b.gates
	if g == nil {
		return true
	}
	k := g.list(i)
	return !g.afterCanary(i) && (k == 0 || g.lists[k-1].left == 0)
}

// keep has a job that is queued wait for its gates, outside of its queue.
func (g *gates) keep(i uint32) {
	if g.afterCanary(i) {
		g.rest.Add(i)
	} else {
		g.shut.Add(i)
	}
}

// enqueue lets a job that has come to be queued wait for a node, or for its gates,
// or be ended.
func (m *Machine) enqueue(b *batch, i uint32) {
	m.let(b, i)
	if b.gates == nil {
		return
	}
	if k := b.gates.list(i); k > 0 {
		b.gates.startSweep(k, b.gates.needs.List(k)[0])
	}
}

// let has a job that is queued wait for a node, if its gates are open.
func (m *Machine) let(b *batch, i uint32) {
	if b.free(i) {
		b.queue(i).Jobs.Add(i)
	} else {
		b.gates.keep(i)
	}
}

// startSweep ends, from the next decision on, the jobs that have a list, from 1, if they
// can never have all of it, perhaps since job by failed.
func (g *gates) startSweep(list, by uint32) {
	if g.lists[list-1].bad > 0 {
		g.failing = append(g.failing, sweep{list: list, by: by})
	}
}

// turn takes in that one of the jobs of a gate has come to another state. It says
// whether all of them are done now.
func (x *gate) turn(from, to job.State) bool {
	if spoils(from) {
		x.bad--
	}
	if spoils(to) {
		x.bad++
	}
	if to == job.Done {
		x.left--
	}
	return to == job.Done && x.left == 0
}

// spoils says that a job in that state is not done, and will not be unless
// somebody retries it.
func spoils(s job.State) bool { return s == job.Failed || s == job.Cancelled }

// pass takes in, for those that wait for it, that a job has come to another state.
func (m *Machine) pass(b *batch, i uint32, from, to job.State) {
	g := b.gates
	if from == job.Queued {
		g.rest.Remove(i)
		g.shut.Remove(i)
	}
	if i < g.first && g.canary.turn(from, to) {
		for g.rest.N > 0 {
			w := g.rest.First()
			g.rest.Remove(w)
			m.let(b, w)
		}
	}
	for _, k := range g.in.row(i) {
		if g.lists[k].turn(from, to) {
			for _, w := range g.waiters.row(k) {
				if g.shut.Has(w) {
					g.shut.Remove(w)
					m.let(b, w)
				}
			}
		}
		if spoils(to) && g.lists[k].bad == 1 { // else those that have it are ended already
			g.startSweep(k+1, i)
		}
	}
}

// vain says that a job could only be ended if it was queued: for one that it needs.
func (b *batch) vain(i uint32) bool {
	g := b.gates
	if g == nil {
		return false
	}
	k := g.list(i)
	return g.afterCanary(i) && g.canary.bad > 0 || k > 0 && g.lists[k-1].bad > 0
}

// waits tells of jobs that wait for others of the batch for which; "" of others. It
// is nil if there are none. It copies a byte a job, and may be called later by any
// goroutine, one at a time.
func (b *batch) waits() func(i uint32) string {
	g := b.gates
	if g == nil || g.rest.N+g.shut.N == 0 {
		return nil
	}
	state, canary, told := slices.Clone(b.States), g.canary.left > 0, map[uint32]string{}
	tell := func(list uint32, what string, of []uint32) string {
		text, ok := told[list]
		if !ok {
			text = b.undone(state, what, of)
			told[list] = text
		}
		return text
	}
	return func(i uint32) string {
		switch k := g.list(i); {
		case state[i] != job.Queued:
		case canary && !g.early.Has(i):
			return tell(0, "canary ", g.canaries())
		case k > 0:
			return tell(k, "", g.needs.List(k))
		}
		return ""
	}
}

// undone tells which of jobs are not done; "" if all are.
func (b *batch) undone(state []job.State, what string, of []uint32) string {
	first, left := uint32(0), 0
	for _, i := range of {
		if state[i] != job.Done {
			if left++; left == 1 {
				first = i
			}
		}
	}
	switch left {
	case 0:
		return ""
	case 1:
		return "waits for " + what + b.name(int(first))
	}
	return fmt.Sprintf("waits for %s%s, and %d more", what, b.name(int(first)), left-1)
}
