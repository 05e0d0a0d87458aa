package job

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// MaxCards is how many GPUs a node has at most. Their indexes are below it.
const MaxCards = 256

// Cards is amounts of each of some GPUs, by their indexes: what there is of those of a
// node, or what of them jobs have. Cards that are equal are ==, and the zero one is
// nothing. Adding and comparing cost a step for each.
type Cards struct {
	of string // eight bytes for each, in order: the index, and behind it the amount
}

const (
	cardBytes  = 8
	amountBits = 48
)

// CardsOf is so much of GPUs with those indexes: one of which it is a part, or as many
// as it is. Others, or one that is there twice, are nothing.
func CardsOf(g GPUs, indexes []int) Cards {
	if len(indexes) != g.Cards() {
		return Cards{}
	}
	c := cardsOf(min(g, OneGPU), indexes)
	if c.Len() != len(indexes) {
		return Cards{}
	}
	return c
}

// AllCards is all of the GPUs with those indexes. What is no index is left out.
func AllCards(indexes []int) Cards { return cardsOf(OneGPU, indexes) }

// cardsOf is so much of each of those GPUs, however often it is there.
func cardsOf(g GPUs, indexes []int) Cards {
	var has [MaxCards]bool
	for _, i := range indexes {
		if 0 <= i && i < MaxCards {
			has[i] = true
		}
	}
	var b []byte
	for i := range has {
		if has[i] {
			b = appendCard(b, i, g)
		}
	}
	return Cards{string(b)}
}

func appendCard(b []byte, index int, g GPUs) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(index)<<amountBits|uint64(g))
}

// card is the k-th one with its amount. Behind the last its index is MaxCards.
func (c Cards) card(k int) (index int, g GPUs) {
	if k >= c.Len() {
		return MaxCards, 0
	}
	n := binary.BigEndian.Uint64([]byte(c.of[k*cardBytes:][:cardBytes]))
	return int(n >> amountBits), GPUs(n & (1<<amountBits - 1))
}

// Len is how many they are.
func (c Cards) Len() int { return len(c.of) / cardBytes }

// beside is each GPU of c and of o, in order, with how much both have of it.
func (c Cards) beside(o Cards) iter.Seq2[int, [2]GPUs] {
	return func(yield func(int, [2]GPUs) bool) {
		for i, j := 0, 0; ; {
			a, has := c.card(i)
			b, other := o.card(j)
			index := min(a, b)
			if index == MaxCards {
				return
			}
			var both [2]GPUs
			if a == index {
				both[0], i = has, i+1
			}
			if b == index {
				both[1], j = other, j+1
			}
			if !yield(index, both) {
				return
			}
		}
	}
}

// At is how much there is of one.
func (c Cards) At(index int) GPUs {
	for i, g := range c.beside(Cards{}) {
		if i == index {
			return g[0]
		}
	}
	return 0
}

// Plus is all of both.
func (c Cards) Plus(o Cards) Cards { return c.add(o, 1) }

// Minus is what is left of c without o.
func (c Cards) Minus(o Cards) Cards { return c.add(o, -1) }

// add adds o with a sign.
func (c Cards) add(o Cards, sign GPUs) Cards {
	if o == (Cards{}) {
		return c
	}
	b := make([]byte, 0, len(c.of)+len(o.of))
	for i, g := range c.beside(o) {
		if sum := g[0] + sign*g[1]; sum > 0 {
			b = appendCard(b, i, sum)
		}
	}
	return Cards{string(b)}
}

// Indexes is which they are, in order.
func (c Cards) Indexes() (list []int) {
	for i := range c.beside(Cards{}) {
		list = append(list, i)
	}
	return list
}

// String is each as "0=1", or "2=0.5".
func (c Cards) String() string {
	var words []string
	for i, g := range c.beside(Cards{}) {
		words = append(words, fmt.Sprint(i, "=", g[0]))
	}
	return strings.Join(words, " ")
}

// Hold says that as much as o is there of each.
func (c Cards) Hold(o Cards) bool {
	for _, g := range c.beside(o) {
		if g[0] < g[1] {
			return false
		}
	}
	return true
}

// Room is how much is free of GPUs, as far as it tells who finds enough there.
type Room struct {
	Whole int  // those of which nobody has a part
	Part  GPUs // the most that is left of one of which somebody has a part
}

// Room is how much of c is free beside what is used.
func (c Cards) Room(used Cards) (r Room) {
	for _, g := range c.beside(used) {
		if free := g[0] - g[1]; free >= OneGPU {
			r.Whole++
		} else {
			r.Part = max(r.Part, free)
		}
	}
	return r
}

// Fits says that so much is there, which [Cards.Fit] finds.
func (r Room) Fits(g GPUs) bool { return r.Whole >= g.Cards() || r.Shared(g) }

// Shared says that so much is left of one of which others have parts.
func (r Room) Shared(g GPUs) bool { return g.Part() && r.Part >= g }

// Fit is which GPUs somebody gets who asks for so much of what is free: whole ones of
// which nobody has a part, or a part of the one of which the least is free that is
// enough, so that others stay whole; of equal ones those of lower indexes. It is false
// if there is not so much.
func (c Cards) Fit(g GPUs) (Cards, bool) {
	free := c.each()
	list := slices.DeleteFunc(c.Indexes(), func(i int) bool { return free[i] < min(g, OneGPU) })
	if len(list) < g.Cards() {
		return Cards{}, false
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(free[a], free[b]), a-b) })
	return CardsOf(g, list[:g.Cards()]), true
}

// Await is which GPUs of c, of which used is taken, are to be waited for by somebody
// who asks for so much: those of which the least is taken, and of equal ones those of
// higher indexes, which Fit gives to others last.
func (c Cards) Await(used Cards, g GPUs) Cards {
	taken, list := used.each(), c.Indexes()
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(taken[a], taken[b]), b-a) })
	return CardsOf(g, list[:min(len(list), g.Cards())])
}

// Only is as much of c as there is of those that o has something of.
func (c Cards) Only(o Cards) Cards {
	var b []byte
	for i, g := range c.beside(o) {
		if g[0] > 0 && g[1] > 0 {
			b = appendCard(b, i, g[0])
		}
	}
	return Cards{string(b)}
}

// each is how much there is of one, by its index.
func (c Cards) each() (of [MaxCards]GPUs) {
	for i, g := range c.beside(Cards{}) {
		of[i] = g[0]
	}
	return of
}
