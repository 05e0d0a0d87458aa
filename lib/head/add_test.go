package head

import (
	"errors"
	"testing"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// What was decided of all jobs of a batch before others were added is not logged of
// those, though it is logged in the same commit.
func TestAddedBehindChanges(t *testing.T) {
	h := newState(t)
	n, err := h.open(made(t, h, "ns/b", "a", "b"), false)
	must(t, err)
	sub, err := h.store.Begin(job.NewToken(), "ns/b", "ana", h.uid)
	must(t, err)
	must(t, errors.Join(sub.Spec(job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}}), sub.AddJob(&job.Job{Name: "c", Run: []string{"true"}})))
	a, err := sub.Add(h.batches[n].Batch)
	must(t, err)

	seconds := int64(60)
	who := &tool{Head: h, peer: dial.Peer{User: "ana"}}
	who.set(&wire.Change{Set: &job.Set{Time: &seconds}, Ref: job.NewToken()}, false, []job.ID{"ns/b/a", "ns/b/b"}, []sched.Ref{{Batch: n, Job: 0}, {Batch: n, Job: 1}})
	h.apply(sched.HoldJobs{Batch: n, Jobs: []uint32{0, 1}, By: "ana", Request: job.NewToken()})
	h.added(n, a, &wire.Submit{Ref: job.NewToken()}, askedJobs{}, nil)
	h.begin()
	must(t, errors.Join(h.whenCommitted(<-h.ticks.committed), h.whenPlaced(<-h.ticks.placed)))
	a.End()

	want := []job.State{job.Held, job.Held, job.Queued}
	limits := []int64{60, 60, 0}
	check := func(h *Head, when string) {
		t.Helper()
		b := h.batches[h.byID["ns/b"]]
		if b == nil || b.known != len(want) {
			t.Fatalf("%s: the batch is %+v", when, b)
		}
		for i, state := range want {
			if got := h.machine.State(sched.Ref{Batch: h.byID["ns/b"], Job: uint32(i)}); got != state || b.limit(i) != limits[i] {
				t.Errorf("%s: job %d is %v and may run %d s; want %v, %d s", when, i, got, b.limit(i), state, limits[i])
			}
		}
	}
	check(h, "at once")
	must(t, h.store.Close())
	again, err := Open(h.spool.Dir(), h.log)
	must(t, err)
	t.Cleanup(func() { again.store.Close() })
	check(again, "after a restart")
}
