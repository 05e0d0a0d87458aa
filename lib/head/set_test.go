package head

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// What is set is compared with what was set last, whether that is durable or not.
func TestSetBeforeCommit(t *testing.T) {
	h := newState(t)
	n, err := h.open(made(t, h, "ns/b", "a", "b"), false)
	if err != nil {
		t.Fatal(err)
	}
	who := &tool{Head: h, peer: dial.Peer{User: "ana"}}
	ids := []job.ID{"ns/b/a", "ns/b/b"}
	set := func(seconds int64, jobs ...uint32) int {
		refs := make([]sched.Ref, len(jobs))
		for k, i := range jobs {
			refs[k] = sched.Ref{Batch: n, Job: i}
		}
		changed, err := who.set(&wire.Change{Set: &job.Set{Time: &seconds}, Ref: job.NewToken()}, false, ids, refs)
		if err != nil {
			t.Error(err)
		}
		return len(changed)
	}
	for i, c := range []struct {
		seconds int64
		jobs    []uint32
		want    int
	}{{3600, []uint32{0, 1}, 2}, {3600, []uint32{0, 1}, 0}, {60, []uint32{1}, 1}, {3600, []uint32{0, 1}, 1}, {0, []uint32{0}, 1}} {
		if got := set(c.seconds, c.jobs...); got != c.want {
			t.Errorf("change %d is one of %d jobs, should be %d", i, got, c.want)
		}
	}
	whole := 0
	for _, a := range h.ticks.actions {
		if l, ok := a.(sched.Log); ok && l.Ref.Job == sched.AllJobs {
			whole++
		}
	}
	if whole != 2 {
		t.Errorf("%d of the changes are of the whole batch, and there are two of all jobs", whole)
	}
}

// A change of a whole batch is one thing that is handed to who follows, and shows him
// each job that it changes.
func TestFollowWhole(t *testing.T) {
	h := newState(t)
	n, err := h.open(made(t, h, "ns/b", "a", "b", "c"), false)
	if err != nil {
		t.Fatal(err)
	}
	h.tools.watchers[&watcher{records: newQueue[logged](maxBehind)}] = true
	h.apply(sched.HoldJobs{Batch: n, Jobs: []uint32{0, 1, 2}, By: "ana"})
	for _, a := range h.ticks.actions {
		h.record(a)
	}
	if len(h.ticks.logged) != 1 || len(h.ticks.logged[0].jobs) != 3 {
		t.Fatalf("%d things are handed on: %+v", len(h.ticks.logged), h.ticks.logged)
	}
	var out bytes.Buffer
	b := h.batches[n]
	f := follower{rows: map[job.ID]*job.Row{}, enc: json.NewEncoder(&out)}
	if f.q, err = query.Parse([]string{"ns/b"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		row := job.NewRow(b.ID, name, &b.Head, b.Submitted)
		f.rows[row.ID] = &row
	}
	if err := f.changeBatch(h.ticks.logged[0]); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(out.Bytes(), []byte(`"state":"held"`)); got != 3 {
		t.Errorf("he is shown %s", out.String())
	}
}

// A record that was made before its batch was set aside, and is told after that, shows all that
// is known of its job to a follower of all batches.
func TestFollowRecordOfBatchSetAside(t *testing.T) {
	h := newState(t)
	n, err := h.open(made(t, h, "ns/b", "a"), false)
	must(t, err)
	b := h.batches[n]
	var out bytes.Buffer
	f := follower{rows: map[job.ID]*job.Row{}, enc: json.NewEncoder(&out), sees: func(*spool.Batch) bool { return true }}
	f.q, err = query.Parse([]string{"namespace=ns"}, time.Now())
	must(t, err)
	row := job.NewRow(b.ID, "a", &b.Head, b.Submitted)
	row.State, row.Attempt, row.Node = job.Running, 2, "ws1"
	f.rows[row.ID] = &row
	must(t, f.setAside(logged{batch: b.Batch, aside: true}))
	must(t, f.change(logged{batch: b.Batch, rec: &job.Record{Kind: job.KindDone, Seq: 9, Job: "a", Try: 2, Time: time.Now()}}))
	if got := out.String(); !strings.Contains(got, `"state":"done"`) || !strings.Contains(got, `"node":"ws1"`) {
		t.Errorf("he is shown %s", got)
	}
}

// What is set for a whole batch shows each job of it again: that runs as it runs, that is
// over if its priority is another.
func TestFollowSetOfWhole(t *testing.T) {
	h := newState(t)
	n, err := h.open(made(t, h, "ns/b", "a", "b", "c"), false)
	must(t, err)
	b := h.batches[n]
	h.tools.watchers[&watcher{records: newQueue[logged](maxBehind)}] = true
	var out bytes.Buffer
	f := follower{rows: map[job.ID]*job.Row{}, enc: json.NewEncoder(&out)}
	f.q, err = query.Parse([]string{"ns/b"}, time.Now())
	must(t, err)
	for _, name := range []string{"a", "b", "c"} {
		row := job.NewRow(b.ID, name, &b.Head, b.Submitted)
		f.rows[row.ID] = &row
	}
	running, over := f.rows["ns/b/b"], f.rows["ns/b/c"]
	token := job.NewToken()
	running.State, running.Token, running.Limit = job.Running, token, 60
	over.State = job.Done
	shown := func(set job.Set) string {
		out.Reset()
		h.ticks.actions, h.ticks.logged = nil, nil
		h.apply(sched.SetBatch{Batch: n, Set: set, Timed: []uint32{0, 1, 2}, By: "ana", Request: job.NewToken()})
		for _, a := range h.ticks.actions {
			h.record(a)
		}
		if len(h.ticks.logged) != 1 {
			t.Fatalf("handed on: %+v", h.ticks.logged)
		}
		l := h.ticks.logged[0]
		l.lives = map[string]*liveJob{"b": {token: token, state: job.Running, phase: job.PhasePaused}}
		must(t, f.changeBatch(l))
		var all []string
		for dec := json.NewDecoder(&out); ; {
			var r job.Row
			if dec.Decode(&r) != nil {
				return strings.Join(all, ", ")
			}
			all = append(all, fmt.Sprintf("%s %s %s %d %d", r.Job, r.State, r.Phase, r.Priority, r.Limit))
		}
	}
	seven, hour, most := 7, int64(3600), 5
	for _, c := range []struct {
		set  job.Set
		want string
	}{
		{job.Set{Priority: &seven}, "a queued  7 0, b running paused 7 60, c done  7 0"},
		{job.Set{Time: &hour}, "a queued  7 0, b running paused 7 3600"},
		{job.Set{MaxRunning: &most}, "a queued  7 0, b running paused 7 3600"},
	} {
		if got := shown(c.set); got != c.want {
			t.Errorf("shown: %s\nwant   %s", got, c.want)
		}
	}
}

// Whoever runs dsched changes jobs also while the names of operators cannot be looked up. Only a
// priority depends on these.
func TestOperatorsAreNotLookedUp(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j")
	s.h.set.Store(&settings{Operators: []string{"ana"}})
	asked := 0
	s.h.tools.operators.Ask = func(string) numbered {
		asked++
		return numbered{id: -2}
	}
	who := &tool{Head: s.h, peer: dial.Peer{UID: os.Getuid()}}
	seconds, priority := int64(60), 1
	for _, c := range []struct {
		change wire.Change
		want   int
	}{
		{wire.Change{Verb: "hold"}, 0},
		{wire.Change{Verb: "set", Set: &job.Set{Time: &seconds}}, 0},
		{wire.Change{Verb: "set", Set: &job.Set{Priority: &priority}}, 1},
	} {
		c.change.Ref = job.NewToken()
		changed, err := who.changeAll(&c.change, []job.ID{"ns/b/j"})
		if err != nil || len(changed) != 1 || asked != c.want {
			t.Errorf("%s: changed %q, asked %d times, want %d: %v", c.change.Verb, changed, asked, c.want, err)
		}
	}
}
