package sched

import (
	"math/rand/v2"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/explain"
	"distribute/lib/sched/policy"
	"distribute/lib/suite"
)

// asksFor is a batch of one owner whose jobs take so many cpus each; 0 is a whole node.
func asksFor(batch uint32, owner, jobs, cpus int) AddBatch {
	return AddBatch{Batch: batch, Owner: owner, Jobs: jobs, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: cpus}}}
}

// twoNodes have two cpus each, all of them busy with jobs of one owner, who has more.
var twoNodes = []step{
	{0, Loaded{}, ""},
	{0, up(1, "ws1", 2), "node ws1 s1"},
	{0, ListEnd{1}, ""},
	{0, asksFor(1, 1, 3, 1), "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
	{5, up(2, "ws2", 2), "node ws2 s1"},
	{5, ListEnd{2}, "start 1/2 a3~1 ws2/1; START 2 1/2 a3"},
	{6, asksFor(2, 1, 1, 1), "start 2/0 a4~1 ws2/1; START 2 2/0 a4"},
	{6, asksFor(3, 1, 9, 1), ""},
}

var reservations = ruleBook{
	{"a node is kept for a job that needs all of it, and the others are filled", twoNodes, []step{
		{10, asksFor(4, 2, 1, 0), ""},
		{10, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 3/0 a5~1 ws1/1; START 1 3/0 a5"},
		{11, ended(2, 3, exited(1, "")), "failed 1/2 a3; HAVE 2 a3"},
		{12, ended(1, 2, exited(1, "")), "failed 1/1 a2; HAVE 1 a2; start 3/1 a6~1 ws1/1; START 1 3/1 a6"},
		{13, ended(2, 4, exited(1, "")), "failed 2/0 a4; HAVE 2 a4; start 4/0 a7~1 ws2/2; START 2 4/0 a7"},
		{14, ended(2, 7, exited(1, "")), "failed 4/0 a7; HAVE 2 a7; start 3/2 a8~1 ws2/1; START 2 3/2 a8; start 3/3 a9~1 ws2/1; START 2 3/3 a9"},
	}},
	{"it is free again when the job is cancelled", twoNodes, []step{
		{10, asksFor(4, 2, 1, 0), ""},
		{11, ended(2, 3, exited(1, "")), "failed 1/2 a3; HAVE 2 a3"},
		{12, Cancel{Ref: Ref{4, 0}, By: "u"}, "cancelled 4/0; start 3/0 a5~1 ws2/1; START 2 3/0 a5; CLOSED 4"},
	}},
	{"or when the node is away, and another is kept", twoNodes, []step{
		{10, asksFor(4, 2, 1, 0), ""},
		{11, ended(2, 3, exited(1, "")), "failed 1/2 a3; HAVE 2 a3"},
		{12, NodeDown{2}, ""},
		{13, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1"},
		{14, ended(1, 2, exited(1, "")), "failed 1/1 a2; HAVE 1 a2; start 4/0 a5~1 ws1/2; START 1 4/0 a5"},
	}},
	{"jobs of a higher priority go there all the same", twoNodes, []step{
		{10, asksFor(4, 2, 1, 0), ""},
		{11, ended(2, 3, exited(1, "")), "failed 1/2 a3; HAVE 2 a3"},
		{12, asks(5, 1, 1, 1, 0), ""},
		{12, setTo(5, forAll(1)), "set 5/all; start 5/0 a5~1 ws2/1; START 2 5/0 a5"},
	}},
	{"a gap is filled beside a job that has to end in any case", []step{
		{0, Loaded{}, ""},
		{0, up(1, "ws1", 8), "node ws1 s1"},
		{0, ListEnd{1}, ""},
		{0, asksFor(1, 1, 1, 5), "start 1/0 a1~1 ws1/5; START 1 1/0 a1"},
		{0, asksFor(2, 2, 1, 1), "start 2/0 a2~1 ws1/1; START 1 2/0 a2"},
	}, []step{
		{1, asksFor(3, 3, 1, 4), ""},
		{2, asksFor(4, 4, 9, 1), "start 4/0 a3~1 ws1/1; START 1 4/0 a3; start 4/1 a4~1 ws1/1; START 1 4/1 a4"},
		{3, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 3/0 a5~1 ws1/4; START 1 3/0 a5; start 4/2 a6~1 ws1/1; START 1 4/2 a6"},
	}},
	{"what would delay it waits", []step{
		{0, Loaded{}, ""},
		{0, up(1, "ws1", 8), "node ws1 s1"},
		{0, ListEnd{1}, ""},
		{0, asksFor(1, 1, 2, 3), "start 1/0 a1~1 ws1/3; START 1 1/0 a1; start 1/1 a2~1 ws1/3; START 1 1/1 a2"},
	}, []step{
		{1, asksFor(3, 3, 1, 5), ""},
		{2, asksFor(4, 4, 9, 1), ""},
		{3, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 3/0 a3~1 ws1/5; START 1 3/0 a3"},
	}},
	{"nothing is sent ahead to a node that is kept", []step{
		{0, Loaded{}, ""},
		{0, up(1, "ws1", 2), "node ws1 s1"},
		{0, ListEnd{1}, ""},
		{0, asksFor(1, 1, 9, 1), "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
		{1, asksFor(2, 2, 1, 0), ""},
	}, []step{
		{2, ended(1, 1, quickly(exited(1, ""))), "failed 1/0 a1; HAVE 1 a1"},
		{3, ended(1, 2, quickly(exited(1, ""))), "failed 1/1 a2; HAVE 1 a2; start 2/0 a3~1 ws1/2; START 1 2/0 a3"},
	}},
}

func TestReservations(t *testing.T) { reservations.run(t) }

// TestNoneStarves has jobs that need much behind streams of jobs that need little: each
// starts before the smaller ones of its node have ended twice, and the others run on.
func TestNoneStarves(t *testing.T) {
	for _, cpus := range []int{0, 2, 3, 4} {
		f := newFleet(t, 4, 4)
		f.add(asksFor(1, 1, 100_000, 1), func(n int) time.Duration { return time.Duration(n*37%240+60) * time.Second })
		f.until(time.Hour)
		f.add(asksFor(2, 2, 1, cpus), constant(time.Minute))
		f.until(time.Hour + 5*time.Minute)
		if s := f.m.State(Ref{2, 0}); s == job.Queued {
			t.Errorf("a job of %d cpus waits behind jobs of one for as long as those take", cpus)
		}
		f.until(2 * time.Hour)
		if used := f.total(1) + f.total(2); used < 0.97*4*4*7200 {
			t.Errorf("with one job of %d cpus: %.0f cpu-seconds were used of %d", cpus, used, 4*4*7200)
		}
	}
}

// TestKeptElsewhere has nodes with a job that does not end, begun just when a job of
// half a node comes: one of those is kept for it at first, and then one where jobs end.
func TestKeptElsewhere(t *testing.T) {
	f := newFleet(t, 4, 4)
	f.add(asksFor(1, 1, 3, 3), constant(1000*time.Hour)) // on three of the nodes
	f.add(asksFor(2, 1, 100_000, 1), constant(3*time.Minute))
	f.until(time.Second)
	f.add(asksFor(3, 2, 1, 2), constant(time.Minute))
	f.until(30 * time.Minute)
	if s := f.m.State(Ref{3, 0}); s == job.Queued {
		t.Errorf("it waits for what does not end, and not for what does")
	}
}

// TestLoads has owners submit jobs of all sizes and lengths at any time, and compares
// each decision with the plain one. All end, and nodes were kept for some of them, also
// more than one, and one after another.
func TestLoads(t *testing.T) {
	kept, more, moved := 0, 0, 0
	seeds := suite.Size(15, 300)
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 7))
		nodes, many := 1+random.IntN(3), 1
		if seed%5 == 0 {
			nodes, many = 8+random.IntN(5), 4
		}
		f := newFleet(t, nodes, 2+random.IntN(5))
		f.plain = true
		ends := map[Ref]time.Duration{}
		for b := range uint32(7) {
			add := asksFor(b+1, random.IntN(3), many*(1+random.IntN(9)), random.IntN(5)/2)
			add.Spec.Priority, add.Spec.MaxRunning = random.IntN(4)/3, max(0, random.IntN(9)-6)
			for range add.Jobs * (random.IntN(3) / 2) {
				add.Own = append(add.Own, int16(random.IntN(3)-1))
			}
			scale := time.Duration(1+random.IntN(30)*random.IntN(30)) * time.Second
			f.add(add, func(n int) time.Duration {
				ref := Ref{b + 1, uint32(n)}
				if ends[ref] == 0 {
					ends[ref] = scale + time.Duration(random.Int64N(int64(scale)))
				}
				return ends[ref]
			})
			f.until(f.now + time.Duration(random.IntN(200))*time.Second)
		}
		f.until(1000 * time.Hour)
		for b := range uint32(7) {
			if n := f.m.Counts(b + 1)[job.Queued]; n > 0 {
				t.Errorf("seed %d: %d jobs of batch %d wait for ever", seed, n, b+1)
			}
		}
		kept, more, moved = kept+f.kept, more+f.more, moved+f.moved
	}
	if kept < seeds/3 || more < seeds/6 || moved < seeds/30 {
		t.Errorf("a node was kept %d times, one more %d times, another instead %d times", kept, more, moved)
	}
}

// TestWhyKept tells that a node is kept, and for what.
func TestWhyKept(t *testing.T) {
	r := newRig(t, Config{Clock: plainClock})
	r.take(twoNodes, []step{
		{10, asksFor(4, 2, 1, 0), ""},
		{11, ended(2, 3, exited(1, "")), "failed 1/2 a3; HAVE 2 a3"},
	})
	for ref, want := range map[Ref]string{
		{4, 0}: "ws2 is kept for it until all there has ended: it asks for a whole node (-R cpus=N asks for less)",
		{3, 0}: "2 of 2 nodes can run it: ws1 busy, ws2 kept for a job of a whole node; it is the turn of 1 other owner",
	} {
		r.why(ref, want)
	}
	r.apply(Offered{2, node.Offer{CPUs: 2, Soon: 600}})
	for i, want := range []string{"", "kept for a job of a whole node; pauses at 611"} {
		if got := r.m.Nodes()[i].Note; got != want {
			t.Errorf("the note of node %d is %q, should be %q", i+1, got, want)
		}
	}
	c := policy.Class{Share: policy.Share{CPUs: 1, GPUs: 2000, Memory: 4 << 30}}
	if got, want := explain.Asked(&c), "1 cpu, 2 gpus, 4G"; got != want {
		t.Errorf("it asks for %q, should be %q", got, want)
	}
}
