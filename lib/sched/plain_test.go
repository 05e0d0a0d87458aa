package sched

import (
	"fmt"
	"math"
	"slices"
	"time"

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
	run := plainRunning(m, got)
	rates := map[*owner]int64{}
	for _, a := range m.live {
		if !slices.ContainsFunc(got, func(p placed) bool { return p.ref == a.ref && a.active }) {
			rates[m.batches[a.ref.Batch].owner] += plainWeight(a)
		}
	}
	var want []placed
	for {
		ref, n := plainFirst(m, nodes, ahead, rates, run, func(ref Ref) bool {
			return m.State(ref) == job.Queued && !taken[ref] || slices.ContainsFunc(got, func(p placed) bool { return p.ref == ref }) &&
				!slices.ContainsFunc(want, func(p placed) bool { return p.ref == ref })
		})
		if n == nil {
			break
		}
		s := plainShare(m.queueOf(ref).c, n.p)
		n.used = n.used.plus(s)
		n.active++
		run[ref.Batch]++
		rates[m.batches[ref.Batch].owner] += weight(s, n.p.could)
		want = append(want, placed{ref, string(n.p.name)})
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("placed %v, should be %v", got, want)
	}
	return nil
}

// plainRunning counts the jobs of each batch that ran before what was placed.
func plainRunning(m *Machine, placed []placed) map[uint32]int {
	run := map[uint32]int{}
	for _, a := range m.live {
		if a.current && a.result == nil {
			run[a.ref.Batch]++
		}
	}
	for _, p := range placed {
		run[p.ref.Batch]--
	}
	return run
}

// plainFirst is the job that goes first of those that wait and can be started, and
// its node.
func plainFirst(m *Machine, nodes map[*peer]*plainNode, ahead map[*peer]int, rates map[*owner]int64, run map[uint32]int, waits func(Ref) bool) (first Ref, on *plainNode) {
	for _, b := range m.sorted() {
		if !b.ready || b.most > 0 && run[b.num] >= b.most {
			continue
		}
		for i := range b.state {
			ref := Ref{b.num, uint32(i)}
			if !waits(ref) || on != nil && !plainBefore(m, rates, b, m.batches[first.Batch]) {
				continue
			}
			if n := plainBest(m, nodes, ref, ahead); n != nil {
				first, on = ref, n
				break
			}
		}
	}
	return first, on
}

// plainBefore says that jobs of b go before those of an older batch c.
func plainBefore(m *Machine, rates map[*owner]int64, b, c *batch) bool {
	turn := func(o *owner) int64 { return int64(o.used + float64(rates[o])/1000/decay) }
	if b.priority != c.priority {
		return b.priority > c.priority
	}
	return turn(b.owner) < turn(c.owner)
}

// plainWeight is what an attempt takes of its node, in thousandths of a cpu.
func plainWeight(a *attempt) int64 {
	p := a.peer
	if !a.active || !p.listed || p.offer.Pause != nil && p.offer.Pause.Give == nil {
		return 0
	}
	return weight(a.share, p.could)
}

// A plainUse is what an owner has used, reckoned after every event from what his
// attempts took since the one before.
type plainUse struct {
	used float64
	rate int64
	at   time.Duration
}

// compareUse reckons what owners have used without the machine's account of it.
func (r *rig) compareUse() error {
	rates := map[*owner]int64{}
	for _, a := range r.m.live {
		rates[r.m.batches[a.ref.Batch].owner] += plainWeight(a)
	}
	for uid, o := range r.m.owners {
		u := r.uses[uid]
		if u == nil {
			u = &plainUse{at: r.now}
			r.uses[uid] = u
		}
		passed := r.now - u.at
		rest := math.Pow(0.5, passed.Hours())
		u.used, u.at = u.used*rest+float64(u.rate)/1000*(1-rest)*3600/math.Ln2, r.now
		u.rate = rates[o]
		o.reckon(r.m.now)
		if math.Abs(o.used-u.used) > 1e-6*(1+u.used) {
			return fmt.Errorf("owner %d has used %g, should be %g", uid, o.used, u.used)
		}
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
