package policy

import (
	"cmp"
	"math"
	"math/rand/v2"
	"testing"
)

// A set is what a map is, also the one for few numbers, and one that was made larger.
func TestSet(t *testing.T) {
	for _, size := range []int{0, 1, 63, 64, 65, 4096, 4097, 300_000} {
		s, plain := &Set{}, map[uint32]bool{}
		if size > 0 {
			s = NewSet((size + 1) / 2)
		}
		rnd := rand.New(rand.NewPCG(uint64(size), 0))
		for n := range 500 {
			if n == 250 && size > 0 {
				s = s.Sized(size)
			}
			i := uint32(rnd.IntN(cmp.Or(size, 300)))
			if n < 250 {
				i /= 2
			}
			if rnd.IntN(2) == 0 {
				s.Add(i)
				plain[i] = true
			} else {
				s.Remove(i)
				delete(plain, i)
			}
			below, first := 0, uint32(math.MaxUint32)
			for j := range plain {
				first = min(first, j)
				if j < i {
					below++
				}
			}
			if s.N != len(plain) || s.Has(i) != plain[i] || s.Below(i) != below {
				t.Fatalf("size %d: n=%d, has(%d)=%v, %d below; should be %d, %v, %d", size, s.N, i, s.Has(i), s.Below(i), len(plain), plain[i], below)
			}
			if s.N > 0 && s.First() != first {
				t.Fatalf("size %d: first is %d, should be %d", size, s.First(), first)
			}
		}
	}
}
