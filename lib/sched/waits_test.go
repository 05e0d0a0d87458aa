package sched

import (
	"fmt"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// plainClock tells moments in seconds.
func plainClock(at time.Duration) string { return fmt.Sprint(at.Seconds()) }

// What is in the way on each node is told, what ends soonest first, and when.
func TestReasons(t *testing.T) {
	takes := map[Ref]time.Duration{}
	r := newRig(t, Config{Clock: plainClock, Takes: func(ref Ref, _ time.Duration) time.Duration { return takes[ref] }})
	why := func(batch uint32, want string, until time.Duration) {
		t.Helper()
		reason := r.m.Reasons(batch)
		for j := range r.m.batches[batch].States {
			if r.m.State(Ref{batch, uint32(j)}) != job.Queued {
				continue
			}
			if got := reason(j); got != (Wait{Why: want, Until: until * time.Second}) {
				t.Errorf("batch %d waits since %q, until %v; should be %q, %v", batch, got.Why, got.Until, want, until*time.Second)
			}
			return
		}
		t.Errorf("no job of batch %d waits", batch)
	}
	gpu := &job.Spec{Capabilities: []string{"gpu"}, Resources: job.Resources{CPUs: 4}}
	r.now = 100 * time.Second
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, ID: "u/a", Jobs: 3, Spec: gpu, Owner: 1})
	why(1, "no node is connected", 0)
	r.joins(1, "ws1", 4)
	why(1, "none of 1 nodes has gpu", 0)

	// Nodes that have it: one is busy, for a while that is known or not.
	r.joins(2, "ws2", 4, "gpu")
	why(1, "gpu: 1 of 2 nodes has it: ws2 busy", 0)
	takes[Ref{1, 0}] = 50 * time.Second
	why(1, "gpu: 1 of 2 nodes has it: ws2 busy until about 150", 150)
	r.apply(AddBatch{Batch: 2, ID: "u/b", Jobs: 2, Spec: gpu, Owner: 1})
	why(2, "gpu: 1 of 2 nodes has it: ws2 busy until about 150; 2 jobs go first (by age)", 150)
	urgent := *gpu
	urgent.Priority = 5
	r.apply(AddBatch{Batch: 3, ID: "v/c", Jobs: 1, Spec: &urgent, Owner: 2})
	why(2, "gpu: 1 of 2 nodes has it: ws2 busy until about 150; 2 jobs go first (by age); it is the turn of 1 other owner", 150)
	r.apply(setTo(3, forAll(5)))
	why(2, "gpu: 1 of 2 nodes has it: ws2 busy until about 150; 3 jobs go first (1 by priority, 2 by age)", 150)
	why(3, "gpu: 1 of 2 nodes has it: ws2 busy until about 150", 150)

	// Another is paused, and one that could run it is away.
	paused := node.Offer{CPUs: 4, Capabilities: []string{"gpu"}, Pause: &node.Pause{By: []string{"ana"}, Left: 20}}
	r.apply(NodeUp{Session: 3, Node: "ws3", Boot: "b", State: "s3", Offer: paused})
	r.apply(ListEnd{3})
	why(3, "gpu: 2 of 3 nodes have it: ws3 paused by ana until 120, ws2 busy until about 150", 120)
	r.apply(NodeDown{3})
	why(3, "gpu: 1 of 2 nodes has it: ws2 busy until about 150; not connected: ws3", 150)

	// As many run as may.
	one := *gpu
	one.MaxRunning, one.Capabilities = 1, nil
	takes[Ref{4, 0}] = 30 * time.Second
	r.apply(AddBatch{Batch: 4, ID: "u/d", Jobs: 2, Spec: &one, Owner: 1})
	why(4, "max_running of its batch: 1 run", 130)
}

// Of jobs of a batch that have priorities of their own it is told of each who goes first, unless
// there are very many different ones.
func TestReasonsOfPriorities(t *testing.T) {
	r := newRig(t, Config{})
	spec := &job.Spec{Resources: job.Resources{CPUs: 1}}
	many := make([]int16, 100)
	for i := range many {
		many[i] = int16(100 - i)
	}
	r.apply(Loaded{})
	r.joins(1, "ws1", 1)
	r.apply(AddBatch{Batch: 1, ID: "u/a", Jobs: 1, Spec: spec, Owner: 1})
	r.apply(AddBatch{Batch: 2, ID: "u/b", Jobs: 4, Own: []int16{-5, 5, 0}, Spec: spec, Owner: 1})
	r.apply(AddBatch{Batch: 3, ID: "u/c", Jobs: 2, Spec: spec, Owner: 1})
	r.apply(AddBatch{Batch: 4, ID: "u/d", Jobs: len(many), Own: many, Spec: spec, Owner: 1})
	const busy = "1 of 1 nodes can run it: ws1 busy"
	for batch, wants := range map[uint32]map[int]string{
		2: {1: "; 95 jobs go first (by priority)", 2: "; 101 jobs go first (by priority)", 3: "; 101 jobs go first (by priority)", 0: "; 105 jobs go first (by priority)"},
		3: {0: "; 103 jobs go first (101 by priority, 2 by age)", 1: "; 103 jobs go first (101 by priority, 2 by age)"},
		4: {0: "", 10: "; 10 jobs go first (by priority)", 31: "; 31 jobs go first (by priority)"},
	} {
		reason := r.m.Reasons(batch)
		for j, want := range wants {
			if got := reason(j).Why; got != busy+want {
				t.Errorf("job %d of batch %d waits since %q, should be %q", j, batch, got, busy+want)
			}
		}
	}
	if got := r.m.Reasons(4)(32).Why; got != "" {
		t.Errorf("one of very many waits since %q", got)
	}
}

// Of jobs that ask for very many different things it is told only of the first in full.
func TestReasonsOfMany(t *testing.T) {
	r := newRig(t, Config{})
	asks := make([]Ask, 100)
	for i := range asks {
		asks[i] = Ask{CPUs: 1, Memory: int64(i+1) << 30}
	}
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, ID: "u/a", Jobs: len(asks), Asks: asks, Spec: &job.Spec{Resources: job.Resources{CPUs: 1}}})
	r.apply(NodeUp{Session: 1, Node: "ws1", Boot: "b", State: "s1", Offer: node.Offer{CPUs: 1, Memory: 80 << 30}})
	r.apply(ListEnd{1})
	reason := r.m.Reasons(1)
	for j, want := range map[int]string{
		0: "", 1: "1 of 1 nodes can run it: ws1 busy", 32: "1 of 1 nodes can run it: ws1 busy; 31 jobs go first (by age)",
		33: "", 90: "no node has 91G of memory, the most is 80G on ws1", 1000: "",
	} {
		if j == 0 {
			continue // it runs
		}
		if got := reason(j); got.Why != want {
			t.Errorf("job %d waits since %q, should be %q", j, got.Why, want)
		}
	}
	if got := r.m.Reasons(9)(0); got != (Wait{}) {
		t.Errorf("a job of a batch that is not there waits since %q", got.Why)
	}
}
