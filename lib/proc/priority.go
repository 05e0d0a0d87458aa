package proc

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Jobs run when nobody else wants to: the person at the machine is not to notice
// them. Each process has the lowest priority there is for the processor and for
// disks, and the groups of version 2 have it, since what is in a group competes
// with others of it only.
const (
	lowestNice  = 19
	ioprioIdle  = 3 << 13 // IOPRIO_CLASS_IDLE
	ioprioOf    = 1       // IOPRIO_WHO_PROCESS: a thread
	lowerRounds = 20
)

// forkExec starts the first process of an order as one that may be killed first,
// on the order's cpus, and at the lowest priority, which all that it starts
// inherits and cannot take back. The process is held (ptrace(2)) before the first
// instruction of its program and set up from here. It could not do that itself:
// until it runs its program it is as a thread of this process, which would have to
// wait for it while the machine has better things to do, and could hold nothing
// for a pause meanwhile.
func (s *supervisor) forkExec(g *group, o *Order, name string, attr *syscall.ProcAttr) (pid int, err error) {
	fork := func() (err error) {
		pid, err = syscall.ForkExec(name, o.Argv, attr)
		return err
	}
	held := !s.unheld && !changesUser(o.Cwd, name)
	if held {
		runtime.LockOSThread() // which is the one that traces
		defer runtime.UnlockOSThread()
		attr.Sys.Ptrace = true
		err := asJob(fork)
		if err == nil {
			s.setUp(pid, o)
			s.lowerSessions(g, pid)
			return pid, nil
		}
		if !errors.Is(err, unix.EPERM) {
			return 0, err
		}
		attr.Sys.Ptrace = false
	}
	err = onCPUs(o.CPUs, func() error { return asJob(fork) })
	if err == nil {
		s.unheld = s.unheld || held
		s.lower(g, pid)
		s.lowerSessions(g, pid)
	}
	return pid, err
}

// changesUser says whether the kernel gives who runs a program the rights of
// another user, or capabilities(7), which it does not do while that is traced.
func changesUser(cwd, name string) bool {
	if !filepath.IsAbs(name) {
		name = filepath.Join(cwd, name)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return true
	}
	n, err := unix.Getxattr(name, "security.capability", nil)
	return err == nil && n > 0
}

// setUp sets up a process that is held, and lets it go.
func (s *supervisor) setUp(pid int, o *Order) {
	for {
		// A look only: if it has been killed, await is to hear that.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT|unix.WALL, nil)
		if err != unix.EINTR {
			break
		}
	}
	if set, ok := cpuSet(o.CPUs); ok {
		unix.SchedSetaffinity(pid, &set)
	}
	lowerThread(pid)
	syscall.PtraceDetach(pid)
}

// lower is for where a process cannot be held. What it has started meanwhile is
// looked for until there is nothing new; what it was just starting then keeps the
// priority of this process.
func (s *supervisor) lower(g *group, pid int) {
	done := map[int]bool{}
	next := []int{pid}
	for round := 0; len(next) > 0 && round < lowerRounds; round++ {
		for _, p := range next {
			done[p] = true
			lowerProcess(p)
		}
		next = slices.DeleteFunc(g.living(), func(p int) bool { return done[p] })
	}
}

// sessionsAfter is when the sessions of a tree are looked for first, and
// sessionsLast how far apart they are later. Short orders are spared it: the kernel
// takes locks of the whole machine for it, and does it for all users but root
// together ten times a second only.
const (
	sessionsAfter = time.Second
	sessionsAgain = 130 * time.Millisecond // when the kernel has refused
	sessionsLast  = 1000 * time.Second
)

// lowerSessions takes the weight from the groups that the kernel makes of sessions
// (sched(7), autogroup), where a tree is in no group that is weighed: in them the
// priorities of processes count among themselves only. A tree can make sessions
// later, so they are looked for again, ever less often.
func (s *supervisor) lowerSessions(g *group, pid int) {
	if !s.autogroups {
		return
	}
	if g != nil {
		if _, err := os.Lstat(filepath.Join(g.dir, "cpu.weight")); err == nil {
			return
		}
	}
	done := map[int]bool{}
	var look func(wait time.Duration)
	look = func(wait time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pid != pid {
			return // it is over
		}
		if lowerSessionsOf(g.living(), done) {
			wait = min(10*wait, sessionsLast)
			time.AfterFunc(wait, func() { look(wait) })
		} else {
			time.AfterFunc(sessionsAgain, func() { look(wait) })
		}
	}
	time.AfterFunc(sessionsAfter, func() { look(sessionsAfter) })
}

// lowerSessionsOf does that for the sessions of these processes which are not done,
// and says whether the kernel has done it for all.
func lowerSessionsOf(pids []int, done map[int]bool) bool {
	all := true
	for _, pid := range pids {
		p, err := stat(pid)
		if err != nil || done[p.session] {
			continue
		}
		err = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/autogroup", []byte(strconv.Itoa(lowestNice)), 0)
		done[p.session] = !errors.Is(err, unix.EAGAIN)
		all = all && done[p.session]
	}
	return all
}

// lowerProcess takes the priority from all threads of a process.
func lowerProcess(pid int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	d, err := os.Open(dir)
	if err != nil {
		return // it is over
	}
	defer d.Close()
	done := map[string]bool{}
	for grown := true; grown; {
		grown = false
		d.Seek(0, 0)
		names, _ := d.Readdirnames(-1)
		for _, name := range names {
			if tid, err := strconv.Atoi(name); err == nil && !done[name] {
				done[name], grown = true, len(names) > 1
				lowerThread(tid)
			}
		}
	}
}

func lowerThread(tid int) {
	unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: lowestNice}, 0)
	unix.Setpriority(unix.PRIO_PROCESS, tid, lowestNice) // which the policy leaves as it is
	unix.Syscall(unix.SYS_IOPRIO_SET, ioprioOf, uintptr(tid), ioprioIdle)
}

// living is the processes of the order at hand: those in its group, or, without
// one, those below this process. The kernel may leave some out that are just being
// started.
func (g *group) living() []int {
	if g == nil {
		return descendantPids()
	}
	b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return descendantPids()
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendantPids is the processes below this one. It costs some 20 microseconds a process.
func descendantPids() []int {
	me := os.Getpid()
	pids, listed := offspring(me)
	if !listed {
		for _, p := range descendants(me) {
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

// autogroups says whether the kernel makes a group of each session.
func autogroups() bool {
	b, err := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled")
	return err == nil && strings.TrimSpace(string(b)) == "1"
}

// humble gives the group of all of a node's orders the lowest weight among its
// siblings, as far as the kernel weighs groups.
func humble(dir string) {
	if setGroup(dir, "cpu.idle", "1") != nil { // since Linux 5.15
		setGroup(dir, "cpu.weight", "1")
	}
	setGroup(dir, "io.weight", "1")
	setGroup(dir, "io.bfq.weight", "1")
	setGroup(dir, "io.prio.class", "idle")
}
