package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkAttempt is one order after the other of a program that does nothing:
// what it costs the supervisor in CPU time, besides the whole time.
func BenchmarkAttempt(b *testing.B) {
	parent, err := CgroupParent(fmt.Sprintf("bench-%d", os.Getpid()), "/")
	if err != nil {
		b.Skip(err)
	}
	defer removeGroup(parent)
	Bound(parent, 10000, 1<<40)
	for _, c := range []struct {
		name   string
		cgroup string
		limits Limits
	}{
		{"session", "", Limits{}},
		{"session,pausable", "", Limits{}},
		{"session,limits", "", Limits{CPUs: CPUs()[:1], Memory: 1 << 30, Time: time.Hour, Pids: 500}},
		{"cgroup", parent, Limits{}},
		{"cgroup,limits", parent, Limits{CPUs: CPUs()[:1], Memory: 1 << 30, Time: time.Hour, Pids: 500}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, err := NewSlot()
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			dirs := b.TempDir()
			var pause *Pausing
			if strings.HasSuffix(c.name, "pausable") {
				pause = &Pausing{Places: []string{"/var/lib/distribute/pause", "/run/distribute/pause", b.TempDir()}, Ended: filepath.Join(dirs, "ended")}
			}
			before := ran(s.Pid())
			for i := 0; b.Loop(); i++ {
				dir := filepath.Join(dirs, strconv.Itoa(i))
				if err := os.Mkdir(dir, 0o700); err != nil {
					b.Fatal(err)
				}
				o := order(dir, "")
				o.Argv, o.Cgroup, o.Limits = []string{"/bin/true"}, c.cgroup, c.limits
				o.Pause = pause
				if err := s.Run(o); err != nil {
					b.Fatal(err)
				}
				for r := range s.Reports() {
					if r.Ended != nil {
						break
					}
				}
			}
			b.ReportMetric(float64((ran(s.Pid())-before).Microseconds())/float64(b.N), "µs-of-CPU/op")
		})
	}
}

// ran is the CPU time of a process, without its children.
func ran(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, name := range files {
		b, _ := os.ReadFile(name)
		if f := strings.Fields(string(b)); len(f) > 0 {
			n, _ := strconv.ParseInt(f[0], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}
