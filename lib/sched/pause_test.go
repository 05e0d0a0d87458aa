package sched

import (
	"math"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// ana is a pause of all, for two hours.
var ana = &node.Pause{By: []string{"ana"}, Left: 7200}

func offered(session uint64, cpus int, p *node.Pause) Event {
	return Offered{session, node.Offer{CPUs: cpus, Pause: p}}
}

// evictedOf is the end of an attempt that was asked to leave.
func evictedOf(status int, manifest string) Result {
	r := exited(status, manifest)
	r.Fate, r.Saved = job.FateEvicted, status == job.ExitSaved
	return r
}

// A script is events, and what the machine does because of each.
type script []struct {
	ev   Event
	want string
}

func (s script) run(t *testing.T, r *rig) {
	t.Helper()
	for i, step := range s {
		if got := show(r.apply(step.ev)); got != step.want {
			t.Errorf("%d: after %T%+v:\n%s\nshould be\n%s", i, step.ev, step.ev, got, step.want)
		}
	}
}

// begun is a rig with nodes ws1 and ws2 of 4 cpus, of which ws1 runs the first
// of the jobs, which ask for 4 cpus each.
func begun(t *testing.T, add AddBatch) *rig {
	r := newRig(t, Config{Clock: func(at time.Duration) string { return at.String() }})
	r.apply(Loaded{})
	r.joins(1, "ws1", 4)
	r.apply(add)
	r.apply(phase(1, 1, job.PhaseRunning))
	r.apply(up(2, "ws2", 4))
	return r
}

func ofFour(jobs int) AddBatch {
	return AddBatch{Batch: 1, Jobs: jobs, Spec: &job.Spec{Resources: job.Resources{CPUs: 4}}}
}

// A node that its hours will pause within one is used after others, also if it has
// built the batch, and says so.
func TestSoonPaused(t *testing.T) {
	r := newRig(t, Config{Clock: func(at time.Duration) string { return at.String() }})
	soon := func(session uint64, in time.Duration) Event {
		return Offered{session, node.Offer{CPUs: 4, Soon: in.Seconds()}}
	}
	script{
		{Loaded{}, ""},
		{up(1, "ws1", 4), "node ws1 s1"},
		{ListEnd{1}, ""},
		{soon(1, 50*time.Minute), ""},
		{ofFour(1), "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
		{ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1"},
		{up(2, "ws2", 4), "node ws2 s1"},
		{ListEnd{2}, ""},
		{Retry{Ref: Ref{1, 0}, By: "u"}, "retry 1/0; start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
		{ended(2, 2, exited(1, "")), "failed 1/0 a2; HAVE 2 a2"},
		{soon(2, 61*time.Minute), ""},
		{Retry{Ref: Ref{1, 0}, By: "u"}, "retry 1/0; start 1/0 a3~3 ws2/4; START 2 1/0 a3"},
	}.run(t, r)
	for _, c := range []struct {
		in   time.Duration
		want string
	}{{50 * time.Minute, "pauses at 50m0s"}, {61 * time.Minute, ""}, {0, ""}} {
		r.apply(soon(2, c.in))
		if got := r.m.Nodes()[1].Note; got != c.want {
			t.Errorf("of one that pauses in %v it says %q, should be %q", c.in, got, c.want)
		}
	}
}

// What a node says of how long an attempt has run is shown, as of then; a node that comes
// again and does not say it is not believed to have said it.
func TestRan(t *testing.T) {
	r := begun(t, ofFour(1))
	says := func(ev Event, ran, at time.Duration) {
		t.Helper()
		r.now += time.Minute
		r.apply(ev)
		if a, _ := r.m.Attempt(tok(1)); a.Ran != ran || a.Ran != 0 && a.RanAt != at {
			t.Errorf("after %+v it has run for %v at %v, and not %v at %v", ev, a.Ran, a.RanAt, ran, at)
		}
	}
	ran := func(p job.Phase, seconds float64) Event {
		return Phase{Session: 1, Attempt: tok(1), Phase: p, Ran: seconds}
	}
	says(ran(job.PhaseRunning, 0.5), time.Second/2, time.Minute)
	says(ran(job.PhasePaused, 60.5), 60*time.Second+time.Second/2, 2*time.Minute)
	says(Offered{1, node.Offer{CPUs: 4}}, 60*time.Second+time.Second/2, 2*time.Minute)
	says(NodeDown{1}, 60*time.Second+time.Second/2, 2*time.Minute)
	says(up(3, "ws1", 4), 60*time.Second+time.Second/2, 2*time.Minute)
	says(Item{Session: 3, Attempt: tok(1), Phase: job.PhaseRunning, Ran: 90}, 90*time.Second, 6*time.Minute)
	says(NodeDown{3}, 90*time.Second, 6*time.Minute)
	says(up(4, "ws1", 4), 90*time.Second, 6*time.Minute)
	says(Item{Session: 4, Attempt: tok(1), Phase: job.PhaseRunning}, 0, 0)
	for _, odd := range []float64{-1, math.Inf(1), math.NaN(), 1e300} {
		says(Phase{Session: 4, Attempt: tok(1), Phase: job.PhaseRunning, Ran: odd}, 0, 0)
	}
}

// P73: a paused node is given nothing, what it has not begun goes elsewhere at
// once and without blame, and what runs there stays.
func TestP73NothingForAPausedNode(t *testing.T) {
	r := newRig(t, Config{})
	script{
		{Loaded{}, ""},
		{up(1, "ws1", 4), "node ws1 s1"},
		{ListEnd{1}, ""},
		{AddBatch{Batch: 1, Jobs: 3, Spec: &job.Spec{Resources: job.Resources{CPUs: 2}}},
			"start 1/0 a1~1 ws1/2; START 1 1/0 a1; start 1/1 a2~1 ws1/2; START 1 1/1 a2"},
		{phase(1, 1, job.PhaseRunning), ""},
		{phase(1, 2, job.PhaseSending), ""},
		{offered(1, 4, ana), "RECALL 1 a2"},
		{ended(1, 2, Result{Fate: job.FateNodePaused, Outcome: job.Outcome{Reason: "ws1 is paused"}}),
			"back 1/1 a2 node_paused (ws1 is paused); FORGET 1 a2"},
		{gone(1, 2), ""},
		{up(2, "ws2", 4), "node ws2 s1"},
		{ListEnd{2}, "start 1/1 a3~2 ws2/2; START 2 1/1 a3; start 1/2 a4~1 ws2/2; START 2 1/2 a4"},
		{ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 1 a1"},
		{AddBatch{Batch: 2, Jobs: 1, Spec: &job.Spec{}}, ""},
		{offered(1, 4, nil), "start 2/0 a5~1 ws1/4; START 1 2/0 a5"},
	}.run(t, r)
}

// A node that is paused and gives back what it is given, before its offer says
// so, is given nothing for a moment, and is not suspected.
func TestP73GivenBackBeforeTheOffer(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.joins(1, "ws1", 4)
	r.apply(ofFour(1))
	script{
		{ended(1, 1, Result{Fate: job.FateNodePaused}), "back 1/0 a1 node_paused (not started); FORGET 1 a1"},
		{Tick{}, ""},
	}.run(t, r)
	if n := r.m.Nodes()[0]; n.State != node.Paused {
		t.Errorf("it is shown as %s", n.State)
	}
	r.now += resting
	script{{Tick{}, "start 1/0 a2~2 ws1/4; START 1 1/0 a2"}}.run(t, r)
}

// P75: a node that is paused and connected keeps what it has for as long as it
// is heard; one that is silent loses it as any other.
func TestP75LeaseOfAPausedNode(t *testing.T) {
	r := begun(t, ofFour(1))
	r.apply(offered(1, 4, ana))
	for range 100 {
		r.now += 10 * time.Minute
		script{{Heard{1}, ""}, {Heard{2}, ""}, {Tick{}, ""}}.run(t, r)
	}
	script{{NodeDown{1}, ""}}.run(t, r)
	r.now += 15 * time.Minute
	r.apply(Heard{2})
	script{{Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s)"}}.run(t, r)
}

// What is shown of a paused node, its jobs, and those that wait for it.
func TestP73Shown(t *testing.T) {
	r := begun(t, ofFour(2))
	r.apply(NodeDown{2})
	if a, _ := r.m.Current(Ref{1, 0}); a.State != job.Running {
		t.Fatalf("it is %s before", a.State)
	}
	r.now += time.Minute
	r.apply(offered(1, 4, ana))
	if a, _ := r.m.Current(Ref{1, 0}); a.State != job.Paused || a.Pause.Who() != "ana" || a.Said != time.Minute {
		t.Errorf("its job is shown as %s, %+v, said at %v", a.State, a.Pause, a.Said)
	}
	if n := r.m.Nodes()[0]; n.State != node.Paused || n.Pause == nil || n.Jobs != 1 || n.CPUsUsed != 4 {
		t.Errorf("it is shown as %+v", n)
	}
	if why, want := stuck(r.m, 1), "ws1 paused by ana until 2h1m0s"; why != want {
		t.Errorf("the others wait since %q, should be %q", why, want)
	}
	r.apply(offered(1, 1, &node.Pause{By: []string{"ana"}, Give: &node.Give{CPUs: 3}}))
	if n := r.m.Nodes()[0]; n.State != node.Busy || n.CPUs != 1 || n.CPUsUsed != 4 {
		t.Errorf("with a part lent back it is shown as %+v", n)
	}
	if why, want := stuck(r.m, 1), "ws1 lent back 3 cpus to ana"; why != want {
		t.Errorf("the others wait since %q, should be %q", why, want)
	}
	r.apply(phase(1, 1, job.PhasePaused))
	if a, _ := r.m.Current(Ref{1, 0}); a.State != job.Paused {
		t.Errorf("a job that is left with nothing is shown as %s", a.State)
	}
	r.apply(NodeDown{1})
	if a, _ := r.m.Current(Ref{1, 0}); a.State != job.Unreachable {
		t.Errorf("a paused job whose node is away is shown as %s", a.State)
	}
}

// While a part of a node is lent back less is given to it, and what it has may
// be more than it offers.
func TestLentBack(t *testing.T) {
	r := newRig(t, Config{})
	lent := &node.Pause{Give: &node.Give{CPUs: 3}}
	script{
		{Loaded{}, ""},
		{up(1, "ws1", 4), "node ws1 s1"},
		{ListEnd{1}, ""},
		{AddBatch{Batch: 1, Jobs: 5, Spec: &job.Spec{Resources: job.Resources{CPUs: 2}}},
			"start 1/0 a1~1 ws1/2; START 1 1/0 a1; start 1/1 a2~1 ws1/2; START 1 1/1 a2"},
		{phase(1, 1, job.PhaseRunning), ""},
		{phase(1, 2, job.PhaseRunning), ""},
		{offered(1, 1, lent), ""},
		{ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{ended(1, 2, exited(0, "m")), "GRANT 1 a2"},
		{offered(1, 2, &node.Pause{Give: &node.Give{CPUs: 2}}), "start 1/2 a3~1 ws1/2; START 1 1/2 a3"},
		{offered(1, 4, nil), "start 1/3 a4~1 ws1/2; START 1 1/3 a4"},
	}.run(t, r)
}

// A batch of whose nodes one cannot build it, and the other has lent back too
// much for it, is not given up.
func TestLentBackIsNotGivenUp(t *testing.T) {
	r := newRig(t, Config{})
	script{
		{Loaded{}, ""},
		{up(1, "ws1", 4), "node ws1 s1"},
		{ListEnd{1}, ""},
		{up(2, "ws2", 4), "node ws2 s1"},
		{ListEnd{2}, ""},
		{offered(2, 1, &node.Pause{Give: &node.Give{CPUs: 3}}), ""},
		{ofFour(1), "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
		{ended(1, 1, buildFailed), "back 1/0 a1 build_failed (build failed); HAVE 1 a1"},
		{Tick{}, ""},
		{offered(2, 4, nil), "start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
	}.run(t, r)
}

// A job goes on with what it has saved, wherever that is, without blame; what was
// saved before is dropped then, and at its end all.
func TestEvictedGoesOn(t *testing.T) {
	r := begun(t, ofFour(1))
	r.apply(ListEnd{2})
	script{
		{offered(1, 4, &node.Pause{By: []string{"ana"}, Out: true}), ""},
		{ended(1, 1, evictedOf(85, "m1")), "GRANT 1 a1"},
		{staged(1, "m1"), "back 1/0 a1 m1 evicted saved (asked to leave ws1); PUBLISH 1/0 a1 out=false; HAVE 1 a1; " +
			"start 1/0 a2~2 ws2/4; START 2 1/0 a2 from a1"},
		{gone(1, 1), ""},
		{phase(2, 2, job.PhaseRunning), ""},
		{ended(2, 2, lost), "back 1/0 a2 lost (lost by ws2); late 1/0 a2; HAVE 2 a2; start 1/0 a3~3 ws2/4; START 2 1/0 a3 from a1"},
		{gone(2, 2), ""},
		{offered(1, 4, nil), ""},
		{ended(2, 3, evictedOf(85, "m3")), "GRANT 2 a3"},
		{offered(2, 4, ana), ""},
		{staged(3, "m3"), "back 1/0 a3 m3 evicted saved (asked to leave ws2); DROP 1/0 a1; " +
			"PUBLISH 1/0 a3 out=false; HAVE 2 a3; start 1/0 a4~4 ws1/4; START 1 1/0 a4 from a3"},
		{gone(2, 3), ""},
		{ended(1, 4, exited(0, "m4")), "GRANT 1 a4"},
		{staged(4, "m4"), "done 1/0 a4 m4; DROP 1/0 a3; PUBLISH 1/0 a4 out=true; HAVE 1 a4"},
		{gone(1, 4), "CLOSED 1"},
	}.run(t, r)
}

// What becomes of an attempt that was asked to leave.
func TestEvicted(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result Result
		never  bool
		want   string
	}{
		{"it is done all the same", evictedOf(0, "m"), false, "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 1 a1"},
		{"killed, with what it left", evictedOf(1, "m"), false,
			"back 1/0 a1 m evicted (asked to leave ws1); PUBLISH 1/0 a1 out=false; HAVE 1 a1; start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
		{"85 without having been asked", exited(85, "m"), false, "failed 1/0 a1 m; PUBLISH 1/0 a1 out=false; HAVE 1 a1"},
		{"never twice, and saved", evictedOf(85, "m"), true,
			"back 1/0 a1 m evicted saved (asked to leave ws1); PUBLISH 1/0 a1 out=false; HAVE 1 a1; start 1/0 a2~2 ws2/4; START 2 1/0 a2 from a1"},
		{"never twice, and not saved", evictedOf(1, "m"), true,
			"failed 1/0 a1 m evicted (asked to leave ws1; it is never started twice); PUBLISH 1/0 a1 out=false; HAVE 1 a1"},
	} {
		add := ofFour(1)
		add.Once = tt.never
		r := begun(t, add)
		r.apply(ListEnd{2})
		r.apply(offered(1, 4, ana))
		r.apply(ended(1, 1, tt.result))
		if got := show(r.apply(staged(1, "m"))); got != tt.want {
			t.Errorf("%s:\n%s\nshould be\n%s", tt.name, got, tt.want)
		}
	}
}

// Of attempts that had to leave and saved nothing less is kept, but for the last
// one, and in the end nothing.
func TestEvictedAreDropped(t *testing.T) {
	r := begun(t, ofFour(1))
	var got string
	for n := 1; n <= job.MaxPrinted+2; n++ {
		r.now += time.Hour
		r.apply(Heard{1})
		r.apply(Tick{})
		r.apply(ended(1, n, evictedOf(1, "m")))
		got = show(r.apply(staged(n, "m")))
		r.apply(gone(1, n))
	}
	want := "back 1/0 ac m evicted (asked to leave ws1); DROP 1/0 ab; DROP 1/0 a1 whole; PUBLISH 1/0 ac out=false; HAVE 1 ac; " +
		"start 1/0 ad~13 ws1/4; START 1 1/0 ad"
	if got != want {
		t.Errorf("the last one:\n%s\nshould be\n%s", got, want)
	}
}

// A node that has its jobs leave, or gives them back for a pause, again and again
// is rested, for longer each time, and not for those that leave at one time; after
// a while without that all is forgiven.
func TestL47LeavesAgain(t *testing.T) {
	for what, result := range map[string]Result{"leaves": evictedOf(1, ""), "paused": {Fate: job.FateNodePaused}} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, Config{})
			for _, ev := range []Event{Loaded{}, up(1, "ws1", 4), ListEnd{1}, AddBatch{Batch: 1, Jobs: 4, Spec: single}} {
				r.apply(ev)
			}
			later := func(d time.Duration) {
				r.now += d
				r.apply(Heard{1})
				r.apply(Tick{})
			}
			leave := func(want node.State, left time.Duration) {
				t.Helper()
				began := r.drawn - 3
				for n := began; n < began+4; n++ { // one after the other
					later(time.Second)
					if n == began {
						defer func(since time.Duration) {
							if n := r.row("ws1"); n.State != want || want == node.Resting && n.Until != since+left {
								t.Errorf("at %v it is %s until %v, want %s until %v", r.now, n.State, n.Until, want, since+left)
							}
						}(r.now)
					}
					r.apply(ended(1, n, result))
					r.apply(gone(1, n))
				}
			}
			first := node.Busy
			if result.Fate == job.FateNodePaused {
				first = node.Paused
			}
			leave(first, 0)
			for rest := resting; rest <= 4*time.Hour; rest *= 2 {
				later(resting)
				if r.row("ws1").State == node.Resting {
					t.Fatal("it rests still")
				}
				leave2 := min(rest, longRest)
				r.apply(offered(1, 4, nil))
				leave(node.Resting, leave2)
				later(leave2)
			}
			later(leaveAgain + longRest)
			r.apply(offered(1, 4, nil))
			leave(first, 0)
		})
	}
}

// What a job goes on with cannot be read on the head. It is tried again, elsewhere
// at first, without blame for the nodes, and then it has failed and says why.
func TestSavedIsUnreadable(t *testing.T) {
	r := begun(t, ofFour(1))
	r.apply(ListEnd{2})
	why := "what attempt 1 has saved cannot be read on the head: it is gone"
	back := Result{Fate: job.FateUnstarted, Outcome: job.Outcome{Reason: "the head says so"}}
	script{
		{ended(1, 1, evictedOf(85, "m1")), "GRANT 1 a1"},
		{staged(1, "m1"), "back 1/0 a1 m1 evicted saved (asked to leave ws1); PUBLISH 1/0 a1 out=false; HAVE 1 a1; " +
			"start 1/0 a2~2 ws1/4; START 1 1/0 a2 from a1"},
		{gone(1, 1), ""},
		{Unreadable{tok(2), "it is gone"}, ""},
		{ended(1, 2, back), "back 1/0 a2 unstarted (" + why + "); FORGET 1 a2; start 1/0 a3~3 ws2/4; START 2 1/0 a3 from a1"},
		{gone(1, 2), ""},
		{Unreadable{tok(3), "it is gone"}, ""},
		{ended(2, 3, back), "back 1/0 a3 unstarted (" + why + "); FORGET 2 a3"},
		{gone(2, 3), ""},
	}.run(t, r)
	for _, n := range r.m.Nodes() {
		if n.State != node.Idle {
			t.Errorf("%s is %s", n.Node, n.State)
		}
	}
	if got, want := stuck(r.m, 1), "ws1: "+why; got != want {
		t.Errorf("it waits since %q, should be %q", got, want)
	}
	r.now += resting
	r.apply(Heard{1})
	r.apply(Heard{2})
	script{
		{Tick{}, "start 1/0 a4~4 ws1/4; START 1 1/0 a4 from a1"},
		{Unreadable{tok(4), "it is gone"}, ""},
		{ended(1, 4, back), "failed 1/0 a4 unstarted (" + why + "; that was tried 3 times); DROP 1/0 a1; FORGET 1 a4"},
		{gone(1, 4), "CLOSED 1"},
		{Retry{Ref: Ref{1, 0}}, "REOPENED 1; retry 1/0; start 1/0 a5~5 ws2/4; START 2 1/0 a5"},
	}.run(t, r)
}

// Evictions count in no limit of losses.
func TestEvictedIsNotLost(t *testing.T) {
	r := begun(t, ofFour(1))
	for n := 1; n <= 20; n++ {
		r.now += time.Hour
		r.apply(Heard{1})
		r.apply(ended(1, n, evictedOf(1, "")))
		r.apply(gone(1, n))
	}
	if s := r.m.State(Ref{1, 0}); s != job.Running {
		t.Errorf("after 20 evictions its job is %s", s)
	}
}

// An attempt that was given up, and has saved less than the one that went on
// after it, does not bring its job back.
func TestSavedByOneThatWasGivenUp(t *testing.T) {
	r := begun(t, ofFour(1))
	r.apply(ListEnd{2})
	r.apply(NodeDown{1})
	r.now += 20 * time.Minute
	r.apply(Heard{2})
	script{
		{Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s); start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
		{offered(2, 4, ana), "RECALL 2 a2"},
		{ended(2, 2, evictedOf(85, "m2")), "GRANT 2 a2"},
		{staged(2, "m2"), "back 1/0 a2 m2 evicted saved (asked to leave ws2); PUBLISH 1/0 a2 out=false; HAVE 2 a2"},
		{NodeUp{Session: 3, Node: "ws1", Boot: "b1", State: "s1", Offer: node.Offer{CPUs: 4, Pause: ana}}, ""},
		{itemEnded(3, 1, evictedOf(85, "m1")), "GRANT 3 a1"},
		{ListEnd{3}, ""},
		{staged(1, "m1"), "late 1/0 a1 m1; PUBLISH 1/0 a1 out=false; HAVE 3 a1"},
		{offered(3, 4, nil), "start 1/0 a3~3 ws1/4; START 3 1/0 a3 from a2"},
	}.run(t, r)
}

// One whose job waits is taken up again with what it saved.
func TestSavedByOneThatCameBack(t *testing.T) {
	r := begun(t, ofFour(1))
	r.apply(NodeDown{1})
	r.now += 20 * time.Minute
	r.apply(Heard{2})
	script{
		{Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s)"},
		{up(3, "ws1", 4), ""},
		{itemEnded(3, 1, evictedOf(85, "m1")), "adopt 1/0 a1; GRANT 3 a1"},
		{staged(1, "m1"), "back 1/0 a1 m1 evicted saved (asked to leave ws1); PUBLISH 1/0 a1 out=false; HAVE 3 a1"},
		{ListEnd{3}, "start 1/0 a2~2 ws1/4; START 3 1/0 a2 from a1"},
	}.run(t, r)
}

// A record whose members do not go with its fate is damage.
func TestFatesOfRecords(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(AddBatch{Batch: 1, Jobs: 1, Replay: true})
	start := job.Record{Kind: job.KindStart, Attempt: tok(1), Try: 1, Node: "ws1", CPUs: 1}
	if err := r.m.Replay(Ref{1, 0}, &start); err != nil {
		t.Fatal(err)
	}
	for _, rec := range []job.Record{
		{Kind: job.KindBack, Fate: job.FateEvicted, Saved: true},
		{Kind: job.KindBack, Fate: job.FateLost, Saved: true, Manifest: "m"},
		{Kind: job.KindBack, Saved: true, Manifest: "m"},
		{Kind: job.KindFailed, Fate: job.FateEvicted, Saved: true, Manifest: "m"},
		{Kind: job.KindDone, Fate: job.FateEvicted, Manifest: "m"},
		{Kind: job.KindCancelled, Fate: job.FateLost},
		{Kind: job.KindBack, Fate: job.FateUnstarted, Disk: 1},
		{Kind: job.KindBack, Disk: 1},
		{Kind: job.KindFailed, Fate: job.FateNoRoom, Disk: 1},
	} {
		rec.Attempt, rec.Try, rec.Node = tok(1), 1, "ws1"
		if err := r.m.Replay(Ref{1, 0}, &rec); err == nil {
			t.Fatalf("%+v is taken", rec)
		}
	}
	back := job.Record{Kind: job.KindBack, Attempt: tok(1), Try: 1, Node: "ws1", Fate: job.FateNoMemory, Saved: true, Manifest: "m"}
	if err := r.m.Replay(Ref{1, 0}, &back); err != nil {
		t.Error(err)
	}
}

// Memory and GPUs are counted beside cpus, of those that ask for them.
func TestMemoryAndGPUs(t *testing.T) {
	r := newRig(t, Config{})
	ask := func(b uint32, jobs int, res job.Resources) Event {
		return AddBatch{Batch: b, Jobs: jobs, Spec: &job.Spec{Resources: res}}
	}
	big := node.Offer{CPUs: 8, Memory: 32 << 30, GPUs: []node.GPU{{Index: 0}, {Index: 1}, {Index: 2, Busy: true}}}
	script{
		{Loaded{}, ""},
		{NodeUp{Session: 1, Node: "ws1", Boot: "b1", State: "s1", Offer: big}, "node ws1 s1"},
		{ListEnd{1}, ""},
		{ask(1, 3, job.Resources{CPUs: 1, GPUs: job.OneGPU}), "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
		{ask(2, 3, job.Resources{CPUs: 1, Memory: 16 << 30}), "start 2/0 a3~1 ws1/1; START 1 2/0 a3; start 2/1 a4~1 ws1/1; START 1 2/1 a4"},
		{ask(3, 1, job.Resources{CPUs: 1}), "start 3/0 a5~1 ws1/1; START 1 3/0 a5"},
		{ask(4, 1, job.Resources{CPUs: 1, GPUs: 4 * job.OneGPU}), ""},
		{ask(5, 1, job.Resources{CPUs: 1, Memory: 64 << 30}), ""},
		{ask(6, 1, job.Resources{CPUs: 9}), ""},
		{ask(7, 1, job.Resources{GPUs: job.OneGPU}), ""},
		{ended(1, 1, exited(0, "m")), "GRANT 1 a1; start 1/2 a6~1 ws1/1; START 1 1/2 a6"},
		{up(2, "ws2", 8), "node ws2 s1"},
		{ListEnd{2}, ""},
		{ask(8, 1, job.Resources{CPUs: 1}), "start 8/0 a7~1 ws2/1; START 2 8/0 a7"}, // though it fills the one with GPUs better
	}.run(t, r)
	for batch, want := range map[uint32]string{2: "1 cpu, 16G: 1 of 2 nodes has it: ws1 busy", 4: "no node has 4 gpus, the most is 3 gpus on ws1", 5: "no node has 64G of memory, the most is 32G on ws1",
		6: "none of 2 nodes offers 9 cpus, the most is 8 cpus on ws1"} {
		r.why(Ref{batch, r.waits(batch)}, want)
	}
	if n := r.m.Nodes()[0]; n.GPUs != 3 || n.GPUsUsed != 2*job.OneGPU || n.MemoryUsed != 32<<30 || n.CPUsUsed != 5 {
		t.Errorf("it is shown as %+v", n.Row)
	}
	log := r.logs[2]
	if rec := log[0].rec; rec.Memory != 16<<30 || rec.GPUs != 0 {
		t.Errorf("the record of a start is %+v", rec)
	}
}

// waits is the first job of a batch that waits.
func (r *rig) waits(batch uint32) uint32 {
	for i, s := range r.m.batches[batch].States {
		if s == job.Queued {
			return uint32(i)
		}
	}
	return 0
}
