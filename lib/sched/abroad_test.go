package sched

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

const hpc = "slurm:hpc"

// claim has jobs of batch 1 taken abroad, with tokens from 100 on.
func claim(jobs ...uint32) Event {
	return Claim{Batch: 1, Jobs: jobs, Node: hpc, By: "maria",
		Token: func(i uint32, try int) job.Token { return tok(100*try + int(i)) }}
}

func abroad(t *testing.T, jobs int) *rig {
	t.Helper()
	r := newRig(t, Config{Lease: time.Minute})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: jobs, Spec: single}} {
		r.apply(ev)
	}
	return r
}

// What was taken abroad runs nowhere else, whatever comes and however long nothing is
// heard, and asking again changes nothing.
func TestClaim(t *testing.T) {
	r := abroad(t, 3)
	r.apply(HoldJobs{Batch: 1, Jobs: []uint32{1}, By: "maria", Request: tok(900)})
	if got := r.apply(claim(0, 1)); len(got) != 3 {
		t.Errorf("the claim: %s", show(got))
	}
	if got := r.apply(claim(0, 1)); len(got) != 0 {
		t.Errorf("the claim again: %s", show(got))
	}
	r.joins(1, "ws1", 4)
	if n := r.row("ws1"); n.Jobs != 1 {
		t.Errorf("ws1 has %d jobs", n.Jobs)
	}
	r.now += time.Hour
	r.apply(Tick{})
	for _, i := range []uint32{0, 1} {
		a, ok := r.m.Current(Ref{1, i})
		if !ok || a.Node != hpc || a.State != job.Queued || a.Phase != job.PhaseWaiting {
			t.Errorf("job %d: %+v", i, a)
		}
	}
	if n := r.row(hpc); n.State != node.Busy || n.Jobs != 2 {
		t.Errorf("the cluster: %+v", n)
	}
}

// What needs only jobs that are done, there or taken with it goes, whatever the order; when
// what it needs fails there it ends as it would at home.
func TestClaimNeeds(t *testing.T) {
	r := newRig(t, Config{})
	needs := needing(t, [][]string{{"j1"}, {"j3"}, {"j3", "j4"}, nil, nil, {"j0", "j1"}})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 6, Needs: needs, Spec: single}, claim(0, 1, 2, 3, 5)} {
		r.apply(ev)
	}
	taken := func(want ...uint32) {
		t.Helper()
		for i := range uint32(6) {
			_, ok := r.m.Current(Ref{1, i})
			if ok != slices.Contains(want, i) {
				t.Errorf("job %d is taken: %v", i, ok)
			}
		}
	}
	taken(0, 1, 3, 5)
	if got := r.apply(claim(2)); len(got) != 0 {
		t.Errorf("what waits at home: %s", show(got))
	}
	r.apply(claim(4))
	r.apply(claim(2))
	taken(0, 1, 2, 3, 4, 5)
	r.joins(1, hpc, 1)
	r.apply(ended(1, 101, unstarted))
	r.apply(ended(1, 100, unstarted))
	if s := r.m.State(Ref{1, 0}); s != job.Queued {
		t.Errorf("job 0 is %s", s)
	}
	r.apply(ended(1, 103, exited(1, "m")))
	r.apply(staged(103, "m"))
	r.apply(ended(1, 105, unstarted))
	for _, i := range []uint32{0, 1, 3, 5} {
		if s := r.m.State(Ref{1, i}); s != job.Failed {
			t.Errorf("job %d is %s", i, s)
		}
	}
}

// Results come as from a node; what is not in a list is not lost, and what is given back
// is queued without blame.
func TestAbroadEnds(t *testing.T) {
	r := abroad(t, 5)
	r.apply(claim(0, 1, 2, 3, 4))
	r.apply(up(1, hpc, 64)) // which it does not have
	r.apply(item(1, 100, job.PhaseWaiting))
	r.apply(itemEnded(1, 101, exited(0, "m")))
	r.apply(ListEnd{1})
	r.apply(phase(1, 102, job.PhaseRunning))
	r.apply(staged(101, "m"))
	r.apply(gone(1, 101))
	if s := r.m.State(Ref{1, 1}); s != job.Done {
		t.Errorf("job 1 is %s", s)
	}
	r.apply(ended(1, 100, unstarted))
	r.apply(ended(1, 102, Result{Fate: job.FateLost, Outcome: job.Outcome{Reason: "given up"}}))
	r.apply(Cancel{Ref: Ref{1, 3}, By: "maria", Request: tok(901)})
	r.apply(ended(1, 103, unstarted))
	r.apply(NodeDown{1})
	r.apply(NodeGone{Node: hpc})
	for i, want := range []job.State{job.Queued, job.Done, job.Queued, job.Cancelled, job.Queued} {
		if s := r.m.State(Ref{1, uint32(i)}); s != want {
			t.Errorf("job %d is %s, want %s", i, s, want)
		}
	}
	if n := len(r.m.batches[1].losses); n != 0 {
		t.Errorf("%d jobs count as lost", n)
	}
	// a result of what was given back is not taken
	r.apply(up(2, hpc, 1))
	got := r.apply(itemEnded(2, 102, exited(0, "late")))
	if len(got) != 1 || got[0] != (Hold{2, tok(102), "the head does not know this attempt"}) {
		t.Errorf("late: %s", show(got))
	}
	r.apply(ListEnd{2})
	if got := r.apply(claim(2)); len(got) != 1 {
		t.Errorf("taken again: %s", show(got))
	}
}

// A job that a cluster begins again, as when a machine failed, waits there and does not run.
func TestAbroadWaitsAgain(t *testing.T) {
	r := abroad(t, 1)
	for _, ev := range []Event{claim(0), up(1, hpc, 64), ListEnd{1}} {
		r.apply(ev)
	}
	for _, want := range []struct {
		phase job.Phase
		ran   float64
		state job.State
	}{{job.PhaseWaiting, 0, job.Queued}, {job.PhaseRunning, 90, job.Running}, {job.PhaseWaiting, 0, job.Queued}, {job.PhaseRunning, 5, job.Running}} {
		r.apply(Phase{1, tok(100), want.phase, want.ran})
		if a, _ := r.m.Current(Ref{1, 0}); a.State != want.state || a.Ran.Seconds() != want.ran {
			t.Errorf("%s: it is %s and has run for %v, want %s and %g s", want.phase, a.State, a.Ran, want.state, want.ran)
		}
	}
}

// A result whose transfer was cut is granted to the next session that tells of it.
func TestAbroadComesAgain(t *testing.T) {
	r := newRig(t, Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 1, Spec: single}, claim(0), up(1, hpc, 1), ListEnd{1}, ended(1, 100, exited(0, "m")),
		NodeDown{1}, Staged{Attempt: tok(100), Err: errors.New("cut")}} {
		r.apply(ev)
	}
	r.now += time.Minute
	for _, ev := range []Event{Tick{}, up(2, hpc, 1), ListEnd{2}} {
		r.apply(ev)
	}
	const want = "GRANT 2 a64"
	if got := show(r.apply(ended(2, 100, exited(0, "n")))); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.apply(Staged{Attempt: tok(100), Manifest: "n"})
	if s := r.m.State(Ref{1, 0}); s != job.Done {
		t.Errorf("it is %s", s)
	}
}

// A batch is closed though nobody has said that the cluster let go of its attempts: whoever
// was to say so has lost the head, or the head was started again. Nobody asks the cluster again.
func TestAbroadCloses(t *testing.T) {
	closed := func(what string, got []Action) {
		t.Helper()
		if text := show(got); text != "CLOSED 1" {
			t.Errorf("%s: %q", what, text)
		}
	}
	r := newRig(t, Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 1, Spec: single}, claim(0), up(1, hpc, 1), ListEnd{1}, ended(1, 100, exited(1, ""))} {
		r.apply(ev)
	}
	closed("the session ends", r.apply(NodeDown{1}))
	m := New(Config{})
	m.step(AddBatch{Batch: 1, Jobs: 1, Spec: single, Replay: true}, 0)
	for _, rec := range []job.Record{{Kind: job.KindStart, Attempt: tok(100), Try: 1, Node: hpc, CPUs: 1},
		{Kind: job.KindFailed, Attempt: tok(100), Try: 1, Node: hpc, Outcome: exited(1, "").Outcome}} {
		if err := m.Replay(Ref{1, 0}, &rec); err != nil {
			t.Fatal(err)
		}
	}
	closed("after a restart", m.step(Loaded{}, 0))
}

// Names that people make up keep no cluster out, and take none from another that has a job
// or may still hold one.
func TestAbroadForgotten(t *testing.T) {
	m := New(Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 2, Spec: single}, claim(0)} {
		m.step(ev, 0)
	}
	session := uint64(0)
	come := func(name string, says ...Event) {
		t.Helper()
		session++
		if got := m.step(up(session, name, 1), 0); len(got) > 0 {
			t.Fatalf("%s: %s", name, show(got))
		}
		for _, ev := range says {
			m.step(ev, 0)
		}
		m.step(NodeDown{session}, 0)
	}
	makeUp := func() {
		t.Helper()
		for i := range MaxNodes + 1 {
			come(fmt.Sprint("slurm:made-up-", session, "-", i))
		}
		if len(m.abroad) > MaxNodes || len(m.named) != len(m.abroad) {
			t.Errorf("%d clusters are known, %d by a name", len(m.abroad), len(m.named))
		}
	}
	makeUp()
	if _, ok := m.Current(Ref{1, 0}); !ok || m.named[node.Name(hpc).Of(0)] == nil {
		t.Error("a cluster that has a job is forgotten")
	}
	come(hpc, ended(session+1, 100, unstarted))
	makeUp()
	if m.step(claim(1), 0); m.State(Ref{1, 1}) != job.Running {
		t.Error("no job is taken to a cluster that is new")
	}
}

// Failures abroad rest no node, and a job that may be tried again goes home.
func TestAbroadFails(t *testing.T) {
	r := newRig(t, Config{})
	spec := *single
	spec.Retries = 1
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 6, Spec: &spec}, claim(0, 1, 2, 3, 4, 5), up(1, hpc, 1), ListEnd{1}} {
		r.apply(ev)
	}
	for i := range 6 {
		r.apply(ended(1, 100+i, quickly(exited(1, "m"))))
		r.apply(staged(100+i, "m"))
	}
	if n := r.row(hpc); n.State != node.Idle {
		t.Errorf("the cluster: %+v", n)
	}
	r.joins(2, "ws1", 6)
	if n := r.row("ws1"); n.Jobs != 6 {
		t.Errorf("ws1 has %d jobs", n.Jobs)
	}
}

// What is given back is queued, but for what may have begun and must not begin twice.
func TestAbroadNever(t *testing.T) {
	r := newRig(t, Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 2, Once: true, Spec: single}, claim(0, 1), up(1, hpc, 1), ListEnd{1}} {
		r.apply(ev)
	}
	r.apply(ended(1, 100, unstarted))
	r.apply(ended(1, 101, Result{Fate: job.FateLost}))
	for i, want := range []job.State{job.Queued, job.Failed} {
		if s := r.m.State(Ref{1, uint32(i)}); s != want {
			t.Errorf("job %d is %s, want %s", i, s, want)
		}
	}
}

// takeAbroad is a person who takes jobs to a cluster.
func (s *sim) takeAbroad(batch uint32, jobs []uint32) {
	s.give(Claim{Batch: batch, Jobs: jobs, Node: hpc, By: "u", Token: func(uint32, int) job.Token {
		s.claimed++
		return tok(1<<40 + s.claimed)
	}})
}

// comeHome is a person who comes back, and tells of some of them, or everybody, who tells
// of all.
func (s *sim) comeHome(all bool) {
	one := s.rand.IntN(3)
	for uid := range 3 {
		if all || uid == one {
			s.bringHome(uid, all)
		}
	}
}

// bringHome is a user who tells of some of his attempts, or of all.
func (s *sim) bringHome(uid int, all bool) {
	s.sessions++
	mine := s.sessions
	give := func(ev Event) {
		for _, a := range s.apply(ev) {
			if g, ok := a.(Grant); !ok || g.Session != mine {
				s.perform(a)
			}
		}
	}
	give(NodeUp{Session: mine, Node: hpc, UID: uid, Boot: "-", State: "-"})
	give(ListEnd{mine})
	var there []job.Token
	s.m.Abroad(hpc, func(a Attempt) {
		if s.m.batches[a.Ref.Batch].uid == uid {
			there = append(there, a.Token)
		}
	})
	for _, t := range there {
		how := s.rand.IntN(8)
		switch {
		case how == 0 && !all:
			give(Phase{mine, t, job.PhaseRunning, 0})
		case how < 4 && !all:
		case how == 4:
			give(Ended{mine, t, unstarted})
		case how == 5:
			give(Ended{mine, t, Result{Fate: job.FateLost}})
		default:
			give(Ended{mine, t, exited(how%2, "m")})
			if all || s.rand.IntN(3) > 0 {
				give(Staged{Attempt: t, Manifest: "m"})
			}
		}
	}
	if p := s.m.named[node.Name(hpc).Of(uid)]; p != nil && (all || s.rand.IntN(2) == 0) {
		for k := range p.gone {
			give(Gone{mine, job.Token(hex.EncodeToString(k[:]))})
		}
	}
	give(NodeDown{mine})
}

// Users who call a cluster by the same name have nothing to do with each other: both are
// there at a time, each hears of his own jobs, and tells of no other's. What is given up
// is that of whoever is not there.
func TestAbroadOfTwo(t *testing.T) {
	m := New(Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 1, Spec: single, Owner: 1}, AddBatch{Batch: 2, Jobs: 1, Spec: single, Owner: 2}} {
		m.step(ev, 0)
	}
	for batch := range uint32(2) {
		m.step(Claim{Batch: batch + 1, Jobs: []uint32{0}, Node: hpc, Token: func(uint32, int) job.Token { return tok(int(batch) + 1) }}, 0)
	}
	come := func(session uint64, uid int) {
		t.Helper()
		if got := m.step(NodeUp{Session: session, Node: hpc, UID: uid}, 0); len(got) > 0 {
			t.Errorf("of %d: %s", uid, show(got))
		}
	}
	come(1, 1)
	come(2, 2)
	if rows := m.Nodes(); len(rows) != 1 || rows[0].Jobs != 2 || rows[0].State != node.Busy {
		t.Errorf("rows %+v", rows)
	}
	if got := show(m.step(Ended{2, tok(1), exited(0, "")}, 0)); !strings.Contains(got, "HOLD") && !strings.Contains(got, "ODD") {
		t.Errorf("of another's: %s", got)
	}
	if _, his := m.Whose(hpc, 2, tok(1)); his {
		t.Error("the attempt of the first is the second's")
	}
	m.step(NodeDown{2}, 0)
	m.step(NodeGone{hpc}, 0)
	if one, two := m.State(Ref{1, 0}), m.State(Ref{2, 0}); one != job.Running || two == job.Running {
		t.Errorf("after it was given up for lost: %v and %v", one, two)
	}
	if n := len(m.step(Ended{1, tok(1), exited(1, "")}, 0)); n == 0 || m.State(Ref{1, 0}) != job.Failed {
		t.Errorf("of his own: %v", m.State(Ref{1, 0}))
	}
	m.step(NodeDown{1}, 0)
	for i := range MaxClusters + 1 {
		m.step(AddBatch{Batch: uint32(10 + i), Jobs: 1, Spec: single, Owner: 1}, 0)
		m.step(Claim{Batch: uint32(10 + i), Jobs: []uint32{0}, Node: node.Abroad(fmt.Sprint(i)), Token: func(uint32, int) job.Token { return tok(100 + i) }}, 0)
	}
	if len(m.abroad) != MaxClusters {
		t.Errorf("%d clusters are known", len(m.abroad))
	}
}

// A job that is to be held while it waits abroad goes on there, and is held in the same step
// in which it comes back, before a free node can have it. One that runs there cannot be held.
func TestHeldOnTheWayBack(t *testing.T) {
	r := abroad(t, 2)
	r.apply(claim(0, 1))
	r.joins(9, hpc, 1)
	r.apply(phase(9, 101, job.PhaseRunning))
	r.joins(1, "ws1", 4)
	hold := HoldJobs{Batch: 1, Jobs: []uint32{0, 1}, By: "ana", Freeze: true, Request: tok(900)}
	r.apply(hold)
	if !r.m.Holds(Ref{1, 0}, true, false) || r.m.Holds(Ref{1, 1}, true, false) || r.m.Holds(Ref{1, 1}, false, true) {
		t.Error("not the job that waits there is to be held, or the one that runs there is")
	}
	if a, _ := r.m.Current(Ref{1, 0}); a.State != job.Queued || a.Node != hpc {
		t.Errorf("meanwhile it is %+v", a)
	}
	r.apply(ended(9, 100, unstarted))
	r.apply(ended(9, 101, unstarted))
	if a, _ := r.m.Current(Ref{1, 1}); r.m.State(Ref{1, 0}) != job.Held || a.Node != "ws1" {
		t.Errorf("they are %s, and %+v", r.m.State(Ref{1, 0}), a)
	}
}
