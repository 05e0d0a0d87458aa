package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// InTree says whether a process is of an order: below a supervisor that was started
// with these words, or in the cgroup of an order below a directory that CgroupParent
// returned, if there is one. Seen says whether there is such a process, as far as
// this one may know: it may live in another namespace, or be hidden.
func InTree(pid int, cgroup string, words ...string) (in, seen bool) {
	p, err := stat(pid)
	if err != nil || p.gone() {
		return false, false
	}
	if cgroup != "" && inGroup(pid, cgroup) {
		return true, true
	}
	argv := strings.Join(append([]string{Argv0}, words...), "\x00") + "\x00"
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
