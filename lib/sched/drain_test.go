package sched

import (
	"testing"

	"distribute/lib/job"
	"distribute/lib/node"
)

// A node that is drained ends what runs there, gives back what it has not begun, and
// is given nothing, also after it has gone and come again, until that is over.
func TestDrain(t *testing.T) {
	r := newRig(t, Config{})
	why := func(want string) {
		t.Helper()
		r.why(Ref{1, 2}, want)
	}
	state := func(want node.State, jobs int) {
		t.Helper()
		if n := r.row("ws1"); n.State != want || n.Jobs != jobs {
			t.Errorf("ws1 is %s with %d jobs, want %s with %d", n.State, n.Jobs, want, jobs)
		}
	}
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 3, Spec: single}, up(1, "ws1", 2), ListEnd{1}, phase(1, 1, job.PhaseRunning)} {
		r.apply(ev)
	}
	got := r.apply(Drain{"ws1", "maria"})
	if len(got) != 1 || got[0] != (Recall{1, tok(2), "its node is paused or drained"}) {
		t.Errorf("at first: %s", show(got))
	}
	r.apply(ended(1, 2, unstarted))
	why("1 of 1 nodes can run it: ws1 drained by maria")
	state(node.Draining, 1)
	r.apply(ended(1, 1, exited(0, "m")))
	r.apply(NodeDown{1})
	r.apply(up(2, "ws1", 2))
	r.apply(itemEnded(2, 1, exited(0, "m")))
	r.apply(ListEnd{2})
	why("1 of 1 nodes can run it: ws1 drained by maria")
	state(node.Draining, 0)
	r.apply(up(3, "ws2", 1)) // it is of one node
	r.apply(ListEnd{3})
	if n := r.row("ws2"); n.Jobs != 1 {
		t.Errorf("ws2 has %d jobs", n.Jobs)
	}
	r.apply(Drain{Node: "ws1"})
	state(node.Busy, 1)
}

// A node may be drained before anything is known of it.
func TestDrainUnseen(t *testing.T) {
	r := newRig(t, Config{})
	for _, ev := range []Event{Drain{"ws1", "maria"}, Loaded{}, AddBatch{Batch: 1, Jobs: 1, Spec: single}, up(1, "ws1", 1), ListEnd{1}} {
		r.apply(ev)
	}
	if n := r.row("ws1"); n.State != node.Draining || n.Jobs != 0 || r.m.Drained("ws1") != "maria" {
		t.Errorf("ws1: %+v", n)
	}
}
