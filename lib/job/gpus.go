package job

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/line"
	"distribute/lib/unit"
)

// GPUs is an amount of GPUs, in thousandths: whole ones, or a part of one. People, and
// JSON, have it as a number: 2, or 0.5. Sums of parts are exact.
type GPUs int64

// Amounts of GPUs.
const (
	OneGPU   GPUs = 1000
	LeastGPU      = OneGPU / 100 // the least part of one that a job may ask for
	MaxGPUs       = 1 << 10      // whole ones that a job may ask for
)

// ParseGPUs reads how many GPUs a job asks for. The error says what to write.
func ParseGPUs(s string) (GPUs, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	n, ok := unit.ParseThousandths(s)
	g := GPUs(n)
	switch {
	case !ok && strings.Trim(whole+fraction, "0123456789") == "" && len(fraction) > 3:
		return 0, fmt.Errorf("%s is finer than GPUs are counted: write at most three digits behind the point, as 0.333", conf.Quote(s))
	case !ok || g > MaxGPUs*OneGPU:
		return 0, fmt.Errorf("%s is no amount of GPUs: write a whole number from 0 to %d, or a part of one as 0.5", conf.Quote(s), MaxGPUs)
	case g > OneGPU && g%OneGPU != 0:
		return 0, fmt.Errorf("%s is neither whole GPUs nor a part of one: write %d or %d, or a part below 1 as 0.5", conf.Quote(s), g/OneGPU, g/OneGPU+1)
	case g > 0 && g < LeastGPU:
		return 0, fmt.Errorf("%s is less than %s, the least part of a GPU", conf.Quote(s), LeastGPU)
	}
	return g, nil
}

// check reports why no job can ask for g.
func (g GPUs) check() error {
	if g < 0 || g > MaxGPUs*OneGPU || g > OneGPU && g%OneGPU != 0 || g > 0 && g < LeastGPU {
		return fmt.Errorf("%s gpus make no sense", g)
	}
	return nil
}

// Part says that it is a part of one GPU, which is shared with others who asked for
// parts.
func (g GPUs) Part() bool { return 0 < g && g < OneGPU }

// Cards is on how many GPUs it is.
func (g GPUs) Cards() int { return int((max(0, g) + OneGPU - 1) / OneGPU) }

// Float is the number of GPUs.
func (g GPUs) Float() float64 { return float64(g) / float64(OneGPU) }

// String is the number, without zeros behind its last digit.
func (g GPUs) String() string { return string(line.AppendThousandths(nil, int64(g))) }

// Words is the amount with a noun: "2 gpus", or "0.5 of a gpu".
func (g GPUs) Words(noun string) string {
	if g.Part() {
		return g.String() + " of a " + noun
	}
	return unit.Count(g.Cards(), noun)
}

// MarshalJSON writes a number.
func (g GPUs) MarshalJSON() ([]byte, error) { return line.AppendThousandths(nil, int64(g)), nil }

// UnmarshalJSON reads a number with at most three digits behind the point, exactly.
func (g *GPUs) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	digits, below := strings.CutPrefix(string(b), "-")
	n, ok := unit.ParseThousandths(digits)
	if !ok {
		return errors.New("a number of gpus has at most three digits behind the point")
	}
	if below {
		n = -n
	}
	*g = GPUs(n)
	return nil
}

// Cards is amounts of each of some GPUs, by their indexes: what there is of those of a
// node, or what of them jobs have. Cards that are equal are equal texts, and the zero
// one is nothing. Adding and comparing cost a step for each.
type Cards struct{ of Counts }

// CardsOf is so much of GPUs with those indexes: one of which it is a part, or as many
// as it is. Others, or one that is there twice, are nothing.
func CardsOf(g GPUs, indexes []int) (c Cards) {
	if len(indexes) != g.Cards() {
		return Cards{}
	}
	for _, i := range indexes {
		if i < 0 || c.At(i) > 0 {
			return Cards{}
		}
		c = c.Plus(card(i, min(g, OneGPU)))
	}
	return c
}

// AllCards is all of those GPUs.
func AllCards(indexes []int) Cards { return CardsOf(GPUs(len(indexes))*OneGPU, indexes) }

func card(index int, g GPUs) Cards { return Cards{Counts("").and(strconv.Itoa(index), int(g))} }

// At is how much there is of one.
func (c Cards) At(index int) GPUs { return GPUs(c.of.Of(strconv.Itoa(index))) }

// Plus is all of both.
func (c Cards) Plus(o Cards) Cards { return Cards{c.of.Plus(o.of)} }

// Minus is what is left of c without o.
func (c Cards) Minus(o Cards) Cards { return Cards{c.of.Minus(o.of)} }

// all is each with how much there is of it, in no order that means anything.
func (c Cards) all() iter.Seq2[int, GPUs] {
	return func(yield func(int, GPUs) bool) {
		for name, n := range c.of.All() {
			if i, _ := strconv.Atoi(name); !yield(i, GPUs(n)) {
				return
			}
		}
	}
}

// Indexes is which they are, in order.
func (c Cards) Indexes() (list []int) {
	for i := range c.all() {
		list = append(list, i)
	}
	slices.Sort(list)
	return list
}

// Hold says that as much as o is there of each.
func (c Cards) Hold(o Cards) bool {
	for i, g := range o.all() {
		if c.At(i) < g {
			return false
		}
	}
	return true
}

// Fit is which GPUs somebody gets who asks for so much of what is free: whole ones of
// which nobody has a part, or a part of the one of which the least is free that is
// enough, so that others stay whole; of equal ones those of lower indexes. It is false
// if there is not so much.
func (c Cards) Fit(g GPUs) (Cards, bool) {
	var list []int
	for i, free := range c.all() {
		if free >= min(g, OneGPU) {
			list = append(list, i)
		}
	}
	if len(list) < g.Cards() {
		return Cards{}, false
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(c.At(a), c.At(b)), a-b) })
	return CardsOf(g, list[:g.Cards()]), true
}

// Await is which GPUs of c, of which used is taken, are to be waited for by somebody
// who asks for so much: those of which the least is taken, and of equal ones those of
// higher indexes, which Fit gives to others last.
func (c Cards) Await(used Cards, g GPUs) Cards {
	list := c.Indexes()
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(used.At(a), used.At(b)), b-a) })
	return CardsOf(g, list[:min(len(list), g.Cards())])
}
