package sched

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// Gates is what has to pass before jobs of a batch may start: each is a list of jobs that
// all have to be done. List 0 is the canaries, for which all jobs wait but the early ones;
// the others are those of needs. A gate only opens, for what is done stays done. All of it
// follows from the states of the jobs but for fails, so a replay has it again.
type gates struct {
	needs    *job.Needs // nil: no job needs another
	canaries []uint32
	early    *policy.Set // these, and what they need; nil without canaries

	lists   []gate
	waiters table       // of each list, the jobs that wait for it
	in      table       // of each job, the lists that it is in
	shut    *policy.Set // queued jobs that wait for a list

	spec  *job.Spec // says after how many failed jobs the rest is cancelled
	stop  int       // that number, for the jobs that there are; 0: never
	fails int       // since the last retry; counted only if some number of them stops it

	failing []sweep // of lists that cannot be done
}

// A gate is a list of jobs that all have to be done.
type gate struct {
	left uint32 // of them are not done
	bad  uint32 // of these failed, or were cancelled
	off  uint32 // of these were cancelled
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

// newGates is the gates of a batch whose jobs are in these states; nil if it has none.
func newGates(canaries int, spec *job.Spec, needs *job.Needs, states []job.State) *gates {
	g := &gates{spec: spec, stop: max(0, spec.StopsAfter(len(states))), lists: make([]gate, 1)}
	for i := range min(max(0, canaries), len(states)) {
		g.canaries = append(g.canaries, uint32(i))
	}
	if needs != nil && len(needs.Of) == len(states) {
		g.needs, g.lists = needs, make([]gate, 1+needs.Lists())
	}
	if g.needs == nil && g.canaries == nil && g.stop == 0 {
		return nil
	}
	g.shut = policy.NewSet(len(states))
	if g.needs == nil && g.canaries == nil {
		return g
	}
	g.goEarly(len(states))
	g.waiters = gather(len(g.lists), func(f func(row, n uint32)) {
		for i := range uint32(len(states)) {
			for k := range g.of(i) {
				f(k, i)
			}
		}
	})
	g.in = gather(len(states), func(f func(row, n uint32)) {
		for k := range uint32(len(g.lists)) {
			for _, i := range g.list(k) {
				f(i, k)
			}
		}
	})
	for k := range g.lists {
		list := g.list(uint32(k))
		g.lists[k].left = uint32(len(list))
		for _, i := range list {
			g.lists[k].turn(job.Queued, states[i])
		}
	}
	return g
}

// regate makes the gates of a batch anew that has more jobs than before, from one on.
// A job that waits for a node may turn out to need one of these.
func (m *Machine) regate(b *batch, from int, needs *job.Needs) {
	was := cmp.Or(b.gates, &gates{spec: &job.Spec{}})
	if b.gates = newGates(len(was.canaries), was.spec, needs, b.States); b.gates == nil {
		return
	}
	b.gates.fails = was.fails
	b.Stopped = b.gates.stops()
	for i := range uint32(from) {
		if b.States[i] == job.Queued {
			b.queue(i).Jobs.Remove(i)
			m.let(b, i)
		}
	}
}

// goEarly finds what goes before the rest: the canaries, and what they need.
func (g *gates) goEarly(jobs int) {
	if g.canaries == nil {
		return
	}
	g.early = policy.NewSet(jobs)
	seen := make([]bool, len(g.lists))
	for way := slices.Clone(g.canaries); len(way) > 0; {
		i := way[len(way)-1]
		way = way[:len(way)-1]
		g.early.Add(i)
		if k := g.need(i); k > 0 && !seen[k] {
			seen[k] = true
			way = append(way, g.list(k)...)
		}
	}
}

// need is the list of what a job needs; 0 if it needs none.
func (g *gates) need(i uint32) uint32 {
	if g.needs == nil {
		return 0
	}
	return g.needs.Of[i]
}

// late says that a job waits for the canaries.
func (g *gates) late(i uint32) bool { return g.early != nil && !g.early.Has(i) }

// of is the lists that a job waits for.
func (g *gates) of(i uint32) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if g.late(i) && !yield(0) {
			return
		}
		if k := g.need(i); k > 0 {
			yield(k)
		}
	}
}

// list is the jobs of a list.
func (g *gates) list(k uint32) []uint32 {
	if k == 0 {
		return g.canaries
	}
	return g.needs.List(k)
}

// free says that a job may start, as far as others of its batch go.
func (b *batch) free(i uint32) bool {
	if g := b.gates; g != nil {
		for k := range g.of(i) {
			if g.lists[k].left > 0 {
				return false
			}
		}
	}
	return true
}

// vain says that a job could only be ended if it was queued: for one that it waits for.
func (b *batch) vain(i uint32) bool {
	if g := b.gates; g != nil {
		for k := range g.of(i) {
			if g.lists[k].bad > 0 {
				return true
			}
		}
	}
	return false
}

// enqueue lets a job that has come to be queued wait for a node, or for its gates,
// or be ended.
func (m *Machine) enqueue(b *batch, i uint32) {
	m.let(b, i)
	if b.gates != nil {
		for k := range b.gates.of(i) {
			b.gates.startSweep(k, 0)
		}
	}
}

// let has a job that is queued wait for a node, if its gates are open.
func (m *Machine) let(b *batch, i uint32) {
	if b.free(i) {
		b.queue(i).Jobs.Add(i)
	} else {
		b.gates.shut.Add(i)
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
	if from == job.Cancelled {
		x.off--
	}
	if to == job.Cancelled {
		x.off++
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
		g.shut.Remove(i)
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
		if spoils(to) && g.lists[k].bad == 1 || to == job.Cancelled && g.lists[k].off == 1 { // else those that wait for it are ended already
			g.startSweep(k, i)
		}
	}
}

// waits tells of jobs that wait for others of the batch for which; "" of others. It
// is nil if there are none. It copies a byte a job, and may be called later by any
// goroutine, one at a time.
func (b *batch) waits() func(i uint32) string {
	g := b.gates
	if g == nil || g.shut.N == 0 {
		return nil
	}
	states, told := slices.Clone(b.States), map[uint32]string{}
	return func(i uint32) string {
		if states[i] != job.Queued {
			return ""
		}
		for k := range g.of(i) {
			text, known := told[k]
			if !known {
				text = b.undone(states, g.list(k))
				if k == 0 && text != "" {
					text = "canary " + text
				}
				told[k] = text
			}
			if text != "" {
				return "waits for " + text
			}
		}
		return ""
	}
}

// undone tells which of jobs are not done; "" if all are.
func (b *batch) undone(states []job.State, of []uint32) string {
	first, left := uint32(0), 0
	for _, i := range of {
		if states[i] != job.Done {
			if left++; left == 1 {
				first = i
			}
		}
	}
	switch left {
	case 0:
		return ""
	case 1:
		return b.name(int(first))
	}
	return fmt.Sprintf("%s, and %d more", b.name(int(first)), left-1)
}
