package sched

import (
	"fmt"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// A pair is a rig with ws1 and ws2, each of one cpu, whose batch is tried again once,
// and who knows what runs where.
type pair struct {
	*rig
	on map[string]int // the attempt that runs there
}

func newPair(t *testing.T, jobs int) *pair {
	l := &pair{newRig(t, Config{}), map[string]int{}}
	spec := &job.Spec{Kind: job.Command, Retries: 1, Resources: job.Resources{CPUs: 1}}
	l.see(Loaded{})
	l.see(AddBatch{Batch: 1, Jobs: jobs, Spec: spec})
	for i, name := range []string{"ws1", "ws2"} {
		l.see(up(uint64(i+1), name, 1))
		l.see(ListEnd{uint64(i + 1)})
	}
	return l
}

// see gives an event and follows what starts.
func (l *pair) see(ev Event) {
	l.t.Helper()
	for _, a := range l.apply(ev) {
		if s, ok := a.(Start); ok {
			at := l.m.live[must(s.Attempt)]
			var n int
			fmt.Sscanf(string(s.Attempt), "%x", &n)
			l.on[string(at.peer.Name)] = n
		}
	}
}

// end has what runs on a node end after so many seconds.
func (l *pair) end(name string, status int, ran float64) {
	l.t.Helper()
	n := l.on[name]
	if n == 0 {
		l.t.Fatalf("nothing runs on %s", name)
	}
	delete(l.on, name)
	l.now += time.Second
	r := exited(status, "m")
	r.Runtime = ran
	session := l.m.named[node.Name(name)].Session
	for _, ev := range []Event{phase(session, n, job.PhaseRunning), ended(session, n, r), staged(n, "m"), gone(session, n)} {
		l.see(ev)
	}
}

// A job that fails on two nodes is at fault, and neither of them: one that rests for
// it, since that was not known, goes on.
func TestBlameTheJob(t *testing.T) {
	l := newPair(t, 50)
	for range 3 {
		l.end("ws1", 1, 0.1)
	}
	l.expectRest(node.Resting, time.Minute)
	l.end("ws2", 0, 60)
	l.end("ws2", 1, 0.1) // the first that failed on ws1
	l.expectRest(node.Busy, 0)
	for range 4 {
		l.end("ws2", 1, 0.1)
	}
	if n := l.row("ws2"); n.State != node.Busy {
		t.Errorf("ws2 is %s: %s", n.State, n.Note)
	}
}

// Where all jobs of a batch fail, the batch is at fault: the node that rests for it goes on
// when one fails on another node as well, unless jobs of another batch failed there, too.
func TestBlameTheBatch(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		l := newPair(t, 50)
		if mixed {
			l.see(AddBatch{Batch: 2, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Priority: 1, Resources: job.Resources{CPUs: 1}}})
		}
		for range 3 {
			l.end("ws1", 1, 0.1)
		}
		l.expectRest(node.Resting, time.Minute)
		l.end("ws2", 1, 0.1)
		if mixed {
			l.expectRest(node.Resting, time.Minute-time.Second)
		} else {
			l.expectRest(node.Busy, 0)
		}
	}
}

// What a batch that is at fault has failed on a node does not count with jobs of another batch:
// not what failed before that was known, nor what failed later.
func TestBlameTheBatchAlone(t *testing.T) {
	for _, later := range []int{0, 4} {
		r := black(t, 50)
		r.end(1, "ws1", 1)
		r.end(1, "ws1", 1)
		r.end(2, "ws2", 1)
		for range later {
			r.end(1, "ws1", 1)
			r.end(2, "ws2", 1)
		}
		urgent := *single
		urgent.Priority = 1
		r.apply(AddBatch{Batch: 2, Jobs: 9, Spec: &urgent})
		for r.m.named["ws1"].first.ref.Batch == 1 {
			r.end(1, "ws1", 1)
		}
		for range 2 {
			r.end(1, "ws1", 1)
			r.expectRest(node.Busy, 0)
		}
		r.end(1, "ws1", 1)
		r.expectRest(node.Resting, time.Minute)
	}
}

// A batch whose build failed on all other nodes waits for one that is paused, and not
// for one that is drained or away.
func TestBuildFailsBeside(t *testing.T) {
	const back = "back 1/0 a1 build_failed (build failed); HAVE 1 a1"
	for _, c := range []struct {
		what Event
		want string
	}{
		{Drain{"ws2", "maria"}, back + "; failed 1/0 (build failed on ws1)"},
		{NodeDown{2}, back + "; failed 1/0 (build failed on ws1)"},
		{offered(2, 1, &node.Pause{By: []string{"ana"}}), back},
	} {
		r := newRig(t, Config{})
		for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 1, Spec: single}, up(1, "ws1", 1), ListEnd{1}, up(2, "ws2", 1), ListEnd{2}, c.what} {
			r.apply(ev)
		}
		if got := show(r.apply(ended(1, 1, buildFailed))); got != c.want {
			t.Errorf("beside %T: got %s, want %s", c.what, got, c.want)
		}
	}
}
