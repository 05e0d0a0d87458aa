package proc

import (
	"errors"
	"fmt"
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

// Jobs run when nobody else wants to: the person at the machine is not to notice them.
// Each process has the lowest priority there is for the processor and for disks, and the
// groups of version 2 have it, since what is in a group competes with others of it only.
const (
	lowestNice = 19
	ioprioIdle = 3 << 13 // IOPRIO_CLASS_IDLE
	ioprioOf   = 1       // IOPRIO_WHO_PROCESS: a thread
)

// begin makes the order's cgroup and starts the first processes, unless the machine is
// paused. If one cannot be started, those before it are killed, and the error goes with
// their pids. The group is made before the pauses are read: who has paused the machine and
// then finds no group of an order, or only frozen ones, knows that nothing runs.
func (s *supervisor) begin(o *Order, name string, outs []*output) (g *group, pids []int, where *lookout, err error) {
	where = s.lookFrom(o)
	if o.Cgroup != "" {
		if g, err = newGroup(o.Cgroup, o.Token); err != nil {
			return nil, nil, nil, &notBegunError{fmt.Errorf("no cgroup for it: %w", err)}
		}
		g.has = s.controllersOf(o.Cgroup)
		g.limit(&o.Limits)
		if len(o.Ranks) > 0 {
			control(g.dir)
		}
	}
	err = where.mayStart()
	for k, r := range o.ranks() {
		if err != nil {
			break
		}
		pid := 0
		if pid, err = s.startRank(g, o, k, &r, name, outs[k].write); pid > 0 {
			pids = append(pids, pid)
		}
	}
	if err != nil && len(pids) > 0 {
		s.mu.Lock()
		s.kill()
		s.mu.Unlock()
		err = errors.New(err.Error()) // it has begun, whatever that was
	} else if err != nil && g != nil {
		g.remove()
	}
	return g, pids, where, err
}

// startRank starts one of the first processes of an order, in a group of its own if there
// are several.
func (s *supervisor) startRank(of *group, o *Order, k int, r *Rank, name string, out *os.File) (pid int, err error) {
	g := of
	if of != nil && len(o.Ranks) > 0 {
		if g, err = newGroup(of.dir, rankGroup(k)); err != nil {
			return 0, fmt.Errorf("no cgroup for rank %d: %w", k, err)
		}
		defer unix.Close(g.fd)
		g.limit(&Limits{CPUs: r.CPUs, Memory: r.Memory})
	}
	if pid, err = s.fork(of, g, o, r, name, out); err != nil {
		err = fmt.Errorf("cannot start %q: %w", o.Argv[0], unstarted(name, o, err))
	}
	return pid, err
}

func rankGroup(k int) string { return "rank" + strconv.Itoa(k) }

// controllersOf is the controllers that groups in a directory have, as they were when it
// was first asked for.
func (s *supervisor) controllersOf(parent string) string {
	if s.parent != parent {
		b, _ := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
		s.parent, s.controllers = parent, " "+strings.TrimSpace(string(b))+" "
	}
	return s.controllers
}

// fork starts a first process as the leader of a session, in the group g, which is that of
// its order or below it. If the order has been stopped already nothing is started, and the
// pid is 0.
func (s *supervisor) fork(of, g *group, o *Order, r *Rank, name string, out *os.File) (pid int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped != "" {
		return 0, nil
	}
	attr := &syscall.ProcAttr{
		Dir: o.Cwd, Env: append(r.Env[:len(r.Env):len(r.Env)], Marker+"="+o.Token),
		Files: []uintptr{s.null.Fd(), out.Fd(), out.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if g != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, g.fd
	}
	if o.As != nil {
		// The environment, which is the batch's, is for the job only: nothing is run
		// between here and its program.
		uid, gid, groups := o.As.credential()
		attr.Sys.Credential = &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}
	}
	if s.starter == nil || s.starter.renounced && o.As == nil {
		if s.starter != nil {
			close(s.starter.calls)
		}
		s.starter = newStarter()
	}
	pid, err = s.starter.start(o, r.CPUs, name, attr)
	s.group = of
	if pid > 0 {
		s.firsts = append(s.firsts, pid)
		s.lowerSession(of, pid)
	}
	return pid, err
}

// A starter is a thread that starts processes: each has from its first instruction what
// the thread has, the lowest priority, which neither can take back.
type starter struct {
	calls     chan func()
	all       []int // the cpus of the process
	renounced bool  // the thread, and all that it starts, can become nobody else
}

func newStarter() *starter {
	s := &starter{calls: make(chan func()), all: CPUs()}
	go s.run()
	return s
}

// run is the goroutine of the thread, which ends with it, and is not the first one: others
// take that for the process.
func (s *starter) run() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.run()
		}()
		<-over
		runtime.UnlockOSThread()
		return
	}
	unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: lowestNice}, 0)
	unix.Setpriority(unix.PRIO_PROCESS, 0, lowestNice) // which the policy leaves as it is
	unix.Syscall(unix.SYS_IOPRIO_SET, ioprioOf, 0, ioprioIdle)
	for f := range s.calls {
		f()
	}
}

// start starts a first process of an order, on these cpus; none: any.
func (s *starter) start(o *Order, cpus []int, name string, attr *syscall.ProcAttr) (pid int, err error) {
	done := make(chan struct{})
	s.calls <- func() {
		defer close(done)
		if o.As != nil && !s.renounced {
			if err = renounce(); err != nil {
				return
			}
			s.renounced = true
		}
		if len(cpus) == 0 {
			cpus = s.all
		}
		if set, some := cpuSet(cpus); some {
			unix.SchedSetaffinity(0, &set)
		}
		err = asJob(func() (err error) {
			pid, err = syscall.ForkExec(name, o.Argv, attr)
			return err
		})
	}
	<-done
	return pid, err
}

// When the kernel weighs sessions (sched(7), autogroup), priorities count within one only,
// so that of a tree in no group that is weighed is lowered too. Short orders are spared it:
// it takes locks of the whole machine.
const (
	sessionAfter = time.Second
	sessionAgain = 130 * time.Millisecond // when the kernel has refused
)

// lowerSession takes the weight from the session of a first process.
func (s *supervisor) lowerSession(g *group, pid int) {
	if !s.autogroups {
		return
	}
	if g != nil {
		if _, err := os.Lstat(filepath.Join(g.dir, "cpu.weight")); err == nil {
			return
		}
	}
	var lower func()
	lower = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if slices.Contains(s.firsts, pid) && errors.Is(os.WriteFile("/proc/"+strconv.Itoa(pid)+"/autogroup", []byte(strconv.Itoa(lowestNice)), 0), unix.EAGAIN) {
			time.AfterFunc(sessionAgain, lower)
		}
	}
	time.AfterFunc(sessionAfter, lower)
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

// lookPath finds the program as the job's shell would, with the rights of as: a name with a
// slash is relative to its directory, another is looked for in path.
func lookPath(argv []string, path, cwd string, as *Identity) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", errors.New("cannot start: no command given")
	}
	name := argv[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	found := ""
	err := as.Do(func() error {
		for _, dir := range filepath.SplitList(path) {
			if dir == "" {
				dir = "."
			}
			full := filepath.Join(dir, name)
			if !filepath.IsAbs(full) {
				full = filepath.Join(cwd, full)
			}
			if fi, err := os.Stat(full); err == nil && fi.Mode().IsRegular() && unix.Faccessat(unix.AT_FDCWD, full, unix.X_OK, unix.AT_EACCESS) == nil {
				found = full
				return nil
			}
		}
		return fmt.Errorf("cannot start %q: not found in PATH; a program of the job itself is named with a slash, as ./%s (PATH is %s)", name, name, path)
	})
	return found, err
}
