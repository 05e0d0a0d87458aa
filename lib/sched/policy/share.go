package policy

import (
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// A Share is an amount of what a node has.
type Share struct {
	CPUs   int
	GPUs   job.GPUs
	Memory int64
	Counts job.Counts // also of names that its node does not count
	Cards  job.Cards  // which GPUs; nothing of what is asked for, and not given yet
}

// Plus is both.
func (s Share) Plus(o Share) Share {
	return Share{s.CPUs + o.CPUs, s.GPUs + o.GPUs, s.Memory + o.Memory, s.Counts.Plus(o.Counts), s.Cards.Plus(o.Cards)}
}

// Minus is what is left of it.
func (s Share) Minus(o Share) Share {
	return Share{s.CPUs - o.CPUs, s.GPUs - o.GPUs, s.Memory - o.Memory, s.Counts.Minus(o.Counts), s.Cards.Minus(o.Cards)}
}

// Bare is the share without what nodes know nothing of: what is counted by its name.
func (s Share) Bare() Share {
	s.Counts = ""
	return s
}

// holds says that so much more, without GPUs of its own yet, goes into what a node
// offers. What is not asked for may be short, and what the node does not count is not
// its own to give.
func (p *Node) holds(more Share) bool {
	return amountsFit(p.Has, p.Used, more) && (more.GPUs == 0 || p.freeGPUs().Fits(more.GPUs))
}

// Fits says that so much more goes beside what is used. Parts of several GPUs that would
// make a whole one are none.
func Fits(has, used, more Share) bool {
	return amountsFit(has, used, more) && (more.GPUs == 0 || has.Cards.Room(used.Cards).Fits(more.GPUs))
}

// amountsFit is Fits of all but the GPUs.
func amountsFit(has, used, more Share) bool {
	return used.CPUs+more.CPUs <= has.CPUs &&
		(more.Memory == 0 || used.Memory+more.Memory <= has.Memory) &&
		(more.Counts == "" || countsFit(has.Counts, used.Counts, more.Counts))
}

func countsFit(has, used, more job.Counts) bool {
	for name, n := range more.All() {
		if most := has.Of(name); most > 0 && used.Of(name)+n > most {
			return false
		}
	}
	return true
}

// freeGPUs is what is free of the GPUs of a node. It is reckoned anew when they are
// others, or others are used: every node is asked for each start.
func (p *Node) freeGPUs() job.Room {
	if of := [2]job.Cards{p.Has.Cards, p.Used.Cards}; of != p.free.of {
		p.free.of, p.free.room = of, p.Has.Cards.Room(p.Used.Cards)
	}
	return p.free.room
}

// Given is the share with the GPUs that it gets of the node now.
func (p *Node) Given(s Share) Share {
	if s.GPUs > 0 && s.Cards == (job.Cards{}) {
		s.Cards, _ = p.Has.Cards.Minus(p.Used.Cards).Fit(s.GPUs)
	}
	return s
}

// Settled says that it is known which GPUs it is of, or that it is of none.
func (s Share) Settled() bool { return s.GPUs == 0 || s.Cards != (job.Cards{}) }

// awaited is what a job asks for with the GPUs that it is to be expected to get beside
// what stays there.
func (p *Node) awaited(asks, stays Share) Share {
	if asks.GPUs == 0 {
		return asks
	}
	var free bool
	if asks.Cards, free = p.Has.Cards.Minus(stays.Cards).Fit(asks.GPUs); !free {
		asks.Cards = p.Has.Cards.Await(stays.Cards, asks.GPUs)
	}
	return asks
}

// ShareOf is what a job of the class gets of a node.
func (c *Class) ShareOf(p *Node) Share {
	s := c.Share
	if s.CPUs == 0 {
		s.CPUs = p.Has.CPUs
	}
	if c.Cards {
		s.GPUs = p.Has.GPUs
	}
	return s
}

// cardless says that a job of the class is to have all GPUs of the node, and that somebody
// else is on each of them.
func (p *Node) cardless(c *Class) bool { return c.Cards && p.Has.GPUs == 0 && p.Could.GPUs > 0 }

// cardsOf is those GPUs that a node has, and for which ok says so.
func cardsOf(list []node.GPU, ok func(node.GPU) bool) (job.GPUs, job.Cards) {
	var indexes []int
	for _, g := range list {
		if ok(g) {
			indexes = append(indexes, g.Index)
		}
	}
	all := job.AllCards(indexes)
	return job.GPUs(all.Len()) * job.OneGPU, all
}

// Offers takes in what a node offers at a moment. What it has lent back counts as what it
// could have: a job that only fits then waits, and is not given up.
func (l *Lab) Offers(p *Node, o node.Offer) {
	o.CPUs = min(max(0, o.CPUs), MaxCPUs)
	p.Offer, p.Offered, p.HaltedUntil, p.PausesAt = o, l.Now, 0, 0
	if o.Soon > 0 {
		p.PausesAt = l.Now + time.Duration(o.Soon*float64(time.Second))
	}
	p.Has = Share{CPUs: o.CPUs, Memory: o.Memory, Counts: o.Counted}
	p.Could = p.Has
	p.Has.GPUs, p.Has.Cards = cardsOf(o.GPUs, func(g node.GPU) bool { return !g.Busy })
	p.Could.GPUs, p.Could.Cards = cardsOf(o.GPUs, func(node.GPU) bool { return true })
	if o.Pause != nil && o.Pause.Give != nil {
		p.Could = p.Could.Plus(Share{CPUs: min(max(0, o.Pause.Give.CPUs), MaxCPUs), Memory: max(0, o.Pause.Give.Memory)})
	}
	whole := o
	whole.CPUs, whole.Memory = p.Could.CPUs, p.Could.Memory
	p.Facts = whole.Facts(p.Name)
	l.join(p, o.Machine)
}

// MaxCPUs is how many cpus a node has at most: more of an offer is taken as this.
const MaxCPUs = 1 << 20
