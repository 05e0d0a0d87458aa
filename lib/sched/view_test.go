package sched

import (
	"errors"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

var errNoRoom = errors.New("no room")

func TestTooMixed(t *testing.T) {
	asks := make([]Ask, 300)
	for i := range asks {
		asks[i].CPUs = uint16(i + 1)
	}
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: len(asks), Asks: asks})
	counts := r.m.Counts(1)
	if counts[job.Queued] != MaxClasses-2 || counts[job.Failed] != len(asks)-MaxClasses+2 {
		t.Errorf("of %d jobs that all ask for something else: %v", len(asks), counts)
	}
}

func TestReplayRefusesDamage(t *testing.T) {
	start := job.Record{Kind: job.KindStart, Attempt: tok(1), Try: 1, Node: "ws1", CPUs: 1}
	about := func(kind job.Kind, n int) job.Record {
		return job.Record{Kind: kind, Attempt: tok(n), Node: "ws1", Manifest: "m"}
	}
	for _, c := range []struct {
		name string
		job  uint32
		recs []job.Record
	}{
		{"a job that is not there", 7, []job.Record{start}},
		{"a kind that is unknown", 0, []job.Record{{Kind: "flown"}}},
		{"done before any start", 0, []job.Record{about(job.KindDone, 1)}},
		{"an attempt that starts twice", 0, []job.Record{start, about(job.KindBack, 1), start}},
		{"an attempt without a token", 0, []job.Record{{Kind: job.KindStart, Attempt: "x", Try: 1, Node: "ws1"}}},
		{"an attempt without a node", 0, []job.Record{{Kind: job.KindStart, Attempt: tok(1), Try: 1}}},
		{"the end of another attempt", 0, []job.Record{start, about(job.KindFailed, 2)}},
		{"an end of no attempt", 0, []job.Record{start, {Kind: job.KindFailed}}},
		{"late of what is current", 0, []job.Record{start, about(job.KindLate, 1)}},
		{"adopted though current", 0, []job.Record{start, about(job.KindAdopt, 1)}},
		{"accepted though cancelled before", 0, []job.Record{start, {Kind: job.KindCancelled}, {Kind: job.KindRetry}, about(job.KindDone, 1)}},
	} {
		m := New(Config{})
		m.step(AddBatch{Batch: 1, Jobs: 1, Replay: true}, 0)
		var err error
		for i := range c.recs {
			before := m.Snapshot()
			if err = m.Replay(Ref{1, c.job}, &c.recs[i]); err != nil && m.Snapshot() != before {
				t.Errorf("%s: refused, and changes the state", c.name)
			}
		}
		if err == nil {
			t.Errorf("%s: taken", c.name)
		}
	}
}

func TestViews(t *testing.T) {
	r := newRig(t, Config{})
	why := func(want string) {
		t.Helper()
		r.why(Ref{1, 1}, want)
		if strings.Contains(want, "busy") {
			want = ""
		}
		if got := stuck(r.m, 1); got != want {
			t.Errorf("stuck: %q, should be %q", got, want)
		}
	}
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, ID: "u/b", Jobs: 2, Spec: &job.Spec{Kind: job.Python, Resources: job.Resources{CPUs: 4}, Capabilities: []string{"gpu"}}})
	why("no node is connected")
	r.apply(up(1, "ws2", 4))
	why("none of 1 nodes has all of gpu, python3 (gpu, python3 are missing)")
	r.apply(up(2, "ws1", 2, "gpu", "python3"))
	why("none of 1 nodes offers 4 cpus, the most is 2 cpus on ws1")
	r.apply(NodeDown{2})
	r.joins(3, "ws1", 4, "gpu", "python3")
	why("gpu, python3: 1 of 2 nodes has it: ws1 busy")
	r.apply(phase(3, 1, job.PhaseRunning))

	var live []Attempt
	r.m.Live(func(a Attempt) { live = append(live, a) })
	want := Attempt{Ref: Ref{1, 0}, Token: tok(1), Try: 1, Node: "ws1", CPUs: 4, Phase: job.PhaseRunning, State: job.Running, Current: true}
	if len(live) != 1 || live[0] != want {
		t.Errorf("live: %v, should be %v", live, want)
	}
	if a, ok := r.m.Current(Ref{1, 0}); !ok || a != want {
		t.Errorf("current: %v", a)
	}
	if a, ok := r.m.Attempt(tok(1)); !ok || a != want {
		t.Errorf("attempt: %v", a)
	}
	rows := r.m.Nodes()
	if len(rows) != 2 || rows[0].Node != "ws1" || rows[0].State != node.Busy || rows[0].CPUsUsed != 4 || rows[1].State != node.Idle {
		t.Errorf("nodes: %+v", rows)
	}
	r.apply(ended(3, 1, exited(0, "m")))
	r.apply(Staged{Attempt: tok(1), Err: errNoRoom, NoRoom: true})
	if a, _ := r.m.Attempt(tok(1)); a.State != job.Stranded || a.Result == nil || a.Result.Manifest != "m" {
		t.Errorf("a result without room: %v", a)
	}
	r.apply(NodeDown{3})
	if a, _ := r.m.Attempt(tok(2)); a.State != job.Unreachable {
		t.Errorf("an attempt whose node is away: %v", a)
	}
	if s := r.m.State(Ref{1, 0}); s != job.Running || r.m.State(Ref{9, 0}) != job.Cancelled {
		t.Errorf("state: %v", s)
	}
	if s := r.m.Snapshot(); !strings.Contains(s, "attempt "+string(tok(1))) {
		t.Errorf("snapshot: %s", s)
	}
}

// TestWhyBarred tells that nodes which do not run a user's jobs are none that can,
// and which those are when there is no other.
func TestWhyBarred(t *testing.T) {
	r := newRig(t, Config{})
	why := func(want string) {
		t.Helper()
		r.why(Ref{1, 1}, want)
	}
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, ID: "u/b", Jobs: 2, Spec: &job.Spec{Resources: job.Resources{CPUs: 4}}})
	r.joins(1, "ws1", 4)
	r.apply(ended(1, 1, barred))
	why("0 of 1 nodes can run it: ws1 gave it back (does not run jobs of u)")
	r.joins(2, "ws2", 4)
	why("1 of 2 nodes can run it: ws1 gave it back (does not run jobs of u), ws2 busy")
}

func TestClosed(t *testing.T) {
	r := newRig(t, Config{})
	closed := func(want bool) {
		t.Helper()
		if got := r.m.Closed(1); got != want {
			t.Errorf("closed: %v, should be %v", got, want)
		}
	}
	closed(false)
	r.apply(Loaded{})
	r.apply(whole)
	closed(false)
	r.apply(cancel)
	closed(true)
	r.apply(retry)
	closed(false)
}

// Counts tells how many jobs of a batch are in each state of its log.
func (m *Machine) Counts(batch uint32) (counts map[job.State]int) {
	counts = map[job.State]int{}
	if b := m.batches[batch]; b != nil {
		for s, n := range b.counts {
			if n > 0 {
				counts[job.State(s)] = n
			}
		}
	}
	return counts
}

// stuck is why the first job waits that does, if none of its batch can start.
func stuck(m *Machine, batch uint32) string {
	if why := m.Stuck(batch); why != nil {
		for j := range m.batches[batch].States {
			if m.State(Ref{batch, uint32(j)}) == job.Queued {
				return why(j)
			}
		}
	}
	return ""
}

// TestStuckEach asks for jobs that no node can run, each for a reason of its own.
func TestStuckEach(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, ID: "u/b", Jobs: 3, Spec: &job.Spec{Resources: job.Resources{CPUs: 99}},
		Asks: []Ask{{CPUs: 1, GPUs: 3000}, {CPUs: 1, Memory: 1 << 40}}})
	r.apply(up(1, "ws1", 4))
	why := r.m.Stuck(1)
	if why == nil {
		t.Fatal("one of them can start")
	}
	for j, want := range []string{"no node has 3 gpus", "no node has 1T of memory", "none of 1 nodes offers 99 cpus, the most is 4 cpus on ws1", ""} {
		if got := why(j); got != want {
			t.Errorf("job %d waits since %q, should be %q", j, got, want)
		}
	}
}

// TestStuckSome asks for jobs of which some can start sooner or later, and the
// others never.
func TestStuckSome(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.joins(1, "ws1", 1)
	r.apply(AddBatch{Batch: 1, ID: "u/b", Jobs: 4, Spec: &job.Spec{Resources: job.Resources{CPUs: 1}},
		Asks: []Ask{{CPUs: 1}, {CPUs: 1, GPUs: 1000}, {CPUs: 1}, {CPUs: 1, GPUs: 1000}}})
	why := r.m.Stuck(1)
	if why == nil {
		t.Fatal("none of them is stuck")
	}
	for j, want := range []string{"", "no node has 1 gpu", "", "no node has 1 gpu", ""} {
		if got := why(j); got != want {
			t.Errorf("job %d waits since %q, should be %q", j, got, want)
		}
	}
}

// A cancelled job is stopping until what it left is home. It is not if the head has no room for
// that: who waits for the job would wait until somebody makes room.
func TestStoppingUntilHome(t *testing.T) {
	for _, stranded := range []bool{false, true} { // before it is cancelled
		r := newRig(t, Config{})
		for _, s := range trying(0) {
			r.apply(s.ev)
		}
		r.apply(phase(1, 1, job.PhaseRunning))
		staged := Staged{Attempt: tok(1), Err: errNoRoom, NoRoom: true}
		if stranded {
			r.apply(ended(1, 1, exited(1, "m")))
			r.apply(staged)
		}
		r.apply(Cancel{Ref: Ref{1, 0}, By: "maria", Request: tok(901)})
		if !stranded {
			r.apply(ended(1, 1, exited(1, "m")))
			if _, is := r.m.Stopping(Ref{1, 0}); !is {
				t.Error("it is over before what it left is home")
			}
			r.apply(staged)
		}
		if a, is := r.m.Stopping(Ref{1, 0}); is {
			t.Errorf("without room it is stopping: %+v", a)
		}
	}
}

// A cancelled job is not stopping any more when the transfer of what it left has failed twice, as
// when its node cannot read a file: nobody but an operator could end that.
func TestStoppingUntilTransferFailsTwice(t *testing.T) {
	r := newRig(t, Config{})
	for _, s := range trying(0) {
		r.apply(s.ev)
	}
	r.apply(phase(1, 1, job.PhaseRunning))
	r.apply(Cancel{Ref: Ref{1, 0}, By: "maria", Request: tok(901)})
	r.apply(ended(1, 1, exited(1, "m")))
	for n := range 2 {
		r.apply(Staged{Attempt: tok(1), Err: errors.New("cut")})
		if _, is := r.m.Stopping(Ref{1, 0}); is != (n == 0) {
			t.Errorf("stopping after %d failed transfers: %v", n+1, is)
		}
	}
}

// Of a node whose session is found to be over when it was silent for a minute already, as when the
// head was busy, nothing that was cancelled is stopping, and who waits is told so.
func TestNotStoppingAfterSilence(t *testing.T) {
	for name, down := range map[string]Event{"its session ends": NodeDown{1}, "its lease is over": Tick{}} {
		for _, over := range []bool{false, true} { // on its node
			r := newRig(t, Config{Lease: time.Hour})
			for _, s := range trying(0) {
				r.apply(s.ev)
			}
			r.apply(phase(1, 1, job.PhaseRunning))
			r.apply(Cancel{Ref: Ref{1, 0}, By: "maria", Request: tok(901)})
			if over {
				r.apply(ended(1, 1, exited(1, "m")))
			}
			r.now += 2 * time.Minute
			r.apply(Tick{})
			if _, is := r.m.Stopping(Ref{1, 0}); !is {
				t.Errorf("%s: it is not stopping while its node is connected", name)
			}
			r.now += time.Hour
			r.apply(down)
			told := len(r.m.Changed())
			r.apply(Tick{})
			if a, is := r.m.Stopping(Ref{1, 0}); is || told != 1 {
				t.Errorf("%s: it is stopping: %v, %+v; told: %d", name, is, a, told)
			}
		}
	}
}
