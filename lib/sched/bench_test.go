package sched

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

const million = 1_000_000

func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkQueued tells the memory of a queued job, and the time to add one.
func BenchmarkQueued(b *testing.B) {
	for b.Loop() {
		before := heap()
		m := New(Config{})
		m.step(Loaded{}, 0)
		m.step(AddBatch{Batch: 1, Jobs: million, Spec: single}, 0)
		b.ReportMetric(float64(heap()-before)/million, "bytes/job")
		b.ReportMetric(float64(m.Counts(1)[job.Queued]), "jobs")
	}
}

// BenchmarkDone tells the memory of a job that is done, in a batch that is not.
func BenchmarkDone(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		m := full(1, n+1)
		before := heap()
		for i := 1; i <= n; i++ {
			finish(m, i, 1)
		}
		b.ReportMetric((float64(heap())-float64(before))/n, "bytes/job")
		runtime.KeepAlive(m)
	}
}

// full is a machine with so many nodes, all busy, and so many jobs in a batch
// that is the middle one of many.
func full(nodes, jobs int) *Machine { return fullOf(nodes, jobs, single) }

// fullOf is full with jobs of another spec.
func fullOf(nodes, jobs int, spec *job.Spec) *Machine {
	drawn := 0
	m := New(Config{Token: func() job.Token { drawn++; return tok(drawn) }})
	m.step(Loaded{}, 0)
	m.step(AddBatch{Batch: 2, Jobs: jobs, Spec: spec}, 0)
	m.step(AddBatch{Batch: 3, Jobs: 1, Spec: py}, 0)
	for i := range nodes {
		s := uint64(i + 1)
		m.step(up(s, fmt.Sprint("ws", i), 1), 0)
		m.step(ListEnd{s}, 0)
		m.step(phase(s, i+1, job.PhaseRunning), 0)
	}
	return m
}

// finish ends the n-th attempt, which makes place for another.
func finish(m *Machine, n int, session uint64) {
	m.step(ended(session, n, exited(0, "m")), 0)
	m.step(staged(n, "m"), 0)
	m.step(gone(session, n), 0)
}

// BenchmarkEvent is a job's whole end (three events: ended, which starts the
// next job, staged, gone) at a head with 1,000 nodes and a million jobs queued.
func BenchmarkEvent(b *testing.B) {
	m := full(1000, million)
	n := 0
	for b.Loop() {
		n++
		finish(m, n, uint64((n-1)%1000+1))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/3, "ns/event")
}

// BenchmarkAgain is a job's failure (two events) at such a head, where each is tried
// again: half of the attempts are a second one, on another node. All nodes where jobs
// failed are busy in between, so that as many jobs wait for another one as there are.
func BenchmarkAgain(b *testing.B) {
	m := fullOf(1000, million, &job.Spec{Kind: job.Command, Retries: 1, Resources: job.Resources{CPUs: 1}})
	n, most := 0, 0
	for b.Loop() {
		n++
		session := m.live[must(tok(n))].peer.Session
		m.step(ended(session, n, exited(1, "")), 0)
		m.step(gone(session, n), 0)
		most = max(most, len(m.batches[2].Avoiding))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/event")
	b.ReportMetric(float64(most), "queues")
}

// BenchmarkTurns is the end of a job at a head with 1,000 nodes and a million jobs of
// 100 owners, in 1,000 batches that ask for four different amounts, a tenth of them
// with max_running, so that nodes are kept for the larger ones all the time.
func BenchmarkTurns(b *testing.B) {
	ends(b, 1, func(i int) Ask { return Ask{CPUs: []uint16{1, 2, 4, 0}[i/7%4]} })
}

// BenchmarkClasses is the same where they ask for 50 different amounts, for the end of one
// job, and of a hundred at once.
func BenchmarkClasses(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ends(b, n, func(i int) Ask { return Ask{CPUs: uint16(i%10 + 1), Memory: int64(i/10%5) << 30} })
		})
	}
}

// ends is the end of so many jobs at once, again and again, at a head where the i-th batch
// asks for so much.
func ends(b *testing.B, atOnce int, asks func(i int) Ask) {
	drawn, now := 0, time.Duration(0)
	m := New(Config{Token: func() job.Token { drawn++; return tok(drawn) }})
	var runs []Start
	give := func(evs ...Event) (starts int) {
		take := func(actions []Action) {
			for _, a := range actions {
				if s, ok := a.(Start); ok {
					runs = append(runs, s)
					starts++
				}
			}
		}
		for _, ev := range evs {
			take(m.Apply(ev, now))
		}
		take(m.Decide(now))
		return starts
	}
	give(Loaded{})
	for i := range uint32(1000) {
		ask := asks(int(i))
		add := asksFor(i+1, int(i%100), million/1000, int(ask.CPUs))
		add.Spec.Resources.Memory = ask.Memory
		add.Spec.Priority, add.Spec.MaxRunning = int(i%3), []int{0, 20}[(i+9)%10/9]
		give(add)
	}
	for i := range 1000 {
		s := uint64(i + 1)
		give(NodeUp{Session: s, Node: node.Name(fmt.Sprint("ws", i)), Boot: "b1", State: "s1", Offer: node.Offer{CPUs: 16, Memory: 32 << 30}}, ListEnd{s})
	}
	random := rand.New(rand.NewPCG(1, 2))
	var each []time.Duration
	starts := 0
	for b.Loop() {
		now += 20 * time.Millisecond
		var ended, gone []Event
		for range atOnce {
			i := random.IntN(len(runs))
			s := runs[i]
			runs[i] = runs[len(runs)-1]
			runs = runs[:len(runs)-1]
			ended, gone = append(ended, Ended{s.Session, s.Attempt, exited(1, "")}), append(gone, Gone{s.Session, s.Attempt})
		}
		began := time.Now()
		starts += give(ended...)
		each = append(each, time.Since(began))
		starts += give(gone...)
	}
	slices.Sort(each)
	b.ReportMetric(float64(each[len(each)/2].Nanoseconds()), "ns/median")
	b.ReportMetric(float64(each[len(each)*99/100].Nanoseconds()), "ns/99%")
	b.ReportMetric(float64(each[len(each)-1].Nanoseconds()), "ns/worst")
	b.ReportMetric(float64(starts)/b.Elapsed().Seconds(), "starts/s")
	b.ReportMetric(float64(len(m.lab.Kept)), "kept")
}

// BenchmarkStarts is a batch that comes to 1,000 nodes with GPUs, of which 500 jobs start
// at once: of those that need none, a part of one each, and two whole ones.
func BenchmarkStarts(b *testing.B) {
	for _, gpus := range []job.GPUs{0, 500, 2000} {
		b.Run(gpus.Words("gpu"), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				drawn := 0
				m := New(Config{Token: func() job.Token { drawn++; return tok(drawn) }})
				m.step(Loaded{}, 0)
				for i := range 1000 {
					s := uint64(i + 1)
					m.step(withGPUs(s, fmt.Sprint("ws", i), indexed(8)...), 0)
					m.step(ListEnd{s}, 0)
				}
				b.StartTimer()
				m.step(asksGPUs(1, 500, gpus), 0)
				if started := m.Counts(1)[job.Running]; started != 500 {
					b.Fatalf("%d are started", started)
				}
			}
		})
	}
}

// BenchmarkOther is single events at the same head: the dear ones, each of
// which looks at all nodes.
func BenchmarkOther(b *testing.B) {
	for _, c := range []struct {
		name string
		each func(m *Machine, i int)
	}{
		{"tick", func(m *Machine, _ int) { m.step(Tick{}, 0) }},
		{"heard", func(m *Machine, i int) { m.step(Heard{uint64(i%1000 + 1)}, 0) }},
		{"cancel and retry", func(m *Machine, i int) {
			ref := Ref{2, uint32(million - 1 - i)}
			m.step(Cancel{Ref: ref, By: "u"}, 0)
			m.step(Retry{Ref: ref, By: "u"}, 0)
		}},
		{"add and drop a batch", func(m *Machine, i int) {
			m.step(AddBatch{Batch: 1, Jobs: 10, Spec: single}, 0)
			m.step(BatchGone{1}, 0)
		}},
		{"node down and up", func(m *Machine, i int) {
			s := uint64(i%1000 + 1)
			m.step(NodeDown{s}, 0)
			m.step(up(s, fmt.Sprint("ws", i%1000), 1), 0)
			m.step(item(s, i%1000+1, job.PhaseRunning), 0)
			m.step(ListEnd{s}, 0)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := full(1000, million)
			i := 0
			for b.Loop() {
				c.each(m, i%900_000)
				i++
			}
		})
	}
}

// BenchmarkReplay folds two records a job, as at a start of the head with a
// batch of which nearly all is done.
func BenchmarkReplay(b *testing.B) {
	const n = 500_000
	exit := 0
	for b.Loop() {
		before := heap()
		m := New(Config{})
		m.step(AddBatch{Batch: 1, Jobs: n + 1, Spec: single, Replay: true}, 0)
		for i := range n {
			ref, t, node := Ref{1, uint32(i)}, tok(i+1), fmt.Sprint("ws", i%100)
			for _, rec := range []job.Record{
				{Kind: job.KindStart, Attempt: t, Try: 1, Node: node, CPUs: 1},
				{Kind: job.KindDone, Attempt: t, Try: 1, Node: node, Manifest: "m", Outcome: job.Outcome{Exit: &exit}},
			} {
				if err := m.Replay(ref, &rec); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric((float64(heap())-float64(before))/n, "bytes/job")
		runtime.KeepAlive(m)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2/n, "ns/record")
}

// BenchmarkNeeds tells the memory of a queued job that needs the one before it, and
// of one of which all need the first, and the time to add one.
func BenchmarkNeeds(b *testing.B) {
	names, chain, star := make([]string, million), make([][]string, million), make([][]string, million)
	for i := range million {
		names[i] = fmt.Sprint("j", i)
		if i > 0 {
			chain[i], star[i] = []string{names[i-1]}, []string{"j0"}
		}
	}
	for name, needs := range map[string][][]string{"chain": chain, "star": star} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				n, _ := job.ResolveNeeds(names, needs)
				m := New(Config{})
				m.step(Loaded{}, 0)
				m.step(AddBatch{Batch: 1, Jobs: million, Spec: single, Needs: n}, 0)
				b.ReportMetric(float64(heap()-before)/million, "bytes/job")
				runtime.KeepAlive(m)
			}
		})
	}
}

// BenchmarkGateOpens is the end of a job that a million others have waited for.
func BenchmarkGateOpens(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		m := New(Config{})
		m.step(Loaded{}, 0)
		m.step(AddBatch{Batch: 1, Jobs: million, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}, Canary: 1}}, 0)
		m.step(up(1, "ws1", 1), 0)
		m.step(ListEnd{1}, 0)
		a := m.batches[1].of[0]
		m.step(Ended{1, a.Token, exited(0, "m")}, 0)
		b.StartTimer()
		m.step(Staged{Attempt: a.Token, Manifest: "m"}, 0)
	}
}
