package policy

import (
	"iter"
	"slices"
)

// So that no slot of a node waits for a round trip where attempts are short, the next ones
// are sent ahead, one for each that runs, or as many as are over soon; they wait there, and
// are asked back for nodes that have nothing to do.

// Aheads yields the queues whose first job is to wait on a busy node, each with that node.
func (r *Round) Aheads() iter.Seq2[*Queue, *Node] {
	return func(send func(*Queue, *Node) bool) {
		if !slices.ContainsFunc(r.queues, func(q *Queue) bool { return q.Batch.Quick }) {
			return
		}
		for _, p := range r.lab.Nodes {
			for p.Waiting < p.Active*maxAhead && p.allShort() { // the former saves a look at all queues
				q := r.upNext(p)
				if q == nil || !p.ahead(q) || !r.beside(q, q.Standing(), p) {
					break
				}
				if !send(q, p) {
					return
				}
				p.changed()
				r.reorder(q.Batch.Owner)
			}
		}
	}
}

// upNext is the queue whose first job the node should do next.
func (r *Round) upNext(p *Node) *Queue {
	i := slices.IndexFunc(r.queues, func(q *Queue) bool { return q.Takes(p) && r.lab.Site.HasRoom(q.Class) })
	if i < 0 {
		return nil
	}
	return r.queues[i]
}

// allShort says that what runs on a node is of batches that are short there.
func (p *Node) allShort() bool {
	for a := range p.Runs {
		if a.Queue.Batch.Ahead(p) == 0 {
			return false
		}
	}
	return !p.Unknown
}

// Recalls yields attempts that wait on a node, each with the idle one that it could run
// on.
func (r *Round) Recalls() iter.Seq2[*Run, *Node] {
	return func(recall func(*Run, *Node) bool) {
		var from []*Node
		for _, p := range r.lab.Nodes {
			if p.Waiting > 0 {
				from = append(from, p)
			}
		}
		for _, p := range r.lab.Nodes {
			if p.Active > 0 || p.Expects != nil || !p.Open() { // Open saves a look at all that waits
				continue
			}
			if a := r.fromOneOf(from, p); a != nil && !recall(a, p) {
				return
			}
		}
	}
}

// fromOneOf is an attempt that waits on one of some nodes and could run on another.
func (r *Round) fromOneOf(some []*Node, on *Node) *Run {
	for _, p := range some {
		for a := range p.Back {
			if a.Idle && on.HasRoom(a.Queue.Class) && a.Queue.Takes(on) && r.lets(a.Queue, a.standing(), on) {
				return a
			}
		}
	}
	return nil
}
