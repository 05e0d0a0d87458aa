package noded

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// A pool is numbers of things of which each has one owner at a time, and of which
// those with the same key share a part: the threads of a core.
type pool struct {
	all  []int // in their order
	free []int // in the same
	key  map[int]string
}

// newPool is a pool of ids of which all are free. What key does not name shares
// nothing.
func newPool(ids []int, key map[int]string) pool {
	p := pool{all: slices.Clone(ids), free: slices.Clone(ids), key: map[int]string{}}
	for _, id := range ids {
		if p.key[id] = key[id]; p.key[id] == "" {
			p.key[id] = strconv.Itoa(id)
		}
	}
	return p
}

// take takes n of what is free, nil if there are not so many: wholes as far as
// they go, then a rest of one that is in use already, or else of one that is not.
func (p *pool) take(n int) []int {
	if n > len(p.free) {
		return nil
	}
	var got []int
	for n > 0 {
		best, most := "", -1
		for _, k := range p.keys() {
			if worth := p.worth(k, n); worth > most {
				best, most = k, worth
			}
		}
		for _, id := range slices.Clone(p.free) {
			if n > 0 && p.key[id] == best {
				got = append(got, id)
				p.free = slices.DeleteFunc(p.free, func(f int) bool { return f == id })
				n--
			}
		}
	}
	slices.Sort(got)
	return got
}

// keys is the keys of what is free, in its order.
func (p *pool) keys() (keys []string) {
	for _, id := range p.free {
		if k := p.key[id]; len(keys) == 0 || keys[len(keys)-1] != k && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// worth is how well what is free of one key serves who wants n.
func (p *pool) worth(key string, n int) int {
	const whole, enough = 2 << 20, 1 << 20
	free, all := 0, 0
	for _, id := range p.all {
		if p.key[id] == key {
			all++
		}
	}
	for _, id := range p.free {
		if p.key[id] == key {
			free++
		}
	}
	switch {
	case free == all && all <= n:
		return whole
	case free >= n:
		return enough - free
	}
	return free
}

// give gives back what take or retake has returned.
func (p *pool) give(ids []int) {
	p.free = append(p.free, ids...)
	p.free = slices.DeleteFunc(slices.Clone(p.all), func(id int) bool { return !slices.Contains(p.free, id) })
}

// retake takes those of ids that there are and that are free.
func (p *pool) retake(ids []int) (got []int) {
	for _, id := range ids {
		if slices.Contains(p.free, id) && !slices.Contains(got, id) {
			got = append(got, id)
		}
	}
	p.free = slices.DeleteFunc(p.free, func(id int) bool { return slices.Contains(got, id) })
	return got
}

// inCores is cpus with those of one core next to one another.
func inCores(cpus []int, core map[int]string) []int {
	first := map[string]int{}
	for _, c := range slices.Backward(cpus) {
		first[core[c]] = c
	}
	in := slices.Clone(cpus)
	slices.SortStableFunc(in, func(a, b int) int { return first[core[a]] - first[core[b]] })
	return in
}

// Deal deals the numbers of cpus out, so many to each, as far as there are so many:
// threads of one core to one, if it can be.
func Deal(cpus []int, to []int) (all [][]int) {
	core := map[int]string{}
	for _, c := range cpus {
		core[c] = siblings(c)
	}
	left := newPool(inCores(cpus, core), core)
	for _, n := range to {
		all = append(all, left.take(n))
	}
	return all
}

// siblings is which cpus share a core with this one, as the kernel lists them.
func siblings(cpu int) string {
	b, err := os.ReadFile("/sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/topology/thread_siblings_list")
	if err != nil {
		return strconv.Itoa(cpu)
	}
	return strings.TrimSpace(string(b))
}
