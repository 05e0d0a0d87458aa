package proc

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// returnedCPUs are those cpus of an order that are given back for a while. The
// kernel keeps a whole group to the rest, where it has the controller; else each
// thread of the tree is moved, and what it starts follows.
type returnedCPUs struct {
	group  *group
	parent string // the group of all orders; empty: none
	cpus   []int  // of the order; none: all that there are

	left   []int  // what it has; nil: nothing is given back
	before string // cpuset.cpus of the group
	moved  map[name]move
	whole  unix.CPUSet // what the first process had
}

// A move is what a thread had, and what it has been given.
type move struct{ had, has unix.CPUSet }

// lendRounds is how often a tree is gone through that goes on starting threads.
const lendRounds = 20

// lend gives back what is wanted, and takes again what is not wanted any more. It
// says whether it must be looked after: a thread may take what it had.
func (k *keeper) lend(d demand) (again bool) {
	l := &k.lent
	l.bound(k.out.of.Memory, d.memory)
	left := l.rest(d.cpus)
	if !slices.Equal(left, l.left) || (left == nil) != (l.left == nil) {
		l.restore()
		l.left = left
	}
	if left != nil {
		again = !l.narrow()
	}
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
	var both []int
	for _, c := range l.cpus {
		if slices.Contains(jobs, c) {
			both = append(both, c)
		}
	}
	switch len(both) {
	case len(l.cpus):
		return nil
	case 0:
		return jobs
	}
	return both
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

// narrow keeps the tree to what is left, and says whether the kernel does that by
// itself from now on.
func (l *returnedCPUs) narrow() (kept bool) {
	var set unix.CPUSet
	for _, c := range l.left {
		set.Set(c)
	}
	if l.group != nil {
		if has, err := os.ReadFile(filepath.Join(l.group.dir, "cpuset.cpus")); err == nil && l.group.set("cpuset.cpus", cpuList(l.left)) == nil {
			if l.before == "" {
				l.before = strings.TrimSpace(string(has)) + "\n"
			}
			return true
		}
	}
	if l.moved == nil {
		l.moved = map[name]move{}
	}
	for round := 0; round < lendRounds; round++ {
		changed := false
		for _, p := range descendants(os.Getpid()) {
			for tid, start := range threads(p.pid) {
				changed = l.move(name{tid, start}, set) || changed
			}
		}
		if !changed {
			break
		}
	}
	return false
}

// move moves one thread to what is left, as far as it had that, and says whether
// that changed anything.
func (l *returnedCPUs) move(who name, set unix.CPUSet) bool {
	var had unix.CPUSet
	if unix.SchedGetaffinity(who.pid, &had) != nil {
		return false
	}
	has := common(had, set)
	if has == had {
		return false
	}
	if has.Count() == 0 {
		has = set
	}
	if len(l.moved) == 0 {
		l.whole = had
	}
	if m, before := l.moved[who]; before {
		had = m.had
	}
	l.moved[who] = move{had, has}
	return unix.SchedSetaffinity(who.pid, &has) == nil
}

// restore gives the tree what it had. What a thread has chosen for itself
// meanwhile it keeps, and what was started since has what all had.
func (l *returnedCPUs) restore() {
	if l.before != "" {
		l.group.set("cpuset.cpus", l.before)
		l.before = ""
	}
	if len(l.moved) == 0 {
		return
	}
	given := map[unix.CPUSet]bool{}
	for m := range maps.Values(l.moved) {
		given[m.has] = true
	}
	done := map[name]bool{}
	for round := 0; round < lendRounds; round++ {
		changed := false
		for _, p := range descendants(os.Getpid()) {
			for tid, start := range threads(p.pid) {
				who := name{tid, start}
				if !done[who] {
					done[who], changed = true, true
					l.giveBack(who, given)
				}
			}
		}
		if !changed {
			break
		}
	}
	l.moved = nil
}

func (l *returnedCPUs) giveBack(who name, given map[unix.CPUSet]bool) {
	var has unix.CPUSet
	if unix.SchedGetaffinity(who.pid, &has) != nil {
		return
	}
	m, known := l.moved[who]
	switch {
	case known && has == m.has:
		unix.SchedSetaffinity(who.pid, &m.had)
	case !known && given[has]:
		unix.SchedSetaffinity(who.pid, &l.whole)
	}
}

// common is the cpus that are in both sets.
func common(a, b unix.CPUSet) unix.CPUSet {
	for i := range a {
		a[i] &= b[i]
	}
	return a
}

// threads is the threads of a process, with their starts.
func threads(pid int) map[int]uint64 {
	all := map[int]uint64{}
	d, err := os.Open("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, n := range names {
		tid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if t, err := statFile(int(d.Fd()), n+"/stat", tid); err == nil {
			all[tid] = t.start
		}
	}
	return all
}
