package testscripts

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/spool"
)

// The benchmarks of whole batches run each thing once, beside the limit of the
// machine or a peer in the same run, and report ratios: make bench.

func took(f func()) float64 {
	began := time.Now()
	f()
	return time.Since(began).Seconds()
}

// scale is how many jobs a benchmark has; BENCH_JOBS sets another number.
func scale(b *testing.B, n int) int { return setting(b, "BENCH_JOBS", n) }

// setting is a number of the environment, or else n.
func setting(b *testing.B, name string, n int) int {
	if s := os.Getenv(name); s != "" {
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
		l.head.Process.Signal(syscall.SIGTERM)
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

// Queries over a batch of which every job is over, with its head up: how it
// stands, and a line a job. Nothing is in its archive: queries read logs only.
func BenchmarkQueryFinished(b *testing.B) {
	n := scale(b, 1_000_000)
	for b.Loop() {
		l := newLab(b, 0)
		l.head.Process.Signal(syscall.SIGTERM)
		l.head.Wait()
		finished(b, l.spool(), n)
		l.startHead()
		sum := took(func() { l.run("dquery", "-s", "ns/over") })
		few := took(func() { l.run("dquery", "ns/over", "exit=3") })
		all := took(func() {
			if got := strings.Count(l.run("dquery", "ns/over"), "\n"); got != n {
				b.Fatalf("%d lines for %d jobs", got, n)
			}
		})
		b.ReportMetric(sum, "sum-s")
		b.ReportMetric(few, "filtered-s")
		b.ReportMetric(all, "all-s")
		b.ReportMetric(resident(b, l.head.Process.Pid, "VmHWM")/(1<<20), "head-MiB")
		b.ReportMetric(0, "ns/op")
		l.stop()
	}
}

// finished puts a batch of n jobs that are over into a spool.
func finished(b *testing.B, dir string, n int) {
	fatal := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	s, err := spool.Open(dir)
	fatal(err)
	h, err := s.Lock()
	fatal(err)
	defer h.Close()
	_, _, err = h.Load()
	fatal(err)
	sub, err := h.Begin(job.NewToken(), "ns/over", "ana", os.Getuid())
	fatal(err)
	fatal(sub.Spec(job.Spec{Kind: job.Command}))
	for i := range n {
		fatal(sub.AddJob(&job.Job{Name: strconv.Itoa(i), Run: []string{"solve", strconv.Itoa(i)}}))
	}
	batch, err := sub.Finish(false)
	fatal(err)
	defer batch.Close()
	zero, three := 0, 3
	for i := range n {
		end, exit := job.KindDone, &zero
		if i%1000 == 999 {
			end, exit = job.KindFailed, &three
		}
		name := strconv.Itoa(i)
		h.Append(batch, &job.Record{Kind: job.KindStart, Job: name, Attempt: numbered(i), Try: 1, Node: "ws1", CPUs: 1})
		h.Append(batch, &job.Record{Kind: end, Job: name, Attempt: numbered(i), Try: 1, Node: "ws1",
			Outcome: job.Outcome{Exit: exit, Started: time.Now(), Ended: time.Now(), Runtime: 12}})
		if i%10_000 == 0 {
			fatal(h.Commit())
		}
	}
	fatal(h.Commit())
	h.CloseBatch(batch)
	fatal(h.Commit())
}
