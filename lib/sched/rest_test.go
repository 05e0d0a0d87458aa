package sched

import (
	"fmt"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// failing goes on from a batch of single cpus on ws1 (session 1), whose attempt
// n fails within a second.
func failing(n int) []Event {
	return []Event{phase(1, n, job.PhaseRunning), ended(1, n, quickly(exited(1, "")))}
}

// black is a rig whose ws1 has one cpu and fails, one second after another, and
// whose ws2 (session 2) has one cpu and is busy with attempt 1.
func black(t *testing.T, jobs int) *rig {
	r := newRig(t, Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: jobs, Spec: single}, up(2, "ws2", 1), ListEnd{2}, phase(2, 1, job.PhaseRunning),
		up(1, "ws1", 1), ListEnd{1}} {
		r.apply(ev)
	}
	return r
}

// fail has ws1 fail attempts from to to.
func (r *rig) fail(from, to int) {
	for n := from; n <= to; n++ {
		r.now += time.Second
		for _, ev := range failing(n) {
			r.apply(ev)
		}
		r.apply(gone(1, n))
	}
}

// end ends, a second later, the job that runs on a node, with that status.
func (r *rig) end(session uint64, name node.Name, exit int) {
	a := r.m.named[name].first
	for !a.Active {
		a = a.after
	}
	var n int
	fmt.Sscanf(string(a.Token), "%x", &n)
	r.now += time.Second
	for _, ev := range []Event{phase(session, n, job.PhaseRunning), ended(session, n, quickly(exited(exit, "m"))), staged(n, "m"), gone(session, n)} {
		r.apply(ev)
	}
}

// later lets time pass, with both nodes heard.
func (r *rig) later(d time.Duration) {
	r.now += d
	for _, ev := range []Event{Heard{1}, Heard{2}, Tick{}} {
		r.apply(ev)
	}
}

func (r *rig) row(name node.Name) Node {
	r.t.Helper()
	for _, n := range r.m.Nodes() {
		if n.Node == name {
			return n
		}
	}
	r.t.Fatalf("no node %s", name)
	return Node{}
}

func (r *rig) expectRest(want node.State, left time.Duration) {
	r.t.Helper()
	n := r.row("ws1")
	if n.State != want || want == node.Resting && n.Until-r.now != left {
		r.t.Errorf("at %v ws1 is %s for %v, want %s for %v", r.now, n.State, n.Until-r.now, want, left)
	}
}

// A node that fails one job after another at once is rested, for longer each
// time until one ends well; the jobs go elsewhere.
func TestL47BlackHole(t *testing.T) {
	r := black(t, 20)
	r.fail(2, 3)
	r.expectRest(node.Busy, 0)
	r.fail(4, 4)
	r.expectRest(node.Resting, time.Minute)
	if got, want := r.row("ws1").Note, "3 jobs failed within 2s"; got != want {
		t.Errorf("the note is %q, want %q", got, want)
	}
	r.apply(ended(1, 5, unstarted)) // it waited there, and was asked back
	r.apply(ended(2, 1, exited(1, "")))
	r.apply(phase(2, 6, job.PhaseRunning)) // the next goes to ws2
	for rest := time.Minute; rest <= 3*time.Hour; rest *= 2 {
		r.expectRest(node.Resting, min(rest, time.Hour))
		drawn := r.drawn
		r.later(min(rest, time.Hour) - time.Second)
		if r.drawn != drawn {
			t.Fatal("a node that rests was given a job")
		}
		r.later(time.Second)
		r.expectRest(node.Busy, 0)
		r.fail(r.drawn, r.drawn)
	}
	r.later(time.Hour)
	for _, ev := range []Event{ended(1, r.drawn, quickly(exited(0, "m"))), staged(r.drawn, "m")} {
		r.apply(ev)
	}
	r.fail(r.drawn, r.drawn+1)
	r.expectRest(node.Busy, 0)
}

// After its rest a node is given as much as it has room for; one failure within an hour has it
// rest again, for twice as long. After that it rests as if it had never rested.
func TestL47AfterItsRest(t *testing.T) {
	r := newRig(t, Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 90, Spec: single}, up(2, "ws2", 1), ListEnd{2}, phase(2, 1, job.PhaseRunning),
		up(1, "ws1", 4), ListEnd{1}} {
		r.apply(ev)
	}
	r.fail(2, 5)
	r.expectRest(node.Resting, time.Minute-time.Second)
	for _, c := range []struct {
		after time.Duration
		fails int
		rest  time.Duration
	}{{0, 1, 2 * time.Minute}, {longRest / 2, 1, 4 * time.Minute}, {2 * longRest, 3, time.Minute}} {
		for r.row("ws1").State == node.Resting {
			r.later(time.Second)
		}
		for passed := time.Duration(0); passed < c.after; passed += time.Minute {
			r.later(time.Minute)
		}
		var runs []int
		for a := r.m.named["ws1"].first; a != nil; a = a.after {
			if a.Active {
				var n int
				fmt.Sscanf(string(a.Token), "%x", &n)
				runs = append(runs, n)
			}
		}
		if len(runs) != 4 {
			t.Fatalf("%d jobs run after its rest", len(runs))
		}
		for _, n := range runs[:c.fails] {
			r.expectRest(node.Busy, 0)
			r.fail(n, n)
		}
		r.expectRest(node.Resting, c.rest)
		for _, n := range runs[c.fails:] { // what was begun before does not have it rest longer
			r.fail(n, n)
		}
		r.expectRest(node.Resting, c.rest-time.Duration(4-c.fails)*time.Second)
	}
}

// The jobs that count against a node are those of the last hour: an older one is forgotten
// alone, and one that fails once more counts from then on.
func TestRestWithinAnHour(t *testing.T) {
	for _, c := range []struct {
		minutes []int
		again   bool // the second failure is of the first job, tried again
		rests   bool
	}{
		{[]int{0, 59, 61, 62}, false, true},
		{[]int{0, 30, 61, 62}, false, true},
		{[]int{0, 30, 61, 91}, false, false},
		{[]int{0, 59, 60, 61}, true, true},
		{[]int{0, 10, 60, 71}, true, false},
	} {
		r := black(t, 2)
		first, minute := r.m.named["ws1"].first.ref, 0
		for i, at := range c.minutes {
			for ; minute < at; minute++ {
				r.later(time.Minute)
			}
			r.expectRest(node.Busy, 0)
			a := r.m.named["ws1"].first
			if (a.ref == first) != (i == 0 || i == 1 && c.again) {
				t.Fatalf("%v: failure %d is of %v", c.minutes, i, a.ref)
			}
			var n int
			fmt.Sscanf(string(a.Token), "%x", &n)
			for _, ev := range append(failing(n), gone(1, n)) {
				r.apply(ev)
			}
			if c.again && i == 0 {
				r.apply(Retry{Ref: first, By: "u"})
			} else {
				r.apply(AddBatch{Batch: uint32(i + 2), Jobs: 1, Spec: single})
			}
		}
		if got := r.row("ws1").State == node.Resting; got != c.rests {
			t.Errorf("jobs failed at minutes %v: it rests: %v", c.minutes, got)
		}
	}
}

// An operator ends a rest, and so does another start of the head. What a batch has done
// on a node follows from its log.
func TestL47RestEnds(t *testing.T) {
	r := black(t, 40)
	r.fail(2, 4)
	r.apply(ended(1, 5, unstarted))
	r.expectRest(node.Resting, time.Minute)
	r.apply(Drain{Node: "ws1"})
	r.expectRest(node.Busy, 0)
	r.fail(r.drawn, r.drawn+1)
	r.expectRest(node.Busy, 0)
	r.fail(r.drawn, r.drawn)
	r.expectRest(node.Resting, time.Minute) // not twice as long

	for _, good := range []bool{false, true} {
		r := newRig(t, Config{})
		for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 19, Spec: single}, up(1, "ws1", 1), ListEnd{1}} {
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
		m, err := r.replayed()
		if err != nil {
			t.Fatal(err)
		}
		r.m, r.uses = m, map[int]*plainUse{}
		for _, ev := range []Event{Loaded{}, up(2, "ws2", 1), up(3, "ws1", 1), item(3, n, job.PhaseRunning), ListEnd{3}, ListEnd{2}} {
			r.apply(ev)
		}
		end(3, quickly(exited(1, "m")))
		if r.row("ws1").State == node.Resting {
			t.Errorf("what failed before the restart counts")
		}
		for range 2 {
			n = r.drawn
			end(3, quickly(exited(1, "m")))
		}
		if got := r.row("ws1").State == node.Resting; got == good {
			t.Errorf("a job ended well there: %v; it rests: %v", good, got)
		}
	}
}

// What fails elsewhere, too, is no node's fault, nor is what can run nowhere
// else, nor what was cancelled, nor what took its time.
func TestL47NotTheNode(t *testing.T) {
	t.Run("elsewhere too", func(t *testing.T) {
		r := black(t, 20)
		r.apply(ended(2, 1, quickly(exited(1, ""))))
		r.fail(2, 2)
		r.fail(4, 9)
		r.expectRest(node.Busy, 0)
	})
	for _, long := range []bool{false, true} {
		t.Run(fmt.Sprintf("elsewhere too, beside one that runs for long: %v", long), func(t *testing.T) {
			r := newRig(t, Config{})
			for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 40, Spec: single}, up(2, "ws2", 2), ListEnd{2}, phase(2, 1, job.PhaseRunning), phase(2, 2, job.PhaseRunning),
				up(1, "ws1", 1), ListEnd{1}} {
				r.apply(ev)
			}
			if long {
				r.later(fast)
			}
			for _, ev := range []Event{ended(2, 1, quickly(exited(1, "m"))), staged(1, "m"), gone(2, 1)} {
				r.apply(ev)
			}
			for range 3 {
				r.expectRest(node.Busy, 0)
				r.end(1, "ws1", 1)
			}
			if long {
				r.expectRest(node.Resting, time.Minute)
			} else {
				r.expectRest(node.Busy, 0)
			}
		})
	}
	t.Run("by limits of their own", func(t *testing.T) {
		r := black(t, 20)
		r.later(fast)
		reasons := []string{"out of memory: it had 20M", "time limit", "stopped: it had written 2G", "out of memory: it had 1G (rank 1 of 2)"}
		for n := 2; n < 7; n++ {
			failed := quickly(exited(1, "m"))
			failed.Reason = reasons[n%len(reasons)]
			for _, ev := range []Event{phase(1, n, job.PhaseRunning), ended(1, n, failed), staged(n, "m"), gone(1, n)} {
				r.apply(ev)
			}
			r.expectRest(node.Busy, 0)
		}
		r.fail(7, 9)
		r.expectRest(node.Resting, time.Minute)
	})
	t.Run("by a limit of its own at a retry, before a restart", func(t *testing.T) {
		r := newRig(t, Config{})
		for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Resources: single.Resources, Retries: 1}}, up(1, "ws1", 1), ListEnd{1}} {
			r.apply(ev)
		}
		for n, reason := range []string{"", "time limit"} {
			failed := quickly(exited(1, "m"))
			failed.Reason = reason
			for _, ev := range []Event{phase(1, n+1, job.PhaseRunning), ended(1, n+1, failed), staged(n+1, "m"), gone(1, n+1)} {
				r.apply(ev)
			}
		}
		m, err := r.replayed()
		if err != nil {
			t.Fatal(err)
		}
		lead := func(m *Machine) int { return m.leadOn(m.batches[1], m.named["ws1"]) }
		if now, then := lead(m), lead(r.m); now != -1 || then != -1 || r.m.State(Ref{1, 0}) != job.Failed {
			t.Errorf("%d jobs less ended well there than failed, and %d before the restart", -now, -then)
		}
	})
	t.Run("where another runs for long", func(t *testing.T) {
		r := newRig(t, Config{})
		for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 40, Spec: single}, up(2, "ws2", 1), ListEnd{2}, up(1, "ws1", 2), ListEnd{1}, phase(1, 2, job.PhaseRunning)} {
			r.apply(ev)
		}
		r.later(fast)
		for n := 3; n < 13; n++ {
			r.expectRest(node.Busy, 0)
			r.fail(n, n)
		}
		r.expectRest(node.Resting, time.Minute)
	})
	t.Run("elsewhere too, beside one whose node is away", func(t *testing.T) {
		r := newRig(t, Config{})
		r.apply(Loaded{})
		r.apply(AddBatch{Batch: 1, Jobs: 40, Spec: single})
		for s := uint64(3); s > 0; s-- {
			r.apply(up(s, fmt.Sprint("ws", s), 1))
			r.apply(ListEnd{s})
		}
		r.apply(phase(2, 2, job.PhaseRunning))
		r.apply(NodeDown{2})
		r.now += fast
		r.apply(Heard{1})
		r.apply(Heard{3})
		r.end(3, "ws3", 1)
		for range 3 {
			r.expectRest(node.Busy, 0)
			r.end(1, "ws1", 1)
		}
		r.expectRest(node.Busy, 0)
	})
	for _, well := range []int{1, 4} {
		t.Run(fmt.Sprintf("of 4 elsewhere %d end well", well), func(t *testing.T) {
			r := black(t, 60)
			for i := range 4 {
				r.end(2, "ws2", max(0, i-well+1))
			}
			for range 3 {
				r.expectRest(node.Busy, 0)
				r.end(1, "ws1", 1)
			}
			if well == 1 {
				r.expectRest(node.Busy, 0)
			} else {
				r.expectRest(node.Resting, time.Minute)
			}
		})
	}
	t.Run("elsewhere too after many ended well", func(t *testing.T) {
		r := black(t, 220)
		for i := range 90 {
			r.expectRest(node.Busy, 0)
			r.end(2, "ws2", i/60)
			r.end(1, "ws1", i/60)
		}
		for range 14 { // after the fifth, half of the last ten there ended well; then ten count
			r.expectRest(node.Busy, 0)
			r.end(2, "ws2", 0)
			r.end(1, "ws1", 1)
		}
		r.expectRest(node.Resting, time.Minute)
	})
	t.Run("of an input that the head has not", func(t *testing.T) {
		r := black(t, 20)
		for n := 2; n <= 9; n++ {
			r.now += time.Second
			r.apply(ended(1, n, Result{Outcome: job.Outcome{Reason: job.ReasonInput + `"input/a" is missing on the head`}}))
			r.apply(gone(1, n))
		}
		r.expectRest(node.Busy, 0)
		m, err := r.replayed()
		if err != nil {
			t.Fatal(err)
		}
		if seen := m.batches[1].seen; len(seen) > 0 {
			t.Errorf("by the log %d nodes failed jobs at once", len(seen))
		}
	})
	t.Run("of an input that the head has not, of jobs that are tried again", func(t *testing.T) {
		again := *single
		again.Retries = 1
		r := newRig(t, Config{})
		for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 1, Spec: &again}, up(1, "ws1", 1), ListEnd{1}} {
			r.apply(ev)
		}
		for n := 1; n <= 2; n++ {
			r.now += time.Second
			r.apply(ended(1, n, Result{Outcome: job.Outcome{Reason: job.ReasonInput + `"input/a" is missing on the head`}}))
			r.apply(gone(1, n))
		}
		m, err := r.replayed()
		if err != nil {
			t.Fatal(err)
		}
		if seen := m.batches[1].seen; len(seen) > 0 || r.m.batches[1].States[0] != job.Failed {
			t.Errorf("by the log %d nodes failed jobs at once; it is %v", len(seen), r.m.batches[1].States[0])
		}
	})
	t.Run("but of inputs that come wrong to it", func(t *testing.T) {
		r := black(t, 20)
		for n := 2; n <= 4; n++ {
			r.expectRest(node.Busy, 0)
			r.now += time.Second
			r.apply(ended(1, n, Result{Outcome: job.Outcome{Reason: job.ReasonRotten + `"input/a" says: see dfsck(8)`}}))
			r.apply(gone(1, n))
		}
		r.expectRest(node.Resting, time.Minute)
	})
	t.Run("nowhere else", func(t *testing.T) {
		r := black(t, 20)
		r.apply(NodeDown{2})
		r.fail(2, 9)
		r.expectRest(node.Busy, 0)
		for _, ev := range []Event{up(3, "ws2", 1), item(3, 1, job.PhaseRunning), ListEnd{3}} {
			r.apply(ev)
		}
		r.fail(10, 10) // what failed there before does not count
		r.expectRest(node.Busy, 0)
	})
	t.Run("slowly", func(t *testing.T) {
		r := black(t, 20)
		r.fail(2, 3)
		r.apply(ended(1, 4, ran(10, exited(1, ""))))
		r.fail(5, 6)
		r.expectRest(node.Busy, 0)
	})
	t.Run("nearly slowly", func(t *testing.T) {
		r := black(t, 20)
		r.fail(2, 3)
		r.apply(ended(1, 4, ran(9.9, exited(1, ""))))
		r.expectRest(node.Resting, time.Minute)
	})
	t.Run("cancelled", func(t *testing.T) {
		r := black(t, 20)
		r.fail(2, 3)
		r.apply(Cancel{Ref: Ref{1, 3}, By: "u", Request: "q"})
		r.apply(ended(1, 4, quickly(exited(1, ""))))
		r.expectRest(node.Busy, 0)
	})
	t.Run("a batch of good and bad ends", func(t *testing.T) {
		r := black(t, 40)
		r.apply(ended(1, 2, quickly(exited(0, "m"))))
		r.apply(staged(2, "m"))
		r.fail(r.drawn-1, r.drawn-1) // one was sent ahead
		for range 8 {
			r.expectRest(node.Busy, 0)
			r.fail(r.drawn-1, r.drawn-1)
		}
		r.fail(r.drawn-1, r.drawn-1)
		r.expectRest(node.Resting, time.Minute)
	})
	t.Run("another boot", func(t *testing.T) {
		r := black(t, 20)
		r.fail(2, 4)
		r.apply(NodeDown{1})
		r.apply(NodeUp{Session: 3, Node: "ws1", Boot: "b2", State: "s1", Offer: node.Offer{CPUs: 1}})
		r.apply(ListEnd{3})
		r.expectRest(node.Busy, 0)
	})
}

// What waits on a node that begins to rest is asked back.
func TestL47AskedBack(t *testing.T) {
	r := black(t, 40)
	r.apply(ended(1, 2, quickly(exited(0, "m"))))
	r.apply(staged(2, "m"))
	recalled := 0
	for range 20 {
		n := r.drawn - 1
		r.now += time.Second
		r.apply(phase(1, n, job.PhaseRunning))
		for _, a := range r.apply(ended(1, n, quickly(exited(1, "")))) {
			if a, ok := a.(Recall); ok && a.Why == "its node rests, as jobs fail there" {
				recalled++
			}
		}
		if r.row("ws1").State == node.Resting {
			break
		}
	}
	if recalled != 1 {
		t.Errorf("%d were asked back", recalled)
	}
	r.apply(ended(1, r.drawn, unstarted))
	if got := fmt.Sprint(r.m.Why(Ref{1, uint32(r.drawn) - 1})); got == "" {
		t.Error("what was asked back does not wait")
	}
}

// A node that is away is silent until its lease ends, and lost from then on;
// what becomes of its jobs is told.
func TestL37SilentThenLost(t *testing.T) {
	r := newRig(t, Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 1, Spec: single}, AddBatch{Batch: 2, Jobs: 1, Spec: single, Once: true},
		up(1, "ws1", 2), ListEnd{1}, phase(1, 1, job.PhaseRunning), phase(1, 2, job.PhaseRunning), NodeDown{1}} {
		r.apply(ev)
	}
	r.now = 899 * time.Second
	r.apply(Tick{})
	if n := r.row("ws1"); n.State != node.Silent || n.Until != 900*time.Second || n.Wait != 1 || n.Stay != 1 {
		t.Errorf("before the end of its lease: %+v", n)
	}
	for i, want := range []time.Duration{900 * time.Second, 0} {
		if a, _ := r.m.Current(Ref{uint32(i + 1), 0}); a.State != job.Unreachable || a.Until != want {
			t.Errorf("attempt %d: %+v", i, a)
		}
	}
	r.now = 900 * time.Second
	r.apply(Tick{})
	if n := r.row("ws1"); n.State != node.Lost || n.Wait != 0 || n.Stay != 1 {
		t.Errorf("after it: %+v", n)
	}
	if r.m.State(Ref{1, 0}) != job.Queued || r.m.State(Ref{2, 0}) != job.Running {
		t.Error("the jobs are not where they should be")
	}
}

// A node is not rested for jobs that fail where the only other one is paused.
func TestL47OthersPaused(t *testing.T) {
	r := black(t, 20)
	r.apply(Offered{2, node.Offer{CPUs: 1, Pause: &node.Pause{}}})
	r.fail(2, 4)
	r.expectRest(node.Busy, 0)
}
