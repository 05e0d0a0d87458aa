package inventory

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"distribute/lib/node"
	"distribute/lib/unit"
)

// Parts is what each node offers where the machine is several by its file: its part of
// what the machine offers as a whole. Together they cannot have more than that.
func (in *Inventory) Parts(f *File) (all []*Inventory, err error) {
	whole, memory := in.Offer.CPUs, in.Offer.Memory
	cpus := whole
	for _, p := range f.Nodes {
		part := &Inventory{Name: p.Name, Offer: in.Offer}
		if part.Offer.CPUs = p.CPUs; p.CPUs > cpus {
			return nil, p.Mistake("cpus", "the nodes have %s more together than the %d that the machine offers: give them fewer", unit.Count(p.CPUs-cpus, "cpu"), whole)
		}
		if part.Offer.Memory = p.Memory; p.Memory == 0 {
			part.Offer.Memory = in.Offer.Memory / int64(in.Offer.CPUs) * int64(p.CPUs)
		} else if in.Offer.Memory > 0 && p.Memory > in.Offer.Memory {
			return nil, p.Mistake("memory", "the machine offers %s: give its nodes less", unit.FormatBytes(in.Offer.Memory))
		}
		if in.Offer.Memory > 0 {
			part.Most = in.part(part.Offer.Memory)
			if memory -= part.Offer.Memory; memory < 0 {
				return nil, p.Mistake("memory", "the nodes have %s more together than the %s that the machine offers: give them less", unit.FormatBytes(-memory), unit.FormatBytes(in.Offer.Memory))
			}
		}
		cpus -= p.CPUs
		if err := part.own(in, p); err != nil {
			return nil, err
		}
		all = append(all, part)
	}
	return all, nil
}

// part is how much memory the jobs of a node may have together that is offered so much
// of this: as much of what all jobs of the machine may have.
func (in *Inventory) part(memory int64) int64 {
	hi, lo := bits.Mul64(uint64(in.Most), uint64(memory))
	part, _ := bits.Div64(hi, lo, uint64(in.Offer.Memory))
	return int64(part)
}

// own is the GPUs of a part, and its words.
func (part *Inventory) own(in *Inventory, p *File) error {
	part.Offer.GPUs, part.Offer.Counted = nil, p.Counted
	for _, i := range p.GPUs {
		at := slices.IndexFunc(in.Offer.GPUs, func(g node.GPU) bool { return g.Index == i })
		if at < 0 && in.cardsFailed {
			continue // it may be here, and work later
		}
		if at < 0 {
			return p.Mistake("gpus", "the machine offers no GPU %d", i)
		}
		part.Offer.GPUs = append(part.Offer.GPUs, in.Offer.GPUs[at])
	}
	words := slices.DeleteFunc(slices.Clone(in.Offer.Capabilities), func(c string) bool {
		return c == "gpu" && len(part.Offer.GPUs) == 0 || slices.Contains(p.Hidden, c)
	})
	for _, c := range p.Capabilities {
		if !slices.Contains(words, c) {
			words = append(words, c)
		}
	}
	part.Offer.Capabilities = words
	return nil
}

// Words is what a part of the machine offers, in words.
func (part *Inventory) Words() string {
	words := []string{unit.Count(part.Offer.CPUs, "cpu")}
	if part.Offer.Memory > 0 {
		words = append(words, unit.FormatBytes(part.Offer.Memory)+" of memory")
	}
	for _, g := range part.Offer.GPUs {
		words = append(words, fmt.Sprint("GPU ", g.Index))
	}
	words = append(words, part.Offer.Counted.Words()...)
	return strings.Join(append(words, part.Offer.Capabilities...), ", ")
}
