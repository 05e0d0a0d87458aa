package policy

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// A line has the jobs of the highest priority in front, as a sorted list has, also when it grows and
// where so many have one priority that its set takes another form.
func TestLine(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := &Batch{}
		size := 1 + r.IntN(3000)
		l, few := NewLine(b, size), NewLine(b, 0)
		for range size / 2 {
			b.Own = append(b.Own, int16(r.IntN(5)*r.IntN(400)-200))
		}
		var want []uint32
		before := func(i, k uint32) int { return cmp.Or(cmp.Compare(b.own(k), b.own(i)), cmp.Compare(i, k)) }
		for n := range 4 * size {
			if n == 2*size {
				size *= 2
				l.Resize(size)
			}
			i := uint32(r.IntN(size))
			at, there := slices.BinarySearchFunc(want, i, before)
			switch {
			case r.IntN(3) == 0:
				l.Remove(i)
				few.Remove(i)
				if there {
					want = slices.Delete(want, at, at+1)
				}
			default:
				l.Add(i)
				few.Add(i)
				if !there {
					want = slices.Insert(want, at, i)
				}
			}
			for _, line := range []*Line{l, few} {
				if line.N != len(want) || line.Has(i) != slices.Contains(want, i) {
					t.Fatalf("seed %d: it has %d jobs, and %d: %v; want %d", seed, line.N, i, line.Has(i), len(want))
				}
				if len(want) > 0 && (line.First() != want[0] || line.Priority() != b.own(want[0])) {
					t.Fatalf("seed %d: %d is in front, with %d; want %d, with %d", seed, line.First(), line.Priority(), want[0], b.own(want[0]))
				}
			}
			if n%100 == 0 {
				p := b.own(i)
				higher, equal, below, above := 0, 0, 0, 0
				for own, jobs := range l.all() {
					switch {
					case own > p:
						higher += jobs.N
					case own == p:
						equal, below = jobs.N, jobs.Below(i)
					}
				}
				for _, k := range want {
					if b.own(k) > p {
						above++
					}
				}
				if at, _ := slices.BinarySearchFunc(want, i, before); above != higher || at-above != below || equal < at-above {
					t.Fatalf("seed %d: %d jobs have a higher priority than %d, %d the same, and %d are before it; want %d, and %d", seed, higher, i, equal, below, above, at-above)
				}
			}
		}
	}
}
