package sched

import (
	"slices"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// A visit is what an attempt of a node has of another node of the machine, as that one says.
// It outlives what the head knows of the first: a node that was removed is not heard, and its
// ranks run on.
type visit struct {
	cpus   int
	memory int64
	gpus   job.Cards
}

// maxVisit is how many bytes of memory a visit counts at most: the sum of all has room in an int64.
const maxVisit = 1 << 45

func (e Visit) apply(m *Machine) {
	p := m.from(e.Session)
	k, ok := e.Attempt.Key()
	switch {
	case p == nil || p.abroad:
		return
	case !ok:
		m.do(Odd{p.Session, e.Attempt, "it names a visit by what is no token"})
		return
	case e.CPUs > 0 && len(p.visits) < maxHeld:
		p.visits[k] = visit{min(e.CPUs, policy.MaxCPUs), min(max(0, e.Memory), maxVisit), job.AllCards(e.GPUs)}
	default:
		delete(p.visits, k)
	}
	if p.Listed && !m.isGuest(p, k) {
		m.recount(p)
	}
}

// isGuest reports whether a live attempt has ranks on the node, as the head knows.
func (m *Machine) isGuest(p *peer, k key) bool {
	a := m.live[k]
	return a != nil && slices.ContainsFunc(a.beside, func(g *guest) bool { return g.on == p })
}

// lodge finds what unknown attempts of the nodes beside a node have of it: as it says itself,
// or as these nodes say.
func (m *Machine) lodge(p *peer) {
	p.lodged = nil
	for k, v := range p.visits {
		if !m.isGuest(p, k) {
			s := (&unknown{gpus: v.gpus}).of(p, v.cpus)
			s.Memory = v.memory
			p.lodged = append(p.lodged, s)
		}
	}
	for _, o := range p.Beside {
		for k, u := range m.peers[o.Index].held {
			_, said := p.visits[k]
			if cpus := u.also[string(p.Name)]; cpus > 0 && !said {
				p.lodged = append(p.lodged, u.of(p, cpus))
			}
		}
	}
}

// recountLodged counts the room of the nodes beside a node anew, if that may have changed by
// what it lists.
func (m *Machine) recountLodged(p *peer) {
	for _, o := range p.Beside {
		if q := m.peers[o.Index]; q.Listed && (p.lodges > 0 || len(q.lodged) > 0 || len(q.visits) > 0) {
			m.recount(q)
		}
	}
}
