package testscripts

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/spool"
)

// The benchmarks of whole batches run each thing once, beside the limit of the
// machine or a peer in the same run, and report ratios: make bench.

// A lab is a head and nodes on this machine, in directories of its own.
type lab struct {
	b    *testing.B
	dir  string
	head *exec.Cmd
	all  []*exec.Cmd
}

// newLab starts a head with one node of so many cpus; none with 0.
func newLab(b *testing.B, cpus int) *lab {
	l := &lab{b: b, dir: b.TempDir()}
	b.Cleanup(l.stop)
	l.run("dadm", "init", l.spool())
	l.startHead()
	if cpus > 0 {
		file := filepath.Join(l.dir, "node.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, "name: ws1\ncpus: %d\n", cpus), 0o600); err != nil {
			b.Fatal(err)
		}
		l.start("dnoded", "-D", filepath.Join(l.dir, "node"), "-H", l.spool(), file)
		l.until(func() bool {
			out, _ := l.command("dquery", "-N").Output() // 1: no node yet
			return strings.Contains(string(out), "ws1\tidle")
		})
	}
	return l
}

func (l *lab) spool() string { return filepath.Join(l.dir, "spool") }

func (l *lab) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = l.dir
	c.Env = append(os.Environ(), "DHEAD="+l.spool(), "HOME="+l.dir)
	return c
}

func (l *lab) run(name string, args ...string) string {
	l.b.Helper()
	c := l.command(name, args...)
	var talk strings.Builder
	c.Stderr = &talk
	out, err := c.Output()
	if err != nil {
		l.b.Fatalf("%s %q: %v\n%s", name, args, err, talk.String())
	}
	return string(out)
}

func (l *lab) start(name string, args ...string) *exec.Cmd {
	c := l.command(name, args...)
	log, err := os.OpenFile(filepath.Join(l.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.b.Fatal(err)
	}
	c.Stderr = log
	if err := c.Start(); err != nil {
		l.b.Fatal(err)
	}
	l.all = append(l.all, c)
	return c
}

func (l *lab) startHead() {
	l.head = l.start("dsched", "-S", l.spool())
	l.until(func() bool {
		err := l.command("dquery", "-N").Run()
		var exit *exec.ExitError // 1: it answers, and has no node
		return err == nil || errors.As(err, &exit) && exit.ExitCode() == 1
	})
}

func (l *lab) until(ready func() bool) {
	l.b.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ready(); <-tick.C {
		if time.Now().After(end) {
			l.b.Fatal("a minute has passed")
		}
	}
}

func (l *lab) stop() {
	for _, c := range l.all {
		c.Process.Signal(os.Interrupt)
		c.Wait()
	}
}

// resident reads a line of /proc/PID/status in bytes: VmRSS, VmHWM.
func resident(b *testing.B, pid int, which string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, which+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(n) * 1024
		}
	}
	b.Fatalf("no %s of process %d", which, pid)
	return 0
}

func took(f func()) float64 {
	began := time.Now()
	f()
	return time.Since(began).Seconds()
}

// scale is how many jobs a benchmark has; BENCH_JOBS sets another number.
func scale(b *testing.B, n int) int {
	if s := os.Getenv("BENCH_JOBS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

func numbers(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintln(&s, i+1)
	}
	return s.String()
}

// Jobs that do nothing, from submit to archived on two slots, against xargs
// -P2, which archives nothing, and against the slower of the two things that
// have to be done for each: fork and exec, and publishing a result durably.
func BenchmarkShortJobs(b *testing.B) {
	n := scale(b, 10_000)
	for b.Loop() {
		xargs := took(func() {
			c := exec.Command("xargs", "-P2", "-n1", "true")
			c.Stdin = strings.NewReader(numbers(n))
			if err := c.Run(); err != nil {
				b.Fatal(err)
			}
		})
		forks := took(func() { forkExec(b, n) })
		publish := took(func() { publishAlone(b, n) })
		l := newLab(b, 2)
		ours := took(func() {
			c := l.command("dsubmit", "-qw", "-R", "cpus=1", "-b", "ns/true", "--", "true", "{}")
			c.Stdin = strings.NewReader(numbers(n))
			if out, err := c.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		})
		l.stop()
		jobs := float64(n)
		b.ReportMetric(jobs/ours, "jobs/s")
		b.ReportMetric(jobs/xargs, "xargs/s")
		b.ReportMetric(jobs/forks, "forks/s")
		b.ReportMetric(jobs/publish, "publish/s")
		b.ReportMetric(xargs/ours, "of-xargs")
		b.ReportMetric(max(forks, publish)/ours, "of-limit")
		b.ReportMetric(0, "ns/op")
	}
}

// forkExec runs true n times, two at a time.
func forkExec(b *testing.B, n int) {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range n / 2 {
				if err := exec.Command("true").Run(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// publishAlone stages, commits and publishes n results of one small file, with
// nothing else going on: two at a time, a commit for what is there.
func publishAlone(b *testing.B, n int) {
	dir := filepath.Join(b.TempDir(), "spool")
	fatal := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	fatal(spool.Init(dir))
	s, err := spool.Open(dir)
	fatal(err)
	h, err := s.Lock()
	fatal(err)
	defer h.Close()
	_, _, err = h.Load()
	fatal(err)
	sub, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
	fatal(err)
	fatal(sub.Spec(job.Spec{Kind: job.Command}))
	for i := range n {
		fatal(sub.AddJob(&job.Job{Name: strconv.Itoa(i), Run: []string{"true"}}))
	}
	batch, err := sub.Finish(false)
	fatal(err)
	defer batch.Close()

	text := []byte("out\n")
	m := pack.Manifest{{Path: "x_output.txt", Type: pack.File, Size: int64(len(text)), Mode: 0o640,
		Time: time.Unix(0, 0).UTC(), Sum: sum(text)}}
	staged := make(chan int, 64)
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := w; i < n; i += 2 {
				t := numbered(i)
				root, err := h.Stage(batch, t)
				if err == nil {
					err = root.WriteFile("x_output.txt", text, 0o640)
					root.Close()
				}
				if err == nil {
					err = h.Seal(batch, t, m)
				}
				if err != nil {
					b.Error(err)
				}
				staged <- i
			}
		})
	}
	go func() { wg.Wait(); close(staged) }()
	zero := 0
	for i := range staged {
		some := []int{i}
		for len(staged) > 0 {
			some = append(some, <-staged)
		}
		for _, i := range some {
			for _, rec := range []*job.Record{
				{Kind: job.KindStart, Job: strconv.Itoa(i), Attempt: numbered(i), Try: 1, Node: "ws1", CPUs: 1},
				{Kind: job.KindDone, Job: strconv.Itoa(i), Attempt: numbered(i), Try: 1, Node: "ws1", Outcome: job.Outcome{Exit: &zero}, Manifest: m.Sum()},
			} {
				h.Append(batch, rec)
			}
		}
		fatal(h.Commit())
		for _, i := range some {
			fatal(h.Publish(batch, strconv.Itoa(i), numbered(i)))
		}
		fatal(h.SyncPublished())
	}
}

func numbered(i int) job.Token { return job.Token(fmt.Sprintf("%032x", i)) }

// 100,000 jobs submitted, until their id is printed.
func BenchmarkSubmit(b *testing.B) {
	n := scale(b, 100_000)
	for b.Loop() {
		l := newLab(b, 0)
		lines := numbers(n)
		s := took(func() {
			c := l.command("dsubmit", "-q", "-b", "ns/many", "--", "solve", "--nu", "{}")
			c.Stdin = strings.NewReader(lines)
			if out, err := c.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		})
		b.ReportMetric(s, "s")
		b.ReportMetric(float64(n)/s, "jobs/s")
		b.ReportMetric(0, "ns/op")
		l.stop()
	}
}

// What dsched keeps in memory of each queued job, by the size of its process,
// after it has been started again on them.
func BenchmarkQueuedMemory(b *testing.B) {
	n := scale(b, 1_000_000)
	for b.Loop() {
		l := newLab(b, 0)
		empty := resident(b, l.head.Process.Pid, "VmRSS")
		c := l.command("dsubmit", "-q", "-b", "ns/many", "--", "solve", "--nu", "{}")
		c.Stdin = strings.NewReader(numbers(n))
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		b.ReportMetric((resident(b, l.head.Process.Pid, "VmRSS")-empty)/float64(n), "B/job")
		l.head.Process.Signal(os.Interrupt)
		l.head.Wait()
		restart := took(l.startHead)
		b.ReportMetric(restart, "restart-s")
		b.ReportMetric((resident(b, l.head.Process.Pid, "VmRSS")-empty)/float64(n), "B/job-restarted")
		b.ReportMetric(0, "ns/op")
		l.stop()
	}
}

// 1 GiB in 1,000 files, from a node into the archive, against tar and zstd -1
// into a file that is synced.
func BenchmarkBigResult(b *testing.B) {
	const files, size = 1000, 1 << 20
	src := b.TempDir()
	fill(b, src, files, size)
	for b.Loop() {
		tar := took(func() {
			c := exec.Command("sh", "-c", `tar cf - -C "$0" . | zstd -q -1 -T1 > "$1" && sync "$1"`, src, filepath.Join(b.TempDir(), "x"))
			if out, err := c.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		})
		l := newLab(b, 2)
		node := l.all[len(l.all)-1]
		l.run("dsubmit", "-qw", "-b", "ns/big", "--", "sh", "-c", "cp -r '"+src+"' out")
		ours := home(b, l, "ns/big")
		b.ReportMetric(files*size/1e6/ours, "MB/s")
		b.ReportMetric(files*size/1e6/tar, "tar-MB/s")
		b.ReportMetric(tar/ours, "of-tar")
		b.ReportMetric(resident(b, l.head.Process.Pid, "VmHWM")/(1<<20), "head-MiB")
		b.ReportMetric(resident(b, node.Process.Pid, "VmHWM")/(1<<20), "node-MiB")
		b.ReportMetric(0, "ns/op")
		l.stop()
	}
}

// fill makes files of which about half can be squeezed out.
func fill(b *testing.B, dir string, files, size int) {
	r := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, size)
	for i := range files {
		for j := 0; j < size; j += 16 {
			copy(buf[j:], fmt.Sprintf("%16.9e", r.Float64()))
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("field_%04d.txt", i)), buf, 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

// home is how long after the end of a batch's only job its result was safe, in
// seconds, by the records in its log.
func home(b *testing.B, l *lab, batch string) float64 {
	f, err := os.Open(filepath.Join(l.spool(), "batches", batch, "log.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var rec job.Record
		if json.Unmarshal(s.Bytes(), &rec) == nil && rec.Kind == job.KindDone {
			return rec.Time.Sub(rec.Ended).Seconds()
		}
	}
	b.Fatal("the job is not done")
	return 0
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
