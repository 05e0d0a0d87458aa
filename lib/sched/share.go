package sched

import (
	"math"
	"slices"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// An Ask is what a job asks of its node. What it does not ask for it has no
// share of, as far as is counted here: 0 bytes of memory are counted of a job
// that does not say how much it needs.
type Ask struct {
	CPUs   uint16 // 0: a whole node
	GPUs   uint32 // thousandths
	Memory int64  // bytes
	Wants  string // what its node must be besides, as [AskOf] writes it
	Time   int64  // seconds that it may run; 0: no limit. It makes no other class.
	Disk   int64  // bytes that it writes at most; 0: nothing is said. Nor does this.

	Counts job.Counts // of what is counted by its name
}

// AskOf is what a job asks for that needs r and has those capabilities of its own.
func AskOf(r job.Resources, own []string) Ask {
	count := func(n int) uint16 { return uint16(min(max(0, n), math.MaxUint16)) }
	return Ask{CPUs: count(r.CPUs), GPUs: uint32(min(max(0, r.GPUs), math.MaxUint32)), Memory: max(0, r.Memory), Wants: strings.Join(entries(own), "\x00"), Time: max(0, r.Time), Disk: max(0, r.Disk), Counts: r.Counted}
}

// entries is a list of capabilities in order, each once.
func entries(caps []string) []string {
	caps = slices.Clone(caps)
	slices.Sort(caps)
	return slices.Compact(caps)
}

func (a Ask) share() share {
	return share{cpus: int(a.CPUs), gpus: job.GPUs(a.GPUs), memory: a.Memory, counts: a.Counts}
}

// A share is an amount of what a node has.
type share struct {
	cpus   int
	gpus   job.GPUs
	memory int64
	counts job.Counts // also of names that its node does not count
	cards  job.Cards  // which GPUs; nothing of what is asked for, and not given yet
}

func (s share) plus(o share) share {
	return share{s.cpus + o.cpus, s.gpus + o.gpus, s.memory + o.memory, s.counts.Plus(o.counts), s.cards.Plus(o.cards)}
}

func (s share) minus(o share) share {
	return share{s.cpus - o.cpus, s.gpus - o.gpus, s.memory - o.memory, s.counts.Minus(o.counts), s.cards.Minus(o.cards)}
}

// bare is the share without what nodes know nothing of: what is counted by its name.
func (s share) bare() share {
	s.counts = ""
	return s
}

// holds says that so much more, without GPUs of its own yet, goes into what a node
// offers. What is not asked for may be short, and what the node does not count is not
// its own to give.
func (p *peer) holds(more share) bool {
	return amounts(p.has, p.used, more) && (more.gpus == 0 || p.freeGPUs().Fits(more.gpus))
}

// holds says that so much more goes beside what is used.
func holds(has, used, more share) bool {
	return amounts(has, used, more) && (more.gpus == 0 || cards(has, used, more))
}

// amounts is holds of all but the GPUs.
func amounts(has, used, more share) bool {
	return used.cpus+more.cpus <= has.cpus &&
		(more.memory == 0 || used.memory+more.memory <= has.memory) &&
		(more.counts == "" || counts(has.counts, used.counts, more.counts))
}

func counts(has, used, more job.Counts) bool {
	for name, n := range more.All() {
		if most := has.Of(name); most > 0 && used.Of(name)+n > most {
			return false
		}
	}
	return true
}

// cards says that the GPUs of more are free, or if it has none yet, as many as it asks
// for: parts of several that would make a whole one are none.
func cards(has, used, more share) bool {
	if more.cards != (job.Cards{}) {
		return has.cards.Minus(used.cards).Hold(more.cards)
	}
	return has.cards.Room(used.cards).Fits(more.gpus)
}

// freeGPUs is what is free of the GPUs of a node. It is reckoned anew when they are
// others, or others are used: every node is asked for each start.
func (p *peer) freeGPUs() job.Room {
	if of := [2]job.Cards{p.has.cards, p.used.cards}; of != p.reckoned.of {
		p.reckoned.of, p.reckoned.free = of, p.has.cards.Room(p.used.cards)
	}
	return p.reckoned.free
}

// given is the share with the GPUs that it gets of the node now.
func (p *peer) given(s share) share {
	if s.gpus > 0 && s.cards == (job.Cards{}) {
		s.cards, _ = p.has.cards.Minus(p.used.cards).Fit(s.gpus)
	}
	return s
}

// awaited is what a job asks for with the GPUs that it is to be expected to get beside
// what stays there.
func (p *peer) awaited(asks, stays share) share {
	if asks.gpus == 0 {
		return asks
	}
	var free bool
	if asks.cards, free = p.has.cards.Minus(stays.cards).Fit(asks.gpus); !free {
		asks.cards = p.has.cards.Await(stays.cards, asks.gpus)
	}
	return asks
}

// of is what a job of the class gets of a node.
func (c *class) of(p *peer) share {
	s := c.share
	if s.cpus == 0 {
		s.cpus = p.has.cpus
	}
	if c.cards {
		s.gpus = p.has.gpus
	}
	return s
}

// cardless says that a job of the class is to have all GPUs of the node, and that somebody
// else is on each of them.
func (p *peer) cardless(c *class) bool { return c.cards && p.has.gpus == 0 && p.could.gpus > 0 }

// ofCards is those GPUs that a node has, and for which ok says so.
func ofCards(list []node.GPU, ok func(node.GPU) bool) (job.GPUs, job.Cards) {
	var indexes []int
	for _, g := range list {
		if ok(g) {
			indexes = append(indexes, g.Index)
		}
	}
	all := job.AllCards(indexes)
	return job.GPUs(all.Len()) * job.OneGPU, all
}

// take takes in what a node offers. What it has lent back counts as what it could
// have: a job that only fits then waits, and is not given up.
func (m *Machine) take(p *peer, o node.Offer) {
	m.markAll(p)
	o.CPUs = min(max(0, o.CPUs), maxCPUs)
	p.offer, p.offered, p.halt, p.soon = o, m.now, 0, 0
	if o.Soon > 0 {
		p.soon = m.now + time.Duration(o.Soon*float64(time.Second))
	}
	p.has = share{cpus: o.CPUs, memory: o.Memory, counts: o.Counted}
	p.could = p.has
	p.has.gpus, p.has.cards = ofCards(o.GPUs, func(g node.GPU) bool { return !g.Busy })
	p.could.gpus, p.could.cards = ofCards(o.GPUs, func(node.GPU) bool { return true })
	if o.Pause != nil && o.Pause.Give != nil {
		p.could = p.could.plus(share{cpus: min(max(0, o.Pause.Give.CPUs), maxCPUs), memory: max(0, o.Pause.Give.Memory)})
	}
	whole := o
	whole.CPUs, whole.Memory = p.could.cpus, p.could.memory
	p.facts = whole.Facts(p.name)
	for _, c := range m.classes {
		p.judge(c)
	}
	m.countAll(p)
}
