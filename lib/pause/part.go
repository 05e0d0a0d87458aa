package pause

import (
	"errors"
	"math/bits"
	"slices"
)

// A Part is which part of a machine a node is, where that is several nodes: what
// somebody wants back of the machine they give back together, each as much as goes with
// what it offers.
type Part struct {
	Own   string `json:"own,omitempty"`  // the node's own place: what somebody wants back there is the node's alone
	Of    []Give `json:"of"`             // all that each node of the machine offers
	Index int    `json:"index"`          // which of these it is
	Same  bool   `json:"same,omitempty"` // the cpus of all are the same, and fewer than they offer
}

// What a part can be.
const (
	maxParts      = 1024
	maxPartMemory = 1 << 50 // bytes
)

// check reports why there can be no such part. Nil is a machine that is one node.
func (p *Part) check() error {
	bad := func(g Give) bool { return g.CPUs < 0 || g.CPUs > maxCPUs || g.Memory < 0 || g.Memory > maxPartMemory }
	if p != nil && (p.Index < 0 || p.Index >= len(p.Of) || len(p.Of) > maxParts || slices.ContainsFunc(p.Of, bad)) {
		return errors.New("is no part of a machine")
	}
	return nil
}

// Gives is what the node gives back of what the pauses of s want. Nil is a node that is
// the machine, and gives back all of it.
func (p *Part) Gives(s State) Give {
	if p == nil {
		return s.Give()
	}
	own, whole := p.wanted(s)
	whole = p.share(whole)
	return Give{max(own.CPUs, whole.CPUs), max(own.Memory, whole.Memory)}
}

// wanted is what the pauses want of the node alone, and of the machine.
func (p *Part) wanted(s State) (own, whole Give) {
	var here, there State
	for _, q := range s.Live {
		if q.Place == p.Own {
			here.Live = append(here.Live, q)
		} else {
			there.Live = append(there.Live, q)
		}
	}
	return here.Give(), there.Give()
}

// Loses is how many of the cpus on which its jobs run the node loses by the pauses of s: what
// it gives back, or of cpus that are those of all nodes, all that is wanted of these.
func (p *Part) Loses(s State) int {
	if p == nil || !p.Same {
		return p.Gives(s).CPUs
	}
	own, whole := p.wanted(s)
	return max(own.CPUs, whole.CPUs)
}

// Whole says that it is all that the node offers of cpus. Nobody knows that of a node that is
// the machine.
func (p *Part) Whole(g Give) bool { return p != nil && g.CPUs >= p.Of[p.Index].CPUs }

// share is the node's share of what the machine gives back. Those of all nodes are
// together what that is, or all that there is if that is less.
func (p *Part) share(g Give) Give {
	var cpus, memory []int64
	for _, o := range p.Of {
		cpus, memory = append(cpus, int64(o.CPUs)), append(memory, o.Memory)
	}
	return Give{int(share(int64(g.CPUs), cpus, p.Index)), share(g.Memory, memory, p.Index)}
}

// share is the share of n that goes with the i-th of some amounts: what is left over when
// all are rounded down go to those that lose most by that, one each, the first ones first.
func share(n int64, of []int64, i int) int64 {
	all := int64(0)
	for _, o := range of {
		all += o
	}
	if n >= all {
		return of[i]
	}
	parts, rests, left := make([]int64, len(of)), make([]uint64, len(of)), n
	for j, o := range of {
		hi, lo := bits.Mul64(uint64(n), uint64(o))
		part, rest := bits.Div64(hi, lo, uint64(all))
		parts[j], rests[j] = int64(part), rest
		left -= parts[j]
	}
	for j, rest := range rests {
		if rest > rests[i] || rest == rests[i] && j < i {
			left--
		}
	}
	if left > 0 {
		return parts[i] + 1
	}
	return parts[i]
}
