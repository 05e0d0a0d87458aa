package proc

import (
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// patientFor bounds one freeze. What runs on then waits in the kernel, as for a disk, or
// gets no processor to stop on; it is looked at again later.
const patientFor = 2 * time.Second

// name tells a process from all others of this boot.
type name struct {
	pid   int
	start uint64
}

func (p process) name() name { return name{p.pid, p.start} }

// A stopper stops a tree that no group holds, or what of a tree is in other groups, by SIGSTOP:
// best effort. The process group of the first process is stopped at once, the other
// descendants one by one, until two looks on end find nothing new and nothing that runs. What
// starts processes faster than they can be looked at can escape it.
type stopper struct {
	top    int                // whose descendants are the tree
	held   func(pid int) bool // says of a process that its group holds it; nil: none does
	lead   func(unix.Signal)  // signals the process group of the first process, if that lives
	before map[name]bool      // what was stopped before the pause and stays so; nil: nothing is held
}

// tree returns the processes that are to be stopped.
func (h *stopper) tree() []process {
	all := descendants(h.top)
	if h.held != nil {
		all = slices.DeleteFunc(all, func(p process) bool { return h.held(p.pid) })
	}
	return all
}

// maxCalm bounds a look at a tree.
const maxCalm = 1 << 14

// calm reports whether the whole tree is stopped. It costs a look at each process of it, and none
// at others: of a process that is stopped, the kernel lists all children.
func (h *stopper) calm() bool {
	pids, listed := offspring(h.top)
	for i := 0; listed && i < len(pids); i++ {
		p, err := stat(pids[i])
		running := err == nil && !p.gone() && !p.all(stopped) && (h.held == nil || !h.held(p.pid))
		if running || i == maxCalm {
			return false
		}
		more, _ := offspring(pids[i])
		pids = append(pids, more...)
	}
	return listed
}

// stop stops the tree and says how many processes of it run on after patientFor, or may not be
// stopped by this user. Called again it stops what was let go meanwhile. It returns early when
// over is closed.
func (h *stopper) stop(over <-chan struct{}) (running int) {
	if h.before != nil && h.calm() {
		return 0
	}
	if h.before == nil {
		h.before = map[name]bool{}
		for _, p := range h.tree() {
			if p.all(stopped) {
				h.before[p.name()] = true
			}
		}
		if len(h.before) == 0 && h.held == nil {
			h.lead(unix.SIGSTOP)
		}
	}
	seen := map[name]bool{}
	for begin, clean, wait := time.Now(), 0, 100*time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		running = 0
		fresh, others := false, 0
		for _, p := range h.tree() {
			if h.before[p.name()] {
				if p.all(stopped) {
					continue
				}
				delete(h.before, p.name()) // somebody let it go on
			}
			fresh = fresh || !seen[p.name()]
			seen[p.name()] = true
			if p.all(stopped) {
				continue
			}
			switch err := signalSame(p.pid, p.start, unix.SIGSTOP); {
			case err == unix.EPERM:
				others++
			case err == nil && p.state != 'D':
				running++
			}
		}
		if clean++; fresh || running > 0 {
			clean = 0
		}
		running += others
		if h.held != nil && len(seen) == 0 {
			return 0
		}
		select {
		case <-over:
			return running
		case <-time.After(wait):
		}
		if clean == 2 || time.Since(begin) > patientFor {
			return running
		}
	}
}

// release lets what was stopped go on, children before their parents: a shell that minds
// its children finds none of them stopped.
func (h *stopper) release() {
	if h.before == nil {
		return
	}
	for _, p := range slices.Backward(h.tree()) {
		if !h.before[p.name()] {
			signalSame(p.pid, p.start, unix.SIGCONT)
		}
	}
	h.before = nil
}

// stopped is the states of what is stopped by a signal, or by who traces it.
func stopped(state byte) bool { return state == 'T' || state == 't' }

// all says whether every thread of a process that has not ended is in one of the states.
// It looks at the threads only if there are others than the first.
func (p process) all(in func(state byte) bool) bool {
	if p.threads <= 1 {
		return in(p.state)
	}
	if p.state != 'Z' && !in(p.state) {
		return false
	}
	for _, tid := range threads(p.pid) {
		t, err := statFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(p.pid)+"/task/"+strconv.Itoa(tid)+"/stat", p.pid)
		if err == nil && t.state != 'Z' && t.state != 'X' && !in(t.state) {
			return false
		}
	}
	return true
}

// threads is the threads of a process.
func threads(pid int) (all []int) {
	d, err := os.Open("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, n := range names {
		if tid, err := strconv.Atoi(n); err == nil {
			all = append(all, tid)
		}
	}
	return all
}
