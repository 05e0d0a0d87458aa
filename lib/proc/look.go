package proc

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Tree is a supervisor and what it runs, as everybody sees it who may look into
// /proc.
type Tree struct {
	PID       int
	Start     uint64 // with PID, the supervisor: ticks after boot
	UID       int    // as whom it runs
	Of        string // what it was started for: the node's directory
	User      int    // as whom the first process runs that was found below it
	Turning   bool   // it is about to start something, or looks at the pauses
	Processes int    // below it that have not ended
	Running   []int  // of these, those that are neither stopped nor frozen
	InKernel  bool   // each of Running waits in the kernel, as for a disk

	cpu     uint64 // that all its processes have used, in ticks, and those that wait in nanoseconds too
	names   []name // its processes, of a frozen group the first one
	frozen  []int  // those in frozen groups
	waiting int    // of these, those that stop when they get a processor
}

// Trees is the supervisors of this machine that were started for of or for what lies
// below it, of all nodes if that is empty, and what is below them. Whole says that nothing was started
// anywhere meanwhile, so that nothing is missing. It costs a file of /proc for each
// process of the machine, but for those in the groups that are named and frozen: of
// these the kernel says in one word that they stand still. The names may be a
// stranger's.
func Trees(of string, groups ...string) (trees []Tree, whole bool, err error) {
	trees, last, err := seeTrees(of, groups, false)
	return trees, err == nil && last.stands(), err
}

// seeTrees is Trees, with what was started last before it began. With late, what has
// been told to stop and did not get a processor to do it on counts as waiting, not
// as running.
func seeTrees(of string, named []string, late bool) (trees []Tree, last given, err error) {
	last = lastGiven()
	ids, err := pids()
	if err != nil {
		return nil, last, err
	}
	groups := &frozenGroups{of: map[string]map[int]bool{}}
	groups.mount, _ = cgroupMount()
	groups.ask(named)
	var ps []process
	see := func(pids []int) {
		for _, p := range statAll(pids) {
			ps = append(ps, p.process)
			if !supervises(p.comm) {
				continue
			}
			t := Tree{PID: p.pid, Start: p.start, Turning: p.comm == ArgvStarting, Of: startedFor(p.pid), UID: userOf(p.pid)}
			if of == "" || t.Of == of || strings.HasPrefix(t.Of, of+"/") {
				trees = append(trees, t)
			}
		}
	}
	see(slices.DeleteFunc(ids, groups.has))
	for _, members := range groups.of {
		if !takeWhole(trees, members) {
			see(slices.Collect(maps.Keys(members)))
		}
	}
	below := map[int][]process{}
	for _, p := range ps {
		below[p.parent] = append(below[p.parent], p)
	}
	for i := range trees {
		trees[i].fill(below, groups, late)
	}
	return trees, last, nil
}

// takeWhole counts a frozen group to the supervisor whose child its first process
// is, if there is one.
func takeWhole(trees []Tree, members map[int]bool) bool {
	if len(members) == 0 {
		return true
	}
	first, err := stat(slices.Min(slices.Collect(maps.Keys(members))))
	i := slices.IndexFunc(trees, func(t Tree) bool { return err == nil && t.PID == first.parent })
	if i < 0 {
		return false
	}
	t := &trees[i]
	t.Processes += len(members)
	t.names = append(t.names, first.name())
	t.frozen = slices.AppendSeq(t.frozen, maps.Keys(members))
	return true
}

// fill finds the processes below a supervisor and says which of them run.
func (t *Tree) fill(below map[int][]process, groups *frozenGroups, late bool) {
	t.InKernel = true
	for todo := append(t.frozen, t.PID); len(todo) > 0; {
		top := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range below[top] {
			todo = append(todo, p.pid)
			if p.gone() {
				continue
			}
			t.Processes++
			t.cpu += p.cpu
			t.names = append(t.names, p.name())
			switch {
			case p.all(stopped) || groups.hold(p.pid):
			case late && (p.bound() || groups.freezes(p.pid)):
				t.waiting++
				t.cpu += p.used()
			default:
				t.Running = append(t.Running, p.pid)
				t.InKernel = t.InKernel && p.state == 'D'
			}
		}
	}
	t.InKernel = t.InKernel && len(t.Running) > 0
	slices.SortFunc(t.names, func(a, b name) int { return a.pid - b.pid })
	if len(t.names) > 0 {
		t.User = userOf(t.names[0].pid)
	}
}

// userOf is as whom a process runs; the user nobody if it has gone.
func userOf(pid int) int {
	var st syscall.Stat_t
	if syscall.Stat("/proc/"+strconv.Itoa(pid), &st) != nil {
		return 65534
	}
	return int(st.Uid)
}

// Lives says whether the process pid that was started at start lives.
func Lives(pid int, start uint64) bool {
	p, err := stat(pid)
	return err == nil && p.start == start && !p.gone()
}

// GroupFrozen says whether everything in a cgroup and below it is frozen. The
// directory may be what a stranger says is one.
func GroupFrozen(dir string) bool {
	fd, err := unix.Open(filepath.Join(dir, "cgroup.events"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var of unix.Statfs_t
	if unix.Fstatfs(fd, &of) != nil || of.Type != unix.CGROUP2_SUPER_MAGIC {
		return false
	}
	b := make([]byte, 256)
	n, err := unix.Read(fd, b)
	return err == nil && bytes.Contains(b[:n], []byte("frozen 1"))
}

// startedFor is the word after the name with which a supervisor was started.
func startedFor(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	argv := strings.Split(string(b), "\x00")
	if err != nil || len(argv) < 2 {
		return ""
	}
	return argv[1]
}

// frozenGroups is the cgroups that were looked at.
type frozenGroups struct {
	mount string
	of    map[string]map[int]bool // by directory: the processes of one that is frozen
}

// ask looks at the groups that somebody names. What is not below the mount is none.
func (f *frozenGroups) ask(named []string) {
	for _, dir := range named {
		if dir = filepath.Clean(dir); f.mount != "" && strings.HasPrefix(dir, f.mount+"/") && GroupFrozen(dir) {
			f.of[dir] = (&group{dir: dir}).members()
		}
	}
}

// has says whether a process is in one of the groups that were looked at and are
// frozen.
func (f *frozenGroups) has(pid int) bool {
	for _, members := range f.of {
		if members[pid] {
			return true
		}
	}
	return false
}

// hold says whether a process is in a frozen group.
func (f *frozenGroups) hold(pid int) bool {
	if f.has(pid) {
		return true
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || f.mount == "" {
		return false
	}
	for line := range bytes.Lines(b) {
		path, ok := bytes.CutPrefix(line, []byte("0::/"))
		if !ok {
			continue
		}
		dir := filepath.Join(f.mount, strings.TrimSuffix(string(path), "\n"))
		if _, seen := f.of[dir]; seen {
			return false
		}
		f.of[dir] = nil
		if GroupFrozen(dir) {
			f.of[dir] = (&group{dir: dir}).members()
		}
		return f.of[dir][pid]
	}
	return false
}

// freezes says whether a process is in a group that is being frozen: it does not
// come back to its program.
func (f *frozenGroups) freezes(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || f.mount == "" {
		return false
	}
	for line := range bytes.Lines(b) {
		path, ok := bytes.CutPrefix(line, []byte("0::/"))
		for dir := strings.TrimSuffix(string(path), "\n"); ok && dir != "." && dir != ""; dir = filepath.Dir(dir) {
			set, err := os.ReadFile(filepath.Join(f.mount, dir, "cgroup.freeze"))
			if err == nil && string(bytes.TrimSpace(set)) == "1" {
				return true
			}
		}
	}
	return false
}

// lateAfter is when it is asked whether what does not stop waits for a processor.
const lateAfter = 50 * time.Millisecond

// AwaitStill returns when nothing runs below the supervisors that were started for
// of, as in [Trees], or ctx ends, with the trees as they were seen last: those
// of which something runs have it in Running. Standing still is seen: each process
// is frozen with its group or stopped, in a look at all while nothing was started
// that may be of a tree, or in two looks between which no CPU time was used. What
// waits for a processor to stop on, as the jobs of a desk that is busy may do for
// long, is known by not having run for a while.
func AwaitStill(ctx context.Context, of string, groups ...string) (trees []Tree, still bool, err error) {
	begin := time.Now()
	since := begin // nothing has changed
	for wait := time.Millisecond; ; wait = min(wait+time.Millisecond, 20*time.Millisecond) {
		before := trees
		var last given
		if trees, last, err = seeTrees(of, groups, time.Since(begin) > lateAfter); err != nil {
			return nil, false, err
		}
		for i := range trees {
			trees[i].stopping()
		}
		whole := last.spares()
		same := slices.EqualFunc(before, trees, sameTree)
		if !same {
			since = time.Now()
		}
		if slices.ContainsFunc(trees, func(t Tree) bool { return t.waiting > 0 }) {
			whole, same = false, same && time.Since(since) >= idleFor
		}
		runs := slices.ContainsFunc(trees, func(t Tree) bool { return len(t.Running) > 0 || t.Turning })
		if !runs && (whole || same) {
			return trees, true, nil
		}
		select {
		case <-ctx.Done():
			return trees, false, nil
		case <-time.After(wait):
		}
	}
}

// spares says whether nothing below a supervisor has been started since: all that was
// given a number on the machine has been looked at. It says no if it cannot know.
func (g given) spares() bool {
	for range fewRanges {
		now := lastGiven()
		if now == g {
			return now != ""
		}
		ids, few := g.since(now)
		if !few || slices.ContainsFunc(ids, mayBeSupervised) {
			return false
		}
		g = now
	}
	return false
}

// mayBeSupervised says whether a process that lives is below a supervisor, or loses a
// parent while that is looked for.
func mayBeSupervised(pid int) bool {
	p, err := stat(pid)
	if err != nil {
		return false // it has ended: what it has started has a number of its own
	}
	for p.parent > 1 {
		up, comm, err := statNamed(p.parent)
		if err != nil || supervises(comm) {
			return true
		}
		p = up
	}
	return false
}

// AwaitHeld returns when each of these supervisors says that it holds its tree, or
// does not live, and when ctx ends. It costs next to nothing, which a look at all
// processes does not: that comes too early while the kernel is still busy with
// stopping them.
func AwaitHeld(ctx context.Context, supervisors []int) {
	for _, pid := range supervisors {
		for {
			b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
			if name := strings.TrimSuffix(string(b), "\n"); err != nil || name != Argv0 && name != ArgvStarting {
				break
			}
			if ctx.Err() != nil {
				return
			}
			nap(heldEvery)
		}
	}
}

// stopping looks again at what ran when it was seen, for a while: what has been told
// to stop takes a moment, and all others stay stopped.
func (t *Tree) stopping() {
	for begin := time.Now(); len(t.Running) > 0 && time.Since(begin) < lateAfter/5; {
		t.Running = slices.DeleteFunc(t.Running, func(pid int) bool {
			p, err := stat(pid)
			return err == nil && p.all(stopped)
		})
		if len(t.Running) > 0 {
			nap(heldEvery)
		}
	}
	t.InKernel = t.InKernel && len(t.Running) > 0
}

// heldEvery is how often a supervisor is asked whether it holds its tree.
const heldEvery = 500 * time.Microsecond

// sameTree says that two looks saw the same processes, of which none has run.
func sameTree(a, b Tree) bool {
	return a.PID == b.PID && a.Start == b.Start && len(a.Running) == 0 && a.Processes == b.Processes && a.cpu == b.cpu && slices.Equal(a.names, b.names)
}
