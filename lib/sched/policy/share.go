package policy

import (
	"slices"
	"time"

	"distribute/lib/capability"
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
	Among  job.Cards  // of what is asked for: the only ones of which GPUs may be; nothing: any
}

// Plus is both, without what is only asked for.
func (s Share) Plus(o Share) Share {
	return Share{s.CPUs + o.CPUs, s.GPUs + o.GPUs, s.Memory + o.Memory, s.Counts.Plus(o.Counts), s.Cards.Plus(o.Cards), job.Cards{}}
}

// Minus is what is left of it, likewise.
func (s Share) Minus(o Share) Share {
	return Share{s.CPUs - o.CPUs, s.GPUs - o.GPUs, s.Memory - o.Memory, s.Counts.Minus(o.Counts), s.Cards.Minus(o.Cards), job.Cards{}}
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
	return amountsFit(p.Has, p.Used, more) && (more.GPUs == 0 || p.freeGPUs(more.Among).Fits(more.GPUs))
}

// Fits says that so much more goes beside what is used. Parts of several GPUs that would
// make a whole one are none.
func Fits(has, used, more Share) bool {
	return amountsFit(has, used, more) && (more.GPUs == 0 || among(has.Cards, more.Among).Room(used.Cards).Fits(more.GPUs))
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

// among is those of some GPUs that only names; all if it names none.
func among(cards, only job.Cards) job.Cards {
	if only == (job.Cards{}) {
		return cards
	}
	return cards.Only(only)
}

// freeGPUs is what is free of the GPUs of a node, or of those that only names. All are reckoned
// anew when they are others, or others are used: every node is asked for each start.
func (p *Node) freeGPUs(only job.Cards) job.Room {
	if only != (job.Cards{}) {
		return p.Has.Cards.Only(only).Room(p.Used.Cards)
	}
	if of := [2]job.Cards{p.Has.Cards, p.Used.Cards}; of != p.free.of {
		p.free.of, p.free.room = of, p.Has.Cards.Room(p.Used.Cards)
	}
	return p.free.room
}

// Given is the share of a job of the class with the GPUs that it gets of the node now. Where none
// of those that it wants is free, as of a job that runs already, it gets others.
func (p *Node) Given(c *Class, s Share) Share {
	if s.GPUs > 0 && s.Cards == (job.Cards{}) {
		free, fits := p.Has.Cards.Minus(p.Used.Cards), false
		only, _ := p.pick(c)
		if s.Cards, fits = among(free, only).Fit(s.GPUs); !fits {
			s.Cards, _ = free.Fit(s.GPUs)
		}
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
	if asks.Cards, free = among(p.Has.Cards, asks.Among).Minus(stays.Cards).Fit(asks.GPUs); !free {
		asks.Cards = among(p.Has.Cards, asks.Among).Await(stays.Cards, asks.GPUs)
	}
	return asks
}

// ShareOf is what a job of the class gets of a node.
func (c *Class) ShareOf(p *Node) Share {
	s := p.asked(c, c.Share)
	if s.CPUs == 0 {
		s.CPUs = p.Has.CPUs
	}
	if c.Cards {
		s.GPUs = job.GPUs(among(p.Has.Cards, s.Among).Len()) * job.OneGPU
	}
	return s
}

// picks says whether the class has GPUs, and wants something of these.
func (c *Class) picks() bool {
	return (c.Share.GPUs > 0 || c.Cards) && slices.ContainsFunc(c.Wants, capability.Expr.OfGPUs)
}

// fitting is those GPUs of the node that are what the class wants; nothing if any is, or none. It is
// kept, as every node is asked for each start.
func (p *Node) fitting(c *Class) job.Cards {
	if !c.picks() {
		return job.Cards{}
	}
	if c.Asked {
		fit, _ := p.pick(c)
		return fit
	}
	if p.fits.by != p.Facts || len(p.fits.of) > maxFits {
		p.fits.by, p.fits.of = p.Facts, map[*Class]job.Cards{}
	}
	fit, known := p.fits.of[c]
	if !known {
		fit, _ = p.pick(c)
		p.fits.of[c] = fit
	}
	return fit
}

// maxFits bounds for how many classes that is kept, of which some are gone.
const maxFits = 10_000

// asked is a share that a job of the class asks the node for.
func (p *Node) asked(c *Class, s Share) Share {
	s.Among = p.fitting(c)
	return s
}

// Fitting is which GPUs the node could have for jobs of the class.
func (p *Node) Fitting(c *Class) job.Cards { return among(p.Could.Cards, p.fitting(c)) }

// GPUs is how many they are.
func (p *Node) GPUs(c *Class) job.GPUs { return job.GPUs(p.Fitting(c).Len()) * job.OneGPU }

// cardless says that a job of the class is to have all GPUs of the node, and that somebody
// else is on each of them.
func (p *Node) cardless(c *Class) bool {
	return c.Cards && c.ShareOf(p).GPUs == 0 && p.GPUs(c) > 0
}

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
