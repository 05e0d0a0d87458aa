package testscripts

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A desk at rest, with the supervisors of four slots, for a minute (BENCH_REST sets
// other seconds): what dnoded and they have of the memory and of a core, and what
// they write to the disk. A supervisor's share of the memory is its proportional
// part. The limits: 20 MiB, 4 MiB a slot, one thousandth of a core, no byte.
func BenchmarkRest(b *testing.B) {
	const slots = 4
	for b.Loop() {
		l := newLab(b, slots)
		daemon := l.all[len(l.all)-1].Process.Pid
		gate := filepath.Join(l.dir, "begun")
		c := l.command("dsubmit", "-qw", "-b", "ns/rest", "-R", "cpus=1", "--", "sh", "-c",
			fmt.Sprintf("touch %s.{}; until test -e %[1]s.1 -a -e %[1]s.2 -a -e %[1]s.3 -a -e %[1]s.4; do sleep 0.1; done", gate))
		c.Stdin = strings.NewReader(numbers(slots))
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		idle := childrenOf(b, daemon)
		if len(idle) < slots {
			b.Fatalf("%d supervisors, of %d slots", len(idle), slots)
		}
		all := append([]int{daemon}, idle...)
		length := time.Duration(setting(b, "BENCH_REST", 60)) * time.Second
		time.Sleep(5 * time.Second) // what the jobs left is cleared away
		cpu, wrote := spent(b, all)
		time.Sleep(length)
		cpu2, wrote2 := spent(b, all)
		share := 0.0
		for _, pid := range idle {
			share += memoryOf(b, pid, "Pss") / float64(len(idle))
		}
		b.ReportMetric(memoryOf(b, daemon, "Rss"), "MiB-dnoded")
		b.ReportMetric(share, "MiB-a-slot")
		b.ReportMetric(memoryOf(b, idle[0], "Private_Clean")+memoryOf(b, idle[0], "Private_Dirty"), "private-MiB-a-slot")
		b.ReportMetric(1000*(cpu2-cpu).Seconds()/length.Seconds(), "thousandths-of-a-core")
		b.ReportMetric((cpu2-cpu).Seconds()*float64(time.Hour/length), "cpu-s/h")
		b.ReportMetric(float64(wrote2-wrote), "B-written")
		l.stop()
	}
}

// childrenOf is the processes that a process has started and that live.
func childrenOf(b *testing.B, pid int) (list []int) {
	b.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		text, err := os.ReadFile(t)
		if err != nil {
			b.Fatal(err)
		}
		for f := range strings.FieldsSeq(string(text)) {
			child, _ := strconv.Atoi(f)
			list = append(list, child)
		}
	}
	return list
}

// spent is the time that processes ran, and the bytes that they had written.
func spent(b *testing.B, pids []int) (cpu time.Duration, wrote int64) {
	b.Helper()
	for _, pid := range pids {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if len(threads) == 0 {
			b.Fatalf("process %d is gone, or the kernel does not count", pid)
		}
		for _, t := range threads {
			text, _ := os.ReadFile(t)
			first, _, _ := strings.Cut(string(text), " ")
			ns, _ := strconv.ParseInt(first, 10, 64)
			cpu += time.Duration(ns)
		}
		wrote += int64(numberIn(b, fmt.Sprintf("/proc/%d/io", pid), "write_bytes"))
	}
	return cpu, wrote
}

// memoryOf is a figure of a process's memory in MiB.
func memoryOf(b *testing.B, pid int, name string) float64 {
	return numberIn(b, fmt.Sprintf("/proc/%d/smaps_rollup", pid), name) / 1024
}

func numberIn(b *testing.B, file, name string) float64 {
	b.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(l, name+":"); ok {
			n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 64)
			return n
		}
	}
	b.Fatalf("%s does not tell %s", file, name)
	return 0
}
