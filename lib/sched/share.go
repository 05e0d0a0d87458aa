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
	GPUs   uint16
	Memory int64  // bytes
	Wants  string // what its node must be besides, as [AskOf] writes it
	Time   int64  // seconds that it may run; 0: no limit. It makes no other class.

	Counts job.Counts // of what is counted by its name
}

// AskOf is what a job asks for that needs r and has those capabilities of its own.
func AskOf(r job.Resources, own []string) Ask {
	count := func(n int) uint16 { return uint16(min(max(0, n), math.MaxUint16)) }
	return Ask{CPUs: count(r.CPUs), GPUs: count(r.GPUs), Memory: max(0, r.Memory), Wants: strings.Join(entries(own), "\x00"), Time: max(0, r.Time), Counts: r.Counted}
}

// entries is a list of capabilities in order, each once.
func entries(caps []string) []string {
	caps = slices.Clone(caps)
	slices.Sort(caps)
	return slices.Compact(caps)
}

func (a Ask) share() share {
	return share{cpus: int(a.CPUs), gpus: int(a.GPUs), memory: a.Memory, counts: a.Counts}
}

// A share is an amount of what a node has.
type share struct {
	cpus, gpus int
	memory     int64
	counts     job.Counts // also of names that its node does not count
	learnt     int64      // memory besides, that was not asked for: see learn.go
}

func (s share) plus(o share) share {
	return share{s.cpus + o.cpus, s.gpus + o.gpus, s.memory + o.memory, s.counts.Plus(o.counts), s.learnt + o.learnt}
}

func (s share) minus(o share) share {
	return share{s.cpus - o.cpus, s.gpus - o.gpus, s.memory - o.memory, s.counts.Minus(o.counts), s.learnt - o.learnt}
}

// bare is the share without what nodes know nothing of: what is counted by its name, and
// what was not asked for.
func (s share) bare() share {
	s.counts, s.learnt = "", 0
	return s
}

// holds says that so much more goes into what a node offers. What is not asked
// for may be short, and what the node does not count is not its own to give.
func (p *peer) holds(more share) bool {
	return holds(p.has, p.used, more)
}

func holds(has, used, more share) bool {
	return used.cpus+more.cpus <= has.cpus &&
		(more.gpus == 0 || used.gpus+more.gpus <= has.gpus) &&
		(more.memory+more.learnt == 0 || used.memory+used.learnt+more.memory+more.learnt <= has.memory) &&
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

// of is what a job of the class gets of a node. One that is only known to need more
// memory than the node has counts with all of it.
func (c *class) of(p *peer) share {
	s := c.share
	s.learnt = min(s.learnt, p.has.memory)
	if s.cpus == 0 {
		s.cpus = p.has.cpus
	}
	return s
}

// take takes in what a node offers. What it has lent back counts as what it could
// have: a job that only fits then waits, and is not given up.
func (m *Machine) take(p *peer, o node.Offer) {
	o.CPUs = min(max(0, o.CPUs), maxCPUs)
	p.offer, p.offered, p.halt, p.soon = o, m.now, 0, 0
	if o.Soon > 0 {
		p.soon = m.now + time.Duration(o.Soon*float64(time.Second))
	}
	p.has = share{cpus: o.CPUs, memory: o.Memory, counts: o.Counted}
	p.could = share{cpus: o.CPUs, gpus: len(o.GPUs), memory: o.Memory, counts: o.Counted}
	for _, g := range o.GPUs {
		if !g.Busy {
			p.has.gpus++
		}
	}
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
	m.changed++
}
