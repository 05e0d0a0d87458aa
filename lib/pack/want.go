package pack

import (
	"fmt"
	"iter"
	"slices"
)

// MaxRanges is how many ranges one message names at most, which has room for three times as
// many.
const MaxRanges = 20_000

// Want says which entries of a manifest are to be sent.
type Want struct {
	// Ranges are half-open ranges of entries, ascending, none empty, none
	// touching another's inside. Nil is all entries; not nil and empty is none.
	Ranges [][2]int `json:"ranges"`
	// From is the byte at which the first wanted entry, a file, is to start.
	From int64 `json:"from,omitempty"`
}

// WantOf is the Want of these entries of a manifest; their order and
// repetitions do not matter.
func WantOf(entries ...int) Want {
	sorted := slices.Compact(slices.Sorted(slices.Values(entries)))
	w := Want{Ranges: [][2]int{}}
	for _, i := range sorted {
		if n := len(w.Ranges); n > 0 && w.Ranges[n-1][1] == i {
			w.Ranges[n-1][1]++
			continue
		}
		w.Ranges = append(w.Ranges, [2]int{i, i + 1})
	}
	return w
}

// With is w and these entries, from their start. From is kept if its entry is
// still the first.
func (w Want) With(m Manifest, entries ...int) Want {
	all := entries[:len(entries):len(entries)]
	first := -1
	for i := range w.all(m) {
		if first < 0 {
			first = i
		}
		all = append(all, i)
	}
	sum := WantOf(all...)
	if len(sum.Ranges) > 0 && sum.Ranges[0][0] == first && !slices.Contains(entries, first) {
		sum.From = w.From
	}
	return sum
}

// Check reports, as ErrFormat, whether w can be asked of m. What a peer asks
// for is checked before it is used; Send and Receive do.
func (w Want) Check(m Manifest) error {
	end := 0
	for _, r := range w.Ranges {
		if r[0] < end || r[1] <= r[0] || r[1] > len(m) {
			return fmt.Errorf("%w: want: the range [%d,%d) in a manifest of %d entries", ErrFormat, r[0], r[1], len(m))
		}
		end = r[1]
	}
	if w.From == 0 {
		return nil
	}
	for i := range w.all(m) {
		if w.From < 0 || m[i].Type != File || w.From >= m[i].Size {
			return fmt.Errorf("%w: want: from byte %d of %q", ErrFormat, w.From, m[i].Path)
		}
		return nil
	}
	return fmt.Errorf("%w: want: from byte %d of nothing", ErrFormat, w.From)
}

// Empty reports whether nothing is wanted of m.
func (w Want) Empty(m Manifest) bool {
	if w.Ranges == nil {
		return len(m) == 0
	}
	return len(w.Ranges) == 0
}

// Bytes is how many bytes of files are wanted.
func (w Want) Bytes(m Manifest) int64 {
	var n int64
	for i, from := range w.all(m) {
		n += m[i].Size - from
	}
	return n
}

// Entries is how many entries are wanted.
func (w Want) Entries(m Manifest) int {
	if w.Ranges == nil {
		return len(m)
	}
	n := 0
	for _, r := range w.Ranges {
		n += r[1] - r[0]
	}
	return n
}

// all yields the wanted entries in order, each with the byte it starts at. The
// ranges must fit m.
func (w Want) all(m Manifest) iter.Seq2[int, int64] {
	ranges := w.Ranges
	if ranges == nil {
		ranges = [][2]int{{0, len(m)}}
	}
	return func(yield func(int, int64) bool) {
		from := w.From
		for _, r := range ranges {
			for i := r[0]; i < r[1]; i++ {
				if !yield(i, from) {
					return
				}
				from = 0
			}
		}
	}
}
