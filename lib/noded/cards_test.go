package noded

import (
	"slices"
	"testing"

	"distribute/lib/desk"
	"distribute/lib/job"
)

// Parts of GPUs fill one before another is begun; who wants a whole one waits for one
// of which nobody has a part; and all of that is as before behind another daemon.
func TestParts(t *testing.T) {
	n := givenNode(t)
	n.cardsWatched = true
	half := n.queued(t, 1, job.Resources{GPUs: 500})
	third := n.queued(t, 1, job.Resources{GPUs: 333})
	whole := n.queued(t, 1, job.Resources{GPUs: job.OneGPU})
	if !given(half) || !given(third) || !given(whole) || half.cards != job.CardsOf(500, []int{0}) || third.cards != job.CardsOf(333, []int{0}) || whole.cards != job.AllCards([]int{3}) {
		t.Fatalf("%v, %v and %v", half.cards, third.cards, whole.cards)
	}
	tenth := n.queued(t, 1, job.Resources{GPUs: 200})
	if given(tenth) {
		t.Errorf("a GPU is given out one and a third times: %v", tenth.cards)
	}
	var started desk.Started
	third.note(&started)
	old := (&attempt{Attempt: &desk.Attempt{}, cpus: 1}).shareIn(&started)
	if old.gpus != 333 || old.cards != third.cards {
		t.Errorf("%+v was started as %+v", old, third.share)
	}
	n.give(&half.share)
	n.give(&third.share)
	n.retake(old)
	if n.pump(); !given(tenth) || tenth.cards != job.CardsOf(200, []int{0}) || n.freeCards() != job.CardsOf(467, []int{0}) {
		t.Errorf("%v beside %v leaves %v", tenth.cards, old.cards, n.freeCards())
	}
	if n.give(&whole.share); n.freeCards() != job.CardsOf(467, []int{0}).Plus(job.AllCards([]int{3})) {
		t.Errorf("free are %v", n.freeCards())
	}
}

// What the head has chosen is given and nothing else: it counts that.
func TestChosenCards(t *testing.T) {
	n := givenNode(t)
	n.cardsWatched = true
	chosen := func(r job.Resources, cards ...int) *want {
		s, err := n.shareOf(1, r, cards...)
		if err != nil {
			t.Fatal(err)
		}
		w := &want{share: s, given: make(chan struct{})}
		n.queue = append(n.queue, w)
		n.pump()
		return w
	}
	first := chosen(job.Resources{GPUs: 500}, 3)
	if !given(first) || first.cards != job.CardsOf(500, []int{3}) {
		t.Errorf("it has %v", first.cards)
	}
	second := chosen(job.Resources{GPUs: job.OneGPU}, 3)
	if given(second) {
		t.Errorf("it has %v, of which another has a part", second.cards)
	}
	n.give(&first.share)
	if n.pump(); !given(second) || second.cards != job.AllCards([]int{3}) {
		t.Errorf("it has %v", second.cards)
	}
	for _, r := range []job.Resources{{GPUs: job.OneGPU}, {GPUs: 500}} {
		if _, err := n.shareOf(1, r, 7); err == nil || err.Error() != "was given GPU 7, which ws1 does not offer, or somebody else uses" {
			t.Errorf("%s: %v", r.GPUs, err)
		}
	}
	// A number of them that does not fit what is asked for is none.
	if s, err := n.shareOf(1, job.Resources{GPUs: 500}, 0, 3); err != nil || s.cards != (job.Cards{}) {
		t.Errorf("%v, %v", s.cards, err)
	}
	a := &attempt{Attempt: &desk.Attempt{Note: desk.Note{GPUs: []int{3}}}}
	if got := a.gpus(); !slices.Equal(got, []int{3}) {
		t.Errorf("the head is told %v", got)
	}
	a.has = &share{gpus: 500, cards: job.CardsOf(500, []int{0})}
	if !slices.Equal(a.gpus(), []int{0}) {
		t.Errorf("the head is told %v", a.gpus())
	}
	// Of what somebody else uses no part is given, and who waits for it is given back.
	late := chosen(job.Resources{GPUs: 250}, 3)
	n.setBusy(map[int]string{3: ""})
	if late.refused == nil {
		t.Errorf("it has %v", late.cards)
	}
}

// A container gets the libraries of who made the GPUs, and none without one.
func TestCardFlag(t *testing.T) {
	n := givenNode(t)
	one, nvidia := &share{gpus: job.OneGPU}, offer4()
	amd, none := n.cardFlag(one), n.cardFlag(&share{})
	nvidia.GPUs[0].UUID = "GPU-5a1e9d5c"
	n.change(Given{Offer: nvidia})
	if got := n.cardFlag(one); got != "--nv" || amd != "--rocm" || none != "" {
		t.Errorf("of NVIDIA %q, of AMD %q, without one %q", got, amd, none)
	}
}
