package sched

import (
	"fmt"
	"slices"
	"testing"

	"distribute/lib/job"
)

// A batch is built anew once for each request, and each time with a greater number than before, or
// than a batch of its name that was deleted.
func TestRetryAnew(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 2, Spec: &job.Spec{Kind: job.Command}})
	for i, c := range []struct{ job, request, anew, want int }{
		{0, 1, 0, 0}, {0, 2, 100, 100}, {1, 2, 100, 100}, {1, 3, 100, 101}, {0, 4, 50, 102}, {0, 5, 0, 102}, {0, 6, 200, 200},
	} {
		ref := Ref{1, uint32(c.job)}
		r.apply(Cancel{Ref: ref, By: "u"})
		r.apply(Retry{Ref: ref, By: "u", Request: job.Token(fmt.Sprintf("%032x", c.request)), Anew: c.anew})
		if got := r.m.batches[1].anew; got != c.want {
			t.Errorf("retry %d: %d, want %d", i, got, c.want)
		}
	}
}

// What has not begun is asked for when its batch is to be built anew: it would begin with the
// earlier build. So is, when its node comes again, what that was given before.
func TestRetryAnewRecalls(t *testing.T) {
	again := Retry{Ref: Ref{1, 0}, By: "u", Request: tok(98), Anew: 100}
	start := func(events ...Event) *rig {
		r := newRig(t, Config{})
		for _, ev := range append([]Event{Loaded{}, AddBatch{Batch: 1, Jobs: 4, Spec: single}, AddBatch{Batch: 2, Jobs: 1, Spec: single}, up(1, "ws1", 4), ListEnd{1},
			phase(1, 2, job.PhaseRunning), phase(1, 3, job.PhaseSending), Cancel{Ref: Ref{1, 0}, By: "u"}}, events...) {
			r.apply(ev)
		}
		return r
	}
	asked := func(got []Action) (tokens []job.Token) {
		for _, a := range got {
			if a, ok := a.(Recall); ok {
				tokens = append(tokens, a.Attempt)
			}
		}
		return tokens
	}
	expect := func(r *rig, ev Event, want ...job.Token) {
		t.Helper()
		if got := asked(r.apply(ev)); !slices.Equal(got, want) {
			t.Errorf("%T: %v is asked for, want %v", ev, got, want)
		}
	}
	r := start()
	expect(r, again, tok(3), tok(4))
	for _, ev := range []Event{NodeDown{1}, up(2, "ws1", 4), item(2, 2, job.PhaseRunning), item(2, 3, job.PhaseRunning), item(2, 4, job.PhaseWaiting)} {
		r.apply(ev)
	}
	expect(r, ListEnd{2}, tok(4))
	r.apply(ended(2, 4, unstarted))
	expect(r, Retry{Ref: Ref{1, 0}, By: "u", Request: tok(99)})

	r = start(NodeDown{1})
	expect(r, again)
	for _, ev := range []Event{up(2, "ws1", 4), item(2, 2, job.PhaseWaiting)} {
		r.apply(ev)
	}
	expect(r, ListEnd{2}, tok(2))
}
