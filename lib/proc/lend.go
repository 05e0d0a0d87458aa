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
// at every look, which threads can undo: best effort. Of the cpus that a thread has chosen
// for itself it has those that are left, and all of them again afterwards.
type returnedCPUs struct {
	group  *group
	parent string // the group of all orders; empty: none
	cpus   []int  // of the order; none: all that this process may run on

	left  []int          // what it has; nil: nothing is given back
	pins  map[thread]pin // of its threads, while something is given back
	swaps bool           // its memory may go to swap space, as some is given back
}

// lend gives back what is wanted, and takes again what is not wanted any more. It says
// whether it must be looked after.
func (k *keeper) lend(d demand) (again bool) {
	l := &k.lent
	k.lendMemory(d.memory)
	left := l.rest(d.cpus)
	switch {
	case left != nil:
		again = !l.keepTo(left)
	case l.left != nil:
		l.giveBack()
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

// A thread is one of a process of the tree.
type thread struct {
	of  name
	tid int
}

// A pin is the cpus of a thread: its own, and those that it was kept to when it was seen last.
type pin struct{ own, kept unix.CPUSet }

// keepTo keeps the tree to these cpus, and reports whether the kernel does that by itself from
// now on.
func (l *returnedCPUs) keepTo(cpus []int) (kept bool) {
	l.learn()
	kept = l.setGroup(cpus)
	l.pinThreads(cpus)
	return kept
}

// giveBack gives each thread its own cpus again. It looks again for those that were started
// meanwhile.
func (l *returnedCPUs) giveBack() {
	for range 10 {
		l.learn()
		l.setGroup(l.cpus)
		if l.pinThreads(nil) == 0 {
			break
		}
	}
	l.pins = nil
}

// setGroup has the kernel keep the group of the order to cpus, none being all, if it can.
func (l *returnedCPUs) setGroup(cpus []int) bool {
	return l.group != nil && l.group.set("cpuset.cpus", cpuList(cpus)+"\n") == nil
}

// learn looks which cpus each thread has chosen. What it was kept to is no choice.
func (l *returnedCPUs) learn() {
	was := l.pins
	l.pins = map[thread]pin{}
	tree := descendants(os.Getpid())
	for _, p := range tree {
		for _, tid := range threads(p.pid) {
			var now unix.CPUSet
			if unix.SchedGetaffinity(tid, &now) != nil {
				continue
			}
			who := thread{p.name(), tid}
			of, known := was[who]
			switch {
			case was == nil || known && now != of.kept && now != of.own:
				of = pin{now, now}
			case !known:
				of = l.inherited(was, tree, p, now)
			}
			l.pins[who] = of
		}
	}
}

// inherited returns the pin of a thread that is new: that of the thread of its process, or of one
// above it, which was kept to the same cpus.
func (l *returnedCPUs) inherited(was map[thread]pin, tree []process, p process, now unix.CPUSet) pin {
	for found := true; found; {
		for who, of := range was {
			if who.of == p.name() && of.kept == now {
				return of
			}
		}
		i := slices.IndexFunc(tree, func(q process) bool { return q.pid == p.parent })
		if found = i >= 0; found {
			p = tree[i]
		}
	}
	if all := l.all(); now == among(all, l.left) { // what was above it has ended
		return pin{all, now}
	}
	return pin{now, now}
}

// all returns the cpus of the order.
func (l *returnedCPUs) all() unix.CPUSet {
	set, some := cpuSet(l.cpus)
	if !some {
		set, _ = cpuSet(CPUs())
	}
	return set
}

// among returns those of a thread's own cpus that are left; all that are left if it has none of
// these, and its own if nothing is given back.
func among(own unix.CPUSet, left []int) (set unix.CPUSet) {
	if left == nil {
		return own
	}
	for _, c := range left {
		if own.IsSet(c) {
			set.Set(c)
		}
	}
	if set.Count() == 0 {
		set, _ = cpuSet(left)
	}
	return set
}

// pinThreads keeps each thread to those of its own cpus that are left, and returns how many were
// elsewhere. The kernel may have done it for those of a group, and newer ones have.
func (l *returnedCPUs) pinThreads(left []int) (moved int) {
	for who, of := range l.pins {
		set := among(of.own, left)
		var now unix.CPUSet
		if unix.SchedGetaffinity(who.tid, &now) == nil && now != set && unix.SchedSetaffinity(who.tid, &set) == nil {
			moved++
		}
		if left != nil {
			of.kept = set
			l.pins[who] = of
		}
	}
	return moved
}
