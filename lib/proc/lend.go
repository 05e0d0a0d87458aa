package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// returnedCPUs are those cpus of an order that are given back for a while. The kernel keeps
// a group to the rest, where it has the controller; else each thread of the tree is moved
// at every look, which threads can undo: best effort.
type returnedCPUs struct {
	group  *group
	parent string // the group of all orders; empty: none
	cpus   []int  // of the order; none: all that this process may run on

	left  []int // what it has; nil: nothing is given back
	swaps bool  // its memory may go to swap space, as some is given back
}

// lend gives back what is wanted, and takes again what is not wanted any more. It says
// whether it must be looked after.
func (k *keeper) lend(d demand) (again bool) {
	l := &k.lent
	k.lendMemory(d.memory)
	left := l.rest(d.cpus)
	if left != nil || l.left != nil {
		cpus := left
		if left == nil {
			cpus = l.cpus
		}
		again = !l.keepTo(cpus) && left != nil
		if left == nil {
			k.s.spread(k.o, k.pids)
		}
	}
	l.left = left
	k.tell()
	return again
}

// rest is what an order is left with of its cpus if the jobs of the node are left
// with these; nil if it loses none. One that would have none shares those of all.
func (l *returnedCPUs) rest(jobs []int) []int {
	if jobs == nil {
		return nil
	}
	if len(l.cpus) == 0 {
		return jobs
	}
	both := slices.DeleteFunc(slices.Clone(l.cpus), func(c int) bool { return !slices.Contains(jobs, c) })
	switch len(both) {
	case len(l.cpus):
		return nil
	case 0:
		return jobs
	}
	return both
}

// lendMemory has the jobs of the node make do with what is left to them of its memory; 0: all.
func (k *keeper) lendMemory(left int64) {
	if len(k.out.of) > 1 {
		return // the limit of the attempt is that of all its nodes
	}
	k.lent.swap(k.o, left > 0)
	k.lent.bound(k.out.of[0].Memory, left)
}

// swap lets the memory of an order that has a limit of it go to swap space, or no more: what
// limit forbids is how the kernel takes memory from a group.
func (l *returnedCPUs) swap(o *Order, may bool) {
	if l.group == nil || may == l.swaps {
		return
	}
	l.swaps = may
	l.group.swap(o.Memory, may)
	for i, r := range o.Ranks {
		of := group{dir: filepath.Join(l.group.dir, rankGroup(i)), has: l.group.has}
		of.swap(r.Memory, may)
	}
}

// bound bounds the memory of all orders of the node at what is left to them: the
// kernel takes what is more out of the memory, and slows them down.
func (l *returnedCPUs) bound(offered, left int64) {
	if l.parent == "" || offered <= 0 {
		return
	}
	want := "max"
	if left > 0 {
		want = strconv.FormatInt(left, 10)
	}
	if has, err := os.ReadFile(filepath.Join(l.parent, "memory.high")); err == nil && strings.TrimSpace(string(has)) != want {
		setGroup(l.parent, "memory.high", want)
	}
}

// keepTo keeps the tree to these cpus, none being all, and says whether the kernel does
// that by itself from now on.
func (l *returnedCPUs) keepTo(cpus []int) (kept bool) {
	if l.group != nil && l.group.set("cpuset.cpus", cpuList(cpus)+"\n") == nil {
		return true
	}
	if len(cpus) == 0 {
		cpus = CPUs()
	}
	set, _ := cpuSet(cpus)
	for _, p := range descendants(os.Getpid()) {
		for _, tid := range threads(p.pid) {
			unix.SchedSetaffinity(tid, &set)
		}
	}
	return false
}

// spread gives each of several first processes, and what is below it, its own cpus again.
func (s *supervisor) spread(o *Order, pids []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range min(len(pids), len(o.Ranks)) {
		set, some := cpuSet(o.Ranks[k].CPUs)
		if !some || !slices.Contains(s.firsts, pids[k]) {
			continue
		}
		for _, pid := range append(pidsBelow(pids[k]), pids[k]) {
			for _, tid := range threads(pid) {
				unix.SchedSetaffinity(tid, &set)
			}
		}
	}
}
