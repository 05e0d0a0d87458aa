package sched

import (
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
)

func hold(batch uint32, jobs ...uint32) Event {
	return HoldJobs{Batch: batch, Jobs: jobs, By: "ana"}
}

func release(batch uint32, jobs ...uint32) Event {
	return HoldJobs{Batch: batch, Jobs: jobs, By: "ana", Release: true}
}

func freezes(batch uint32, jobs ...uint32) Event {
	return HoldJobs{Batch: batch, Jobs: jobs, By: "ana", Freeze: true}
}

// oneRuns is a batch of three jobs, of which the first runs.
var oneRuns = []step{
	{0, Loaded{}, ""},
	{0, asks(1, 1, 3, 0, 0), ""},
	{0, up(1, "ws1", 1), "node ws1 s1"},
	{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
	{1, phase(1, 1, job.PhaseRunning), ""},
}

// heldAway goes on from begin: the lease of ws1 ends, and the job is held.
var heldAway = slices.Concat(begin, []step{
	{1, NodeDown{1}, ""},
	{901, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s)"},
	{901, hold(1, 0), "hold 1/0"},
})

var heldRules = ruleBook{
	{"what is held is passed over, and goes first again", oneRuns, []step{
		{1, hold(1, 1), "hold 1/1"},
		{2, hold(1, 1, 9), ""},
		{9, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 1/2 a2~1 ws1/1; START 1 1/2 a2"},
		{9, hold(1, 1, 2), ""},
		{19, ended(1, 2, exited(1, "")), "failed 1/2 a2; HAVE 1 a2"},
		{20, release(1, 0, 1, 2), "release 1/1; start 1/1 a3~1 ws1/1; START 1 1/1 a3"},
		{21, release(1, 0, 1, 2), ""},
	}},
	{"all that waits of a batch is one record", oneRuns, []step{
		{1, hold(1, 2, 0, 1, 2), "hold 1/all"},
		{9, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1"},
		{10, release(1, 1), "release 1/1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
		{11, release(1, 0, 1, 2), "release 1/2"},
		{12, hold(1, 0, 1, 2), "hold 1/2"},
	}},
	{"a request counts once", oneRuns, []step{
		{1, HoldJobs{Batch: 1, Jobs: []uint32{1, 2}, Request: "q"}, "hold 1/all"},
		{2, release(1, 1, 2), "release 1/all"},
		{3, HoldJobs{Batch: 1, Jobs: []uint32{1}, Request: "q"}, ""},
		{4, HoldJobs{Batch: 1, Jobs: []uint32{1}, Request: "r"}, "hold 1/1"},
	}},
	{"what is held can be given up, and is not tried again", oneRuns, []step{
		{1, hold(1, 1), "hold 1/1"},
		{2, Retry{Ref: Ref{1, 1}}, ""},
		{3, Cancel{Ref: Ref{1, 1}}, "cancelled 1/1"},
		{4, release(1, 1), ""},
		{5, Retry{Ref: Ref{1, 1}}, "retry 1/1"},
	}},
	{"a job that comes back is queued", oneRuns, []step{
		{1, hold(1, 0, 1, 2), "hold 1/all"},
		{2, NodeDown{1}, ""},
		{3, NodeGone{Node: "ws1"}, "back 1/0 a1 lost (ws1 was given up); late 1/0 a1 (ws1 was given up)"},
		{4, up(2, "ws2", 1), "node ws2 s1"},
		{4, ListEnd{2}, "start 1/0 a2~2 ws2/1; START 2 1/0 a2"},
	}},
	{"what was given up before it began is not begun while its job is held", []step{
		{0, Loaded{}, ""},
		{0, whole, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
		{1, NodeDown{1}, ""},
		{900, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s)"},
		{901, hold(1, 0), "hold 1/0"},
	}, []step{
		{902, up(2, "ws1", 4), ""},
		{902, item(2, 1, job.PhaseWaiting), "STOP 2 a1"},
		{902, ListEnd{2}, ""},
		{903, ended(2, 1, unstarted), "late 1/0 a1; FORGET 2 a1"},
		{904, gone(2, 1), ""},
		{905, release(1, 0), "release 1/0; start 1/0 a2~2 ws1/4; START 2 1/0 a2"},
	}},
	{"what was given up and ran on is its job's result", heldAway, []step{
		{902, up(2, "ws1", 4), ""},
		{902, itemEnded(2, 1, exited(0, "m")), "GRANT 2 a1"},
		{902, ListEnd{2}, ""},
		{903, staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 2 a1"},
	}},
	{"what runs stands still, and goes on", oneRuns, []step{
		{1, freezes(1, 0, 1, 2), "freeze 1/0; KEEP 1 a1 still; hold 1/all"},
		{1, phase(1, 1, job.PhasePaused), ""},
		{2, freezes(1, 0, 1, 2), ""},
		{2, hold(1, 0), ""},
		{3, release(1, 0, 1), "thaw 1/0; KEEP 1 a1; release 1/1"},
		{3, phase(1, 1, job.PhaseRunning), ""},
		{4, release(1, 0), ""},
		{9, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
	}},
	{"a node that comes back hears what stands still", oneRuns, []step{
		{1, NodeDown{1}, ""},
		{2, freezes(1, 0), "freeze 1/0"},
		{3, up(2, "ws1", 1), ""},
		{3, item(2, 1, job.PhaseRunning), "KEEP 2 a1 still"},
		{3, ListEnd{2}, ""},
		{4, NodeDown{2}, ""},
		{5, release(1, 0), "thaw 1/0"},
		{6, up(3, "ws1", 1), ""},
		{6, item(3, 1, job.PhasePaused), "KEEP 3 a1"},
	}},
	{"what stands still and comes to nothing is held", oneRuns, []step{
		{1, freezes(1, 0), "freeze 1/0; KEEP 1 a1 still"},
		{2, ended(1, 1, unstarted), "back 1/0 a1 unstarted (not started); hold 1/0; FORGET 1 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
		{3, release(1, 0), "release 1/0"},
	}},
	{"an attempt that comes back to a held job stands still, and is adopted", oneRuns, []step{
		{1, hold(1, 1, 2), "hold 1/all"},
		{1, freezes(1, 0), "freeze 1/0; KEEP 1 a1 still"},
		{1, NodeDown{1}, ""},
		{901, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s); hold 1/0"},
		{902, up(2, "ws1", 1), ""},
		{902, item(2, 1, job.PhasePaused), "KEEP 2 a1 still"},
		{902, ListEnd{2}, ""},
		{903, release(1, 0), "release 1/0; adopt 1/0 a1; KEEP 2 a1"},
		{904, phase(2, 1, job.PhaseRunning), ""},
	}},
	{"what is held for a moment before it begins is no fault of its node", oneRuns, []step{
		{1, freezes(1, 0), "freeze 1/0; KEEP 1 a1 still"},
		{1, release(1, 0), "thaw 1/0; KEEP 1 a1"},
		{2, ended(1, 1, unstarted), "back 1/0 a1 unstarted (not started); FORGET 1 a1; start 1/0 a2~2 ws1/1; START 1 1/0 a2"},
		{3, ended(1, 2, unstarted), "back 1/0 a2 unstarted (not started); FORGET 1 a2"},
		{12, Tick{}, ""},
		{13, Tick{}, "start 1/0 a3~3 ws1/1; START 1 1/0 a3"},
	}},
	{"what has ended well is not started again when its job is released", heldAway, []step{
		{902, up(2, "ws1", 4), ""},
		{902, itemEnded(2, 1, exited(0, "m")), "GRANT 2 a1"},
		{902, ListEnd{2}, ""},
		{903, release(1, 0), "release 1/0; adopt 1/0 a1"},
		{904, staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 2 a1"},
	}},
	{"what stands still can be given up", oneRuns, []step{
		{1, freezes(1, 0), "freeze 1/0; KEEP 1 a1 still"},
		{2, Cancel{Ref: Ref{1, 0}}, "cancelled 1/0; STOP 1 a1"},
		{3, release(1, 0), ""},
	}},
}

// A job that stood still and whose attempt came to nothing is held also by a head
// that was killed between the two.
func TestFrozenAfterCrash(t *testing.T) {
	r := newRig(t, Config{})
	for _, s := range oneRuns {
		r.apply(s.ev)
	}
	r.apply(freezes(1, 0))
	r.apply(ended(1, 1, unstarted))
	log := r.logs[1]
	for len(log) > 0 && log[len(log)-1].rec.Kind != job.KindBack {
		log = log[:len(log)-1]
	}
	r.logs[1] = log
	m, err := r.replayed()
	if err != nil {
		t.Fatal(err)
	}
	r.m, r.begun = m, map[job.Token]bool{}
	if got := show(r.apply(Loaded{})); got != "hold 1/0" {
		t.Errorf("the next head says %q", got)
	}
}

// A batch that was asked for before it was read in counts as closed: what is said of
// all of it at once opens it.
func TestHoldOpens(t *testing.T) {
	r := newRig(t, Config{})
	five := 5
	script{
		{Loaded{}, ""},
		{AddBatch{Batch: 1, Jobs: 2, Spec: single, Replay: true, Closed: true}, ""},
		{Ready{1}, ""},
		{HoldJobs{Batch: 1, Jobs: []uint32{0, 1}, By: "u"}, "REOPENED 1; hold 1/all"},
		{SetBatch{Batch: 1, Set: job.Set{Priority: &five}, By: "u"}, "set 1/all"},
	}.run(t, r)
}

func TestHolds(t *testing.T) { heldRules.run(t) }

// A head that starts anew knows since when a job stands still.
func TestFrozenSince(t *testing.T) {
	r := newRig(t, Config{})
	for _, s := range oneRuns {
		r.apply(s.ev)
	}
	r.apply(freezes(1, 0))
	if a, _ := r.m.Current(Ref{1, 0}); !a.Frozen || !a.Since.IsZero() {
		t.Errorf("in the life of the head that froze it: %+v", a)
	}
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	log := r.logs[1]
	log[len(log)-1].rec.Time = at
	m, err := r.replayed()
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range []Event{Loaded{}, up(2, "ws1", 1), item(2, 1, job.PhasePaused), ListEnd{2}} {
		m.step(ev, 0)
	}
	if a, _ := m.Current(Ref{1, 0}); !a.Frozen || !a.Since.Equal(at) {
		t.Errorf("behind a new one: %+v", a)
	}
}

// A batch that is read in beside nodes that are connected takes nothing of these by the
// attempts that its log tells of.
func TestReadBesideNodes(t *testing.T) {
	r := newRig(t, Config{})
	for _, ev := range []Event{Loaded{}, up(1, "ws1", 1), ListEnd{1}} {
		r.apply(ev)
	}
	add := asks(1, 1, 1, 0, 0)
	add.Replay, add.Closed = true, true
	r.m.Apply(add, 0)
	for _, rec := range []job.Record{{Kind: job.KindStart, Attempt: tok(1), Try: 1, Node: "ws1", CPUs: 1}, {Kind: job.KindFailed, Attempt: tok(1), Try: 1, Node: "ws1"}} {
		if err := r.m.Replay(Ref{1, 0}, &rec); err != nil {
			t.Fatal(err)
		}
	}
	r.m.Apply(Ready{1}, 0)
	if err := consistent(r.m); err != nil {
		t.Error(err)
	}
	r.m.Apply(Retry{Ref: Ref{1, 0}, By: "u"}, 0)
	if got := r.m.Decide(0); r.m.State(Ref{1, 0}) != job.Running {
		t.Errorf("tried again: %s", show(got))
	}
}

// Jobs that are held wait for those that they need when they are released, and fail
// then if that is in vain: all of them, for one of which all have need. They are cancelled
// with that.
func TestHeldBehindGates(t *testing.T) {
	const jobs = 5000
	names, needs := make([]string, jobs), make([][]string, jobs)
	for i := range names {
		names[i] = "j" + strings.Repeat("i", i%3) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		if i > 0 {
			needs[i] = []string{names[0]}
		}
	}
	n, wrong := job.ResolveNeeds(names, needs)
	if len(wrong) > 0 {
		t.Fatal(job.NeedErrors(wrong))
	}
	r := newRig(t, Config{})
	r.places = false
	add := asks(1, 1, jobs, 0, 0)
	add.Needs = n
	r.quick = true
	r.apply(Loaded{})
	r.apply(add)
	every := all(r.m.batches[1])
	r.apply(hold(1, every[1:]...))
	r.apply(release(1, every...))
	if got := r.m.Why(Ref{1, 7}); got != "waits for number 1" || r.m.batches[1].gates.shut.N != jobs-1 {
		t.Errorf("%d wait for others, one of them: %q", r.m.batches[1].gates.shut.N, got)
	}
	r.apply(hold(1, every[1:]...))
	r.joins(1, "ws1", 1)
	r.apply(ended(1, 1, exited(1, "")))
	if got := r.m.State(Ref{1, 7}); got != job.Held {
		t.Errorf("a held one is %s when what it needs has failed", got)
	}
	// that the first is not meant has them released one by one
	r.apply(release(1, every[2:]...))
	if n := len(r.m.batches[1].gates.failing); n != 0 || r.m.State(Ref{1, 7}) != job.Failed || r.m.State(Ref{1, 1}) != job.Held {
		t.Errorf("%d sweeps are left, a released one is %s, one that is held still %s", n, r.m.State(Ref{1, 7}), r.m.State(Ref{1, 1}))
	}
	r.apply(Retry{Ref: Ref{1, 0}})
	r.apply(Cancel{Ref: Ref{1, 0}})
	if got := r.m.State(Ref{1, 1}); got != job.Cancelled {
		t.Errorf("a held one is %s when what it needs is cancelled", got)
	}
}
