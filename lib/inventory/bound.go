package inventory

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mainMemory is the machine's main memory in bytes.
func (s *Source) mainMemory() (int64, error) {
	b, err := os.ReadFile(s.path("/proc/meminfo"))
	if err != nil {
		return 0, err
	}
	for in := bufio.NewScanner(bytes.NewReader(b)); in.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(in.Text(), "MemTotal: %d kB", &kib); n == 1 && kib > 0 && kib < 1<<43 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("/proc/meminfo does not say how much memory there is")
}

func (s *Source) path(name string) string { return filepath.Join("/", s.Root, name) }

// quota is how many cpus the groups of this process may use together, 0 if they
// are not bounded.
func (s *Source) quota() (least float64) {
	s.eachGroup("cpu", func(dir string, v2 bool) {
		var quota, period float64
		if v2 {
			fmt.Sscanf(line(dir, "cpu.max"), "%f %f", &quota, &period)
		} else {
			fmt.Sscanf(line(dir, "cpu.cfs_quota_us"), "%f", &quota)
			fmt.Sscanf(line(dir, "cpu.cfs_period_us"), "%f", &period)
		}
		if n := quota / period; quota > 0 && period > 0 && (least == 0 || n < least) {
			least = n
		}
	})
	return least
}

// memoryBound is how much memory the groups of this process may have, 0 if they
// are not bounded.
func (s *Source) memoryBound() (least int64) {
	s.eachGroup("memory", func(dir string, v2 bool) {
		files := []string{"memory.limit_in_bytes"}
		if v2 {
			files = []string{"memory.max", "memory.high"}
		}
		for _, f := range files {
			if n, err := strconv.ParseInt(line(dir, f), 10, 64); err == nil && n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
	})
	return least
}

// line is the first line of a small file, "" if there is none.
func line(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return first
}

// eachGroup calls f for every directory of a cgroup that this process is in, itself
// or by what is above it, and that can be seen: in version 2, and of a controller
// in version 1.
func (s *Source) eachGroup(controller string, f func(dir string, v2 bool)) {
	info, err := os.ReadFile(s.path("/proc/self/mountinfo"))
	groups, err2 := os.ReadFile(s.path("/proc/self/cgroup"))
	if errors.Join(err, err2) != nil {
		return
	}
	for _, m := range cgroupMounts(string(info)) {
		if !m.v2 && !slices.Contains(m.controllers, controller) {
			continue
		}
		own, ok := ownGroup(string(groups), m, controller)
		if !ok {
			continue
		}
		if own, ok = strings.CutPrefix(own, strings.TrimSuffix(m.root, "/")); !ok {
			own = "/" // the mount shows another part, as in a container
		}
		for dir := filepath.Join("/", own); ; dir = filepath.Dir(dir) {
			if f(s.path(filepath.Join(m.at, dir)), m.v2); dir == "/" {
				break
			}
		}
	}
}

// A cgroupMount is one line of mountinfo.
type cgroupMount struct {
	at, root    string
	v2          bool
	controllers []string // of version 1
}

// cgroupMounts finds the file systems of cgroups. Mount points with escaped
// characters are passed over.
func cgroupMounts(info string) (all []cgroupMount) {
	for l := range strings.Lines(info) {
		left, right, ok := strings.Cut(strings.TrimSpace(l), " - ")
		f, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(r) < 3 || strings.Contains(f[4], `\`) || r[0] != "cgroup" && r[0] != "cgroup2" {
			continue
		}
		all = append(all, cgroupMount{at: f[4], root: f[3], v2: r[0] == "cgroup2", controllers: strings.Split(r[2], ",")})
	}
	return all
}

// ownGroup is the group of this process in a mounted hierarchy.
func ownGroup(groups string, m cgroupMount, controller string) (string, bool) {
	for l := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(l), ":", 3)
		if len(f) != 3 {
			continue
		}
		if m.v2 && f[0] == "0" && f[1] == "" || !m.v2 && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], true
		}
	}
	return "", false
}
