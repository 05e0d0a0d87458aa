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
	used   share
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
		nodes[at.peer].used = nodes[at.peer].used.minus(at.share)
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
				n.used = n.used.plus(plainShare(m.queueOf(ref).c, n.p))
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

// plainShare is what a job of a class has of a node.
func plainShare(c *class, p *peer) share {
	s := c.share
	if s.cpus == 0 {
		s.cpus = p.offer.CPUs
	}
	return s
}

// plainRoom says whether a node has room for so much more.
func plainRoom(p *peer, used, more share) bool {
	gpus := 0
	for _, g := range p.offer.GPUs {
		if !g.Busy {
			gpus++
		}
	}
	return used.cpus+more.cpus <= p.offer.CPUs && (more.gpus == 0 || used.gpus+more.gpus <= gpus) &&
		(more.memory == 0 || used.memory+more.memory <= p.offer.Memory)
}

func plainBest(m *Machine, nodes map[*peer]*plainNode, ref Ref, ahead map[*peer]int) *plainNode {
	q := m.queueOf(ref)
	var best *plainNode
	for _, p := range m.peers {
		n := nodes[p]
		_, able := q.c.lacks(p)
		fits := plainRoom(p, n.used, plainShare(q.c, p)) && (q.c.share.cpus > 0 || n.active == 0 && p.offer.CPUs > 0)
		if !able || p.offer.Pause != nil && p.offer.Pause.Give == nil || p.halt != 0 || !fits || !p.listed || q.doom != "" || q.b.shuns(p) || q.b.tight[p].until != 0 || p.waiting > ahead[p] || p.rest != 0 || p.rests > 0 && n.active > 0 {
			continue
		}
		if best == nil {
			best = n
			continue
		}
		_, built := q.b.pace[p]
		_, bestBuilt := q.b.pace[best.p]
		free, bestFree := p.offer.CPUs-n.used.cpus, best.p.offer.CPUs-best.used.cpus
		spared, bestSpared := q.c.share.gpus == 0 && p.has.gpus > 0, q.c.share.gpus == 0 && best.p.has.gpus > 0
		switch {
		case built != bestBuilt:
			if built {
				best = n
			}
		case spared != bestSpared:
			if bestSpared {
				best = n
			}
		case free < bestFree:
			best = n
		}
	}
	return best
}

// rightlyAhead checks the rule for attempts that are sent ahead: one a slot at
// most, of a batch whose attempts are short there.
func rightlyAhead(m *Machine, a *attempt) error {
	p := a.peer
	if p.waiting > p.active || !m.batches[a.ref.Batch].short(p) || !plainRoom(p, share{}, p.waits) {
		return fmt.Errorf("attempt %s is sent ahead to %s, where %d wait and %d run", a.token, p.name, p.waiting, p.active)
	}
	return nil
}
