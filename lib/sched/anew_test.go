package sched

import (
	"fmt"
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
