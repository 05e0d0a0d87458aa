package noded

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/proc"
	"distribute/lib/timing"
)

// How the GPUs are watched. A look costs a process of the vendor's, which takes a
// part of a second.
var (
	cardsEvery  = timing.Wait(time.Minute)     // while something runs here, or a GPU is busy
	cardsRecent = timing.Wait(2 * time.Second) // starts that come together go by one look
)

// lookAtCards finds which GPUs are used by processes that are no job's. Those are
// given to nobody. If it is not known who uses them, none is given. It costs
// nothing where there are no GPUs.
func (n *daemon) lookAtCards(ctx context.Context) {
	if n.CardUsers == nil || len(n.given().Offer.GPUs) == 0 {
		return
	}
	n.cards.Lock()
	defer n.cards.Unlock()
	if n.cards.looked && time.Since(n.cards.at) < cardsRecent {
		return
	}
	given := map[int]bool{} // GPUs of jobs, also of those that end during the look
	noteGiven := func() {
		for s := range n.held {
			for _, c := range s.cards.Indexes() {
				given[c] = true
			}
		}
	}
	n.do(noteGiven)
	users, unknown := n.CardUsers(ctx)
	if ctx.Err() != nil {
		return
	}
	n.cards.at, n.cards.looked = time.Now(), true
	var told []string
	for _, i := range slices.Sorted(maps.Keys(unknown)) {
		told = append(told, fmt.Sprintf("%d: %v", i, unknown[i]))
	}
	if len(told) > 0 && !slices.Equal(told, n.cards.told) {
		n.Log.Warn("cannot find out who uses these GPUs; jobs do not get them", "why", told)
	}
	n.cards.told = told
	trees := [][2]string{{n.cgroup, n.desk.Dir()}}
	n.do(func() {
		for s := range n.held {
			switch {
			case s.guest != nil:
				trees = append(trees, [2]string{s.guest.group, s.guest.of.desk.Dir()})
			case len(s.beside) > 0:
				trees = append(trees, [2]string{s.group, n.desk.Dir()})
			}
		}
	})
	// Before the state is asked for more: this reads /proc.
	type use struct{ ours, seen bool }
	looks := map[int]use{}
	for _, pids := range users {
		for _, pid := range pids {
			for _, t := range trees {
				ours, seen := proc.InTree(pid, t[0], t[1])
				looks[pid] = use{ours || looks[pid].ours, seen}
			}
		}
	}
	n.do(func() {
		noteGiven()
		busy := map[int]string{}
		for _, g := range n.given().Offer.GPUs {
			// A process that cannot be seen, as one that has ended since, is taken for the job's
			// that has or had the GPU.
			if err := unknown[g.Index]; err != nil {
				busy[g.Index] = err.Error()
			} else if slices.ContainsFunc(users[g.Index], func(pid int) bool {
				return !looks[pid].ours && (looks[pid].seen || !given[g.Index])
			}) {
				busy[g.Index] = ""
			}
		}
		n.setBusy(busy)
	})
}

// setBusy makes it known which GPUs are busy, and of which it is not known why, if that is news.
func (n *daemon) setBusy(busy map[int]string) {
	g := *n.given()
	g.Offer.GPUs = slices.Clone(g.Offer.GPUs)
	var changed []string
	for i := range g.Offer.GPUs {
		c := &g.Offer.GPUs[i]
		why, is := busy[c.Index]
		if c.Busy == is && c.Why == why {
			continue
		}
		c.Busy, c.Why = is, why
		changed = append(changed, fmt.Sprintf("%d busy=%v", c.Index, c.Busy))
	}
	if changed == nil {
		return
	}
	n.Log.Info("use of GPUs by others changed", "gpus", changed)
	n.now.Store(&g)
	n.tellOffer()
	n.refuse()
	n.pump()
	n.watchCards()
}

// watchCards looks at the GPUs every minute, for as long as something runs or one is
// busy. At rest nobody looks: who begins to use one is found when a job comes for
// it. It is called by the state.
func (n *daemon) watchCards() {
	if n.CardUsers == nil || len(n.given().Offer.GPUs) == 0 || n.cardsWatched {
		return
	}
	n.cardsWatched = true
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		for again := true; again; {
			n.lookAtCards(ctx)
			n.do(func() {
				again = len(n.held) > 0 || slices.ContainsFunc(n.given().Offer.GPUs, func(g node.GPU) bool { return g.Busy })
				n.cardsWatched = again
			})
			if again {
				linger(ctx, cardsEvery)
			}
			again = again && ctx.Err() == nil
		}
	})
}

// usable is which GPUs may be given out.
func usable(gpus []node.GPU) map[int]bool {
	ok := map[int]bool{}
	for _, g := range gpus {
		if !g.Busy {
			ok[g.Index] = true
		}
	}
	return ok
}

// freeCards is what no job has of the GPUs that nobody else uses.
func (n *daemon) freeCards() job.Cards {
	free := job.AllCards(slices.Collect(maps.Keys(usable(n.given().Offer.GPUs))))
	for s := range n.held {
		free = free.Minus(s.cards)
	}
	return free
}

// cardsFor is the GPUs that a share gets now: those that the head has chosen, else as the
// head would choose. It is false if they are not free.
func (n *daemon) cardsFor(s *share) (job.Cards, bool) {
	switch free := n.freeCards(); {
	case s.gpus == 0:
		return job.Cards{}, true
	case s.cards != (job.Cards{}):
		return s.cards, free.Hold(s.cards)
	default:
		return free.Fit(s.gpus)
	}
}

// gpus is which GPUs an attempt has, or will have as far as the head has chosen them.
func (a *attempt) gpus() []int {
	if a.has == nil {
		all := a.GPUs
		for _, v := range a.Also {
			all = append(slices.Clip(all), v.GPUs...)
		}
		return all
	}
	all := a.has.cards
	for _, p := range a.has.beside {
		all = all.Plus(p.share.cards)
	}
	return all.Indexes()
}
