package spool

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// An index finds the jobs of a batch by name and their lines by number. It
// keeps about twenty bytes a job: no name, but 64 bits of its hash under a
// seed of its own, so that nobody can choose names that meet.
type index struct {
	seed   maphash.Seed
	hashes []uint64 // of the names, by number
	slots  []uint32 // a number plus one, or 0; the place is a hash's low bits, or the next free one

	bases   []int64  // where every 64th line starts
	offsets []uint32 // where each line starts, from its base
	end     int64    // behind the last line
}

// newIndex returns an index with room for so many jobs, which may be more.
func newIndex(jobs int) *index {
	x := &index{seed: maphash.MakeSeed(), hashes: make([]uint64, 0, jobs), offsets: make([]uint32, 0, jobs)}
	if jobs > 0 {
		x.slots = make([]uint32, max(16, 1<<bits.Len(uint(4*jobs/3))))
	}
	return x
}

func (x *index) len() int { return len(x.offsets) }

// add takes the next line, which is n bytes long with its newline. It reports
// false, and takes nothing, if a name with the same hash is there.
func (x *index) add(name []byte, n int) bool {
	h := maphash.Bytes(x.seed, name)
	if len(x.slots) < 4*(len(x.hashes)+1)/3 {
		x.grow()
	}
	slot, found := x.find(h)
	if found {
		return false
	}
	x.hashes = append(x.hashes, h)
	x.slots[slot] = uint32(len(x.hashes))
	if len(x.offsets)%64 == 0 {
		x.bases = append(x.bases, x.end)
	}
	x.offsets = append(x.offsets, uint32(x.end-x.bases[len(x.bases)-1]))
	x.end += int64(n)
	return true
}

func (x *index) find(h uint64) (slot uint64, found bool) {
	if len(x.slots) == 0 {
		return 0, false
	}
	mask := uint64(len(x.slots) - 1)
	for slot = h & mask; x.slots[slot] != 0; slot = (slot + 1) & mask {
		if x.hashes[x.slots[slot]-1] == h {
			return slot, true
		}
	}
	return slot, false
}

func (x *index) grow() {
	x.slots = make([]uint32, max(16, 2*len(x.slots)))
	x.place()
}

// place puts all numbers into slots that are empty.
func (x *index) place() {
	for i, h := range x.hashes {
		slot, _ := x.find(h)
		x.slots[slot] = uint32(i + 1)
	}
}

// number is the number of the line whose name has the hash of name.
func (x *index) number(name string) (int, bool) {
	return x.hashed(maphash.String(x.seed, name))
}

// near is number, which looks first at line i and the one behind it: jobs are
// started in the order of the file, and what is looked for elsewhere is in no
// cache.
func (x *index) near(name string, i int) (int, bool) {
	h := maphash.String(x.seed, name)
	for n := max(i, 0); n <= i+1 && n < len(x.hashes); n++ {
		if x.hashes[n] == h {
			return n, true
		}
	}
	return x.hashed(h)
}

func (x *index) hashed(h uint64) (int, bool) {
	slot, ok := x.find(h)
	if !ok {
		return 0, false
	}
	return int(x.slots[slot] - 1), true
}

// line is where line i starts and how long it is with its newline.
func (x *index) line(i int) (at int64, n int) {
	at = x.bases[i/64] + int64(x.offsets[i])
	if i+1 < len(x.offsets) {
		return at, int(x.bases[(i+1)/64] + int64(x.offsets[i+1]) - at)
	}
	return at, int(x.end - at)
}

// upTo is where the first n lines end.
func (x *index) upTo(n int) int64 {
	if n >= x.len() {
		return x.end
	}
	at, _ := x.line(n)
	return at
}

// first is an index of the first n lines, to which others can be added while x is
// in use.
func (x *index) first(n int) *index {
	y := &index{seed: x.seed, hashes: slices.Clone(x.hashes[:n]), bases: slices.Clone(x.bases[:(n+63)/64]),
		offsets: slices.Clone(x.offsets[:n]), end: x.upTo(n)}
	y.slots = make([]uint32, max(16, 1<<bits.Len(uint(4*n/3))))
	y.place()
	return y
}

// trim gives back what growing has taken too much.
func (x *index) trim() {
	if cap(x.hashes) > len(x.hashes) {
		x.hashes = append(make([]uint64, 0, len(x.hashes)), x.hashes...)
	}
	if cap(x.offsets) > len(x.offsets) {
		x.offsets = append(make([]uint32, 0, len(x.offsets)), x.offsets...)
	}
}
