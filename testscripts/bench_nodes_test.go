package testscripts

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A thousand nodes (BENCH_JOBS sets another number) that are desks at rest but for
// their processes: what the head has of the memory and of a core for them, and how
// long it takes until all are back after it was killed.
func BenchmarkNodes(b *testing.B) {
	n := scale(b, soakNodes)
	l := newLab(b, 0)
	ctx, stop := context.WithCancel(b.Context())
	nodes := idleNodes(b, ctx, l, n)
	defer nodes.Wait()
	defer stop()
	there := func() bool { return l.connected() == n }
	l.within(backWithin, there)
	rounds(b, 1, func(f *tally) {
		f.add("head-MiB", resident(b, l.head.Process.Pid, "VmRSS")/(1<<20))
		length := time.Duration(setting(b, "BENCH_REST", 60)) * time.Second
		cpu, _ := spent(b, []int{l.head.Process.Pid})
		time.Sleep(length)
		cpu2, _ := spent(b, []int{l.head.Process.Pid})
		f.add("thousandths-of-a-core", 1000*(cpu2-cpu).Seconds()/length.Seconds())
		if err := l.head.Process.Kill(); err != nil {
			b.Fatal(err)
		}
		l.head.Wait()
		f.add("back-s", took(func() { l.startHead(); l.within(backWithin, there) }))
	})
}

// An image of 100 MB comes to five nodes that have nothing of it, for a job on each:
// from the submission until all jobs are done, beside as many copies of it, one after
// the other, with cp and sync, which is the least that the disk has to write.
func BenchmarkImage(b *testing.B) {
	const nodes = 5
	size := min(setting(b, "BENCH_MIB", 95), 95) << 20
	rounds(b, 3, func(f *tally) {
		l := newLab(b, 0)
		image := filepath.Join(l.dir, "image")
		noise := make([]byte, size)
		rand.Read(noise)
		if err := os.WriteFile(image, noise, 0o644); err != nil {
			b.Fatal(err)
		}
		for i := range nodes {
			name := fmt.Sprintf("ws%d", i+1)
			file := filepath.Join(l.dir, name+".yaml")
			if err := os.WriteFile(file, fmt.Appendf(nil, "name: %s\ncpus: 1\n", name), 0o600); err != nil {
				b.Fatal(err)
			}
			l.start("dnoded", "-D", filepath.Join(l.dir, name), "-H", l.spool(), file)
		}
		l.until(func() bool { return l.connected() == nodes })
		copies := took(func() {
			for i := range nodes {
				to := fmt.Sprintf("%s.%d", image, i)
				l.shell(`cp "$0" "$1" && sync "$1"`, image, to)
			}
		})
		ours := took(func() {
			l.feed(numbers(nodes), "dsubmit", "-qw", "-b", "ns/image", "-R", "cpus=1", "-i", image, "--",
				"sh", "-c", fmt.Sprintf("touch %s/at.{}; until test -e %[1]s/at.1 -a -e %[1]s/at.2 -a -e %[1]s/at.3 -a -e %[1]s/at.4 -a -e %[1]s/at.5; do sleep 0.02; done", l.dir))
		})
		f.add("s", ours)
		f.add("MB/s", nodes*float64(size)/1e6/ours)
		f.add("cp-s", copies)
		f.add("of-cp", copies/ours)
		l.stop()
		if err := os.RemoveAll(l.dir); err != nil {
			b.Fatal(err)
		}
	})
}

// shell runs a line; args are $0 and so on.
func (l *lab) shell(line string, args ...string) {
	l.tb.Helper()
	c := l.command("sh", append([]string{"-c", line}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		l.tb.Fatalf("%s: %v: %s", strings.TrimSpace(line), err, out)
	}
}
