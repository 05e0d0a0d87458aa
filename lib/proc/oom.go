package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What the kernel is asked to think of a process when it must kill one for want
// of memory: jobs go first, and dnoded late, if it may ask that.
const (
	jobScore    = 500
	daemonScore = -500
)

const scoreFile = "/proc/self/oom_score_adj"

// Precious asks the kernel to kill this process late for want of memory. Only the
// superuser may; for others nothing changes.
func Precious() { setScore(daemonScore) }

func setScore(n int) error { return os.WriteFile(scoreFile, []byte(strconv.Itoa(n)), 0) }

// asJob calls fork with the score that what it starts is to have.
func asJob(fork func() error) error {
	if was, err := os.ReadFile(scoreFile); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(was))); err == nil && n < jobScore && setScore(jobScore) == nil {
			defer setScore(n)
		}
	}
	return fork()
}

// judge says which limit the order has come up against, if it was one.
func (st *Status) judge(o *Order, g *group, pid int, since time.Duration) {
	st.NoMemory = st.Stopped == StoppedMemory || st.noMemory(g, pid, since)
	if st.NoMemory && o.Memory > 0 && (st.Stopped == StoppedMemory || g.reached() || st.Memory > o.Memory) {
		st.Had = o.Memory
	}
	if failed := st.Exit != nil && *st.Exit != 0 || st.Signal != 0; failed && g != nil && o.Pids > 0 {
		if n, _ := g.count("pids.events", "max"); n > 0 {
			st.Crowded = o.Pids
		}
	}
}

// noMemory says whether the kernel killed one of an order's tree for want of
// memory. Without a group that counts that, it is known of the first process
// only, from the kernel's log, which may be for the superuser alone.
func (st *Status) noMemory(g *group, pid int, since time.Duration) bool {
	if st.Stopped != "" || st.Evicted || st.Exit != nil && *st.Exit == 0 {
		return false
	}
	if g != nil {
		if killed, known := g.count("memory.events", "oom_kill"); known {
			return killed > 0
		}
	}
	for try := 0; st.Signal == int(unix.SIGKILL) && try < 3; try++ { // the kernel says so a little after it has done it
		if killedIn("/dev/kmsg", pid, since) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// reached says that the group has come up against its own limit of memory, and not
// only against what the machine has.
func (g *group) reached() bool {
	if g == nil {
		return false
	}
	n, _ := g.count("memory.events", "oom")
	return n > 0
}

// killedIn looks in the kernel's log for the end of a process after a time.
func killedIn(name string, pid int, since time.Duration) bool {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Read(fd, buf) // one record
		switch {
		case err == unix.EPIPE || err == unix.EINTR: // that one was overwritten
		case err != nil || n <= 0:
			return false
		case isOOM(string(buf[:n]), pid, since):
			return true
		}
	}
}

// isOOM says whether a record of the kernel's log is of the end of a process for
// want of memory, after a time. A record is "level,number,microseconds,flags;text".
func isOOM(record string, pid int, since time.Duration) bool {
	head, text, ok := strings.Cut(record, ";")
	f := strings.Split(head, ",")
	if !ok || len(f) < 3 || !strings.Contains(text, "ut of memory: ") || !strings.Contains(text, fmt.Sprintf(": Killed process %d (", pid)) {
		return false
	}
	usec, err := strconv.ParseInt(f[2], 10, 64)
	return err == nil && time.Duration(usec)*time.Microsecond >= since
}

// sinceBoot is the clock of the kernel's log.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// Bound sets how many processes all jobs of a node may have together, and how
// much memory, at the directory that CgroupParent returned, and names what the
// kernel cannot bound there. It gives them the lowest weight there is, and lets
// the kernel count and limit each of them.
func Bound(dir string, processes, memory int64) (missing []string) {
	for _, d := range []string{filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir), dir} {
		control(d)
	}
	humble(dir)
	for _, limit := range []struct {
		name, file string
		n          int64
	}{{"processes", "pids.max", processes}, {"memory", "memory.max", memory}} {
		if setGroup(dir, limit.file, strconv.FormatInt(limit.n, 10)) != nil {
			missing = append(missing, limit.name)
		}
	}
	return missing
}

// inhabited says that processes are in a group itself, below which no limits can
// be set then (cgroups(7), "no internal processes"): the kernel refuses it for
// memory, while for pids it makes the groups below unfit for processes. The first
// group of all is free of that rule, and known by having no type.
func inhabited(dir string) bool {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || len(procs) == 0 {
		return false
	}
	_, err = os.Lstat(filepath.Join(dir, "cgroup.type"))
	return err == nil
}

// MaxThreads is how many processes and threads the machine can have.
func MaxThreads() int64 {
	b, err := os.ReadFile("/proc/sys/kernel/threads-max")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}
