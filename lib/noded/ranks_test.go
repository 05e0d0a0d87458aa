package noded

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/proc"
)

// Each rank has its own part of what the job has, and nobody else's.
func TestRankShares(t *testing.T) {
	offer := func(memory int64) *Settings { return &Settings{Offer: node.Offer{CPUs: 8, Memory: memory}} }
	n, other := &daemon{Settings: offer(1600)}, &daemon{Settings: offer(3200)}
	n.Name, other.Name = "ws1", "ws2"
	beside := &share{cpus: 2, memory: 100, gpus: 2 * job.OneGPU, on: []int{9, 8}, cards: job.AllCards([]int{10, 11}), ranks: 1}
	s := &share{cpus: 6, memory: 300, gpus: 6 * job.OneGPU, on: []int{7, 6, 5, 4, 3, 2}, cards: job.AllCards([]int{0, 1, 2, 4, 5, 9}), port: 29500,
		ranks: 3, beside: []*portion{{other, beside}}}
	asked := job.Resources{CPUs: 2, Memory: 100, GPUs: 2 * job.OneGPU, Ranks: 4}
	var got []string
	list := n.ranksOf(s, asked, func(k int) string { return fmt.Sprint("out", k) }, func(on *daemon, part *share, own []string) []string {
		got = append(got, fmt.Sprintln(on.Name, part.cpus, part.memory, part.on, part.cards.Indexes(), own[0], own[3]))
		return own
	})
	if want := []string{
		"ws1 2 100 [7 6] [0 1] DISTRIBUTE_RANK=0 MASTER_PORT=29500\n",
		"ws1 2 100 [5 4] [2 4] DISTRIBUTE_RANK=1 MASTER_PORT=29500\n",
		"ws1 2 100 [3 2] [5 9] DISTRIBUTE_RANK=2 MASTER_PORT=29500\n",
		"ws2 2 100 [9 8] [10 11] DISTRIBUTE_RANK=3 MASTER_PORT=29500\n",
	}; !slices.Equal(got, want) {
		t.Errorf("they have %q", got)
	}
	all := n.limits(s, asked)
	for k, r := range list {
		if r.Output != fmt.Sprint("out", k) || r.Memory != 100 || !slices.Equal(r.CPUs, all.CPUs[2*k:2*k+2]) {
			t.Errorf("rank %d is %+v", k, r)
		}
	}
	if all.Memory != 400 || all.Pids != 1024+8*256 {
		t.Errorf("together they are held to %+v", all)
	}
	asked.Memory = 0
	if all := n.limits(s, asked); all.Memory != 1500+3000 {
		t.Errorf("who say nothing of memory have %d", all.Memory)
	}
	asked.Memory, asked.Grows = 100, true
	for k, r := range n.ranksOf(s, asked, func(int) string { return "" }, func(_ *daemon, _ *share, own []string) []string { return own }) {
		if r.Memory != 0 {
			t.Errorf("rank %d, which may have more than it asks for, is held to %d bytes", k, r.Memory)
		}
	}
	if all := n.limits(s, asked); all.Memory != 1500+3000 {
		t.Errorf("those that may have more than they ask for are held to %d bytes together", all.Memory)
	}
	beside.on = nil
	if all := n.limits(s, asked); all.CPUs != nil {
		t.Errorf("where some cpus cannot be told apart they are held to %v", all.CPUs)
	}
	if whole := (&share{cpus: 4}).rank(1, 2); whole.cpus != 2 || whole.on != nil || whole.cards != (job.Cards{}) {
		t.Errorf("of cpus that cannot be told apart it has %+v", whole)
	}
}

// A port is nobody else's, of our own jobs or not, and is had again.
func TestRankPorts(t *testing.T) {
	p := &portPool{used: map[int]bool{}}
	for _, at := range []string{"127.0.0.1:0", "127.0.0.2:0"} { // the second is in the way of who listens at all addresses
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		taken := l.Addr().(*net.TCPAddr).Port
		if port, err := p.reservePort(taken, taken); err == nil {
			t.Errorf("%d is given, at which somebody listens at %s", port, at)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	one := free.Addr().(*net.TCPAddr).Port
	free.Close()
	if port, err := p.reservePort(one, one); err != nil || port != one {
		t.Fatalf("%d, %v", port, err)
	}
	if port, err := p.reservePort(one, one); err == nil {
		t.Errorf("%d is given twice", port)
	}
	p.releasePort(one)
	if port, err := p.reservePort(one, one); err != nil || port != one {
		t.Errorf("given back it is not had again: %d, %v", port, err)
	}
	p.releasePort(one)
	if p.claimPort(one); !p.used[one] {
		t.Error("a job of an earlier daemon does not keep its port")
	}
}

// Where the node's file says no ports they are 29500 to 29999.
func TestUsualRankPorts(t *testing.T) {
	n := givenNode(t)
	for range 20 {
		port, err := n.reservePort()
		if err != nil || port < 29500 || port > 29999 {
			t.Fatalf("%d, %v", port, err)
		}
		ports.releasePort(port)
	}
}

// A rank is named that failed by itself, and none where all were asked to end.
func TestFailedItself(t *testing.T) {
	rank := 1
	for want, list := range map[bool][]proc.Status{
		true:  {{Rank: &rank}, {Rank: &rank, Stopped: proc.StoppedMemory, NoMemory: true}},
		false: {{}, {Rank: &rank, Stopped: proc.StoppedTime}, {Rank: &rank, Stopped: proc.StoppedOrder}, {Rank: &rank, Error: "cannot start"}, {Rank: &rank, Evicted: true}},
	} {
		for _, st := range list {
			if failedItself(&st) != want {
				t.Errorf("%+v: %v", st, !want)
			}
		}
	}
}
