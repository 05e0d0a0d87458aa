package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"distribute/lib/pause"

	"golang.org/x/sys/unix"
)

// treeSize is how many processes the tree has that is frozen.
const treeSize = 1000

// BenchmarkFreeze is a tree of a thousand processes, eight of which run: from the
// moment a pause is in its place until the supervisor has said that nothing of the
// tree runs, and until it has let go; and, where there is a group, by a bare write to
// cgroup.freeze until the kernel says frozen, which is the limit.
func BenchmarkFreeze(b *testing.B) {
	parent, err := CgroupParent(fmt.Sprintf("bench-%d", os.Getpid()), "/")
	if err != nil {
		parent = ""
	}
	for _, c := range []struct{ name, cgroup string }{{"best-effort", ""}, {"cgroup", parent}} {
		if c.name == "cgroup" && parent == "" {
			continue
		}
		b.Run(c.name, func(b *testing.B) { benchFreeze(b, c.cgroup) })
	}
	if parent != "" {
		removeGroup(parent)
	}
}

func benchFreeze(b *testing.B, cgroup string) {
	s, err := NewSlot()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	dir, place := b.TempDir(), b.TempDir()
	o := order(dir, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do sleep 1000 & i=$((i+1)); done
while [ $i -lt %d ]; do (while :; do :; done) & i=$((i+1)); done; wait`, treeSize-9, treeSize-1))
	o.Token, o.Cgroup, o.Pause = fmt.Sprintf("bench-%d", os.Getpid()), cgroup, &Pausing{Places: []string{place}}
	if err := s.Run(o); err != nil {
		b.Fatal(err)
	}
	for len(descendants(s.Pid())) < treeSize {
		unix.Poll(nil, 10)
	}
	until := func(frozen bool) {
		for r := range s.Reports() {
			if r.Hold != nil && r.Hold.Frozen == frozen && r.Hold.Running == 0 {
				return
			}
		}
		b.Fatal("the supervisor is gone")
	}
	var freeze, thaw, bare time.Duration
	clock := func(sum *time.Duration, f func()) {
		began := time.Now()
		f()
		*sum += time.Since(began)
	}
	group := &group{dir: filepath.Join(cgroup, o.Token)}
	for b.Loop() {
		now, err := pause.Here()
		if err != nil {
			b.Fatal(err)
		}
		var p pause.Pause
		clock(&freeze, func() {
			if p, err = pause.Put(place, pause.To(now, time.Time{})); err != nil {
				b.Fatal(err)
			}
			until(true)
		})
		clock(&thaw, func() {
			if err := pause.Remove(p); err != nil {
				b.Fatal(err)
			}
			until(false)
		})
		if cgroup != "" {
			clock(&bare, func() { bareFreeze(b, group.dir) })
			group.thaw()
			time.Sleep(20 * time.Millisecond) // else what was frozen has not gone on yet
		}
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(b.N) }
	b.ReportMetric(ms(freeze), "ms-pause")
	b.ReportMetric(ms(thaw), "ms-end")
	if cgroup != "" {
		b.ReportMetric(ms(bare), "ms-bare-freeze")
		b.ReportMetric(bare.Seconds()/freeze.Seconds(), "of-limit")
	}
	b.ReportMetric(0, "ns/op")
	s.Stop(o.Token)
	s.Stop(o.Token)
	for r := range s.Reports() {
		if r.Ended != nil {
			break
		}
	}
}

// bareFreeze writes to cgroup.freeze and asks until the kernel says frozen.
func bareFreeze(b *testing.B, dir string) {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("1"), 0); err != nil {
		b.Fatal(err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil {
			b.Fatal(err)
		}
		if bytes.Contains(text, []byte("frozen 1")) {
			return
		}
	}
}
