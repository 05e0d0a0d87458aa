package sched

import (
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
)

// counting is a site with licences and two nodes, of which one has a tape.
func counting(t *testing.T, site job.Counts) *rig {
	r := newRig(t, Config{})
	r.apply(Counted{site})
	r.apply(Loaded{})
	for i, tape := range []job.Counts{"", "tape=1"} {
		s := uint64(i + 1)
		r.apply(NodeUp{Session: s, Node: node.Name([]string{"ws1", "ws2"}[i]), Boot: "b1", State: "s1", Offer: node.Offer{CPUs: 4, Counted: tape}})
		r.apply(ListEnd{s})
	}
	r.now = policy.SettleTime
	r.apply(Heard{1})
	r.apply(Heard{2})
	return r
}

// asking is a batch of jobs of one cpu, each of which asks for so much.
func asking(n uint32, priority int, counts ...job.Counts) AddBatch {
	b := AddBatch{Batch: n, Jobs: len(counts), Spec: &job.Spec{Kind: job.Command, Priority: priority}}
	for _, c := range counts {
		b.Asks = append(b.Asks, AskOf(job.Resources{CPUs: 1, Counted: c}, nil))
	}
	return b
}

// sessionOf is that of the node of an attempt.
func sessionOf(a Attempt) uint64 { return map[node.Name]uint64{"ws1": 1, "ws2": 2}[a.Node] }

// endWell has a job that runs end.
func endWell(r *rig, batch, i uint32) {
	r.t.Helper()
	a, ok := r.m.Current(Ref{batch, i})
	if !ok {
		r.t.Fatalf("job %d/%d does not run", batch, i)
	}
	r.apply(Ended{Session: sessionOf(a), Attempt: a.Token, Result: exited(0, "")})
}

// What the site counts is in use nowhere more often than there is, and what a node
// counts is for what runs there.
func TestCounted(t *testing.T) {
	r := counting(t, "lic=2")
	r.apply(asking(1, 0, "lic=1", "lic=1", "lic=1", "tape=1", "tape=1", ""))
	on := map[string]node.Name{}
	r.m.Live(func(a Attempt) { on[jobName(a.Ref)] = a.Node })
	if len(on) != 4 || on["1/3"] != "ws2" || on["1/2"] != "" || on["1/4"] != "" {
		t.Errorf("they run at %v", on)
	}
	for i, want := range map[uint32]string{2: "all 2 lic of the site are in use", 4: "all 1 tape of ws2 are in use", 0: ""} {
		r.why(Ref{1, i}, want)
	}
	rows := r.m.Nodes()
	if rows[1].Counted != "tape=1" || rows[0].CountedUsed.Plus(rows[1].CountedUsed) != "lic=2 tape=1" {
		t.Errorf("nodes are shown as %+v", rows)
	}
	if has, taken := r.m.Counted(); has != "lic=2" || taken != "lic=2" {
		t.Errorf("of %s in use are %s", has, taken)
	}
	r.apply(ended(1, 1, exited(0, "")))
	r.apply(ended(2, 1, exited(0, "")))
	r.m.Live(func(a Attempt) { on[jobName(a.Ref)] = a.Node })
	if on["1/2"] == "" {
		t.Error("a licence came free, and nobody got it")
	}
}

// A node knows nothing of what is counted: what it was given it starts, also where it
// counts less by now.
func TestCountedLess(t *testing.T) {
	r := counting(t, "")
	r.apply(NodeDown{1})
	r.apply(Offered{2, node.Offer{CPUs: 4, Counted: "tape=2"}})
	r.apply(asking(1, 0, "tape=1", "tape=1"))
	r.apply(NodeDown{2})
	r.apply(NodeUp{Session: 3, Node: "ws2", Boot: "b1", State: "s1", Offer: node.Offer{CPUs: 4, Counted: "tape=1"}})
	r.apply(item(3, 1, job.PhaseWaiting))
	r.apply(item(3, 2, job.PhaseWaiting))
	r.apply(ListEnd{3})
	r.apply(asking(2, 0, ""))
	if got := r.m.State(Ref{2, 0}); got != job.Running {
		t.Errorf("a job that asks for none is %s", got)
	}
}

// Who asks for more than is free now is not passed over by who asks for less.
func TestCountedForTheBig(t *testing.T) {
	r := counting(t, "lic=2")
	r.apply(asking(1, 0, "lic=1", "lic=1"))
	r.apply(asking(2, 0, "lic=2"))
	r.apply(asking(3, 0, "lic=1", "lic=1", ""))
	if r.m.State(Ref{3, 2}) != job.Running {
		t.Error("who asks for none waits")
	}
	endWell(r, 1, 0)
	r.why(Ref{2, 0}, "only 1 of 2 lic of the site are free")
	if r.m.State(Ref{3, 0}) != job.Queued {
		t.Error("a small one took what the big one waits for")
	}
	r.why(Ref{3, 0}, "lic is left to a job that goes first")
	r.apply(Drain{"ws1", "op"})
	r.apply(Drain{"ws2", "op"})
	r.apply(Drain{"ws2", ""})
	endWell(r, 1, 1)
	if r.m.State(Ref{2, 0}) != job.Running {
		t.Error("the big one still waits")
	}
}

// Who asks for a whole node besides finds what he asks for free when that is: those who
// ask for less leave it to him, and those who ask for none of it go on.
func TestCountedForTheBigNode(t *testing.T) {
	r := counting(t, "lic=2")
	r.apply(asking(1, 0, "", "", "", "", "", "", "", ""))
	whole := asking(2, 0, "lic=2")
	whole.Asks[0].CPUs = 4
	r.apply(whole)
	r.apply(asking(3, 0, "lic=1", "lic=1", ""))
	var on [2][]Attempt
	r.m.Live(func(a Attempt) {
		i := sessionOf(a) - 1
		on[i] = append(on[i], a)
	})
	end := func(i int) {
		r.now += time.Second
		r.apply(Ended{Session: uint64(i + 1), Attempt: on[i][0].Token, Result: exited(0, "")})
		on[i] = on[i][1:]
	}
	kept := func() int { return r.m.lab.Kept[0].On.Index }
	end(0)
	other := 1 - kept()
	end(other)
	if r.m.State(Ref{3, 2}) != job.Running || r.m.State(Ref{3, 0}) != job.Queued {
		t.Errorf("who asks for none is %s, who asks for one %s", r.m.State(Ref{3, 2}), r.m.State(Ref{3, 0}))
	}
	for at := kept(); len(on[at]) > 0; {
		end(at)
	}
	if r.m.State(Ref{2, 0}) != job.Running {
		t.Errorf("the node is free, and the big one is %s", r.m.State(Ref{2, 0}))
	}
}

// Who leaves what he asks for to others is told that, though a node is kept for him.
func TestCountedLeft(t *testing.T) {
	r := counting(t, "lic=2")
	r.apply(asking(1, 0, "lic=1", "", "", "", "", "", "", ""))
	whole := asking(2, 0, "lic=1")
	whole.Asks[0].CPUs = 4
	r.apply(whole)
	r.apply(asking(3, 0, ""))
	endWell(r, 1, 1)
	if why := r.m.Why(Ref{2, 0}); !strings.Contains(why, "is kept for it until enough there has ended") {
		t.Errorf("it waits: %q", why)
	}
	r.apply(asking(4, 1, "lic=2"))
	r.why(Ref{2, 0}, "lic is left to a job that goes first")
	for i := range uint32(4) {
		endWell(r, 1, 4+i)
	}
	if n := r.m.Nodes()[1]; n.State != node.Idle || n.Note != "kept for a job of 4 cpus" {
		t.Errorf("the node on which nothing runs is %s: %q", n.State, n.Note)
	}
}

// Who waits for one thing holds back nobody who asks for another of which enough is
// left for him.
func TestCountedBesideScarce(t *testing.T) {
	r := counting(t, "comsol=3 matlab=1")
	r.apply(asking(1, 0, "matlab=1"))
	r.apply(asking(2, 0, "comsol=1 matlab=1"))
	r.apply(asking(3, 0, "comsol=1", "comsol=1", "comsol=1"))
	for i, want := range []job.State{job.Running, job.Running, job.Queued} {
		if s := r.m.State(Ref{3, uint32(i)}); s != want {
			t.Errorf("job %d that asks for what is left is %s, want %s", i, s, want)
		}
	}
}

// When the big one needs no more, the small ones go on, whatever happened.
func TestCountedGivenUp(t *testing.T) {
	r := counting(t, "lic=2")
	r.apply(asking(1, 0, "lic=1"))
	r.apply(asking(2, 0, "lic=2"))
	r.apply(asking(3, 0, "lic=1"))
	if r.m.State(Ref{3, 0}) != job.Queued {
		t.Error("a small one took what the big one waits for")
	}
	r.apply(Cancel{Ref: Ref{2, 0}})
	if r.m.State(Ref{3, 0}) != job.Running {
		t.Error("a licence is free, and nobody gets it")
	}
}

// A job has what it was given also behind a new head and on a node that is silent,
// until the lease is over.
func TestCountedLasts(t *testing.T) {
	r := counting(t, "lic=1")
	r.apply(asking(1, 0, "lic=1", "lic=1"))
	m, err := r.replayed()
	if err != nil {
		t.Fatal(err)
	}
	if m.lab.Site.Taken != "lic=1" {
		t.Errorf("behind a new head %q is taken", m.lab.Site.Taken)
	}
	a, _ := r.m.Current(Ref{1, 0})
	session := sessionOf(a)
	r.apply(NodeDown{session})
	if r.m.State(Ref{1, 1}) != job.Queued {
		t.Error("its licence was given away while its node may come back")
	}
	r.now += usualLease - time.Second
	r.apply(Heard{3 - session})
	r.apply(Tick{})
	if r.m.State(Ref{1, 1}) != job.Queued {
		t.Error("its licence was given away before the lease was over")
	}
	r.now += time.Second
	r.apply(Tick{})
	if a, ok := r.m.Current(Ref{1, 0}); !ok || r.m.lab.Site.Taken != "lic=1" {
		t.Errorf("after the lease %q is taken, and %+v runs", r.m.lab.Site.Taken, a)
	}
	r.apply(Counted{"lic=2"})
	if r.m.State(Ref{1, 1}) != job.Running {
		t.Error("there is more of it, and nobody gets it")
	}
}

// What is never started twice keeps what it was given beyond the lease, until its node is
// given up: what still runs there uses it.
func TestCountedStays(t *testing.T) {
	r := counting(t, "lic=1")
	b := asking(1, 0, "lic=1", "lic=1")
	b.Once = true
	r.apply(b)
	a, _ := r.m.Current(Ref{1, 0})
	session := sessionOf(a)
	r.apply(NodeDown{session})
	r.now += usualLease
	r.apply(Heard{3 - session})
	r.apply(Tick{})
	if r.m.State(Ref{1, 0}) != job.Running || r.m.State(Ref{1, 1}) != job.Queued || r.m.lab.Site.Taken != "lic=1" {
		t.Errorf("after the lease %q is taken, and the other is %s", r.m.lab.Site.Taken, r.m.State(Ref{1, 1}))
	}
	r.apply(NodeGone{Node: a.Node})
	if r.m.State(Ref{1, 1}) != job.Running || r.m.lab.Site.Taken != "lic=1" {
		t.Errorf("its node was given up: %q is taken, and the other is %s", r.m.lab.Site.Taken, r.m.State(Ref{1, 1}))
	}
}

// What nobody counts, or nobody has as much of, is told with what was meant.
func TestCountedNever(t *testing.T) {
	r := counting(t, "matlab=2")
	for _, tt := range []struct{ asks, want job.Counts }{
		{"matlab=2", ""},
		{"tape=1", ""},
		{"matlab=3", "the site has 2 matlab, not 3"},
		{"tape=2", "no node has 2 tape, the most is 1 on ws2"},
		{"matlap=1", `neither the site nor a node counts "matlap" (did you mean "matlab"?)`},
		{"comsol=1", `neither the site nor a node counts "comsol" (counted are matlab, tape)`},
	} {
		if got := r.m.Impossible(&job.Spec{}, AskOf(job.Resources{Counted: tt.asks}, nil)); got != string(tt.want) {
			t.Errorf("%s: %q, want %q", tt.asks, got, tt.want)
		}
		r.apply(asking(1, 0, tt.asks))
		r.why(Ref{1, 0}, string(tt.want))
		r.apply(BatchGone{1})
	}
	few := job.Spec{Capabilities: []string{"cpus>8"}}
	if got := r.m.Impossible(&few, AskOf(job.Resources{Counted: "tape=1"}, nil)); got != "none of 2 nodes has all of cpus>8, 1 tape (cpus>8 is missing)" {
		t.Errorf("with a capability: %q", got)
	}
	r.apply(NodeDown{2})
	r.apply(Removed{Node: "ws2"})
	if got := r.m.Impossible(&job.Spec{}, AskOf(job.Resources{Counted: "tape=1"}, nil)); got != `neither the site nor a node counts "tape" (counted are matlab)` {
		t.Errorf("when the node was removed: %q", got)
	}
}
