package sched

import (
	"testing"

	"distribute/lib/job"
	"distribute/lib/node"
)

func withGPUs(session uint64, name string, gpus ...node.GPU) Event {
	return NodeUp{Session: session, Node: node.Name(name), Boot: "b1", State: "s1", Offer: node.Offer{CPUs: 16, GPUs: gpus}}
}

// indexed is so many GPUs, as a node counts them.
func indexed(n int) []node.GPU {
	list := make([]node.GPU, n)
	for i := range list {
		list[i].Index = i
	}
	return list
}

// asksGPUs is a batch of jobs that take a cpu each, and so much of a GPU.
func asksGPUs(batch uint32, jobs int, of job.GPUs) Event {
	return AddBatch{Batch: batch, Jobs: jobs, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1, GPUs: of}}}
}

// cards is which GPUs a live attempt has.
func (r *rig) cards(n int) job.Cards { return r.m.live[must(tok(n))].Share.Cards }

// Whoever says which GPUs are wanted gets such ones, also where others are free, and waits for
// them. Where nodes have too few of them that is said.
func TestWantedGPUs(t *testing.T) {
	r := newRig(t, Config{})
	asks := func(batch uint32, jobs int, of job.GPUs, wants ...string) Event {
		return AddBatch{Batch: batch, Jobs: jobs, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1, GPUs: of}, Capabilities: wants}}
	}
	script{
		{Loaded{}, ""},
		{withGPUs(1, "ws1", node.GPU{Index: 0, Model: "GTX 1060", Memory: 6 << 30}, node.GPU{Index: 1, Model: "RTX 3090", Memory: 24 << 30}, node.GPU{Index: 2, Model: "RTX 3090", Memory: 24 << 30, Busy: true}), "node ws1 s1"},
		{ListEnd{1}, ""},
		{asks(1, 1, 500, "gpu.memory>=20G"), "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
		{asks(4, 1, 500, "gpu.memory>=20G", "gpu.model~3090"), "start 4/0 a2~1 ws1/1; START 1 4/0 a2"},
		{asks(7, 1, 1000, "gpu.memory>=20G|cpus>=16"), "start 7/0 a3~1 ws1/1; START 1 7/0 a3"},
		{asks(2, 1, 1000, "gpu.model~3090"), ""}, // one is taken, the other is busy
		{asks(3, 1, 1000, "gpu.model!=*1060*"), ""},
		{asks(5, 1, 3000, "gpu.memory>=20G"), ""},
		{asks(6, 1, 1000, "gpu.memory>=20G", "gpu.model~1060"), ""},
		{asks(8, 1, 3000, "gpu.model!=*1060*"), ""},
		{asks(9, 1, 1000, "gpu.memory>=30G"), ""},
		{asks(10, 1, 1000, "gpu.memory>=30G", "gcc"), ""},
		{asks(11, 1, 1000, "gpu.model~3090", "gcc"), ""},
	}.run(t, r)
	for n, want := range map[int]job.Cards{1: job.CardsOf(500, []int{1}), 2: job.CardsOf(500, []int{1}), 3: job.CardsOf(1000, []int{0})} {
		if got := r.cards(n); got != want {
			t.Errorf("attempt %d has %v, want %v", n, got, want)
		}
	}
	r.why(Ref{2, 0}, "1 of 1 nodes can run it: ws1 busy")
	r.why(Ref{5, 0}, "no node has 3 gpus of gpu.memory>=20G, the most is 2 gpus on ws1")
	r.why(Ref{8, 0}, "no node has 3 gpus of gpu.model!=*1060*, the most is 2 gpus on ws1")
	r.why(Ref{6, 0}, "none of 1 nodes has all of gpu.memory>=20G, gpu.model~1060 (one GPU with gpu.memory>=20G, gpu.model~1060 is missing); the GPUs are GTX 1060 with 6G, RTX 3090 with 24G")
	r.why(Ref{9, 0}, "none of 1 nodes has gpu.memory>=30G; the GPUs are GTX 1060 with 6G, RTX 3090 with 24G")
	r.why(Ref{10, 0}, "none of 1 nodes has all of gcc, gpu.memory>=30G (gcc, gpu.memory>=30G are missing); the GPUs are GTX 1060 with 6G, RTX 3090 with 24G")
	r.why(Ref{11, 0}, "none of 1 nodes has all of gcc, gpu.model~3090 (gcc is missing)")
}

// Where a node with a GPU as it is wanted lacks something else, its GPUs are told as well.
func TestWantedGPUElsewhere(t *testing.T) {
	for _, c := range []struct {
		with []node.GPU // has all else
		gpus string
	}{
		{nil, "RTX 3090"},
		{[]node.GPU{{Index: 0, Model: "GTX 1060"}}, "GTX 1060, RTX 3090"},
	} {
		r := newRig(t, Config{})
		gcc := NodeUp{Session: 2, Node: "ws2", Boot: "b1", State: "s1", Offer: node.Offer{CPUs: 16, GPUs: c.with, Capabilities: []string{"gcc"}}}
		for _, ev := range []Event{Loaded{}, withGPUs(1, "ws1", node.GPU{Index: 0, Model: "RTX 3090"}), ListEnd{1}, gcc, ListEnd{2},
			AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1, GPUs: 1000}, Capabilities: []string{"gcc", "gpu.model~3090"}}}} {
			r.apply(ev)
		}
		r.why(Ref{1, 0}, "none of 2 nodes has all of gcc, gpu.model~3090 (1 without gcc, 1 without gpu.model~3090); the GPUs are "+c.gpus)
	}
}

// Of GPUs that somebody else uses those are told that are wanted.
func TestWantedGPUInUse(t *testing.T) {
	r := newRig(t, Config{})
	script{
		{Loaded{}, ""},
		{withGPUs(1, "ws1", node.GPU{Index: 0, Model: "GTX 1060"}, node.GPU{Index: 1, Model: "RTX 3090", Busy: true}, node.GPU{Index: 2, Model: "RTX 4090", Busy: true, Why: "lost"}), "node ws1 s1"},
		{ListEnd{1}, ""},
		{AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1, GPUs: 1000}, Capabilities: []string{"gpu.model~3090"}}}, ""},
		{asksGPUs(2, 1, 2000), ""},
	}.run(t, r)
	r.why(Ref{1, 0}, "1 of 1 nodes can run it: ws1 has 0 gpus of gpu.model~3090 left, and somebody else uses the rest")
	r.why(Ref{2, 0}, "1 of 1 nodes can run it: ws1 has 1 gpu left, and cannot tell who uses the rest (lost); 1 job goes first (by age)")
}

// Parts are of one GPU each: what is left of several makes no part and no whole one, and
// one that is begun is filled before another.
func TestPartsOfGPUs(t *testing.T) {
	r := newRig(t, Config{})
	script{
		{Loaded{}, ""},
		{withGPUs(1, "ws1", node.GPU{Index: 0}, node.GPU{Index: 2}, node.GPU{Index: 3, Busy: true}), "node ws1 s1"},
		{ListEnd{1}, ""},
		{asksGPUs(1, 2, 600), "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
		{asksGPUs(3, 3, 200), "start 3/0 a3~1 ws1/1; START 1 3/0 a3; start 3/1 a4~1 ws1/1; START 1 3/1 a4; start 3/2 a5~1 ws1/1; START 1 3/2 a5"},
		{asksGPUs(2, 1, 201), ""}, // though 0.4 are free
		{asksGPUs(4, 1, 1000), ""},
	}.run(t, r)
	for n, want := range map[int]job.Cards{1: job.CardsOf(600, []int{0}), 2: job.CardsOf(600, []int{2}), 3: job.CardsOf(200, []int{0}), 4: job.CardsOf(200, []int{0}), 5: job.CardsOf(200, []int{2})} {
		if got := r.cards(n); got != want {
			t.Errorf("attempt %d has %v, want %v", n, got, want)
		}
	}
	r.why(Ref{2, 0}, "1 of 1 nodes can run it: ws1 busy")
	if n := r.m.Nodes()[0]; n.GPUs != 3 || n.GPUsUsed != 1800 {
		t.Errorf("it is shown with %s of %d", n.GPUsUsed, n.GPUs)
	}
	if rec := r.logs[3][0].rec; rec.GPUs != 200 {
		t.Errorf("the record of a start has %s", rec.GPUs)
	}
	// A node that comes back says who has which: nobody else gets it.
	script{
		{NodeDown{1}, ""},
		{withGPUs(2, "ws1", node.GPU{Index: 0}, node.GPU{Index: 2}), ""},
		{Item{Session: 2, Attempt: tok(1), Phase: job.PhaseRunning, CPUs: 1, GPUs: []int{2}}, "KEEP 2 a1"},
		{Item{Session: 2, Attempt: tok(2), Phase: job.PhaseReturning, CPUs: 1, GPUs: []int{2}, Ended: &Result{Fate: job.FateLost}}, "back 1/1 a2 lost (lost by ws1); late 1/1 a2; HAVE 2 a2"},
		{Item{Session: 2, Attempt: tok(77), Phase: job.PhaseRunning, CPUs: 1, GPUs: []int{0, 0, -1}}, "HOLD 2 a4d"},
		{Item{Session: 2, Attempt: tok(3), Phase: job.PhaseRunning, CPUs: 1, GPUs: []int{0}}, "KEEP 2 a3"},
		{Item{Session: 2, Attempt: tok(4), Phase: job.PhaseRunning, CPUs: 1, GPUs: []int{0}}, "KEEP 2 a4"},
		{Item{Session: 2, Attempt: tok(5), Phase: job.PhaseRunning, CPUs: 1, GPUs: []int{0, 2}}, "KEEP 2 a5"}, // which cannot be
		{ListEnd{2}, ""},
	}.run(t, r)
	for n, want := range map[int]job.Cards{1: job.CardsOf(600, []int{2}), 3: job.CardsOf(200, []int{0}), 5: job.CardsOf(200, []int{2})} {
		if got := r.cards(n); got != want {
			t.Errorf("attempt %d has %v, want %v", n, got, want)
		}
	}
}

// Who asks for a whole node and for gpu, as the original's users write it, gets the GPUs of
// that node on which nobody else is; and waits while somebody is on all of them.
func TestWholeNodeWithGPUs(t *testing.T) {
	r := newRig(t, Config{})
	offers := func(session uint64, gpus ...node.GPU) Event {
		e := withGPUs(session, "ws1", gpus...).(NodeUp)
		e.Offer.Capabilities = []string{"apptainer", "gpu"}
		return e
	}
	script{
		{Loaded{}, ""},
		{offers(1, node.GPU{Index: 0}, node.GPU{Index: 2}, node.GPU{Index: 3, Busy: true}), "node ws1 s1"},
		{ListEnd{1}, ""},
		{AddBatch{Batch: 1, Jobs: 2, Spec: &job.Spec{Kind: job.Apptainer, Capabilities: []string{"gpu"}}}, "start 1/0 a1~1 ws1/16; START 1 1/0 a1"},
	}.run(t, r)
	if got := r.cards(1); got != job.CardsOf(2000, []int{0, 2}) {
		t.Errorf("it has %v", got)
	}
	script{
		{Offered{1, node.Offer{CPUs: 16, Capabilities: []string{"apptainer", "gpu"}, GPUs: []node.GPU{{Index: 0, Busy: true}}}}, ""},
		{ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1"},
	}.run(t, r)
	r.why(Ref{1, 1}, "1 of 1 nodes can run it: ws1 has 0 gpus left, and somebody else uses the rest")
	script{
		{Offered{1, node.Offer{CPUs: 16, Capabilities: []string{"apptainer", "gpu"}, GPUs: []node.GPU{{Index: 0, Busy: true, Why: "nvidia-smi: exit status 15"}}}}, ""},
	}.run(t, r)
	r.why(Ref{1, 1}, "1 of 1 nodes can run it: ws1 has 0 gpus left, and cannot tell who uses the rest (nvidia-smi: exit status 15)")
	script{
		{Offered{1, node.Offer{CPUs: 16, Capabilities: []string{"apptainer", "gpu"}, GPUs: []node.GPU{{Index: 0}}}}, "start 1/1 a2~1 ws1/16; START 1 1/1 a2"},
	}.run(t, r)
	if got := r.cards(2); got != job.CardsOf(1000, []int{0}) {
		t.Errorf("it has %v", got)
	}
}

// Among nodes a part goes where others have parts already, and no job with a GPU is sent
// ahead; who asks for none goes elsewhere.
func TestPartsAmongNodes(t *testing.T) {
	r := newRig(t, Config{})
	script{
		{Loaded{}, ""},
		{withGPUs(1, "ws1", node.GPU{Index: 0}), "node ws1 s1"},
		{ListEnd{1}, ""},
		{asksGPUs(1, 1, 300), "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
		{withGPUs(2, "ws2", node.GPU{Index: 0}), "node ws2 s1"},
		{ListEnd{2}, ""},
		{AddBatch{Batch: 2, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 9, GPUs: 1000}}}, "start 2/0 a2~1 ws2/9; START 2 2/0 a2"},
		{ended(2, 2, exited(1, "")), "failed 2/0 a2; HAVE 2 a2"},
		{AddBatch{Batch: 3, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 9}}}, "start 3/0 a3~1 ws1/9; START 1 3/0 a3"},
		{up(3, "ws3", 2), "node ws3 s1"},
		{ListEnd{3}, ""},
		{asksGPUs(4, 1, 700), "start 4/0 a4~1 ws1/1; START 1 4/0 a4"},
		{asksGPUs(5, 1, 700), "start 5/0 a5~1 ws2/1; START 2 5/0 a5"},
		{asksFor(6, 1, 1, 1), "start 6/0 a6~1 ws3/1; START 3 6/0 a6"},
	}.run(t, r)
}

// A whole GPU is not waited for for ever where parts come all the time: one is kept free
// of them.
func TestPartsSpareWhole(t *testing.T) {
	r := newRig(t, Config{})
	script{
		{Loaded{}, ""},
		{withGPUs(1, "ws1", node.GPU{Index: 0}, node.GPU{Index: 1}), "node ws1 s1"},
		{ListEnd{1}, ""},
		{asksGPUs(1, 2, 600), "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
		{asksGPUs(2, 1, 1000), ""},
		{asksGPUs(3, 9, 600), ""},
		{ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 2/0 a3~1 ws1/1; START 1 2/0 a3"},
		{ended(1, 2, exited(1, "")), "failed 1/1 a2; HAVE 1 a2; start 3/0 a4~1 ws1/1; START 1 3/0 a4"},
	}.run(t, r)
	// Younger ones of another owner, whose turn it is, go beside it and not in its way.
	r = newRig(t, Config{})
	script{
		{Loaded{}, ""},
		{withGPUs(1, "ws1", node.GPU{Index: 0}, node.GPU{Index: 1}, node.GPU{Index: 2}), "node ws1 s1"},
		{ListEnd{1}, ""},
		{asksGPUs(1, 3, 600), "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2; start 1/2 a3~1 ws1/1; START 1 1/2 a3"},
		{asksGPUs(2, 1, 1000), ""},
		{asksGPUs(3, 3, 300), "start 3/0 a4~1 ws1/1; START 1 3/0 a4; start 3/1 a5~1 ws1/1; START 1 3/1 a5"},
		{ended(1, 3, exited(1, "")), "failed 1/2 a3; HAVE 1 a3; start 2/0 a6~1 ws1/1; START 1 2/0 a6"},
	}.run(t, r)
	if r.cards(4) != job.CardsOf(300, []int{0}) || r.cards(5) != job.CardsOf(300, []int{1}) || r.cards(6) != job.AllCards([]int{2}) {
		t.Errorf("they have %v, %v and %v", r.cards(4), r.cards(5), r.cards(6))
	}
}

// Of an attempt that the head does not know, no GPUs count but those that its node
// offers, also if it is said to have many others.
func TestGPUsOfUnknown(t *testing.T) {
	r := newRig(t, Config{})
	claims := []int{3, 0, 0, -1, job.MaxCards, 1 << 40}
	for i := range 100_000 {
		claims = append(claims, 1_000_000+i)
	}
	script{
		{Loaded{}, ""},
		{withGPUs(1, "ws1", node.GPU{Index: 0}, node.GPU{Index: 2}, node.GPU{Index: 3, Busy: true}), "node ws1 s1"},
		{Item{Session: 1, Attempt: tok(77), Phase: job.PhaseRunning, CPUs: 1, GPUs: claims}, "HOLD 1 a4d"},
		{ListEnd{1}, ""},
	}.run(t, r)
	if n := r.m.Nodes()[0]; n.GPUs != 3 || n.GPUsUsed != 2000 {
		t.Errorf("it is shown with %s of %d", n.GPUsUsed, n.GPUs)
	}
	if got := r.m.peers[0].Used.Cards; got != job.AllCards([]int{0, 3}) {
		t.Errorf("%v are used", got)
	}
	script{{asksGPUs(1, 2, 1000), "start 1/0 a1~1 ws1/1; START 1 1/0 a1"}}.run(t, r)
	if got := r.cards(1); got != job.AllCards([]int{2}) {
		t.Errorf("a job has %v", got)
	}
}

// A job that has all of a node has its GPUs after a restart of the head, too: what the node
// is lent later goes to others without them.
func TestAllGPUsAfterARestart(t *testing.T) {
	r := newRig(t, Config{})
	whole := AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Capabilities: []string{"gpu"}}}
	up := withGPUs(1, "ws1", indexed(1)...).(NodeUp)
	up.Offer.Capabilities = []string{"gpu"}
	for _, ev := range []Event{Loaded{}, up, ListEnd{1}, whole} {
		r.apply(ev)
	}
	m, err := r.replayed()
	if err != nil {
		t.Fatal(err)
	}
	up.Session = 2
	more := node.Offer{CPUs: 32, Capabilities: up.Offer.Capabilities, GPUs: indexed(1)}
	for _, ev := range []Event{Loaded{}, up, Item{Session: 2, Attempt: tok(1), Phase: job.PhaseRunning, GPUs: []int{0}}, ListEnd{2},
		Offered{2, more}, asksGPUs(2, 1, 1000)} {
		m.step(ev, 0)
	}
	if m.State(Ref{1, 0}) != job.Running || m.State(Ref{2, 0}) != job.Queued || m.Nodes()[0].GPUsUsed != 1000 {
		t.Errorf("another job for its GPU is %s, and %s are in use", m.State(Ref{2, 0}), m.Nodes()[0].GPUsUsed)
	}
}
