package proc

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits is what an order may use of the machine. What is zero is not limited.
//
// The cpus are those that the tree may run on from its first instruction, so that
// a program which counts them finds its own. Memory and processes are limited by
// the kernel in the order's cgroup where it can do that. Where it cannot, memory is
// watched once a second, and who has more is killed; processes are not limited.
// Time is that of Status.Wall: pauses do not count.
type Limits struct {
	CPUs   []int         `json:"cpus,omitempty"`   // numbers of cpus; where there is no cpuset the tree could take others
	Memory int64         `json:"memory,omitempty"` // bytes of all processes together
	Pids   int           `json:"pids,omitempty"`   // processes and threads
	Time   time.Duration `json:"time,omitempty"`   // then it is stopped, with the grace time
}

// limit lets the kernel enforce what it can in the order's group. Memory is all
// that the tree gets: it may not go on in the swap space, which is the person's at
// the machine, and to which a tree that had enough would have to be brought back. Only
// while that person wants memory back it may (see returnedCPUs.swap).
// One process of a tree that is killed for want of memory takes the others along,
// for a part of a tree rarely ends well.
func (g *group) limit(l *Limits) {
	if len(l.CPUs) > 0 {
		g.set("cpuset.cpus", cpuList(l.CPUs))
	}
	if l.Memory > 0 && g.set("memory.max", strconv.FormatInt(l.Memory, 10)) == nil {
		g.swap(l.Memory, false)
		g.set("memory.oom.group", "1")
	}
	if l.Pids > 0 {
		g.set("pids.max", strconv.Itoa(l.Pids))
	}
}

// swap lets a group with a limit of memory have as much in swap space, or none.
func (g *group) swap(limit int64, may bool) {
	switch {
	case limit <= 0:
	case may:
		g.set("memory.swap.max", strconv.FormatInt(limit, 10))
	default:
		g.set("memory.swap.max", "0")
	}
}

// set writes to a file of the group that the kernel has, and makes none.
func (g *group) set(file, text string) error {
	if g.lacks(file) {
		return fs.ErrNotExist
	}
	return setGroup(g.dir, file, text)
}

// lacks says that a file cannot be there, since its controller is not.
func (g *group) lacks(file string) bool {
	controller, _, _ := strings.Cut(file, ".")
	return g.has != "" && slices.Contains([]string{"cpuset", "memory", "pids", "io"}, controller) && !strings.Contains(g.has, " "+controller+" ")
}

func setGroup(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// number is the number in a file of the group; false if there is none.
func (g *group) number(file string) (int64, bool) {
	if g.lacks(file) {
		return 0, false
	}
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// count is the number behind a word in a file of the group that has such a line.
func (g *group) count(file, word string) (n int64, known bool) {
	if g.lacks(file) {
		return 0, false
	}
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, false
	}
	return countIn(string(b), word)
}

func countIn(text, word string) (n int64, known bool) {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, word+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// measure adds what the kernel counted for the whole group, as far as it does. A
// process that nobody waited for is only in that; what was written is counted there
// when it goes to the disk, which may be later than the end.
func (st *Status) measure(o *Order, g *group, w *watch) {
	greatest := st.Memory
	st.Memory = max(st.Memory, w.peak)
	if len(o.Ranks) > 0 {
		st.OfRank = max(greatest, w.most)
	}
	if g == nil {
		return
	}
	if n, ok := g.number("memory.peak"); ok {
		st.Memory = n
		st.Cache = max(0, min(g.stat("active_file", "inactive_file"), n-greatest))
	}
	for k := range o.Ranks {
		of := &group{dir: filepath.Join(g.dir, rankGroup(k)), has: g.has}
		if n, ok := of.number("memory.peak"); ok {
			st.OfRank = max(st.OfRank, n)
		}
	}
	cpu, _ := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
	user, _ := countIn(string(cpu), "user_usec")
	system, _ := countIn(string(cpu), "system_usec")
	if of := time.Duration(user+system) * time.Microsecond; of > st.User+st.System {
		st.User, st.System = time.Duration(user)*time.Microsecond, time.Duration(system)*time.Microsecond
	}
	if !g.lacks("io.stat") {
		io, _ := os.ReadFile(filepath.Join(g.dir, "io.stat"))
		st.Written = max(st.Written, writtenIn(io))
	}
}

// stat is the sum of what the kernel counts of the group's memory by some words.
func (g *group) stat(words ...string) (sum int64) {
	text, _ := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	for _, w := range words {
		n, _ := countIn(string(text), w)
		sum += n
	}
	return sum
}

// writtenIn is the sum of what a group wrote, over all disks.
func writtenIn(stat []byte) (sum int64) {
	for f := range strings.FieldsSeq(string(stat)) {
		if v, ok := strings.CutPrefix(f, "wbytes="); ok {
			n, _ := strconv.ParseInt(v, 10, 64)
			sum += n
		}
	}
	return sum
}

// cpuList is cpus as the kernel writes them: 0-3,8.
func cpuList(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if end > i {
			b.WriteString("-" + strconv.Itoa(cpus[end]))
		}
		i = end + 1
	}
	return b.String()
}

// cpuSet is cpus as the kernel takes them; false if they are none.
func cpuSet(cpus []int) (set unix.CPUSet, ok bool) {
	for _, c := range cpus {
		set.Set(c)
	}
	return set, set.Count() > 0
}

// CPUs is the numbers of the cpus that this process may run on, in ascending
// order.
func CPUs() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var cpus []int
	for c := 0; len(cpus) < set.Count(); c++ {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus
}

// controllers are those of version 2 that an order's group is to have.
var controllers = []string{"pids", "memory", "cpu", "cpuset", "io"}

// control lets the kernel count and limit in the groups below dir, as far as
// whoever made dir has left it that. Each is asked for alone: one that is missing
// is no reason to have none.
func control(dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil || inhabited(dir) {
		return
	}
	has := strings.Fields(string(b))
	for _, c := range controllers {
		if !slices.Contains(has, c) {
			setGroup(dir, "cgroup.subtree_control", "+"+c)
		}
	}
}
