package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// InTree says whether a process is of an order of the node with a directory: below a
// supervisor that was started for that, or in the cgroup of an order below a directory that
// CgroupParent returned, if there is one. Seen says whether there is such a process, as far
// as this one may know: it may live in another namespace, or be hidden.
func InTree(pid int, cgroup, dir string) (in, seen bool) {
	p, err := stat(pid)
	if err != nil || p.gone() {
		return false, false
	}
	if cgroup != "" && inGroup(pid, cgroup) {
		return true, true
	}
	argv := Argv0 + "\x00" + Absolute(dir) + "\x00"
	const deepest = 1 << 16 // a chain that changes meanwhile is not followed for ever
	for range deepest {
		if b, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cmdline"); err == nil && string(b) == argv {
			return p.pid != pid, true
		}
		if p.parent <= 1 {
			break
		}
		if p, err = stat(p.parent); err != nil {
			break
		}
	}
	return false, true
}

// inGroup says whether a process is in a group below a directory of the mount of
// version 2.
func inGroup(pid int, dir string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	mount, err2 := cgroupMount()
	if err != nil || err2 != nil {
		return false
	}
	for l := range strings.Lines(string(b)) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(l), "0::"); ok {
			return strings.HasPrefix(filepath.Join(mount, own), dir+"/")
		}
	}
	return false
}

// inside returns a function that reports whether a process is in a cgroup, or in one below it.
// One that has ended is.
func inside(dir string) func(pid int) bool {
	mount, _ := cgroupMount()
	group := strings.TrimPrefix(dir, mount)
	return func(pid int) bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
		if err != nil {
			return true
		}
		for l := range strings.Lines(string(b)) {
			if own, ok := strings.CutPrefix(strings.TrimSpace(l), "0::"); ok {
				return strings.HasPrefix(own+"/", group+"/")
			}
		}
		return false
	}
}

// A Loose is a process of an order that the order's cgroup does not hold.
type Loose struct {
	PID     int
	Name    string // of its program, as the kernel cuts it
	Stopped bool   // by a signal
}

// LooseOf returns the processes below the supervisor that was started at start and that are not
// in the cgroup of its order, or below it; all of them if the order has none.
func LooseOf(supervisor int, start uint64, cgroup string) (all []Loose) {
	if !Lives(supervisor, start) {
		return nil
	}
	held := func(int) bool { return false }
	if cgroup != "" {
		held = inside(cgroup)
	}
	for _, pid := range pidsBelow(supervisor) {
		if held(pid) {
			continue
		}
		if p, comm, err := statNamed(pid); err == nil && !p.gone() {
			all = append(all, Loose{pid, comm, p.all(stopped)})
		}
	}
	return all
}
