package noded

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/proc"
	"distribute/lib/timing"
)

// threads is eight cpus of four cores, numbered as most machines do it.
func threads() pool {
	core := map[int]string{}
	for c := range 8 {
		core[c] = fmt.Sprintf("%d,%d", c%4, c%4+4)
	}
	return newPool(inCores([]int{0, 1, 2, 3, 4, 5, 6, 7}, core), core)
}

func TestPool(t *testing.T) {
	p := threads()
	if want := []int{0, 4, 1, 5, 2, 6, 3, 7}; !slices.Equal(p.all, want) {
		t.Errorf("in the order %v, want %v", p.all, want)
	}
	for _, c := range []struct {
		take int
		want []int
	}{
		{2, []int{0, 4}},    // a core
		{1, []int{1}},       // half of one
		{3, []int{2, 5, 6}}, // a core, and the other half
		{3, nil},
		{2, []int{3, 7}},
		{1, nil},
	} {
		if got := p.take(c.take); !slices.Equal(got, c.want) {
			t.Errorf("%d of them are %v, want %v", c.take, got, c.want)
		}
	}
	p.give([]int{5, 2})
	if got := p.retake([]int{2, 2, 3, 99}); !slices.Equal(got, []int{2}) {
		t.Errorf("retook %v", got)
	}
	if got := p.take(1); !slices.Equal(got, []int{5}) {
		t.Errorf("took %v", got)
	}
	p.give([]int{0, 1, 2, 3, 4, 5, 6, 7})
	if !slices.Equal(p.free, p.all) {
		t.Errorf("free are %v", p.free)
	}
	all := threads()
	if got := all.take(8); len(got) != 8 || !slices.IsSorted(got) {
		t.Errorf("all are %v", got)
	}
}

// TestStock is a node with memory and GPUs, on which the second attempt waits for
// what the first has.
func TestStock(t *testing.T) {
	o := node.Offer{CPUs: 4, Memory: 8 << 30, GPUs: []node.GPU{{Index: 0}, {Index: 3}}}
	n := newDaemon(&Settings{Name: "ws1", Offer: o, Addr: "tcp://127.0.0.1:1"}, nil)
	n.cpuIDs = []int{0, 1, 2, 3, 4, 5}
	n.change(Given{Offer: o})
	if got := n.offeredCPUs(); !slices.Equal(got, []int{0, 1, 2, 3}) { // the last ones are the owner's
		t.Fatalf("it offers %v", got)
	}
	wants := func(cpus int, r job.Resources) *want {
		s, err := n.shareOf(cpus, r)
		if err != nil {
			t.Fatal(err)
		}
		w := &want{share: s, given: make(chan struct{})}
		n.queue = append(n.queue, w)
		n.pump()
		return w
	}
	a := wants(1, job.Resources{Memory: 5 << 30, GPUs: job.OneGPU})
	b := wants(1, job.Resources{GPUs: job.OneGPU})
	if !given(a) || !given(b) || !slices.Equal(a.cards.Indexes(), []int{0}) || !slices.Equal(b.cards.Indexes(), []int{3}) || slices.Equal(a.on, b.on) {
		t.Fatalf("%+v %+v", a.share, b.share)
	}
	c, d := wants(1, job.Resources{Memory: 4 << 30}), wants(1, job.Resources{GPUs: job.OneGPU})
	if given(c) || given(d) {
		t.Errorf("more memory was given than there is: %d", n.stock.memory)
	}
	n.give(&a.share)
	if n.pump(); !given(c) || !given(d) || !slices.Equal(d.cards.Indexes(), []int{0}) {
		t.Errorf("nobody got what was given back: %+v %+v", c.share, d.share)
	}
	for _, w := range []*want{b, c, d} {
		n.give(&w.share)
	}
	if n.free != 4 || n.stock.memory != 8<<30 || len(n.stock.cpus.free) != 4 || len(n.freeCards().Indexes()) != 2 {
		t.Errorf("left are %d cpus, %+v", n.free, n.stock)
	}
	for _, r := range []job.Resources{{Memory: 9 << 30}, {GPUs: 3 * job.OneGPU}} {
		if _, err := n.shareOf(1, r); err == nil || !strings.Contains(err.Error(), "ws1 has ") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	// What an earlier daemon gave is not given again.
	old := (&attempt{Attempt: &desk.Attempt{}, cpus: 1}).shareIn(&desk.Started{CPUs: a.on, GPUs: []int{3}, Memory: 6 << 30})
	if !old.never {
		t.Error("it may be started twice, although that is not known")
	}
	n.retake(old)
	if e := wants(1, job.Resources{Memory: 1 << 30, GPUs: job.OneGPU}); !given(e) || slices.Equal(e.on, old.on) || !slices.Equal(e.cards.Indexes(), []int{0}) {
		t.Errorf("%+v beside %+v", e.share, *old)
	}
	if f := wants(1, job.Resources{Memory: 2 << 30}); given(f) {
		t.Error("its memory was given again")
	}
}

// Who asks for no memory begins whatever of it is free, and takes none from who asks, also
// when the node's daemon was started anew.
func TestNoMemoryAsked(t *testing.T) {
	n := givenNode(t)
	if n.queued(t, 1, job.Resources{Memory: 7 << 30}); n.stock.memory != 1<<30 {
		t.Fatalf("%d are left", n.stock.memory)
	}
	w := n.queued(t, 1, job.Resources{})
	if !given(w) || n.stock.memory != 1<<30 {
		t.Errorf("it is given %v, and %d are left", given(w), n.stock.memory)
	}
	var s desk.Started
	w.share.note(&s)
	n.give(&w.share)
	n.retake((&attempt{Attempt: &desk.Attempt{}, cpus: 1}).shareIn(&s))
	if env := n.jobEnv(nil, &w.share, "", ""); n.stock.memory != 1<<30 || !slices.Contains(env, "DISTRIBUTE_MEMORY=2147483648") {
		t.Errorf("%d are left; it is told %q", n.stock.memory, env)
	}
	if last := n.queued(t, 1, job.Resources{Memory: 1 << 30}); !given(last) {
		t.Error("who asks does not get what is left")
	}
}

// TestMoreThanThereAre is a node that offers more cpus than it has: then nobody has
// cpus of his own.
func TestMoreThanThereAre(t *testing.T) {
	s := newStock(node.Offer{CPUs: 4}, []int{0, 1}, false)
	if s.cpus.all != nil || s.cpus.take(1) != nil {
		t.Errorf("%+v", s.cpus)
	}
}

// These are the limits that dnoded(8) gives.
func TestLimitsOfTheManual(t *testing.T) {
	s, all := &Settings{Nodes: 1}, proc.MaxThreads()
	if got, want := s.mostProcesses(), max(256, 3*all/4); got != want {
		t.Errorf("of %d threads all jobs together may have %d, want %d", all, got, want)
	}
	if l := (&share{cpus: 2}).limits(job.Resources{}); l.Pids != 1024+2*256 || l.Memory != 0 || l.Time != 0 {
		t.Errorf("a build, which asks for nothing, has %+v", l)
	}
	if grace != timing.Wait(10*time.Second) || roomWithin != timing.Wait(30*time.Second) || 100/inodesFree != 2 {
		t.Errorf("SIGKILL comes after %v, an attempt waits for room for %v, and 1/%d of the inodes is to be free", grace, roomWithin, inodesFree)
	}
}

func TestShareEnv(t *testing.T) {
	none, two, half := &share{}, &share{gpus: 2 * job.OneGPU, cards: job.AllCards([]int{1, 3})}, &share{gpus: 500, cards: job.CardsOf(500, []int{3})}
	if got := strings.Join(none.env(), " "); got != "DISTRIBUTE_GPUS=0 CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES= ROCR_VISIBLE_DEVICES=" {
		t.Error(got)
	}
	if got := strings.Join(two.env(), " "); got != "DISTRIBUTE_GPUS=2 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1,3 HIP_VISIBLE_DEVICES=1,3" {
		t.Error(got)
	}
	if got := strings.Join(half.env(), " "); got != "DISTRIBUTE_GPUS=0.5 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=3 HIP_VISIBLE_DEVICES=3" {
		t.Error(got)
	}
}

// TestN60Reasons tells the limits that a job came up against from one another.
func TestN60Reasons(t *testing.T) {
	for _, c := range []struct {
		st   proc.Status
		want string
	}{
		{proc.Status{Signal: 9, NoMemory: true, Had: 4 << 30}, "out of memory: it had 4G"},
		{proc.Status{Signal: 9, NoMemory: true}, "out of memory: its node had no more"},
		{proc.Status{Signal: 9, Stopped: proc.StoppedTime, Wall: time.Hour}, "time limit"},
		{proc.Status{Exit: new(int), Stopped: proc.StoppedTime}, "time limit"},
		{proc.Status{Signal: 11}, ""},
		{proc.Status{Signal: 9, Stopped: proc.StoppedOrder}, ""},
		{proc.Status{Crowded: 1280}, "it wanted more than 1280 processes, and may have no more"},
	} {
		if got := limitReached(&c.st); got != c.want {
			t.Errorf("%+v: %q, want %q", c.st, got, c.want)
		}
	}
}

// Cpus that are dealt out are of one each, and none if there are too few.
func TestDeal(t *testing.T) {
	got := Deal([]int{4, 5, 6, 7, 8}, []int{2, 1, 1, 3})
	seen := map[int]bool{}
	for i, n := range []int{2, 1, 1, 0} {
		if len(got[i]) != n {
			t.Errorf("to number %d were dealt %v", i+1, got[i])
		}
		for _, c := range got[i] {
			if seen[c] || c < 4 || c > 8 {
				t.Errorf("%v: cpu %d is not there, or of two", got, c)
			}
			seen[c] = true
		}
	}
}
