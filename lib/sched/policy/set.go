package policy

import (
	"math/bits"
	"slices"
)

// A Set is a set of numbers below a size fixed when it is made, in as many
// levels of words as it takes: each bit of a level says that a word of the level
// below is not empty. Everything costs a step a level. The zero Set is for few
// numbers of any size: it keeps no more than these, in order.
type Set struct {
	levels [][]uint64
	few    []uint32
	size   int // of a sparse set
	N      int // how many there are
}

// sparse is into how many sparse sets numbers may be dealt out that take more room together
// than one set of all of them.
const sparse = 512

// NewSparseSet makes a set of numbers below a size that takes little room while it has few of
// them; of any numbers, all of them few, if the size is 0.
func NewSparseSet(size int) *Set { return &Set{size: size} }

// NewSet makes a set of numbers below a size.
func NewSet(size int) *Set {
	s := &Set{}
	for {
		size = (size + 63) / 64
		s.levels = append(s.levels, make([]uint64, size))
		if size <= 1 {
			return s
		}
	}
}

// Sized is the set, which was made for a size, with room for other members.
func (s *Set) Sized(size int) *Set {
	if s.levels == nil {
		s.size = size
		return s
	}
	if len(s.levels[0])*64 >= size {
		return s
	}
	t := NewSet(size)
	for i, w := range s.levels[0] {
		for ; w != 0; w &= w - 1 {
			t.Add(uint32(i*64 + bits.TrailingZeros64(w)))
		}
	}
	return t
}

// spread gives the set levels.
func (s *Set) spread() {
	t := NewSet(s.size)
	for _, i := range s.few {
		t.Add(i)
	}
	*s = *t
}

// Has says that a number is in the set.
func (s *Set) Has(i uint32) bool {
	if s.levels == nil {
		_, found := slices.BinarySearch(s.few, i)
		return found
	}
	return s.levels[0][i/64]&(1<<(i%64)) != 0
}

// Add puts a number in.
func (s *Set) Add(i uint32) {
	if s.Has(i) {
		return
	}
	if s.N++; s.levels == nil {
		at, _ := slices.BinarySearch(s.few, i)
		s.few = slices.Insert(s.few, at, i)
		if s.size > 0 && s.N > 64+s.size/sparse {
			s.spread()
		}
		return
	}
	for _, l := range s.levels {
		w := &l[i/64]
		was := *w
		*w |= 1 << (i % 64)
		if was != 0 {
			return
		}
		i /= 64
	}
}

// Remove takes a number out.
func (s *Set) Remove(i uint32) {
	if !s.Has(i) {
		return
	}
	if s.N--; s.levels == nil {
		at, _ := slices.BinarySearch(s.few, i)
		s.few = slices.Delete(s.few, at, at+1)
		return
	}
	for _, l := range s.levels {
		w := &l[i/64]
		*w &^= 1 << (i % 64)
		if *w != 0 {
			return
		}
		i /= 64
	}
}

// First is the least member of a set that is not empty.
func (s *Set) First() uint32 {
	if s.levels == nil {
		return s.few[0]
	}
	i := uint32(0)
	for l := len(s.levels) - 1; l >= 0; l-- {
		i = i*64 + uint32(bits.TrailingZeros64(s.levels[l][i]))
	}
	return i
}

// Below is how many members are less than a number. It costs a step for 64 of them.
func (s *Set) Below(i uint32) (n int) {
	if s.levels == nil {
		n, _ = slices.BinarySearch(s.few, i)
		return n
	}
	for _, w := range s.levels[0][:i/64] {
		n += bits.OnesCount64(w)
	}
	return n + bits.OnesCount64(s.levels[0][i/64]&(1<<(i%64)-1))
}
