package policy

import (
	"slices"

	"distribute/lib/job"
)

// A machine may be several nodes. The ranks of a job that have no room on one of them may
// have it on some together: the job has a portion of each, is given to the first, and is
// the load of all.

// A Portion is what a job has of one node.
type Portion struct {
	On    *Node
	Ranks int
	Share Share
}

// Of is the share of so many ranks, without what is counted by its name.
func (c *Class) Of(ranks int) Share {
	s := c.Each
	return Share{CPUs: s.CPUs * ranks, GPUs: s.GPUs * job.GPUs(ranks), Memory: s.Memory * int64(ranks)}
}

// spreads says that a job of the class may be on several nodes of the machine that the node
// is of.
func (c *Class) spreads(p *Node) bool { return c.Ranks > 1 && len(p.Beside) > 0 }

// portions deals the ranks of the class out: to p, and to nodes beside it for which ok says
// so, to each as many as fit. Left is how many do not: all, if none does on p.
func (c *Class) portions(p *Node, ok func(*Node) bool, fits func(*Node, Share) bool) (all []Portion, left int) {
	left = c.Ranks
	for i, on := range append([]*Node{p}, p.Beside...) {
		if i > 0 && !ok(on) {
			continue
		}
		n, more := 0, Share{}
		if i == 0 {
			more.Counts = c.Share.Counts
		}
		for s := more.Plus(c.Each); n < left && fits(on, on.asked(c, s)); s = s.Plus(c.Each) {
			n, more = n+1, s
		}
		switch left -= n; {
		case n > 0:
			all = append(all, Portion{on, n, on.asked(c, more)})
		case i == 0:
			return nil, left
		}
		if left == 0 {
			break
		}
	}
	return all, left
}

// Portions is what a job of the class would have now of a node, and of those beside it if
// that alone has no room; nil if there is none.
func (p *Node) Portions(c *Class) []Portion {
	if s := c.ShareOf(p); p.holds(s) {
		return []Portion{{p, c.Ranks, s}}
	}
	if !c.spreads(p) {
		return nil
	}
	all, left := c.portions(p, func(o *Node) bool { return o.joins(c) && o.Waiting == 0 && (o.Kept == nil || o.Kept.Of == c) }, (*Node).holds)
	if left > 0 {
		return nil
	}
	return all
}

// joins says that a node may have ranks of a job that is given to one beside it, which has
// what the job wants of what is counted by its name.
func (p *Node) joins(c *Class) bool { return p.Open() && p.Has.CPUs > 0 && p.misses(c) == nil }

// offersTogether says that the nodes of a machine offer enough for a job of the class, and
// no one of them need do so alone.
func (p *Node) offersTogether(c *Class) bool {
	if !c.spreads(p) {
		return false
	}
	_, left := c.portions(p, func(o *Node) bool { return o.joins(c) }, func(o *Node, s Share) bool { return Fits(o.Has, Share{}, s) })
	return left == 0
}

// CouldTogether is what a job of the class would have of a node and of those beside it if they
// ran nothing else and their owners used none of them, and how many ranks have no room there.
func (p *Node) CouldTogether(c *Class) (all []Portion, left int) {
	return c.portions(p, func(o *Node) bool { return o.misses(c) == nil }, func(o *Node, s Share) bool { return Fits(o.Could, Share{}, s) })
}

// couldTogether says that all have.
func (p *Node) couldTogether(c *Class) bool {
	if !c.spreads(p) {
		return false
	}
	_, left := p.CouldTogether(c)
	return left == 0
}

// alone says that the node by itself offers enough for a job of the class.
func (p *Node) alone(c *Class) bool { return Fits(p.Has, Share{}, c.ShareOf(p)) }

// join notes which machine a node is of, by a text that only its nodes know, and judges
// those beside it anew: what fits on them together has changed.
func (l *Lab) join(p *Node, machine string) {
	if l.machines == nil {
		l.machines = map[string][]*Node{}
	}
	others := p.Beside // those that it had
	if was := p.machine; was != machine {
		p.machine, p.Beside = machine, nil
		l.together(was, slices.DeleteFunc(l.machines[was], func(o *Node) bool { return o == p }))
		if all := l.machines[machine]; machine != "" && len(all) < maxTogether {
			l.together(machine, append(all, p))
		}
		others = slices.Concat(others, p.Beside)
	}
	for _, c := range l.Classes {
		p.Judge(c)
		for _, o := range others {
			if c.Ranks > 1 {
				o.Judge(c)
			}
		}
	}
}

// maxTogether is how many nodes of a machine can have ranks of one job: others are by
// themselves.
const maxTogether = 256

// together has each node of a machine know the others.
func (l *Lab) together(machine string, all []*Node) {
	if l.machines[machine] = all; len(all) == 0 {
		delete(l.machines, machine)
	}
	slices.SortFunc(all, func(p, o *Node) int { return p.Index - o.Index })
	for i, p := range all {
		p.Beside = slices.Concat(all[:i], all[i+1:])
	}
}
