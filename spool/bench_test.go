package spool

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"distribute/lib/job"
)

// fillMany adds n jobs to a submission.
func fillMany(b *testing.B, s *Submission, n int) {
	b.Helper()
	if err := s.Spec(plain); err != nil {
		b.Fatal(err)
	}
	args := []string{"./solve", "--nu", "0.1", "-n", ""}
	for i := range n {
		args[4] = fmt.Sprint(i)
		if err := s.AddJob(&job.Job{Name: fmt.Sprintf("nu=0.1_n=%d", i), Run: args}); err != nil {
			b.Fatal(err)
		}
	}
}

// A batch of 100,000 jobs, from the first to durable.
func BenchmarkSubmit100000(b *testing.B) {
	h := newHead(b)
	for i := 0; b.Loop(); i++ {
		s, err := h.Begin(job.NewToken(), job.BatchID(fmt.Sprintf("ns/b%d", i)), "ana", os.Getuid())
		if err != nil {
			b.Fatal(err)
		}
		fillMany(b, s, 100_000)
		batch, err := s.Finish(false)
		if err != nil {
			b.Fatal(err)
		}
		batch.Close()
	}
}

// The start of a head on a batch of 300,000 jobs with three records each, and
// what stays in memory of each job.
func BenchmarkLoad(b *testing.B) {
	const n = 300_000
	h := newHead(b)
	s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
	if err != nil {
		b.Fatal(err)
	}
	fillMany(b, s, n)
	batch, err := s.Finish(false)
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("nu=0.1_n=%d", i)
		for k, kind := range []job.Kind{job.KindStart, job.KindBack, job.KindStart} {
			h.Append(batch, &job.Record{Kind: kind, Job: name, Attempt: "00112233445566778899aabbccddeeff", Try: k + 1, Node: "ws1", CPUs: 1})
		}
	}
	if err := h.Commit(); err != nil {
		b.Fatal(err)
	}
	batch.Close()
	h.Close()
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		h, open, _ := loadHead(b, h.Dir())
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/n, "bytes/job")
		count := 0
		if err := open[0].Replay(func(int, *job.Record) error { count++; return nil }); err != nil || count != 3*n {
			b.Fatal(count, err)
		}
		b.ReportMetric(float64(readRows(b, h.Spool, n))/n, "bytes/row")
		open[0].Close()
		h.Close()
	}
}

// readRows reads all rows and returns how much more is in use behind the first.
func readRows(b *testing.B, s *Spool, n int) (used int64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	rows := 0
	err := s.Read("ns/b", -1, func(*job.Row) error {
		if rows == 0 {
			runtime.GC()
			runtime.ReadMemStats(&after)
		}
		rows++
		return nil
	})
	if err != nil || rows != n {
		b.Fatal(rows, err)
	}
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}
