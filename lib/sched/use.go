package sched

import (
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
)

// What attempts take: of their nodes, of what the site counts, of the turn of their owners,
// and of the jobs of their batch that may run.

// take takes in what a node offers.
func (m *Machine) take(p *peer, o node.Offer) {
	m.lab.Offers(p.Node, o)
	m.countAll(p)
}

// count takes in that an attempt has begun or ceased to run for its job, or to take
// something of a node. It is told of every change of what it looks at.
func (m *Machine) count(a *attempt) {
	m.mark(a)
	b, p := m.batches[a.ref.Batch], a.peer
	if runs := a.current && a.result == nil && !a.dead && !p.abroad; runs != a.runs {
		a.runs = runs
		b.run(runs)
	}
	m.takeCounts(a)
	takes := int64(0)
	if _, still := b.frozen[a.ref.Job]; a.Active && !a.dead && p.Listed && a.pausedOn() == nil && !still {
		takes = policy.Weight(a.all(), p.Could)
	}
	if takes != a.takes {
		b.Owner.Take(takes-a.takes, m.lab.Now)
		a.takes = takes
	}
}

// countAll counts all attempts of a node again.
func (m *Machine) countAll(p *peer) {
	for a := p.first; a != nil; a = a.after {
		m.count(a)
	}
	for _, g := range p.guests {
		m.count(g.of)
	}
}

// run counts one more job of the batch that runs, or one less.
func (b *batch) run(begins bool) {
	if b.Running--; begins {
		b.Running += 2
	}
}

// ownerOf is the owner of that number, made known by his first batch.
func (m *Machine) ownerOf(uid int) *policy.Owner {
	o := m.lab.Owners[uid]
	if o == nil {
		o = &policy.Owner{At: m.lab.Now}
		m.lab.Owners[uid] = o
	}
	return o
}

func (e Counted) apply(m *Machine) {
	m.lab.Site.Has = e.Site
	for _, c := range m.lab.Classes {
		if c.Share.Counts == "" {
			continue
		}
		for _, p := range m.peers {
			p.Judge(c)
		}
	}
}

// Counted is what the site counts, and how much of that is taken.
func (m *Machine) Counted() (has, taken job.Counts) {
	for name := range m.lab.Site.Has.All() {
		taken = taken.With(name, m.lab.Site.Taken.Of(name))
	}
	return m.lab.Site.Has, taken
}

// takeCounts takes in whether an attempt has what it was given of what is counted:
// until it has ended, or its node was silent for a lease and its job goes on
// elsewhere.
func (m *Machine) takeCounts(a *attempt) {
	has := !a.dead && a.result == nil && (a.current || a.peer.Session != 0 || !a.peer.expired)
	if has == a.counted || a.Share.Counts == "" {
		return
	}
	a.counted = has
	if has {
		m.lab.Site.Taken = m.lab.Site.Taken.Plus(a.Share.Counts)
		return
	}
	m.lab.Site.Taken = m.lab.Site.Taken.Minus(a.Share.Counts)
}
