package sched

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// asks is a batch whose jobs take a cpu each.
func asks(batch uint32, owner, jobs, priority, most int) AddBatch {
	spec := *single
	spec.Priority, spec.MaxRunning = priority, most
	return AddBatch{Batch: batch, Owner: owner, Jobs: jobs, Spec: &spec}
}

// What is started first is in the order of the starts; want is that of one event.
var orders = ruleBook{
	{"a higher priority that an operator has set goes first, whoever has used less", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 1, 0, 0), ""},
		{0, asks(2, 1, 1, -1, 0), ""},
		{0, asks(3, 2, 2, 5, 0), ""},
		{0, setTo(3, forAll(5)), "set 3/all"},
		{0, up(1, "ws1", 2), "node ws1 s1"},
	}, []step{
		{0, ListEnd{1}, "start 3/0 a1~1 ws1/1; START 1 3/0 a1; start 3/1 a2~1 ws1/1; START 1 3/1 a2"},
		{9, ended(1, 1, exited(1, "")), "failed 3/0 a1; HAVE 1 a1; start 1/0 a3~1 ws1/1; START 1 1/0 a3"},
		{9, ended(1, 3, exited(1, "")), "failed 1/0 a3; HAVE 1 a3; start 2/0 a4~1 ws1/1; START 1 2/0 a4"},
	}},
	{"it is taken back by 0, and everybody may lift if the head says so", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 3, 0, 0), ""},
		{0, asks(2, 2, 3, 0, 0), ""},
		{0, setTo(2, forAll(5)), "set 2/all"},
		{0, setTo(2, forAll(0)), "set 2/all"},
		{0, setTo(2, forAll(0)), ""},
		{0, up(1, "ws1", 1), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
	}, []step{
		{10, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 2/0 a2~1 ws1/1; START 1 2/0 a2"},
		{10, Preferred{true}, ""},
		{10, asks(3, 1, 1, 1, 0), ""},
		{10, asks(4, 2, 1, 2, 0), ""},
		{30, ended(1, 2, exited(1, "")), "failed 2/0 a2; HAVE 1 a2; start 4/0 a3~1 ws1/1; START 1 4/0 a3"},
		{90, ended(1, 3, exited(1, "")), "failed 4/0 a3; HAVE 1 a3; start 3/0 a4~1 ws1/1; START 1 3/0 a4"},
	}},
	{"the priority of a job is added to that of its batch, also of one that is added", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 3, 1, 0), ""},
		{0, func() Event { b := asks(2, 1, 2, 0, 0); b.Own = []int16{1, 3}; return b }(), ""},
		{0, up(1, "ws1", 2), "node ws1 s1"},
	}, []step{
		{0, ListEnd{1}, "start 2/1 a1~1 ws1/1; START 1 2/1 a1; start 1/0 a2~1 ws1/1; START 1 1/0 a2"},
		{0, AddJobs{Batch: 1, Jobs: 2, Own: []int16{-1, 1}, Spec: single}, ""},
		{9, ended(1, 1, exited(1, "")), "failed 2/1 a1; HAVE 1 a1; start 1/4 a3~1 ws1/1; START 1 1/4 a3"},
		{9, ended(1, 3, exited(1, "")), "failed 1/4 a3; HAVE 1 a3; start 1/1 a4~1 ws1/1; START 1 1/1 a4"},
		{9, ended(1, 4, exited(1, "")), "failed 1/1 a4; HAVE 1 a4; start 1/2 a5~1 ws1/1; START 1 1/2 a5"},
		{9, ended(1, 5, exited(1, "")), "failed 1/2 a5; HAVE 1 a5; start 2/0 a6~1 ws1/1; START 1 2/0 a6"},
		{9, ended(1, 6, exited(1, "")), "failed 2/0 a6; HAVE 1 a6; start 1/3 a7~1 ws1/1; START 1 1/3 a7"},
	}},
	{"owners take turns, also when much is free at once", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 9, 0, 0), ""},
		{0, asks(2, 2, 2, 0, 0), ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
	}, []step{
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 2/0 a2~1 ws1/1; START 1 2/0 a2; " +
			"start 1/1 a3~1 ws1/1; START 1 1/1 a3; start 2/1 a4~1 ws1/1; START 1 2/1 a4"},
	}},
	{"and three owners", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 9, 0, 0), ""},
		{0, asks(2, 2, 9, 0, 0), ""},
		{0, asks(3, 3, 9, 0, 0), ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
	}, []step{
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 2/0 a2~1 ws1/1; START 1 2/0 a2; " +
			"start 3/0 a3~1 ws1/1; START 1 3/0 a3; start 1/1 a4~1 ws1/1; START 1 1/1 a4"},
	}},
	{"who has used less goes first, however long the other waits", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 9, 0, 0), ""},
		{0, up(1, "ws1", 2), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
		{60, asks(2, 2, 3, 0, 0), ""},
	}, []step{
		{60, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 2/0 a3~1 ws1/1; START 1 2/0 a3"},
		{90, ended(1, 2, exited(1, "")), "failed 1/1 a2; HAVE 1 a2; start 1/2 a4~1 ws1/1; START 1 1/2 a4"},
		{100, ended(1, 4, exited(1, "")), "failed 1/2 a4; HAVE 1 a4; start 1/3 a5~1 ws1/1; START 1 1/3 a5"},
		{110, ended(1, 3, exited(1, "")), "failed 2/0 a3; HAVE 1 a3; start 2/1 a6~1 ws1/1; START 1 2/1 a6"},
	}},
	{"what is used is forgotten", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 1, 0, 0), ""},
		{0, up(1, "ws1", 1), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
		{1000, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1"},
		{1000, Leased{1000 * time.Hour}, ""},
		{200_000, Heard{1}, ""},
	}, []step{
		{200_000, AddBatch{Batch: 2, Owner: 1, Jobs: 1, Spec: single, Replay: true}, ""},
		{200_000, AddBatch{Batch: 3, Owner: 2, Jobs: 1, Spec: single, Replay: true}, ""},
		{200_000, Ready{3}, "start 3/0 a2~1 ws1/1; START 1 3/0 a2"},
		{200_000, Ready{2}, ""},
		{200_001, ended(1, 2, exited(1, "")), "failed 3/0 a2; HAVE 1 a2; start 2/0 a3~1 ws1/1; START 1 2/0 a3"},
	}},
	{"of a batch no more run than may, and another fills the node", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 4, 9, 2), ""},
		{0, asks(2, 1, 1, 0, 0), ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
	}, []step{
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2; start 2/0 a3~1 ws1/1; START 1 2/0 a3"},
		{9, ended(1, 2, exited(0, "m")), "GRANT 1 a2; start 1/2 a4~1 ws1/1; START 1 1/2 a4"},
		{9, Cancel{Ref: Ref{1, 0}, By: "u"}, "cancelled 1/0; STOP 1 a1; start 1/3 a5~1 ws1/1; START 1 1/3 a5"},
	}},
	{"one that ends elsewhere lets a batch on at a node that has room", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 2, 0, 1), ""},
		{0, up(1, "ws1", 1), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
		{0, up(2, "ws2", 1), "node ws2 s1"},
		{0, ListEnd{2}, ""},
		{1, offered(1, 0, nil), ""},
	}, []step{
		{9, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 1/1 a2~1 ws2/1; START 2 1/1 a2"},
	}},
	{"no more are sent ahead than may run", []step{
		{0, Loaded{}, ""},
		{0, asks(1, 1, 4, 0, 1), ""},
		{0, up(1, "ws1", 1), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
	}, []step{
		{1, ended(1, 1, quickly(exited(1, ""))), "failed 1/0 a1; HAVE 1 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
	}},
}

func TestOrders(t *testing.T) { orders.run(t) }

// TestBoundReplayed has a bound hold also for what the log alone tells of.
func TestBoundReplayed(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(asks(1, 1, 2, 0, 1))
	r.joins(1, "ws1", 1)
	m, err := r.replayed()
	if err != nil {
		t.Fatal(err)
	}
	r.m, r.begun = m, map[job.Token]bool{}
	r.apply(Loaded{})
	r.apply(up(2, "ws2", 1))
	if got := show(r.apply(ListEnd{2})); got != "" {
		t.Errorf("beside what may run %s", got)
	}
	r.now = 900 * time.Second
	r.apply(Heard{2})
	want := "back 1/0 a1 lost (ws1 was silent for 15m0s); start 1/0 a2~2 ws2/1; START 2 1/0 a2"
	if got := show(r.apply(Tick{})); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A head was restarted after it had logged a start of a job that is never started twice. A
// node that comes back with its directory and without the attempt has never begun it. One
// that comes with another directory may have, and so may one on which it was seen at work.
func TestNeverAfterAStart(t *testing.T) {
	const startedAt = 10
	had := func(since uint64) Event { return HadState{Node: "ws1", State: "s1", Since: since} }
	other := up(2, "ws1", 1).(NodeUp)
	other.State = "s2"
	failed := func(why string) string {
		return "failed 1/0 a1 lost (" + why + "; it is never started twice); late 1/0 a1 (" + why + ")"
	}
	for what, steps := range map[string]script{
		"never begun": {
			{had(startedAt - 1), ""},
			{Loaded{}, ""},
			{up(2, "ws1", 1), "node ws1 s1"},
			{ListEnd{2}, "back 1/0 a1 unstarted (ws1 came back without it); start 1/0 a2~2 ws1/1; START 2 1/0 a2"},
		},
		"its note is damaged": {
			{had(startedAt - 1), ""},
			{Loaded{}, ""},
			{up(2, "ws1", 1), "node ws1 s1"},
			{itemEnded(2, 1, lost), "failed 1/0 a1 lost (lost by ws1; it is never started twice); late 1/0 a1; HAVE 2 a1"},
			{gone(2, 1), "CLOSED 1"},
			{ListEnd{2}, ""},
		},
		"another directory": {
			{had(startedAt - 1), ""},
			{Loaded{}, ""},
			{other, "node ws1 s2; " + failed("ws1 lost its directory") + "; CLOSED 1"},
		},
		"another directory before": {
			{had(startedAt + 1), ""},
			{Loaded{}, ""},
			{up(2, "ws1", 1), "node ws1 s1"},
			{ListEnd{2}, failed("ws1 came back without it") + "; CLOSED 1"},
		},
		"a directory of which nothing is known": {
			{Loaded{}, ""},
			{up(2, "ws1", 1), "node ws1 s1"},
			{ListEnd{2}, failed("ws1 came back without it") + "; CLOSED 1"},
		},
		"given up": {
			{had(startedAt - 1), ""},
			{Loaded{}, ""},
			{NodeGone{Node: "ws1"}, failed("ws1 was given up") + "; CLOSED 1"},
		},
		"seen at work": {
			{had(startedAt - 1), ""},
			{Loaded{}, ""},
			{up(2, "ws1", 1), "node ws1 s1"},
			{item(2, 1, job.PhaseRunning), "KEEP 2 a1"},
			{ListEnd{2}, ""},
			{NodeDown{2}, ""},
			{up(3, "ws1", 1), ""},
			{ListEnd{3}, failed("ws1 came back without it") + "; CLOSED 1"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, Config{})
			r.apply(Loaded{})
			r.apply(AddBatch{Batch: 1, Jobs: 1, Once: true, Spec: single})
			r.joins(1, "ws1", 1)
			r.logs[1][0].rec.Seq = startedAt
			m, err := r.replayed()
			if err != nil {
				t.Fatal(err)
			}
			r.m, r.begun = m, map[job.Token]bool{}
			steps.run(t, r)
		})
	}
}

// What owners have used is not known any more after a start of the head.
func TestUseAfterAStart(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(asks(1, 1, 1, 0, 0))
	r.joins(1, "ws1", 1)
	r.now = time.Hour
	r.apply(Heard{1})
	r.apply(ended(1, 1, exited(1, "")))
	r.apply(gone(1, 1))
	m, err := r.replayed()
	if err != nil {
		t.Fatal(err)
	}
	r.m, r.uses = m, map[int]*plainUse{}
	r.apply(Loaded{})
	r.apply(asks(2, 1, 1, 0, 0))
	r.apply(asks(3, 2, 1, 0, 0))
	r.apply(up(2, "ws1", 1))
	if got, want := show(r.apply(ListEnd{2})), "start 2/0 a2~1 ws1/1; START 2 2/0 a2; CLOSED 1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestWhyOrder tells of who goes first.
func TestWhyOrder(t *testing.T) {
	r := newRig(t, Config{})
	why := func(batch, number uint32, want string) {
		t.Helper()
		r.why(Ref{batch, number}, want)
		if r.m.batches[batch].Most == 0 {
			want = ""
		}
		if got := stuck(r.m, batch); got != want {
			t.Errorf("stuck %d: %q, should be %q", batch, got, want)
		}
	}
	r.apply(Loaded{})
	r.apply(asks(1, 1, 3, 0, 0))
	r.apply(asks(2, 1, 2, 0, 0))
	r.apply(asks(3, 2, 2, 0, 0))
	r.apply(asks(4, 2, 5, 7, 1))
	r.joins(1, "ws1", 3)
	r.apply(AddBatch{Batch: 5, Owner: 3, Jobs: 1, Spec: py}) // on no node
	why(4, 1, "max_running of its batch: 1 run")
	why(1, 2, "1 of 1 nodes can run it: ws1 busy; it is the turn of 1 other owner")
	why(2, 0, "1 of 1 nodes can run it: ws1 busy; 1 job goes first (by age); it is the turn of 1 other owner")
	why(3, 0, "1 of 1 nodes can run it: ws1 busy")
	r.apply(Cancel{Ref: Ref{3, 0}, By: "u"})
	r.apply(Cancel{Ref: Ref{3, 1}, By: "u"})
	why(1, 2, "1 of 1 nodes can run it: ws1 busy")
	why(2, 0, "1 of 1 nodes can run it: ws1 busy; 1 job goes first (by age)")
}

// Of jobs that go first those are told that could use the same nodes, and no more than may
// run.
func TestWhyFirst(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Counted{"lic=1"})
	r.apply(Loaded{})
	r.joins(1, "ws1", 1, "x")
	r.apply(asks(1, 1, 1, 9, 0))
	r.apply(ended(1, 1, noRoom)) // the node does not take it for a while
	r.apply(asking(2, 0, "lic=1"))
	r.apply(asking(3, 9, "lic=1")) // and this waits for the licence
	bounded := asks(4, 1, 4, 9, 2)
	bounded.Asks = []Ask{{CPUs: 1}, {CPUs: 1, Wants: "x"}, {CPUs: 1}, {CPUs: 1, Wants: "x"}}
	r.apply(bounded)
	r.apply(asks(5, 1, 1, 0, 0))
	r.why(Ref{5, 0}, "1 of 1 nodes can run it: ws1 busy; 2 jobs go first (by priority)")
}

// A fleet is nodes whose attempts end when their time has come, on a clock of its own.
type fleet struct {
	t     *testing.T
	m     *Machine
	now   time.Duration
	runs  []running
	last  map[uint32]func(number int) time.Duration // how long a job of a batch runs
	used  map[uint32]float64                        // cpu-seconds of a batch, of what has ended or runs
	ended map[uint32]int

	plain bool // compare with the plain decision
	// How often a node was kept, one more, and another instead.
	kept, more, moved int
}

type running struct {
	Start
	share int
	began time.Duration
	ends  time.Duration
}

func newFleet(t *testing.T, nodes, cpus int) *fleet {
	drawn := 0
	f := &fleet{t: t, last: map[uint32]func(int) time.Duration{}, used: map[uint32]float64{}, ended: map[uint32]int{}}
	f.m = New(Config{Token: func() job.Token { drawn++; return tok(drawn) }})
	f.give(Loaded{})
	for i := range nodes {
		s := uint64(i + 1)
		f.give(up(s, fmt.Sprint("ws", i), cpus))
		f.give(ListEnd{s})
	}
	return f
}

func (f *fleet) give(ev Event) {
	keeps := keepsOf(f.m)
	actions := f.m.step(ev, f.now)
	if f.plain {
		if err := comparePlain(f.m, keeps, actions); err != nil {
			f.t.Fatalf("after %T%+v at %v: %v", ev, ev, f.now, err)
		}
	}
	was, is := map[*policy.Class]int{}, map[*policy.Class]int{}
	for _, r := range keeps {
		was[r.Of]++
	}
	for _, r := range keepsOf(f.m) {
		is[r.Of]++
		if !slices.ContainsFunc(keeps, func(o policy.Reservation) bool { return sameKeep(o, r) }) && was[r.Of] == len(r.Of.Kept) {
			f.moved++
		}
	}
	for c, n := range is {
		if was[c] == 0 {
			f.kept++
		} else if n > was[c] {
			f.more++
		}
	}
	for _, a := range actions {
		if s, ok := a.(Start); ok {
			at := f.m.live[must(s.Attempt)]
			f.runs = append(f.runs, running{s, at.Share.CPUs, f.now, f.now + f.last[s.Ref.Batch](int(s.Ref.Job))})
		}
	}
}

// add submits a batch whose jobs run for so long.
func (f *fleet) add(b AddBatch, long func(number int) time.Duration) {
	f.last[b.Batch] = long
	f.give(b)
}

// until lets time pass.
func (f *fleet) until(end time.Duration) {
	for len(f.runs) > 0 {
		slices.SortStableFunc(f.runs, func(a, b running) int { return cmp.Compare(a.ends, b.ends) })
		r := f.runs[0]
		if r.ends > end {
			break
		}
		f.runs = f.runs[1:]
		f.now = r.ends
		f.used[r.Ref.Batch] += float64(r.share) * (r.ends - r.began).Seconds()
		f.ended[r.Ref.Batch]++
		f.give(Ended{r.Session, r.Attempt, exited(1, "")})
		f.give(Gone{r.Session, r.Attempt})
	}
	f.now = end
}

// total is what the jobs of a batch have used until now.
func (f *fleet) total(batch uint32) float64 {
	all := f.used[batch]
	for _, r := range f.runs {
		if r.Ref.Batch == batch {
			all += float64(r.share) * (f.now - r.began).Seconds()
		}
	}
	return all
}

func constant(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

// TestFairTurn has owners with jobs of different kinds: within an hour each has
// used as much as the others, and all nodes are full.
func TestFairTurn(t *testing.T) {
	f := newFleet(t, 8, 4)
	f.add(asks(1, 1, 10_000, 0, 0), constant(time.Minute))
	two := *single
	two.Resources.CPUs = 2
	f.add(AddBatch{Batch: 2, Owner: 2, Jobs: 10_000, Spec: &two}, constant(150*time.Second))
	f.add(asks(3, 3, 10_000, 0, 0), func(n int) time.Duration { return time.Duration(n*37%400+15) * time.Second })
	f.until(time.Hour)
	var all float64
	for b := range uint32(3) {
		all += f.total(b + 1)
	}
	for b := range uint32(3) {
		if part := f.total(b+1) / (all / 3); math.Abs(part-1) > 0.05 {
			t.Errorf("owner %d has used %.3f of his part", b+1, part)
		}
	}
	if all < 0.95*8*4*3600 {
		t.Errorf("%.0f cpu-seconds were used of %d", all, 8*4*3600)
	}
}

// TestLateComer has one owner with 1,000 jobs, and one with ten an hour later: these
// have most of the next round, and all have ended after two. Then both go on with
// as much as each wants.
func TestLateComer(t *testing.T) {
	f := newFleet(t, 2, 4)
	f.add(asks(1, 1, 1000, 0, 0), constant(10*time.Minute))
	f.until(55 * time.Minute)
	f.add(asks(2, 2, 10, 0, 0), constant(10*time.Minute))
	f.until(60 * time.Minute)
	if n := f.m.Counts(2)[job.Running]; n < 5 {
		t.Errorf("of ten late jobs %d run at the next end of the other's, of 8 that could", n)
	}
	f.until(80 * time.Minute)
	if n := f.ended[2]; n != 10 {
		t.Errorf("of ten late jobs %d have ended after two rounds", n)
	}
	f.until(6 * time.Hour)
	f.add(asks(3, 1, 10_000, 0, 0), constant(5*time.Minute))
	f.add(asks(4, 2, 10_000, 0, 0), constant(7*time.Minute))
	f.until(12 * time.Hour)
	one, other := f.total(1)+f.total(3), f.total(4)
	f.until(13 * time.Hour)
	one, other = f.total(1)+f.total(3)-one, f.total(4)-other
	if math.Abs(one/other-1) > 0.05 {
		t.Errorf("within an hour one owner had %.0f cpu-seconds, the other %.0f", one, other)
	}
}
