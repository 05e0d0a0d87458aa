package job

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCards(t *testing.T) {
	all := AllCards([]int{10, 2, 0})
	if got := all.Indexes(); !slices.Equal(got, []int{0, 2, 10}) || all != AllCards([]int{0, 10, 2}) {
		t.Errorf("all are %v", got)
	}
	for _, bad := range []Cards{CardsOf(500, []int{0, 1}), CardsOf(2000, []int{1, 1}), CardsOf(1000, []int{-1}), CardsOf(1000, []int{MaxCards}), CardsOf(1000, nil), CardsOf(0, nil)} {
		if bad != (Cards{}) {
			t.Errorf("%v are some", bad)
		}
	}
	if got := AllCards([]int{MaxCards, 3, -1, 3, MaxCards - 1, 1 << 40}); got != AllCards([]int{3, MaxCards - 1}) || got.Len() != 2 {
		t.Errorf("indexes of which two are of GPUs are %v", got)
	}
	used := CardsOf(250, []int{2}).Plus(CardsOf(600, []int{10})).Plus(CardsOf(250, []int{10}))
	for _, c := range []struct {
		asks  GPUs
		fit   []int
		await []int
	}{
		{1000, []int{0}, []int{0}},
		{2000, nil, []int{2, 0}},
		{100, []int{10}, []int{0}},
		{150, []int{10}, []int{0}}, // fills it
		{151, []int{2}, []int{0}},
		{750, []int{2}, []int{0}},
		{751, []int{0}, []int{0}},
		{3000, nil, []int{0, 2, 10}},
		{4000, nil, nil},
	} {
		got, ok := all.Minus(used).Fit(c.asks)
		if ok != (c.fit != nil) || got != CardsOf(c.asks, c.fit) || ok && !all.Minus(used).Hold(got) {
			t.Errorf("who asks for %s gets %v, want %v", c.asks, got, c.fit)
		}
		if r := all.Room(used); r.Fits(c.asks) != ok || r.Shared(c.asks) != (ok && used.At(got.Indexes()[0]) > 0) {
			t.Errorf("%+v is told of what gives %v to who asks for %s", r, got, c.asks)
		}
		if got := all.Await(used, c.asks); got != CardsOf(c.asks, c.await) {
			t.Errorf("who asks for %s waits for %v, want %v", c.asks, got, c.await)
		}
	}
	if _, ok := all.Minus(CardsOf(600, []int{0})).Minus(CardsOf(600, []int{2})).Minus(CardsOf(600, []int{10})).Fit(600); ok {
		t.Error("what is left of three was given as a part of one")
	}
	if free := all.Minus(used); free.Hold(CardsOf(1000, []int{2})) || !free.Hold(CardsOf(750, []int{2})) || !free.Hold(Cards{}) {
		t.Errorf("free are %v", free)
	}
	if got := AllCards([]int{0, 1}); got.Await(Cards{}, 1000) != AllCards([]int{1}) {
		t.Error("of equal ones the first is waited for")
	}
}

// Cards count as a map would, and what is told of their room is what is found there.
func TestCardsOfMany(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all []int
		for i := range MaxCards {
			if random.IntN(40) == 0 {
				all = append(all, i)
			}
		}
		has, used, taken := AllCards(all), Cards{}, map[int]GPUs{}
		for range random.IntN(12) {
			i, part := random.IntN(MaxCards), GPUs(random.IntN(999)+1)
			if len(all) > 0 && random.IntN(4) > 0 {
				i = all[random.IntN(len(all))]
			}
			used, taken[i] = used.Plus(CardsOf(part, []int{i})), taken[i]+part
		}
		free := has.Minus(used)
		for i := range MaxCards {
			want := max(0, OneGPU-taken[i])
			if !slices.Contains(all, i) {
				want = 0
			}
			if used.At(i) != taken[i] || free.At(i) != want {
				t.Fatalf("of %v, where %v are used, %s of %d is free", has, used, free.At(i), i)
			}
		}
		for _, asks := range []GPUs{0, LeastGPU, 300, 500, 999, 1000, 2000, 5000} {
			gets, ok := free.Fit(asks)
			shared := asks.Part() && ok && taken[gets.Indexes()[0]] > 0
			if r := has.Room(used); r.Fits(asks) != ok || r.Shared(asks) != shared {
				t.Fatalf("of %v, where %v are used, %v goes to who asks for %s, and its room is %+v", has, used, gets, asks, r)
			}
		}
	}
	if got := fmt.Sprint(CardsOf(250, []int{10}).Plus(AllCards([]int{2}))); got != "2=1 10=0.25" {
		t.Errorf("they are shown as %q", got)
	}
}
