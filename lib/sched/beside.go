package sched

import (
	"slices"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
)

// A guest is what an attempt has of a node that it was not given to, but which is of the same
// machine: some of its ranks are there.
type guest struct {
	policy.Run
	of      *attempt
	on      *peer
	ranks   int
	counted bool // in what is used of that node
}

// addPortions gives an attempt that is new what a record says of nodes beside its own. What
// no record of ours says is left out.
func (m *Machine) addPortions(a *attempt, also []job.Portion) {
	c := a.Queue.Class
	left := c.Ranks
	for _, o := range also {
		s := c.Of(o.Ranks)
		if left -= o.Ranks; o.Ranks < 1 || left < 1 || o.Node == "" || node.Name(o.Node).Abroad() || s.CPUs > a.Share.CPUs || s.GPUs > a.Share.GPUs {
			return
		}
		a.Share = a.Share.Minus(s)
		on := m.peerOf(node.Name(o.Node), 0)
		g := &guest{Run: policy.Run{Token: a.Token, Job: a.Job, Queue: a.Queue, Share: s, Active: true}, of: a, on: on, ranks: o.Ranks}
		a.beside, on.guests = append(a.beside, g), append(on.guests, g)
	}
}

// takePortions has an attempt that starts take what it has of the nodes beside its own, and is
// what these give.
func (a *attempt) takePortions() (all []job.Visit) {
	for _, g := range a.beside {
		g.Share, g.Began = g.on.Given(a.Queue.Class, g.Share), a.Began
		g.on.LastGiven = a.Began
		g.occupy()
		all = append(all, job.Visit{Portion: job.Portion{Node: string(g.on.Name), Ranks: g.ranks}, GPUs: g.Share.Cards.Indexes()})
	}
	return all
}

// occupy counts a guest on its node.
func (g *guest) occupy() {
	g.counted = true
	g.on.occupy(g.Share, true)
}

// leaveBeside has an attempt leave the nodes beside its own.
func (a *attempt) leaveBeside() {
	for _, g := range a.beside {
		g.on.guests = slices.DeleteFunc(g.on.guests, func(o *guest) bool { return o == g })
		if g.counted {
			g.counted = false
			g.on.vacate(g.Share, true)
		}
	}
}

// returnBeside has an attempt that had ended, and runs again, have what it left of the nodes beside
// its own.
func (a *attempt) returnBeside() {
	for _, g := range a.beside {
		at := slices.IndexFunc(g.on.guests, func(o *guest) bool { return o.of.order >= a.order })
		if at < 0 {
			at = len(g.on.guests)
		} else if g.on.guests[at] == g {
			continue
		}
		g.on.guests = slices.Insert(g.on.guests, at, g)
		if g.on.Listed { // else it is counted when the list is complete
			g.occupy()
		}
	}
}

// hosts says that attempts of a batch are guests of the node.
func (p *peer) hosts(b *batch) bool {
	return slices.ContainsFunc(p.guests, func(g *guest) bool { return g.of.ref.Batch == b.Num })
}

// all is what an attempt has of all nodes on which its ranks are.
func (a *attempt) all() policy.Share {
	s := a.Share
	for _, g := range a.beside {
		s = s.Plus(g.Share)
	}
	return s
}

// pausedOn is the first of the nodes on which its ranks are that is paused; nil if none is.
func (a *attempt) pausedOn() *peer {
	if a.peer.Offer.Pause.Full() {
		return a.peer
	}
	for _, g := range a.beside {
		if g.on.Offer.Pause.Full() {
			return g.on
		}
	}
	return nil
}

// takeCards takes in which GPUs an attempt has, as its node has said last: of each of the
// nodes on which it is those that this offers, as far as that is known.
func (m *Machine) takeCards(a *attempt) {
	if len(a.beside) == 0 {
		if cards := job.CardsOf(a.Share.GPUs, a.told); cards != (job.Cards{}) {
			a.Share.Cards = cards
		}
		return
	}
	all := job.AllCards(a.told)
	setCards := func(s *policy.Share, of *peer) {
		has := all.Minus(all.Minus(of.Could.Cards))
		if has.Len() != s.GPUs.Cards() || has == s.Cards {
			return
		}
		if s.Cards = has; of.Listed {
			m.recount(of)
		}
	}
	setCards(&a.Share, a.peer)
	for _, g := range a.beside {
		setCards(&g.Share, g.on)
	}
}

// learnCards takes in which GPUs of a node that has ended its list are whose.
func (m *Machine) learnCards(p *peer) {
	for a := p.first; a != nil; a = a.after {
		m.takeCards(a)
	}
	for _, g := range p.guests {
		m.takeCards(g.of)
	}
}
