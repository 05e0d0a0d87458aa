package noded

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"testing"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// givenNode is a node of 4 cpus, 8G and two GPUs, without a goroutine of its state.
func givenNode(t *testing.T) *daemon {
	t.Helper()
	d, err := desk.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	n := newDaemon(&Settings{Name: "ws1", Offer: offer4(), Addr: "tcp://127.0.0.1:1", boot: "boot", Log: strictLog(slog.DiscardHandler)}, d)
	n.cpuIDs = []int{0, 1, 2, 3}
	n.change(Given{Offer: offer4()})
	n.link.out = &outbox{news: make(chan struct{}, 1)}
	return n
}

func offer4() node.Offer {
	return node.Offer{CPUs: 4, Memory: 8 << 30, Containment: "session", GPUs: []node.GPU{{Index: 0}, {Index: 3}}}
}

// queued is somebody who waits, or has got his share.
func (n *daemon) queued(t *testing.T, cpus int, r job.Resources) *want {
	t.Helper()
	s, err := n.shareOf(cpus, r)
	if err != nil {
		t.Fatal(err)
	}
	w := &want{share: s, given: make(chan struct{})}
	n.queue = append(n.queue, w)
	n.pump()
	return w
}

// offers is what the head has been told since the last time.
func (n *daemon) offers() (list []node.Offer) {
	for _, m := range n.link.out.take() {
		if o, ok := m.(*wire.Offer); ok {
			list = append(list, o.Offer)
		}
	}
	return list
}

// What runs goes on with what it has when the node offers something else; the rest
// is shared out anew, and who waits for more than there is now is given back.
func TestChange(t *testing.T) {
	n := givenNode(t)
	runs := n.queued(t, 2, job.Resources{Memory: 3 << 30, GPUs: job.OneGPU})
	large, small := n.queued(t, 4, job.Resources{Memory: 1 << 30}), n.queued(t, 1, job.Resources{Memory: 1 << 30})
	if !given(runs) || given(large) || given(small) {
		t.Fatal("the queue does not begin as it should")
	}
	had := slices.Clone(runs.on)
	o := offer4()
	o.CPUs, o.Memory, o.GPUs, o.Capabilities = 3, 4<<30, o.GPUs[1:], []string{"fftw"}
	n.change(Given{Offer: o, Pausers: []int{1}})
	var tooMuch *tooMuchError
	if !given(large) || !errors.As(large.refused, &tooMuch) || large.refused.Error() != "needs 4 cpus, and ws1 has 3" {
		t.Errorf("who wants 4 of 3 cpus: %v", large.refused)
	}
	if !given(small) || small.refused != nil || len(small.on) != 1 || slices.Contains(had, small.on[0]) || !slices.Equal(runs.on, had) {
		t.Errorf("%+v beside %+v", small.share, runs.share)
	}
	if n.free != 0 || n.stock.memory != 0 || !slices.Equal(n.freeCards().Indexes(), []int{3}) || n.may(2) && os.Geteuid() != 2 {
		t.Errorf("left are %d cpus, %+v", n.free, n.stock)
	}
	if list := n.offers(); len(list) != 1 || list[0].CPUs != 3 || list[0].Containment != "session" || !slices.Equal(list[0].Capabilities, o.Capabilities) {
		t.Errorf("the head is told %+v", list)
	}
	// Less than runs: nothing begins until that is over.
	o.CPUs = 1
	n.change(Given{Offer: o})
	late := n.queued(t, 1, job.Resources{Memory: 1 << 30})
	if n.give(&runs.share); given(late) {
		t.Error("more cpus are given than are offered")
	}
	n.give(&small.share)
	if n.pump(); !given(late) || n.free != 0 {
		t.Errorf("nothing begins; %d cpus are free", n.free)
	}
	n.give(&late.share)
	n.change(Given{Offer: offer4()})
	if n.free != 4 || n.stock.memory != 8<<30 || len(n.stock.cpus.free) != 4 || len(n.freeCards().Indexes()) != 2 || len(n.held) != 0 {
		t.Errorf("at the end %d cpus are free, %+v", n.free, n.stock)
	}
}

// A GPU that others use is given to nobody while they do, and the head hears of it.
func TestBusyGPUs(t *testing.T) {
	n := givenNode(t)
	n.CardUsers = func(context.Context) (map[int][]int, map[int]error) { return nil, nil }
	n.cardsWatched = true // the looks are made here
	first := n.queued(t, 1, job.Resources{GPUs: job.OneGPU})
	both := n.queued(t, 1, job.Resources{GPUs: 2 * job.OneGPU})
	if !given(first) || !slices.Equal(first.cards.Indexes(), []int{0}) || given(both) {
		t.Fatalf("%+v", first.share)
	}
	n.setBusy(map[int]string{3: ""})
	if both.refused == nil || both.refused.Error() != "needs 2 GPUs, and ws1 has 1 that nobody else uses" {
		t.Errorf("who waits for both: %v", both.refused)
	}
	if list := n.offers(); len(list) != 1 || list[0].GPUs[0].Busy || !list[0].GPUs[1].Busy {
		t.Errorf("the head is told %+v", list)
	}
	if n.setBusy(map[int]string{3: ""}); len(n.offers()) != 0 {
		t.Error("what is no news is told")
	}
	second := n.queued(t, 1, job.Resources{GPUs: job.OneGPU})
	if given(second) {
		t.Errorf("it got %v", second.cards)
	}
	if n.change(Given{Offer: offer4()}); !n.given().Offer.GPUs[1].Busy {
		t.Error("a GPU is taken for free since the node's file was read again")
	}
	if n.setBusy(nil); !given(second) || !slices.Equal(second.cards.Indexes(), []int{3}) {
		t.Errorf("it is not given when nobody uses it any more: %+v", second.share)
	}
}

// A look tells a job's processes from others, and believes nothing of a tool that
// fails.
func TestLookAtCards(t *testing.T) {
	n := givenNode(t)
	n.cardsWatched = true
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case act := <-n.acts:
				act()
			case <-ended:
				return
			}
		}
	}()
	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	const nobody = 1 << 30 // a process that cannot be seen
	users, unknown := map[int][]int{}, map[int]error(nil)
	n.CardUsers = func(context.Context) (map[int][]int, map[int]error) { return users, unknown }
	look := func() (busy []int) {
		n.cards.looked = false
		n.lookAtCards(t.Context())
		for _, g := range n.given().Offer.GPUs {
			if g.Busy {
				busy = append(busy, g.Index)
			}
		}
		return busy
	}
	if got := look(); got != nil {
		t.Errorf("busy are %v", got)
	}
	users = map[int][]int{3: {other.Process.Pid}, 7: {1}}
	if got := look(); !slices.Equal(got, []int{3}) {
		t.Errorf("one uses the GPU 3; busy are %v", got)
	}
	users = map[int][]int{3: {nobody}}
	if got := look(); !slices.Equal(got, []int{3}) {
		t.Errorf("one that cannot be seen uses the GPU 3; busy are %v", got)
	}
	has := &share{gpus: job.OneGPU, cards: job.AllCards([]int{3})}
	n.do(func() { n.held[has] = true })
	if got := look(); got != nil {
		t.Errorf("a job has the GPU; busy are %v", got)
	}
	ask := n.CardUsers
	n.CardUsers = func(ctx context.Context) (map[int][]int, map[int]error) {
		n.do(func() { delete(n.held, has) })
		return ask(ctx)
	}
	if got := look(); got != nil {
		t.Errorf("the job ended during the look; busy are %v", got)
	}
	n.CardUsers = ask
	unknown = map[int]error{3: errors.New("nvidia-smi does not answer")}
	if got := look(); !slices.Equal(got, []int{3}) || n.given().Offer.GPUs[1].Why != "nvidia-smi does not answer" {
		t.Errorf("it is not known; offered are %+v", n.given().Offer.GPUs)
	}
	unknown, users = nil, nil
	if got := look(); got != nil {
		t.Errorf("nobody uses them any more; busy are %v", got)
	}
}
