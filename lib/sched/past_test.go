package sched

import (
	"fmt"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// restart starts another head on what the logs say and what the one before told it to
// remember; it is down for so long. Then it is told of nodes.
func (r *rig) restart(down time.Duration, nodes ...Event) {
	r.t.Helper()
	past := r.m.Past()
	m, err := r.replayed()
	if err != nil {
		r.t.Fatal(err)
	}
	r.m, r.uses, r.now = m, map[int]*plainUse{}, r.now+down
	for _, u := range past.Owners {
		r.uses[u.Owner] = &plainUse{used: u.CPU, at: past.At}
	}
	r.apply(Remember{past})
	r.apply(Loaded{})
	for _, ev := range nodes {
		r.apply(ev)
	}
}

// A node that rests goes on with that when the head is started again, until the same
// moment, and its next rest is twice as long; with its machine all is new.
func TestL47RestOverARestart(t *testing.T) {
	r := black(t, 40)
	r.fail(2, 4)
	r.apply(ended(1, 5, unstarted))
	until := r.row("ws1").Until
	r.restart(20*time.Second, up(3, "ws1", 1), ListEnd{3})
	if n := r.row("ws1"); n.State != node.Resting || n.Until != until || n.Note != "3 jobs failed within 2s" {
		t.Errorf("after the restart ws1 is %s until %v, %q; it rested until %v", n.State, n.Until, n.Note, until)
	}
	if s := r.m.Past().Nodes; len(s) != 1 || s[0].Rests != 1 || len(s[0].Fast) != 3 {
		t.Errorf("against ws1 speaks %+v", s)
	}
	r.now = until
	r.apply(Tick{})
	if n := r.row("ws1"); n.State == node.Resting {
		t.Error("it rests longer than was said")
	}
	other := up(4, "ws1", 1).(NodeUp)
	other.Boot = "another"
	r.apply(NodeDown{3})
	r.apply(other)
	if s := r.m.Past().Nodes; len(s) != 0 {
		t.Errorf("after another start of its machine, against ws1 speaks %+v", s)
	}
}

// Failures before a restart count with those after it, and so does what of a batch has
// ended well on a node.
func TestL47CountsOverARestart(t *testing.T) {
	for _, good := range []bool{false, true} {
		r := newRig(t, Config{})
		for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 9, Spec: single}, up(1, "ws1", 1), ListEnd{1}} {
			r.apply(ev)
		}
		n := 1
		end := func(session uint64, res Result) {
			for _, ev := range []Event{phase(session, n, job.PhaseRunning), ended(session, n, res), staged(n, res.Manifest), gone(session, n)} {
				r.apply(ev)
			}
			n++
		}
		if good {
			end(1, exited(0, "m"))
		}
		end(1, quickly(exited(1, "m")))
		end(1, quickly(exited(1, "m")))
		r.restart(0, up(2, "ws2", 1), up(3, "ws1", 1), item(3, n, job.PhaseRunning), ListEnd{3}, ListEnd{2})
		end(3, quickly(exited(1, "m")))
		if got := r.row("ws1").State == node.Resting; got == good {
			t.Errorf("a job ended well there: %v; it rests: %v", good, got)
		}
	}
}

// What owners have used decays while the head is down, and counts after.
func TestUseOverARestart(t *testing.T) {
	r := newRig(t, Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Owner: 7, Jobs: 1, Spec: single}, up(1, "ws1", 4), ListEnd{1}, phase(1, 1, job.PhaseRunning)} {
		r.apply(ev)
	}
	r.now += time.Hour
	r.apply(Heard{1})
	r.apply(ended(1, 1, exited(0, "m")))
	had := r.m.Past().Owners[0].CPU
	if had < 2500 || had > 2700 { // 3600/ln 2/2
		t.Fatalf("an hour of a cpu counts %v", had)
	}
	r.restart(2 * time.Hour)
	if got := r.m.Past().Owners; len(got) != 1 || got[0].Owner != 7 || got[0].CPU < 0.249*had || got[0].CPU > 0.251*had {
		t.Errorf("two hours later %+v are left of %v", got, had)
	}
}

// What cannot be is not taken as it stands: a clock was set back, or a file says it.
func TestRememberBounds(t *testing.T) {
	m := New(Config{})
	past := Past{At: 5 * time.Hour, Owners: []Used{{1, -5}, {2, 1e300}, {3, 100}},
		Nodes: []Standing{{Node: "ws1", Rest: 90 * time.Hour, Why: "x", Rests: -3, Since: time.Hour, Proofs: -1, Proven: 90 * time.Hour,
			Leaves: true, Left: time.Hour, Leaving: 90 * time.Hour, Fast: make([]Ref, 1000)}}}
	m.Apply(Remember{past}, time.Minute)
	got := m.Past()
	if len(got.Owners) != 1 || got.Owners[0].CPU != 100 {
		t.Errorf("used is %+v", got.Owners)
	}
	s := got.Nodes[0]
	if s.Rest != time.Minute+longRest || s.Rests != 0 || s.Since != time.Minute || s.Proofs != 0 || s.Left != time.Minute || s.Leaving != longRest || len(s.Fast) != maxBlame {
		t.Errorf("against ws1 speaks %+v", s)
	}
	m.Apply(Loaded{}, time.Minute)
	m.Apply(Remember{Past{Owners: []Used{{9, 100}}}}, time.Minute)
	if len(m.Past().Owners) != 1 {
		t.Error("it is told after Loaded, and takes that")
	}
}

// What is forgotten of a node that is removed does not come back with a power cut, also
// if the node did not rest.
func TestRemovedIsForgotten(t *testing.T) {
	r := black(t, 40)
	r.fail(2, 3) // too few for a rest
	r.apply(NodeDown{1})
	for _, any := range []bool{true, false} {
		before := r.m.Rests()
		if got := len(r.m.Past().Nodes) > 0; got != any {
			t.Fatalf("something speaks against ws1: %v", got)
		}
		r.apply(NodeGone{Node: "ws1", Removed: true})
		if got := r.m.Rests() > before; got != any {
			t.Errorf("something was forgotten: %v; it is to be kept at once: %v", any, got)
		}
	}
}

// Names of which nothing is heard for a day are forgotten, however often the head is
// started meanwhile, and keep no other node out; one that rests is not.
func TestNamesAreForgotten(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // memory is there, time is not
	r := newRig(t, Config{})
	past := Past{Nodes: []Standing{{Node: "rests", Rest: time.Minute, Why: "x", Heard: -2 * forgetAfter}, {Node: "old", Rests: 1, Heard: -forgetAfter - 1}}}
	for i := range MaxNodes + 100 {
		past.Nodes = append(past.Nodes, Standing{Node: node.Name(fmt.Sprint("made-up-", i)), Rests: 1, Boot: "b"})
	}
	r.apply(Remember{past})
	r.apply(Loaded{})
	for _, ev := range []Event{up(1, "ws1", 1), ListEnd{1}} {
		r.apply(ev)
	}
	if got := r.row("ws1").State; got != node.Idle {
		t.Errorf("a node that comes is %s", got)
	}
	if got := r.m.Past().Nodes; len(got) > MaxNodes || got[len(got)-1].Node != "rests" || slices.ContainsFunc(got, func(s Standing) bool { return s.Node == "old" }) {
		t.Errorf("%d names are remembered, the last of them %+v", len(got), got[len(got)-1])
	}
	for range 2 {
		r.restart(3 * forgetAfter / 8)
	}
	if got := r.m.Past().Nodes; len(got) != MaxNodes-1 {
		t.Errorf("after most of a day %d names are remembered", len(got))
	}
	r.restart(forgetAfter/4 + 1)
	if got := r.m.Past().Nodes; len(got) != 0 {
		t.Errorf("after a day %d names are remembered", len(got))
	}
}

// What was remembered of a node counts when it comes back, or is removed before.
func TestAbsent(t *testing.T) {
	against := Past{Nodes: []Standing{{Node: "ws1", Boot: "b", Rest: time.Hour, Why: "x", Blamed: true, Rests: 2, Only: make([]Ref, 3)}}}
	for _, c := range []struct {
		later   time.Duration
		removed bool
		state   node.State
		rests   int
	}{{0, false, node.Resting, 2}, {2 * time.Hour, false, node.Idle, 2}, {forgetAfter + 1, false, node.Idle, 0}, {0, true, node.Idle, 0}} {
		r := newRig(t, Config{})
		r.apply(Remember{against})
		r.apply(Loaded{})
		r.now += c.later
		if c.removed {
			r.apply(NodeGone{Node: "ws1", Removed: true})
		}
		comes := up(1, "ws1", 1).(NodeUp)
		comes.Boot = "b"
		r.apply(comes)
		r.apply(ListEnd{1})
		p := r.m.named["ws1"]
		if got := r.row("ws1").State; got != c.state || p.rests != c.rests || c.later > 0 && len(p.only) > 0 {
			t.Errorf("%v later, removed %v: it is %s, has rested %d times, and %d jobs failed only there", c.later, c.removed, got, p.rests, len(p.only))
		}
	}
}
