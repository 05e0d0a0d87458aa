package proc

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/timing"
)

// stuckAfter is how long processes may outlive SIGKILL before it is said.
var stuckAfter = timing.Wait(10 * time.Second)

// sweep kills every process that is left of the tree and returns when there is
// none. The supervisor is the reaper of the tree's orphans, so a process of the
// tree is its child or below one; a killed child leaves its own children to it.
// A pid cannot be used again between its being read and signalled, because only
// this goroutine waits for children. ECHILD is the kernel's word that nothing
// is left.
func (s *supervisor) sweep(g *group, st *Status) {
	begin, told := time.Now(), false
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 250*time.Millisecond) {
		if reap(st) {
			return
		}
		if g != nil {
			g.kill()
		}
		left := children()
		for _, pid := range left {
			unix.Kill(pid, unix.SIGKILL)
		}
		if told {
			// Those below a child that does not die.
			for _, p := range descendants(os.Getpid()) {
				signalSame(p.pid, p.start, unix.SIGKILL)
			}
		} else if time.Since(begin) > stuckAfter {
			told = true
			s.report(Report{Stuck: max(1, len(left))})
		}
		if reap(st) {
			return
		}
		time.Sleep(wait)
	}
}

// reap waits for every child that has ended and says whether none is left.
func reap(st *Status) (none bool) {
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WALL, &ru)
		switch {
		case err == syscall.EINTR:
		case err == syscall.ECHILD:
			return true
		case err != nil || pid <= 0:
			return false
		default:
			st.add(&ru)
			st.Swept++
		}
	}
}

// children is the pids of this process's children. The kernel may leave some
// out while others end; who needs all of them asks again.
func children() []int {
	me := os.Getpid()
	if pids, listed := offspring(me); listed {
		return pids
	}
	return childrenByScan(me)
}

// offspring is the children of all threads of a process, and whether the kernel
// lists those of its first one.
func offspring(pid int) (pids []int, listed bool) {
	first := strconv.Itoa(pid)
	dir := "/proc/" + first + "/task"
	d, err := os.Open(dir)
	if err != nil {
		return nil, false
	}
	threads, _ := d.Readdirnames(-1)
	d.Close()
	for _, t := range threads {
		b, err := os.ReadFile(dir + "/" + t + "/children")
		listed = listed || err == nil && t == first
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
	}
	return pids, listed
}

// childrenByScan is for kernels without /proc/PID/task/TID/children.
func childrenByScan(me int) []int {
	ps, _ := processes()
	var pids []int
	for _, p := range ps {
		if p.parent == me {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// descendants is every process below top that has not ended, as one scan saw it.
func descendants(top int) []process {
	ps, _ := processes()
	return slices.DeleteFunc(below(ps, func(p process) bool { return p.pid == top }), func(p process) bool { return p.pid == top })
}

// below is which of these have not ended and are of those named, or below one.
func below(ps []process, named func(process) bool) (out []process) {
	in := map[int]bool{}
	for _, p := range ps {
		in[p.pid] = named(p)
	}
	for grown := true; grown; {
		grown = false
		for _, p := range ps {
			if !in[p.pid] && in[p.parent] {
				in[p.pid], grown = true, true
			}
		}
	}
	for _, p := range ps {
		if in[p.pid] && !p.gone() {
			out = append(out, p)
		}
	}
	return out
}

// descendantPids is the processes below this one. It costs some 20 microseconds a process.
// The kernel may leave some out that are just being started.
func descendantPids() []int { return pidsBelow(os.Getpid()) }

// pidsBelow is the processes below another, as the kernel lists children, or else by a
// scan of all.
func pidsBelow(top int) []int {
	pids, listed := offspring(top)
	if !listed {
		pids = nil
		for _, p := range descendants(top) {
			pids = append(pids, p.pid)
		}
		return pids
	}
	known := map[int]bool{}
	for i := 0; i < len(pids); i++ {
		if known[pids[i]] {
			continue // it came to another parent meanwhile
		}
		known[pids[i]] = true
		more, _ := offspring(pids[i])
		pids = append(pids, more...)
	}
	return slices.Sorted(maps.Keys(known))
}
