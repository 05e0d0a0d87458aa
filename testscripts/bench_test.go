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

func numbers(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintln(&s, i+1)
	}
	return s.String()
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
	fatal(spool.Init(dir, spool.Private))
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
	lines := numbers(n)
	rounds(b, 3, func(f *tally) {
		l := newLab(b, 0)
		s := took(func() { l.feed(lines, "dsubmit", "-q", "-b", "ns/many", "--", "solve", "--nu", "{}") })
		f.add("s", s)
		f.add("jobs/s", float64(n)/s)
		l.stop()
	})
}

// What dsched keeps in memory of each queued job, by the size of its process,
// before and after it has been started again on them, and how long that took.
func BenchmarkQueuedMemory(b *testing.B) {
	n := scale(b, 1_000_000)
	lines := numbers(n)
	rounds(b, 3, func(f *tally) {
		l := newLab(b, 0)
		empty := resident(b, l.head.Process.Pid, "VmRSS")
		a := func() float64 { return (resident(b, l.head.Process.Pid, "VmRSS") - empty) / float64(n) }
		l.feed(lines, "dsubmit", "-q", "-b", "ns/many", "--", "solve", "--nu", "{}")
		f.add("B/job", a())
		l.head.Process.Signal(syscall.SIGTERM)
		l.head.Wait()
		f.add("restart-s", took(l.startHead))
		f.add("B/job-restarted", a())
		l.stop()
	})
}

// 1 GiB in 1,000 files, from a node into the archive, against tar and zstd -1
// into a file that is synced.
func BenchmarkBigResult(b *testing.B) {
	const files = 1000
	size := setting(b, "BENCH_MIB", 1000) << 20 / files
	src := b.TempDir()
	fill(b, src, files, size)
	rounds(b, 3, func(f *tally) {
		packed := filepath.Join(b.TempDir(), "x")
		tar := took(func() {
			c := exec.Command("sh", "-c", `tar cf - -C "$0" . | zstd -q -1 -T1 > "$1" && sync "$1"`, src, packed)
			if out, err := c.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		})
		os.Remove(packed)
		l := newLab(b, 2)
		node := l.all[len(l.all)-1]
		l.run("dsubmit", "-qw", "-b", "ns/big", "--", "sh", "-c", "cp -r '"+src+"' out")
		ours, bytes := home(b, l, "ns/big"), float64(files*size)
		f.add("MB/s", bytes/1e6/ours)
		f.add("tar-MB/s", bytes/1e6/tar)
		f.add("of-tar", tar/ours)
		f.add("head-MiB", resident(b, l.head.Process.Pid, "VmHWM")/(1<<20))
		f.add("node-MiB", resident(b, node.Process.Pid, "VmHWM")/(1<<20))
		l.stop()
		if err := os.RemoveAll(l.dir); err != nil {
			b.Fatal(err)
		}
	})
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
	l := newLab(b, 0)
	l.head.Process.Signal(syscall.SIGTERM)
	l.head.Wait()
	finished(b, l.spool(), n)
	restart := took(l.startHead)
	rounds(b, 3, func(f *tally) {
		f.add("restart-s", restart)
		f.add("sum-s", took(func() { l.run("dquery", "-s", "ns/over") }))
		f.add("filtered-s", took(func() { l.run("dquery", "ns/over", "exit=3") }))
		f.add("all-s", took(func() {
			if got := strings.Count(l.run("dquery", "ns/over"), "\n"); got != n {
				b.Fatalf("%d lines for %d jobs", got, n)
			}
		}))
		f.add("head-MiB", resident(b, l.head.Process.Pid, "VmHWM")/(1<<20))
	})
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
		if i%min(n, 1000) == min(n, 1000)-1 {
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
