package sched

import (
	"fmt"
	"slices"

	"distribute/lib/job"
)

// The placing decision once more, from scratch and without any index: every
// job that waits, in order, is tried on every node. It is what place must
// equal, whatever it leaves out because nothing there can have changed.

type plainNode struct {
	p      *peer
	used   int
	active int
}

type placed struct {
	ref  Ref
	node string
}

// comparePlain takes back the starts among the actions of an event, decides
// again, and compares.
func comparePlain(m *Machine, actions []Action) error {
	nodes := map[*peer]*plainNode{}
	for _, p := range m.peers {
		nodes[p] = &plainNode{p, p.used, p.active}
	}
	var got []placed
	taken := map[Ref]bool{}
	ahead := map[*peer]int{}
	for _, a := range actions {
		s, ok := a.(Start)
		if !ok {
			continue
		}
		at := m.live[must(s.Attempt)]
		if !at.active {
			if err := rightlyAhead(m, at); err != nil {
				return err
			}
			ahead[at.peer]++
			taken[s.Ref] = true
			continue
		}
		nodes[at.peer].used -= at.cpus
		nodes[at.peer].active--
		taken[s.Ref] = true
		got = append(got, placed{s.Ref, string(at.peer.name)})
	}
	var want []placed
	for _, b := range m.sorted() {
		for i, s := range b.state {
			ref := Ref{b.num, uint32(i)}
			if !b.ready || s != job.Queued && !taken[ref] {
				continue
			}
			if n := plainBest(m, nodes, ref, ahead); n != nil {
				cpus := m.queueOf(ref).c.cpus
				if cpus == 0 {
					cpus = n.p.offer.CPUs
				}
				n.used += cpus
				n.active++
				want = append(want, placed{ref, string(n.p.name)})
			}
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("placed %v, should be %v", got, want)
	}
	return nil
}

func plainBest(m *Machine, nodes map[*peer]*plainNode, ref Ref, ahead map[*peer]int) *plainNode {
	q := m.queueOf(ref)
	var best *plainNode
	for _, p := range m.peers {
		n := nodes[p]
		_, able := p.offer.Has(q.c.caps)
		fits := n.used+q.c.cpus <= p.offer.CPUs && (q.c.cpus > 0 || n.active == 0 && p.offer.CPUs > 0)
		if !able || !fits || !p.listed || q.doom != "" || q.b.shuns(p) || q.b.tight[p].until != 0 || p.waiting > ahead[p] || p.rest != 0 || p.rests > 0 && n.active > 0 {
			continue
		}
		if best == nil {
			best = n
			continue
		}
		_, built := q.b.pace[p]
		_, bestBuilt := q.b.pace[best.p]
		free, bestFree := p.offer.CPUs-n.used, best.p.offer.CPUs-best.used
		if built && !bestBuilt || built == bestBuilt && free < bestFree {
			best = n
		}
	}
	return best
}

// rightlyAhead checks the rule for attempts that are sent ahead: one a slot at
// most, of a batch whose attempts are short there.
func rightlyAhead(m *Machine, a *attempt) error {
	p := a.peer
	if p.waiting > p.active || !m.batches[a.ref.Batch].short(p) || p.waitCPUs > p.offer.CPUs {
		return fmt.Errorf("attempt %s is sent ahead to %s, where %d wait and %d run", a.token, p.name, p.waiting, p.active)
	}
	return nil
}
