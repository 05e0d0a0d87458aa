package head

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/suite"
	"distribute/lib/wire"
	"distribute/spool"
)

// logMany writes ten records for each job of a batch: it is handed back four
// times, and then it fails. The last job is left waiting.
func logMany(t *testing.T, store *spool.Head, b *spool.Batch, jobs int) {
	t.Helper()
	one := 1
	for i := range jobs - 1 {
		name := fmt.Sprintf("job%d", i)
		for try := 1; try <= 5; try++ {
			rec := job.Record{Kind: job.KindStart, Job: name, Attempt: job.NewToken(), Try: try, Node: "ws1", CPUs: 1}
			store.Append(b, &rec)
			end := job.Record{Kind: job.KindBack, Job: name, Attempt: rec.Attempt, Try: try, Node: "ws1", Outcome: job.Outcome{Reason: "not started"}}
			if try == 5 {
				end.Kind, end.Outcome = job.KindFailed, job.Outcome{Exit: &one}
			}
			store.Append(b, &end)
		}
		if i%10_000 == 0 {
			if err := store.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := store.Commit(); err != nil {
		t.Fatal(err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A batch with a long log costs a head that starts so much for each attempt of
// which its node may not have heard all, and no more; a few bytes a job once the
// node has said what it has; and nothing, not even a look, when the batch is
// closed.
func TestJ34ManyJobs(t *testing.T) {
	jobs := suite.Size(5000, 50_000)
	h := newState(t)
	names := make([]string, jobs)
	for i := range names {
		names[i] = fmt.Sprintf("job%d", i)
	}
	b := made(t, h, "ns/b", names...)
	logMany(t, h.store, b, jobs)
	dir := h.spool.Dir()
	b.Close()
	h.store.Close()
	names = nil

	empty := heap()
	start := func() *Head {
		t.Helper()
		h, err := Open(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.store.Close() })
		return h
	}
	h = start()
	if got := (heap() - empty) / (5 * int64(jobs)); got > 400 {
		t.Errorf("a head that starts needs %d bytes for each settled attempt", got)
	}
	h.nodeUp(&session{name: "ws1", out: newQueue[wire.Message](10), log: h.log, conn: wire.New(nil)},
		&wire.Hello{Boot: "b", State: "s"}, node.Offer{})
	h.apply(sched.ListEnd{Session: h.nodes.last})
	h.ticks.actions = nil
	if got := (heap() - empty) / int64(jobs); got > 100 {
		t.Errorf("it needs %d bytes for each job that is over", got)
	}
	n := h.byID["ns/b"]
	if s := h.machine.State(sched.Ref{Batch: n, Job: uint32(jobs - 1)}); s != job.Queued || h.machine.State(sched.Ref{Batch: n}) != job.Failed {
		t.Errorf("the last job is %s", s)
	}
	rec := job.Record{Kind: job.KindCancelled, Job: fmt.Sprintf("job%d", jobs-1), By: "ana", Request: job.NewToken()}
	h.store.Append(h.batches[n].Batch, &rec)
	if err := h.store.Commit(); err != nil {
		t.Fatal(err)
	}
	h.store.CloseBatch(h.batches[n].Batch)
	if err := h.store.Commit(); err != nil {
		t.Fatal(err)
	}
	h.forget(n)
	h.store.Close()

	// Nobody reads what is closed: nobody sees that it is damaged.
	if err := os.WriteFile(filepath.Join(dir, "batches/ns/b/log.jsonl"), []byte("damaged\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	before := heap()
	h = start()
	if got := heap() - before; got > 1<<20 || len(h.batches) > 0 {
		t.Errorf("a closed batch costs %d bytes, and %d are open", got, len(h.batches))
	}
}
