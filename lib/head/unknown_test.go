package head

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/wire"
)

// A node keeps an attempt that the head does not know until its batch is deleted: whether it
// is connected then, comes later, or still runs the attempt. One that began after that is of
// another batch of the same name.
func TestUnknownOfDeletedBatch(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	s.over(d, "ns/b", 0)
	m, _ := result("precious\n")
	item := func(token job.Token, batch job.BatchID, at time.Time) *wire.Item {
		r := ended("", 0, m).Result
		r.Started, r.Ended = at, at.Add(time.Second)
		return &wire.Item{Attempt: token, Job: batch.Job("j"), Try: 1, CPUs: 1, Phase: job.PhaseReturning, Result: &r}
	}
	there, other, late, later, runs := job.NewToken(), job.NewToken(), job.NewToken(), job.NewToken(), job.NewToken()
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	// The clock of its node says nothing of an attempt that is there when its batch is deleted.
	runsThere := item(job.NewToken(), "ns/b", future)
	end := &wire.Ended{Attempt: runsThere.Attempt, Result: *runsThere.Result}
	runsThere.Phase, runsThere.Result = job.PhaseRunning, nil
	d2 := s.desk("ws2", "boot1", item(there, "ns/b", future), item(other, "ns/c", past), runsThere)
	for range 3 {
		next[*wire.Hold](d2)
	}
	await(t, func() bool {
		_, err := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: []string{"ns/b"}})
		return err == nil && exists(filepath.Join(s.dir, "batches/ns/b")) != nil
	})
	if h := next[*wire.Have](d2); h.Attempt != there {
		t.Errorf("told of %s after the deletion", h.Attempt)
	}
	s.send(d2.c, &wire.Gone{Attempt: there})
	if m := next[*wire.Stop](d2); m.Attempt != end.Attempt {
		t.Errorf("told to stop %s after the deletion", m.Attempt)
	}
	s.send(d2.c, end)
	if h := next[*wire.Have](d2); h.Attempt != end.Attempt {
		t.Errorf("told of %s after its end", h.Attempt)
	}

	s.stop()
	s.start()
	run := item(runs, "ns/b", past)
	r := run.Result
	run.Phase, run.Result = job.PhaseRunning, nil
	d3 := s.desk("ws3", "boot1", item(late, "ns/b", past), item(later, "ns/b", future), run)
	if h := next[*wire.Have](d3); h.Attempt != late {
		t.Errorf("told of %s after a restart", h.Attempt)
	}
	for range 2 {
		if h := next[*wire.Hold](d3); h.Attempt == late {
			t.Errorf("told to hold %s", h.Attempt)
		}
	}
	s.send(d3.c, &wire.Ended{Attempt: runs, Result: *r})
	if h := next[*wire.Have](d3); h.Attempt != runs {
		t.Errorf("told of %s after the end", h.Attempt)
	}
}

// Of an attempt that nothing can be, as by its token or its job, nothing is remembered: a node
// could name thousands with a mebibyte each.
func TestUnknownThatCannotBe(t *testing.T) {
	s := newSite(t)
	last, long := job.NewToken(), strings.Repeat("x", wire.MaxLine/2)
	d := s.desk("ws1", "boot1",
		&wire.Item{Attempt: job.NewToken(), Job: job.ID("ns/" + long + "/j"), Phase: job.PhaseRunning},
		&wire.Item{Attempt: job.NewToken(), Job: "ns/b", Phase: job.PhaseRunning},
		&wire.Item{Attempt: job.Token(long), Job: "ns/b/j", Phase: job.PhaseRunning},
		&wire.Item{Attempt: last, Job: "ns/b/k", Phase: job.PhaseRunning})
	for next[*wire.Hold](d).Attempt != last {
	}
	s.h.do(func() {
		for _, session := range s.h.nodes.sessions {
			for token, u := range session.unknown {
				if len(token) > 32 || u.batch != "ns/b" || len(session.unknown) != 1 {
					t.Errorf("of a token of %d bytes a batch of %d is remembered, of %d in all", len(token), len(u.batch), len(session.unknown))
				}
			}
		}
	})
}
