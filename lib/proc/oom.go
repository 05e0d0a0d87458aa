package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

// ownScore is what this process has, as it was found first.
var ownScore = sync.OnceValues(func() (int, error) {
	b, err := os.ReadFile(scoreFile)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
})

// asJob calls fork with the score that what it starts is to have.
func asJob(fork func() error) error {
	if own, err := ownScore(); err == nil && own < jobScore && setScore(jobScore) == nil {
		defer setScore(own)
	}
	return fork()
}

// judge says which limit the order has come up against, if it was one. Without a group
// that counts what the kernel killed for want of memory it is not known.
func (st *Status) judge(o *Order, g *group, w *watch) {
	if g == nil {
		st.NoMemory = st.Stopped == StoppedMemory
	} else {
		killed, _ := g.count("memory.events", "oom_kill")
		st.NoMemory = st.Stopped == StoppedMemory || killed > 0 && st.failed() && st.Stopped == "" && !st.Evicted
	}
	if st.NoMemory && o.Memory > 0 && (st.Stopped == StoppedMemory || g.reached() || st.Memory > o.Memory) {
		st.Had = o.Memory
		if st.Stopped == StoppedMemory { // all were killed, and which was reaped first says nothing
			st.Rank = w.rank
		}
		if st.Rank != nil {
			st.Had = o.Ranks[*st.Rank].Memory
		}
	}
	if st.failed() && g != nil && o.Pids > 0 {
		if n, _ := g.count("pids.events", "max"); n > 0 {
			st.Crowded = o.Pids
		}
	}
}

// failed reports whether the order did not exit with 0.
func (st *Status) failed() bool { return st.Exit == nil || *st.Exit != 0 }

// reached says that the group has come up against its own limit of memory, and not
// only against what the machine has.
func (g *group) reached() bool {
	if g == nil {
		return false
	}
	n, _ := g.count("memory.events", "oom")
	return n > 0
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
