package policy

import (
	"iter"
	"math"
	"slices"
)

// A Round is one decision: the queues whose first job may be started, the one that goes
// first in front, and what was found out of nodes meanwhile.
type Round struct {
	lab    *Lab
	queues []*Queue
	free   []spot         // nodes that have a cpu free
	places map[int]*place // by the slot of the class
}

// Decide looks at all nodes and all batches. What is to be done is in Starts, then Aheads,
// then Recalls.
func (l *Lab) Decide() *Round {
	r := l.Inspect()
	for _, b := range l.Batches {
		for _, q := range b.Avoiding {
			q.Alone = !l.elsewhere(q)
		}
	}
	l.survey()
	r.review()
	return r
}

// Inspect is the state of the queues as Decide sees it, for explanations: it changes nothing
// that a decision depends on.
func (l *Lab) Inspect() *Round {
	r := &Round{lab: l, places: map[int]*place{}}
	for _, k := range l.Kept {
		k.outlook = nil
	}
	for _, b := range l.Batches {
		for q := range b.All() {
			if q.waits() {
				r.queues = append(r.queues, q)
			}
		}
	}
	r.takeTurns()
	slices.SortFunc(r.queues, (*Queue).Compare)
	for _, p := range l.Nodes {
		if p.Used.CPUs < p.Has.CPUs {
			r.free = append(r.free, spot{p, p.Has.CPUs - p.Used.CPUs})
		}
	}
	return r
}

// A spot is a node, and how many of its cpus were free when the round began: most nodes
// are passed over by this alone.
type spot struct {
	on   *Node
	cpus int
}

// Starts yields the queues whose first job is to be started, each with its node: whoever
// takes one starts it before he takes the next.
func (r *Round) Starts() iter.Seq2[*Queue, *Node] {
	return func(start func(*Queue, *Node) bool) {
		for q, p := r.first(); q != nil; q, p = r.first() {
			if r.reserve(q, p) {
				continue
			}
			if !start(q, p) {
				return
			}
			r.release(q.Class, p)
			p.changed()
			for _, o := range p.Beside { // some may have got a portion
				o.changed()
			}
			r.reorder(q.Batch.Owner)
			r.passKept(q.Batch.Owner)
		}
	}
}

// first is the queue whose first job goes first of those that can be started now, and its
// node.
func (r *Round) first() (*Queue, *Node) {
	for _, q := range r.queues {
		if p := r.best(q); p != nil && r.Yields(q) == "" {
			return q, p
		}
	}
	return nil, nil
}

// A place is the nodes that had room for a job of a class when they were looked at. Some of
// the free ones may be kept since.
type place struct {
	free  []*Node  // for any
	kept  []*Node  // for jobs of a higher priority than those for which they are kept, or that are over in time
	least Standing // the least priorities of those, of whomever: a job that is over none of both is over none of them
	ranks bool     // the class has several
}

// place looks at the nodes for a class.
func (r *Round) place(c *Class) *place {
	nodes := r.places[c.slot]
	if nodes == nil {
		nodes = &place{ranks: c.Ranks > 1, least: Standing{Common: math.MaxInt, Own: math.MaxInt}}
		r.places[c.slot] = nodes
		for _, s := range r.free {
			switch p := s.on; {
			case s.cpus < c.Share.CPUs && !c.spreads(p) || !p.Able(c) || !p.HasRoom(c): // Able saves a look at each for each start
			case p.spares(c):
				nodes.free = append(nodes.free, p)
			default:
				nodes.kept = append(nodes.kept, p)
				nodes.least.Common, nodes.least.Own = min(nodes.least.Common, p.Kept.Standing.Common), min(nodes.least.Own, p.Kept.Standing.Own)
			}
		}
	}
	return nodes
}

// best is the node for the first job of a queue: one that is not paused soon before
// others, then one that has room for all ranks, then one that has built the batch, then, if the job needs none, one without
// GPUs, or if it needs a part of one, where others have parts of one that is enough,
// then the one it fills best, then the one known longest.
func (r *Round) best(q *Queue) *Node {
	var best *Node
	var least rank
	s := q.Standing()
	try := func(p *Node) {
		if q.Takes(p) && r.lets(q, s, p) {
			if k := r.lab.rank(q, p); best == nil || k.better(least) {
				best, least = p, k
			}
		}
	}
	nodes := r.place(q.Class)
	full := func(p *Node) bool { return !p.HasRoom(q.Class) } // and will be until the round is over
	nodes.free = slices.DeleteFunc(nodes.free, full)
	for _, p := range nodes.free {
		try(p)
	}
	if q.Says.Longest() > 0 || s.Common > nodes.least.Common || s.Own > nodes.least.Own {
		nodes.kept = slices.DeleteFunc(nodes.kept, full)
		for _, p := range nodes.kept {
			try(p)
		}
	}
	return best
}

// A rank is how good a node is for a queue: the lower the better, the first difference counts.
type rank [7]int

func (l *Lab) rank(q *Queue, p *Node) rank {
	_, built := q.Batch.Pace[p]
	return rank{one(l.Leaves(p)), one(q.Class.spreads(p) && !p.holds(p.asked(q.Class, q.Class.Share))), one(!built), one(p.Has.GPUs > 0), one(!p.freeGPUs(p.fitting(q.Class)).Shared(q.Class.Share.GPUs)), p.Has.CPUs - p.Used.CPUs, p.Index}
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (r rank) better(s rank) bool { return slices.Compare(r[:], s[:]) < 0 }
