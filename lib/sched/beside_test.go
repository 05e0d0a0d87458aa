package sched

import (
	"math"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
)

// partOf is a node of a machine that is several: with so many cpus and those GPUs.
func partOf(session uint64, name string, cpus int, gpus ...int) NodeUp {
	o := node.Offer{CPUs: cpus, Memory: 8 << 30, Machine: "m"}
	for _, i := range gpus {
		o.GPUs = append(o.GPUs, node.GPU{Index: i})
	}
	return NodeUp{Session: session, Node: node.Name(name), Boot: "b1", State: "s1", Offer: o}
}

// The ranks of an attempt that the head does not know any more are the load of all nodes on
// which they are, whichever node connects first, until the attempt ends.
func TestUnknownBeside(t *testing.T) {
	list := script{
		{Item{Session: 1, Attempt: tok(21), Phase: job.PhaseRunning, CPUs: 2, GPUs: []int{0, 2}, Also: job.Lodging{"ws2": 3, "other": 1, "ws1": 1}}, "HOLD 1 a15"},
		{Item{Session: 1, Attempt: tok(22), Phase: job.PhaseWaiting, CPUs: 2, Also: job.Lodging{"ws2": 1}}, "HOLD 1 a16"},
		{ListEnd{1}, ""},
	}
	first := append(script{{partOf(1, "ws1", 4, 0, 1), "node ws1 s1"}}, list...)
	second := script{{partOf(2, "ws2", 4, 2, 3), "node ws2 s1"}, {ListEnd{2}, ""}}
	for _, s := range []script{slices.Concat(first, second), slices.Concat(second, first)} {
		r := newRig(t, Config{})
		script{{Loaded{}, ""}, {NodeUp{Session: 9, Node: "other", Boot: "b1", State: "s1", Offer: node.Offer{CPUs: 4, Machine: "another"}}, "node other s1"}, {ListEnd{9}, ""}}.run(t, r)
		s.run(t, r)
		p, other := r.m.named["ws2"], r.m.named["other"]
		if p.Used.CPUs != 3 || !slices.Equal(p.Used.Cards.Indexes(), []int{2}) || p.Active != 1 || !p.Unknown || other.Active != 0 {
			t.Errorf("ws2 has %+v in use by %d, other by %d", p.Used, p.Active, other.Active)
		}
		if rows := r.m.Nodes(); rows[p.Index].Jobs != 1 || rows[p.Index].State != node.Busy {
			t.Errorf("ws2 is shown as %+v", rows[p.Index].Row)
		}
		script{{NodeDown{9}, ""}, {AddBatch{Batch: 1, Jobs: 4, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 2}}}, "start 1/0 a1~1 ws1/2; START 1 1/0 a1"}}.run(t, r)

		// It ends while its node is away, which lists it no more then; or while it is there.
		again := newRig(t, Config{})
		again.apply(Loaded{})
		slices.Concat(s, script{
			{NodeDown{1}, ""}, {partOf(3, "ws1", 4, 0, 1), ""}, {ListEnd{3}, ""},
		}).run(t, again)
		if p := again.m.named["ws2"]; p.Active != 0 || p.Unknown || p.Used != (policy.Share{}) {
			t.Errorf("ws2 has %+v in use after its end", p.Used)
		}
		once := newRig(t, Config{})
		once.apply(Loaded{})
		slices.Concat(s, script{{ended(1, 21, exited(0, "m")), "HOLD 1 a15"}}).run(t, once)
		if p := once.m.named["ws2"]; p.Active != 0 || p.Unknown || p.Used != (policy.Share{}) {
			t.Errorf("ws2 has %+v in use after it ended", p.Used)
		}

		// Its node is away and is given up: nobody would tell of its end.
		gone := newRig(t, Config{})
		gone.apply(Loaded{})
		slices.Concat(s, script{{NodeDown{1}, ""}, {NodeGone{"ws1"}, ""}}).run(t, gone)
		if p := gone.m.named["ws2"]; p.Active != 0 || p.Unknown || p.Used != (policy.Share{}) {
			t.Errorf("ws2 has %+v in use after its node was given up", p.Used)
		}
	}
}

// The ranks of an attempt whose node is given up run on beside it: they are the load of the
// other node, with their memory, until that says that they are gone.
func TestVisitOfGone(t *testing.T) {
	visit := Visit{Session: 2, Attempt: tok(1), CPUs: 2, Memory: 1 << 30, GPUs: []int{2}}
	r := newRig(t, Config{})
	script{
		{Loaded{}, ""},
		{partOf(1, "ws1", 4, 0, 1), "node ws1 s1"},
		{ListEnd{1}, ""},
		{partOf(2, "ws2", 4, 2, 3), "node ws2 s1"},
		{ListEnd{2}, ""},
		{AddBatch{Batch: 1, Jobs: 1, Once: true, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{Ranks: 3, CPUs: 2, Memory: 1 << 30, GPUs: job.OneGPU}}}, "start 1/0 a1~1 ws1/6; START 1 1/0 a1"},
	}.run(t, r)
	p := r.m.named["ws2"]
	used := func(cpus int, memory int64, cards ...int) {
		t.Helper()
		if p.Used.CPUs != cpus || p.Used.Memory != memory || !slices.Equal(p.Used.Cards.Indexes(), cards) || p.Active != cpus/2 {
			t.Errorf("ws2 has %+v in use by %d, should have %d cpus, %d bytes, GPUs %v", p.Used, p.Active, cpus, memory, cards)
		}
	}
	used(2, 1<<30, 2)
	r.apply(visit)
	used(2, 1<<30, 2)
	r.apply(Phase{Session: 1, Attempt: tok(1), Phase: job.PhaseRunning})
	r.apply(NodeDown{1})
	used(2, 1<<30, 2)
	r.apply(NodeGone{"ws1"})
	if got := r.m.State(Ref{1, 0}); got != job.Failed {
		t.Errorf("its job is %s", got)
	}
	used(2, 1<<30, 2)

	// Its own node is let in again, and lists it.
	script{
		{partOf(3, "ws1", 4, 0, 1), ""},
		{Item{Session: 3, Attempt: tok(1), Phase: job.PhaseRunning, CPUs: 4, GPUs: []int{0, 1, 2}, Also: job.Lodging{"ws2": 2}}, "HOLD 3 a1"},
		{ListEnd{3}, ""},
	}.run(t, r)
	used(2, 1<<30, 2)
	r.apply(NodeDown{3})

	// The neighbour connects again, and says so in its list: no job is started that has no room.
	visit.Session = 4
	script{
		{NodeDown{2}, ""},
		{AddBatch{Batch: 2, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 4}}}, ""},
		{partOf(4, "ws2", 4, 2, 3), ""},
		{visit, ""},
		{ListEnd{4}, ""},
	}.run(t, r)
	used(2, 1<<30, 2)
	script{{Visit{Session: 4, Attempt: tok(1)}, "start 2/0 a2~1 ws2/4; START 4 2/0 a2"}}.run(t, r)
	script{{Visit{Session: 4, Attempt: "no token", CPUs: 1}, `ODD 4 "no token"`}}.run(t, r)
}

// A node that says that visits have more memory than there can be is full, and not empty.
func TestVisitsOfAllMemory(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(partOf(1, "ws1", 4, 0, 1))
	for i := range maxHeld {
		r.apply(Visit{Session: 1, Attempt: tok(i + 1), CPUs: 1, Memory: math.MaxInt64})
	}
	r.apply(ListEnd{1})
	if used := r.m.named["ws1"].Used; used.Memory < 1<<50 || used.Memory+1<<50 < 0 {
		t.Errorf("%d bytes are in use", used.Memory)
	}
}

// Of the nodes on which an unknown attempt has cpus those are not remembered that no node can be.
func TestHeldOnNodesThatCannotBe(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(partOf(1, "ws1", 4, 0, 1))
	also := job.Lodging{"ws2": 2, strings.Repeat("x", 1<<20): 1, "": 1}
	r.apply(Item{Session: 1, Attempt: tok(1), Phase: job.PhaseRunning, CPUs: 4, Also: also})
	p := r.m.named["ws1"]
	if got := p.held[must(tok(1))].also; p.lodges != 1 || len(got) != 1 || got["ws2"] != 2 {
		t.Errorf("%d nodes are remembered, %d in all", len(got), p.lodges)
	}
}

// A job whose ranks have no room on one node of a machine is the load of several, until it
// ends: also when the head or the nodes have been started anew meanwhile.
func TestBeside(t *testing.T) {
	r := newRig(t, Config{})
	ring := job.Resources{Ranks: 3, CPUs: 2, Memory: 1 << 30, GPUs: job.OneGPU}
	script{
		{Loaded{}, ""},
		{partOf(1, "ws1", 4, 0, 1), "node ws1 s1"},
		{ListEnd{1}, ""},
		{partOf(2, "ws2", 4, 2, 3), "node ws2 s1"},
		{ListEnd{2}, ""},
		{AddBatch{Batch: 1, Jobs: 2, Spec: &job.Spec{Kind: job.Command, Resources: ring}}, "start 1/0 a1~1 ws1/6; START 1 1/0 a1"},
		{AddBatch{Batch: 2, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 3}}}, ""},
	}.run(t, r)
	a := r.m.live[must(tok(1))]
	used := func(n int, cpus int, cards ...int) {
		t.Helper()
		if p := r.m.peers[n]; p.Used.CPUs != cpus || p.Used.Memory != int64(cpus/2)<<30 || !slices.Equal(p.Used.Cards.Indexes(), cards) {
			t.Errorf("%s has %+v in use, should have %d cpus and GPUs %v", p.Name, p.Used, cpus, cards)
		}
	}
	used(0, 4, 0, 1)
	used(1, 2, 2)
	if rec := r.logs[1][0].rec; rec.GPUs != 3*job.OneGPU || !slices.Equal(rec.Also, []job.Portion{{Node: "ws2", Ranks: 1}}) {
		t.Errorf("its record has %s GPUs, and also %+v", rec.GPUs, rec.Also)
	}
	if shown, _ := r.m.Current(Ref{1, 0}); shown.CPUs != 6 || shown.Node != "ws1" {
		t.Errorf("it is shown with %d cpus on %s", shown.CPUs, shown.Node)
	}
	if rows := r.m.Nodes(); rows[1].Jobs != 1 || rows[1].State != node.Busy || rows[1].CPUsUsed != 2 {
		t.Errorf("ws2 is shown as %+v", rows[1].Row)
	}
	r.why(Ref{1, 1}, "2 of 2 nodes can run it: ws1, ws2 busy")

	script{ // as another one has chosen
		{NodeDown{1}, ""},
		{NodeDown{2}, ""},
		{partOf(4, "ws2", 4, 2, 3), ""},
		{ListEnd{4}, ""},
		{partOf(3, "ws1", 4, 0, 1), ""},
		{Item{Session: 3, Attempt: tok(1), Phase: job.PhaseRunning, CPUs: 4, GPUs: []int{0, 1, 3}}, "KEEP 3 a1"},
		{ListEnd{3}, ""},
	}.run(t, r)
	used(0, 4, 0, 1)
	used(1, 2, 3)

	again, err := r.replayed()
	if err != nil {
		t.Fatal(err)
	}
	if b := again.live[must(tok(1))]; b.Share.CPUs != 4 || b.Share.GPUs != 2*job.OneGPU || len(b.beside) != 1 || b.beside[0].Share.Memory != 1<<30 {
		t.Errorf("from its log it has %+v and %d portions", b.Share, len(b.beside))
	}

	script{{Phase{3, tok(1), job.PhaseRunning, 0}, ""}, {ended(3, 1, exited(1, "")), "failed 1/0 a1; HAVE 3 a1; start 1/1 a2~1 ws1/6; START 3 1/1 a2"}}.run(t, r)
	if len(a.beside) != 1 || len(r.m.peers[1].guests) != 1 || r.m.peers[1].guests[0].of == a {
		t.Errorf("ws2 has %d portions", len(r.m.peers[1].guests))
	}
	used(1, 2, 2)
	give := partOf(0, "", 0, 2, 3).Offer
	give.CPUs, give.Pause = 1, &node.Pause{By: []string{"ana"}, Give: &node.Give{CPUs: 3}}
	script{{ended(3, 2, exited(1, "")), "failed 1/1 a2; HAVE 3 a2; start 2/0 a3~1 ws1/3; START 3 2/0 a3"}, {Offered{4, give}, ""}, {ended(3, 3, exited(1, "")), "failed 2/0 a3; HAVE 3 a3"}}.run(t, r)
	used(1, 0)
	script{{AddBatch{Batch: 3, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: ring}}, ""}}.run(t, r)
	r.why(Ref{3, 0}, "2 of 2 nodes can run it: ws1 has no room for all ranks, and ws2 lent back 3 cpus to ana, ws2 lent back 3 cpus to ana")
	give.CPUs, give.Pause = 4, &node.Pause{By: []string{"ana"}}
	script{{Offered{4, give}, ""}}.run(t, r)
	r.why(Ref{3, 0}, "2 of 2 nodes can run it: ws1 has no room for all ranks, and ws2 paused by ana, ws2 paused by ana")
	script{{NodeDown{4}, ""}}.run(t, r)
	r.why(Ref{3, 0}, "1 of 1 nodes can run it: ws1 has no room for all ranks, and ws2 is not connected; not connected: ws2")

	r.now = policy.SettleTime
	r.apply(Heard{3})
	for _, tt := range []struct {
		r    job.Resources
		want string
	}{
		{job.Resources{Ranks: 4, CPUs: 2}, ""},
		{job.Resources{Ranks: 3, CPUs: 3}, "the nodes of no machine have room for all of it, the most is 2 ranks on ws1 and ws2"},
		{job.Resources{Ranks: 5, CPUs: 1, GPUs: job.OneGPU}, "the nodes of no machine have room for all of it, the most is 4 ranks on ws1 and ws2"},
		{job.Resources{Ranks: 2, CPUs: 5}, "none of 2 nodes offers 10 cpus, the most is 4 cpus on ws1"},
		{job.Resources{Ranks: 9, CPUs: 1}, "the nodes of no machine have room for all of it, the most is 8 ranks on ws1 and ws2"},
		{job.Resources{CPUs: 8}, "none of 2 nodes offers 8 cpus, the most is 4 cpus on ws1"},
	} {
		if got := r.m.Impossible(&job.Spec{}, AskOf(tt.r, nil)); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.r, got, tt.want)
		}
	}
	big := partOf(9, "big", 20)
	big.Offer.Machine = ""
	r.apply(big)
	if got := r.m.Impossible(&job.Spec{}, AskOf(job.Resources{Ranks: 21, CPUs: 1}, nil)); !strings.HasSuffix(got, "the most is 20 ranks on big") {
		t.Error(got)
	}
}

// Which GPUs it has is learnt from its node, whichever of its nodes comes first.
func TestCardsBeside(t *testing.T) {
	own := []Event{partOf(1, "ws1", 4, 0, 1, 6), Item{Session: 1, Attempt: tok(1), Phase: job.PhaseRunning, CPUs: 4, GPUs: []int{1, 3, 6}}, ListEnd{1}}
	other := []Event{partOf(2, "ws2", 4, 2, 3), ListEnd{2}}
	for _, order := range [][]Event{slices.Concat(own, other), slices.Concat(other, own)} {
		m := New(Config{})
		m.step(AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{Ranks: 3, CPUs: 2, GPUs: job.OneGPU}}, Replay: true}, 0)
		rec := job.Record{Kind: job.KindStart, Attempt: tok(1), Try: 1, Node: "ws1", CPUs: 6, GPUs: 3 * job.OneGPU, Also: []job.Portion{{Node: "ws2", Ranks: 1}}}
		if err := m.Replay(Ref{1, 0}, &rec); err != nil {
			t.Fatal(err)
		}
		for _, e := range append([]Event{Loaded{}}, order...) {
			m.step(e, 0)
		}
		if one, two := m.named["ws1"].Used.Cards.Indexes(), m.named["ws2"].Used.Cards.Indexes(); !slices.Equal(one, []int{1, 6}) || !slices.Equal(two, []int{3}) {
			t.Errorf("ws1 has %v in use, ws2 %v", one, two)
		}
	}
}

// When a closed batch is read in again while its nodes are there nothing of it is in use.
func TestClosedBeside(t *testing.T) {
	m := New(Config{})
	ring := &job.Spec{Kind: job.Command, Resources: job.Resources{Ranks: 3, CPUs: 2}}
	for _, e := range []Event{Loaded{}, partOf(1, "ws1", 4), ListEnd{1}, partOf(2, "ws2", 4), ListEnd{2}, AddBatch{Batch: 1, Jobs: 2, Spec: ring, Replay: true, Closed: true}} {
		m.step(e, 0)
	}
	start := job.Record{Kind: job.KindStart, Attempt: tok(1), Try: 1, Node: "ws1", CPUs: 6, Also: []job.Portion{{Node: "ws2", Ranks: 1}}}
	lives := start
	lives.Attempt = tok(2)
	for i, rec := range []job.Record{start, {Kind: job.KindFailed, Attempt: tok(1), Try: 1, Node: "ws1"}, lives} {
		if err := m.Replay(Ref{1, uint32(i / 2)}, &rec); err != nil {
			t.Fatal(err)
		}
	}
	m.step(Ready{1}, 0)
	for _, p := range m.peers { // which are to say again what they have
		if p.Session != 0 || p.Used.CPUs != 0 || p.Active != 0 {
			t.Errorf("%s is there, and uses %+v", p.Name, p.Used)
		}
	}
	m.step(partOf(4, "ws2", 4), 0)
	m.step(ListEnd{4}, 0)
	if p := m.named["ws2"]; p.Used.CPUs != 2 || p.Active != 1 {
		t.Errorf("ws2 uses %+v", p.Used)
	}
}

// Because of a pause of one of its nodes its own is given work all the same.
func TestHaltedBeside(t *testing.T) {
	r := newRig(t, Config{})
	back := Result{Fate: job.FateNodePaused, Outcome: job.Outcome{Reason: "ws2 is paused"}}
	script{
		{Loaded{}, ""},
		{partOf(1, "ws1", 4), "node ws1 s1"},
		{ListEnd{1}, ""},
		{partOf(2, "ws2", 4), "node ws2 s1"},
		{ListEnd{2}, ""},
		{AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{Ranks: 3, CPUs: 2}}}, "start 1/0 a1~1 ws1/6; START 1 1/0 a1"},
		{ended(1, 1, back), "back 1/0 a1 node_paused (ws2 is paused); FORGET 1 a1"},
		{AddBatch{Batch: 2, Jobs: 2, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 3}}}, "start 2/0 a2~1 ws1/3; START 1 2/0 a2"},
	}.run(t, r)
	if p := r.m.named["ws1"]; p.Paused() || p.RestsUntil != 0 || !r.m.named["ws2"].Paused() {
		t.Error("the wrong one is given nothing")
	}
	script{{Drain{Node: "ws2", By: "ana"}, ""}, {Offered{2, partOf(2, "ws2", 4).Offer}, ""}}.run(t, r)
}

// Of a log that says what cannot be that is left out: nothing has less than nothing of a node.
func TestPortionsThatCannotBe(t *testing.T) {
	for _, tt := range []struct {
		also []job.Portion
		want int // cpus of its own node
	}{
		{[]job.Portion{{Node: "ws2", Ranks: 2}}, 1},
		{[]job.Portion{{Node: "", Ranks: 1}}, 3},
		{[]job.Portion{{Node: "ws2"}}, 3},
		{[]job.Portion{{Node: "ws2", Ranks: -1}}, 3},
		{[]job.Portion{{Node: "ws2", Ranks: 3}}, 3},
		{[]job.Portion{{Node: "slurm:x", Ranks: 1}}, 3},
		{[]job.Portion{{Node: "ws2", Ranks: 1}, {Node: "ws3", Ranks: 2}}, 2},
	} {
		m := New(Config{})
		m.Apply(AddBatch{Batch: 1, Jobs: 1, Replay: true, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{Ranks: 3, CPUs: 1}}}, 0)
		if err := m.Replay(Ref{1, 0}, &job.Record{Kind: job.KindStart, Attempt: tok(1), Try: 1, Node: "ws1", CPUs: 3, Also: tt.also}); err != nil {
			t.Errorf("%+v: %v", tt.also, err)
		} else if a := m.live[must(tok(1))]; a.Share.CPUs != tt.want || a.all().CPUs != 3 {
			t.Errorf("%+v: it has %d cpus of its node", tt.also, a.Share.CPUs)
		}
	}
}

// An attempt had ended, and runs again, as its node has lost the end with its power: its ranks are
// the load of the other node again.
func TestRanksOfAttemptThatRunsAgain(t *testing.T) {
	r := newRig(t, Config{})
	again := partOf(3, "ws1", 4, 0, 1)
	again.Boot = "b2"
	script{
		{Loaded{}, ""},
		{partOf(1, "ws1", 4, 0, 1), "node ws1 s1"},
		{ListEnd{1}, ""},
		{partOf(2, "ws2", 4, 2, 3), "node ws2 s1"},
		{ListEnd{2}, ""},
		{AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{Ranks: 3, CPUs: 2}}}, "start 1/0 a1~1 ws1/6; START 1 1/0 a1"},
		{ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{NodeDown{1}, ""},
		{again, ""},
		{Item{Session: 3, Attempt: tok(1), Phase: job.PhaseRunning, CPUs: 4, Also: job.Lodging{"ws2": 2}}, "KEEP 3 a1"},
		{ListEnd{3}, ""},
	}.run(t, r)
	if p := r.m.named["ws2"]; p.Used.CPUs != 2 || p.Active != 1 {
		t.Errorf("ws2 has %d cpus in use by %d", p.Used.CPUs, p.Active)
	}
	script{{ended(3, 1, exited(0, "m")), "GRANT 3 a1"}}.run(t, r)
	if p := r.m.named["ws2"]; p.Used.CPUs != 0 || p.Active != 0 {
		t.Errorf("ws2 has %d cpus in use by %d after its end", p.Used.CPUs, p.Active)
	}
}
