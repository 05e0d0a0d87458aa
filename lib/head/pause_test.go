package head

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/query"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// offers tells the head that a desk offers something else.
func (d *desk) offers(p *node.Pause) {
	d.send(d.c, &wire.Offer{Offer: node.Offer{CPUs: 1, Pause: p}})
}

// ofAna is a pause of ana's that has lasted for so many seconds and lasts for two
// hours.
func ofAna(since float64) *node.Pause {
	return &node.Pause{By: []string{"ana"}, Since: since, Left: 7200}
}

// nodeRow is how a node is shown.
func (s *site) nodeRow(name string) *node.Row {
	s.t.Helper()
	return firstRow[node.Row](s, "nodes", "node="+name)
}

// firstRow is that of an answer.
func firstRow[T any](s *site, of, filter string) *T {
	s.t.Helper()
	c := s.tool()
	s.send(c, &wire.Query{Ref: job.NewToken(), Of: of, Args: []string{filter}})
	var r T
	if err := json.NewDecoder(c.RecvTransfer(expect[*wire.Send](s.t, c))).Decode(&r); err != nil {
		s.t.Fatal(err)
	}
	return &r
}

// follows is what a tool is shown of jobs that it follows, row by row.
func (s *site) follows(q wire.Query) (*wire.Conn, func() *job.Row) {
	s.t.Helper()
	c := s.tool()
	q.Ref, q.Of, q.All, q.Follow = job.NewToken(), "jobs", true, true
	s.send(c, &q)
	rows := json.NewDecoder(c.RecvTransfer(expect[*wire.Send](s.t, c)))
	return c, func() *job.Row {
		s.t.Helper()
		c.ReadWithin(2 * time.Minute)
		var r job.Row
		if err := rows.Decode(&r); err != nil {
			s.t.Fatal(err)
		}
		return &r
	}
}

// A job that was sent ahead to a busy node is queued, and says where; when its turn comes
// who follows is told.
func TestSentAheadIsQueued(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "i", "j", "k")
	d := s.desk("ws1", "boot1")
	first := next[*wire.Start](d)
	_, row := s.follows(wire.Query{Args: []string{"job=k"}})
	shown := func(want job.State, reason string) {
		t.Helper()
		if r := row(); r.State != want || r.Reason != reason || r.Started.IsZero() != (want == job.Queued) {
			t.Fatalf("shown is %+v; want %s, %q", r, want, reason)
		}
	}
	fails := func(a job.Token) {
		exit := 1
		s.send(d.c, &wire.Phase{Attempt: a, Phase: job.PhaseRunning}, &wire.Ended{Attempt: a, Result: job.Result{Outcome: job.Outcome{Exit: &exit, Runtime: 0.1}}})
	}
	shown(job.Queued, "")
	fails(first.Attempt)
	second, third := next[*wire.Start](d), next[*wire.Start](d)
	const why = "given to its node, where it begins as soon as another job ends"
	shown(job.Queued, why)
	s.send(d.c, &wire.Phase{Attempt: third.Attempt, Phase: job.PhaseSending})
	s.becomes("ns/b/j", job.Running)
	if r := s.state("ns/b/k"); r.State != job.Queued || r.Reason != why || r.Phase != "" {
		t.Errorf("it is %+v", r)
	}
	if b := firstRow[query.Batch](s, "batches", "ns/b"); b.Running != 1 || b.Queued != 1 {
		t.Errorf("the batch is shown as %+v", b)
	}
	fails(second.Attempt)
	shown(job.Running, "")
	fails(third.Attempt)
	s.becomes("ns/b/k", job.Failed)
}

// Who follows is told that the node of a job is gone, and that it is back.
func TestFollowsItsNode(t *testing.T) {
	s, d, start := runningJob(t)
	follow := func(args ...string) func(job.State) {
		_, row := s.follows(wire.Query{Args: append([]string{"ns/b"}, args...)})
		return func(want job.State) {
			t.Helper()
			if r := row(); r.State != want {
				t.Fatalf("shown is %+v; want %s", r, want)
			}
		}
	}
	shown, paused := follow(), follow("state=paused")
	shown(job.Running)
	d.c.Close()
	shown(job.Unreachable)
	d = s.desk("ws1", "boot1", listed(start, job.PhaseRunning, nil))
	shown(job.Running)
	for range 2 {
		s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhasePaused})
		shown(job.Paused)
		paused(job.Paused)
		s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
		shown(job.Running)
	}
}

// A job that stands still does so also when its time is set.
func TestFollowsASetWhilePaused(t *testing.T) {
	s := newSite(t)
	s.submitAs("ns/b", `{"kind":"command","resources":{"cpus":1,"time":60}}`, "j", "k")
	d := s.desk("ws1", "boot1")
	start := expect[*wire.Start](t, d.c)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhasePaused})
	s.becomes(start.Job, job.Paused)
	_, row := s.follows(wire.Query{Args: []string{string(start.Job)}})
	if r := row(); r.State != job.Paused {
		t.Fatalf("shown is %+v", r)
	}
	longer := int64(3600)
	if ids, err := s.ask(s.tool(), &wire.Change{Verb: "set", Args: []string{string(start.Job)}, Set: &job.Set{Time: &longer}}); err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	if r := row(); r.State != job.Paused || r.Limit != 3600 {
		t.Errorf("after it was set: %+v", r)
	}
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	if r := row(); r.State != job.Running {
		t.Errorf("when it runs: %+v", r)
	}
}

// A job that was cancelled is running, and stopping, until its processes are gone or
// their node is: who waits for its end waits for that, and who follows is told.
func TestCancelledIsStopping(t *testing.T) {
	for _, end := range []string{"it ends", "its node vanishes", "its node comes back without it", "it ended while its node was away"} {
		s, d, start := givenJob(t)
		s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
		await(t, func() bool { return s.state("ns/b/j").Phase == job.PhaseRunning })
		follow := func(until string) func(job.State, job.Phase) {
			_, row := s.follows(wire.Query{Args: []string{"ns/b"}, Until: until})
			return func(want job.State, phase job.Phase) {
				t.Helper()
				if r := row(); r.State != want || r.Phase != phase || r.Ended.IsZero() == r.State.Over() {
					t.Fatalf("shown is %+v; want %s, %s", r, want, phase)
				}
			}
		}
		changes := follow("")
		changes(job.Running, job.PhaseRunning)
		before := follow("over")
		if ids, err := s.ask(s.tool(), &wire.Change{Verb: "cancel", Args: []string{"ns/b/j"}}); err != nil || len(ids) != 1 {
			t.Fatal(ids, err)
		}
		next[*wire.Stop](d)
		changes(job.Running, "stopping")
		if r := s.state("ns/b/j"); r.State != job.Running || r.Phase != "stopping" || !r.Ended.IsZero() {
			t.Errorf("it is %+v", r)
		}
		if a, ok := s.h.live("ns/b/j"); !ok || a.Token != start.Attempt {
			t.Errorf("what it prints is asked of %+v, %v", a, ok)
		}
		after := follow("over")
		if ids, err := s.ask(s.tool(), &wire.Change{Verb: "cancel", Args: []string{"ns/b/j"}}); err != nil || len(ids) > 0 {
			t.Error("it is cancelled twice", ids, err)
		}
		dead := job.Result{Outcome: job.Outcome{Signal: "SIGKILL"}}
		if end == "it ends" {
			s.send(d.c, &wire.Ended{Attempt: start.Attempt, Result: dead})
		} else {
			d.c.Close()
			await(t, func() (gone bool) { s.h.do(func() { gone = len(s.h.nodes.sessions) == 0 }); return gone })
			if r := s.state("ns/b/j"); r.State != job.Running || r.Phase != "stopping" {
				t.Errorf("it may come back, and is %+v", r)
			}
		}
		switch end {
		case "its node vanishes":
			s.pass(time.Minute)
		case "its node comes back without it":
			s.desk("ws1", "boot1")
		case "it ended while its node was away":
			s.desk("ws1", "boot1", listed(start, job.PhaseReturning, &dead))
		}
		for _, shown := range []func(job.State, job.Phase){changes, before, after} {
			shown(job.Cancelled, "")
		}
		s.becomes("ns/b/j", job.Cancelled)
	}
}

// A job that was cancelled is running, and stopping, until what it left is on the head: who
// pulls it as soon as it is over gets that.
func TestCancelledIsStoppingUntilItIsHome(t *testing.T) {
	for _, late := range []bool{false, true} {
		s, d, start := givenJob(t)
		s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
		await(t, func() bool { return s.state("ns/b/j").Phase == job.PhaseRunning })
		m, _ := result("hello\n")
		if late { // it is over on its node before it is cancelled
			s.send(d.c, ended(start.Attempt, 1, m))
			await(t, func() bool { return s.state("ns/b/j").Phase == job.PhaseReturning })
		}
		_, over := s.follows(wire.Query{Args: []string{"ns/b"}, Until: "over"})
		c := s.tool()
		if ids, err := s.ask(c, &wire.Change{Verb: "cancel", Args: []string{"ns/b/j"}}); err != nil || len(ids) != 1 {
			t.Fatal(ids, err)
		}
		if !late {
			s.send(d.c, ended(start.Attempt, 1, m))
		}
		g := next[*wire.Grant](d)
		if r := s.state("ns/b/j"); r.State != job.Running || r.Phase != job.PhaseStopping {
			t.Errorf("before what it left is here, it is %+v", r)
		}
		d.give(g, "hello\n")
		if r := over(); r.State != job.Cancelled {
			t.Errorf("at last it is %+v", r)
		}
		if err := c.Send(&wire.Pull{ID: "ns/b/j~1"}); err != nil {
			t.Fatal(err)
		}
		if _, err := wire.Expect[*wire.Send](c); err != nil {
			t.Errorf("what it left is not here when it is over: %v", err)
		}
	}
}

// P73, P75: who follows is shown at once that a job is paused, by whom and until
// when, and that it goes on; so are those who ask for nodes, batches, and what
// keeps the jobs that wait.
func TestP73PausedIsShown(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j", "k")
	d := s.desk("ws1", "boot1")
	start := next[*wire.Start](d)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	s.becomes("ns/b/j", job.Running)
	c, told := s.follows(wire.Query{Args: []string{"job=j"}})
	shown := func(want job.State) *job.Row {
		t.Helper()
		r := told()
		if r.State != want {
			t.Fatalf("%s is shown as %s; want %s", r.ID, r.State, want)
		}
		return r
	}
	shown(job.Running)
	d.offers(ofAna(3600))
	row := shown(job.Paused)
	until := time.Now().Add(2 * time.Hour)
	if row.Phase != job.PhaseRunning {
		t.Errorf("its phase is %s", row.Phase)
	}
	check := func(what, text, before string) {
		t.Helper()
		if !fits(text, before, until) {
			t.Errorf("%s: %q, want %q and the time in two hours", what, text, before)
		}
	}
	check("the job", row.Reason, "ana, until ")
	check("the job, asked for", s.state("ns/b/j").Reason, "ana, until ")
	check("the one that waits", s.state("ns/b/k").Reason, "ws1 paused by ana until ")
	n := s.nodeRow("ws1")
	from := time.Now().Add(-time.Hour)
	if n.State != node.Paused || !fits(n.Note, "ana, "+from.Format("15:04")+" to ", until) && !fits(n.Note, "ana, "+from.Add(time.Minute).Format("15:04")+" to ", until) {
		t.Errorf("the node is shown as %s: %q", n.State, n.Note)
	}
	s.send(c, &wire.Pong{}) // what a tool says while it follows ends that; here it does not matter
	if b := firstRow[query.Batch](s, "batches", "ns/b"); b.Paused != 1 || b.Queued != 1 {
		t.Errorf("the batch is shown as %+v", b)
	}
	d.offers(nil)
	s.becomes("ns/b/j", job.Running)
	d.send(d.c, &wire.Offer{Offer: node.Offer{Pause: &node.Pause{By: []string{"ana"}, Left: 7200, Give: &node.Give{CPUs: 1, Memory: 8 << 30}}}})
	await(t, func() bool { return s.nodeRow("ws1").Note != "" })
	if n := s.nodeRow("ws1"); n.State != node.Busy || !fits(n.Note, "1 cpu and 8G lent back to ana until ", until) {
		t.Errorf("with a part lent back the node is shown as %s: %q", n.State, n.Note)
	}
}

// fits says whether a text is before and a time of day, or that a minute later.
func fits(text, before string, at time.Time) bool {
	return text == before+at.Format("15:04") || text == before+at.Add(time.Minute).Format("15:04")
}

// P78: an operator ends the pauses of a node from the head; others may not, and a
// node that is away cannot be told.
func TestP78ResumeFromTheHead(t *testing.T) {
	s, d, start := givenJob(t)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	d.offers(ofAna(1))
	s.becomes("ns/b/j", job.Paused)
	if lines, e := s.ask(s.tool(), &wire.Change{Verb: "resume", Args: []string{"ws1"}, Dry: true}); e != nil || strings.Join(lines, " ") != "ns/b/j" {
		t.Errorf("asked what it would do: %v, %v", lines, e)
	}
	if lines, e := s.ask(s.tool(), &wire.Change{Verb: "resume", Args: []string{"ws1"}}); e != nil || strings.Join(lines, " ") != "ns/b/j" {
		t.Errorf("resumed: %v, %v", lines, e)
	}
	if m := next[*wire.Resume](d); m.By == "" {
		t.Error("the node is not told by whom")
	}
	for name, status := range map[string]int{"ws7": cli.NoSuch, "../x": cli.Usage} {
		if _, e := s.ask(s.tool(), &wire.Change{Verb: "resume", Args: []string{name}}); e == nil || e.Status != status {
			t.Errorf("%s: %v, want status %d", name, e, status)
		}
	}
	d.c.Close()
	s.becomes("ns/b/j", job.Unreachable)
	if _, e := s.ask(s.tool(), &wire.Change{Verb: "resume", Args: []string{"ws1"}}); e == nil || e.Status != cli.Input {
		t.Errorf("one that is away: %v", e)
	}
}

// saves ends an attempt as one that was asked to leave, and has saved a text.
func (d *desk) saves(st *wire.Start, text string) {
	d.t.Helper()
	m, _ := result(text)
	e := ended(st.Attempt, job.ExitSaved, m)
	e.Fate, e.Saved = job.FateEvicted, true
	d.send(d.c, e)
	d.give(next[*wire.Grant](d), text)
	next[*wire.Have](d)
	d.send(d.c, &wire.Gone{Attempt: st.Attempt})
}

// fetched is what a desk fetches of what an earlier attempt has saved.
func (d *desk) fetched(st *wire.Start) string {
	d.t.Helper()
	d.send(d.down, &wire.Fetch{Attempt: st.Attempt, Of: wire.OfManifest})
	in := d.down.RecvTransfer(expect[*wire.Send](d.t, d.down))
	m, err := pack.DecodeManifest(in, pack.DefaultLimits())
	if err != nil || wire.Drain(in) != nil {
		d.t.Fatal(err)
	}
	d.send(d.down, &wire.Fetch{Attempt: st.Attempt, Of: wire.OfSaved})
	in = d.down.RecvTransfer(expect[*wire.Send](d.t, d.down))
	var got kept
	if err := pack.Receive(in, m, pack.Want{}, &got); err != nil || wire.Drain(in) != nil {
		d.t.Fatal(err)
	}
	return got.text
}

// kept is a sink that keeps the content of one file.
type kept struct{ text string }

func (k *kept) Put(_ int, _ pack.Entry, _ int64, r io.Reader) error {
	b, err := io.ReadAll(r)
	k.text += string(b)
	return err
}

// What an attempt saved comes home and goes along to the next node; of several
// the newest is kept, also when dsched is started again, and none when the job is
// over.
func TestSavedGoesAlong(t *testing.T) {
	s, ws1, first := givenJob(t)
	s.send(ws1.c, &wire.Phase{Attempt: first.Attempt, Phase: job.PhaseRunning})
	if first.Saved != "" {
		t.Errorf("the first attempt goes on with %q", first.Saved)
	}
	ws1.offers(&node.Pause{By: []string{"ana"}, Out: true})
	s.becomes("ns/b/j", job.Paused)
	ws1.saves(first, "step 1\n")
	s.becomes("ns/b/j", job.Queued)
	if got := s.file("ns/b/attempts/j~1/out.txt"); got != "step 1\n" {
		t.Errorf("what was saved is %q", got)
	}
	s.stop()
	s.start()
	ws2 := s.desk("ws2", "boot2")
	second := next[*wire.Start](ws2)
	if second.Saved != first.Attempt || second.Try != 2 {
		t.Fatalf("the second attempt is %+v", second)
	}
	if got := ws2.fetched(second); got != "step 1\n" {
		t.Errorf("it goes on with %q", got)
	}
	ws2.offers(ofAna(0))
	ws2.saves(second, "step 2\n")
	await(t, func() bool { return exists(filepath.Join(s.dir, "batches/ns/b/attempts/j~1")) != nil })
	ws3 := s.desk("ws3", "boot3")
	third := next[*wire.Start](ws3)
	if got := ws3.fetched(third); third.Saved != second.Attempt || got != "step 2\n" {
		t.Errorf("the third attempt goes on with %q of %q", got, third.Saved)
	}
	m, _ := result("done\n")
	s.send(ws3.c, ended(third.Attempt, 0, m))
	ws3.give(next[*wire.Grant](ws3), "done\n")
	next[*wire.Have](ws3)
	s.becomes("ns/b/j", job.Done)
	if got := s.file("ns/b/out/j/out.txt"); got != "done\n" {
		t.Errorf("the result is %q", got)
	}
	for _, name := range []string{"attempts/j~1", "attempts/j~2", "manifests/j~1.jsonl", "manifests/j~2.jsonl"} {
		if exists(filepath.Join(s.dir, "batches/ns/b", name)) == nil {
			t.Errorf("%s is there", name)
		}
	}
	await(t, func() bool {
		list, err := filepath.Glob(filepath.Join(s.dir, "trash/*"))
		return err == nil && len(list) == 0
	})
}

// What was saved cannot be read on the head: the job fails after a while, and says
// why; no node is given it for ever.
func TestSavedCannotBeRead(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, batch string) error{
		"the tree is gone":     func(_ *testing.T, batch string) error { return os.RemoveAll(batch + "/attempts/j~1") },
		"the manifest is gone": func(_ *testing.T, batch string) error { return os.Remove(batch + "/manifests/j~1.jsonl") },
		"a file is gone":       func(_ *testing.T, batch string) error { return os.Remove(batch + "/attempts/j~1/out.txt") },
		"a file has changed": func(_ *testing.T, batch string) error {
			return os.WriteFile(batch+"/attempts/j~1/out.txt", []byte("step X\n"), 0o640)
		},
		"a file may not be read": func(t *testing.T, batch string) error {
			if os.Geteuid() == 0 {
				return os.Remove(batch + "/attempts/j~1/out.txt") // root may read all
			}
			return os.Chmod(batch+"/attempts/j~1/out.txt", 0)
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, ws1, first := givenJob(t)
			ws1.saves(first, "step 1\n")
			if err := spoil(t, filepath.Join(s.dir, "batches/ns/b")); err != nil {
				t.Fatal(err)
			}
			for i, d := range []*desk{ws1, nil, nil} {
				if d == nil { // the one before is not tried again so soon, and leaves
					d = s.desk(fmt.Sprint("ws", i+1), "boot")
				}
				st := next[*wire.Start](d)
				if st.Saved != first.Attempt {
					t.Fatalf("it goes on with %q", st.Saved)
				}
				d.cannotFetch(st)
				s.send(d.c, &wire.Ended{Attempt: st.Attempt, Result: job.Result{Fate: job.FateUnstarted, Outcome: job.Outcome{Reason: "no files"}}})
				next[*wire.Forget](d)
				d.c.Close()
			}
			s.becomes("ns/b/j", job.Failed)
			if r := s.state("ns/b/j"); !strings.HasPrefix(r.Reason, "what attempt 1 has saved cannot be read on the head: ") ||
				!strings.HasSuffix(r.Reason, "; that was tried 3 times") || strings.Contains(r.Reason, s.dir) {
				t.Errorf("it failed for %q", r.Reason)
			}
		})
	}
}

// cannotFetch asks for what was saved, as a node does, and is not given it.
func (d *desk) cannotFetch(st *wire.Start) {
	d.t.Helper()
	for _, of := range []string{wire.OfManifest, wire.OfSaved} {
		d.send(d.down, &wire.Fetch{Attempt: st.Attempt, Of: of})
		send, err := wire.Expect[*wire.Send](d.down)
		var refusal *wire.Error
		if errors.As(err, &refusal) {
			return
		}
		if err != nil {
			d.t.Fatal(err)
		}
		if err := wire.Drain(d.down.RecvTransfer(send)); err != nil {
			return
		}
	}
	d.t.Error("it is given all of it")
}

// A node gets what was saved only for an attempt of its own that goes on with
// it.
func TestSavedIsFetchedByItsOwnOnly(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j", "k")
	ws1 := s.desk("ws1", "boot1")
	first := next[*wire.Start](ws1)
	refused := func(d *desk, a job.Token, of string) {
		t.Helper()
		s.send(d.down, &wire.Fetch{Attempt: a, Of: of})
		if e := expect[*wire.Error](t, d.down); e.Status != cli.NotAllowed {
			t.Errorf("a fetch of %s: %v", of, e)
		}
	}
	refused(ws1, first.Attempt, wire.OfSaved)
	refused(ws1, first.Attempt, wire.OfManifest)
	ws1.saves(first, "step 1\n")
	other := next[*wire.Start](ws1) // it had room before the first was home
	ws2 := s.desk("ws2", "boot2")
	second := next[*wire.Start](ws2)
	if second.Saved != first.Attempt || other.Saved != "" {
		t.Fatalf("they go on with %q and %q", second.Saved, other.Saved)
	}
	refused(ws1, second.Attempt, wire.OfSaved)
	refused(ws1, first.Attempt, wire.OfSaved)
	refused(ws1, other.Attempt, wire.OfSaved)
	for _, w := range []wire.Want{{Ranges: [][2]int{{0, 9}}}, {Ranges: [][2]int{{-1, 1}}}, {Ranges: [][2]int{{0, 1}}, From: 1 << 40}} {
		s.send(ws2.down, &wire.Fetch{Attempt: second.Attempt, Of: wire.OfSaved, Want: w})
		if e := expect[*wire.Error](t, ws2.down); e.Status != cli.Usage {
			t.Errorf("a fetch of %v: %v", w, e)
		}
	}
}

// What stood still under the head before has not run since.
func TestFrozenBefore(t *testing.T) {
	h := newState(t)
	began := time.Now().Add(-time.Hour)
	l := h.liveJob(sched.Attempt{Token: "t", State: job.Paused, Frozen: true, Since: began.Add(time.Minute)})
	row := job.Row{State: job.Running, Token: "t", Started: began}
	if l.over(&row, time.Now()); row.Runtime != 60 {
		t.Errorf("it is shown to have run for %g seconds, and stood still after 60", row.Runtime)
	}
}

// How long a job has run is what its node said, and the time since in which it runs; before
// its processes have begun it is nothing. Of what a node does not say, it is as long as the
// job was given to it.
func TestRanWithoutPauses(t *testing.T) {
	h := newState(t)
	const said = 10 * time.Minute
	for _, c := range []struct {
		name  string
		a     sched.Attempt
		wants float64 // a minute after it was said
	}{
		{"it ran for longer than the head knew of it, on a cluster", sched.Attempt{State: job.Running, Phase: job.PhaseRunning, Node: "slurm:hpc", Ran: 3 * time.Hour}, 3*3600 + 60},
		{"it runs again", sched.Attempt{State: job.Running, Phase: job.PhaseRunning, Ran: said}, 660},
		{"it is paused", sched.Attempt{State: job.Paused, Phase: job.PhasePaused, Ran: said}, 600},
		{"it was paused before the head was started", sched.Attempt{State: job.Paused, Phase: job.PhasePaused, Ran: said, Frozen: true, Since: time.Now().Add(-40 * time.Minute)}, 600},
		{"it was paused when its node went away", sched.Attempt{State: job.Unreachable, Phase: job.PhasePaused, Ran: said}, 600},
		{"its processes do not die", sched.Attempt{State: job.Running, Phase: job.PhaseStuck, Ran: said}, 660},
		{"its batch is built", sched.Attempt{State: job.Running, Phase: job.PhaseBuilding}, 0},
		{"its build is paused", sched.Attempt{State: job.Paused, Phase: job.PhaseBuilding}, 0},
		{"its inputs are sent", sched.Attempt{State: job.Running, Phase: job.PhaseSending}, 0},
		{"its node does not say", sched.Attempt{State: job.Running, Phase: job.PhaseRunning}, 3660},
		{"its node was not heard", sched.Attempt{State: job.Unreachable}, 3660},
		{"it ran for longer than it was there", sched.Attempt{State: job.Running, Phase: job.PhaseRunning, Ran: 1000 * time.Hour}, 3660},
	} {
		c.a.Token, c.a.RanAt = "t", h.clock.tell()
		l := h.liveJob(c.a)
		at := time.Now()
		if c.a.Ran == said || c.a.Node != "" {
			at = l.began.Add(c.a.Ran)
		}
		row := job.Row{State: job.Running, Token: "t", Node: string(c.a.Node), Started: at.Add(-time.Hour)}
		if l.over(&row, at.Add(time.Minute)); row.Runtime != c.wants {
			t.Errorf("%s: it is shown to have run for %g seconds, and not %g", c.name, row.Runtime, c.wants)
		}
	}
}

// Who follows what is not over is told of a job that is tried again after its batch was over,
// and of what that job did before.
func TestFollowsRetry(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	s.over(d, "ns/b", 1)
	await(t, func() (closed bool) {
		s.h.do(func() { _, open := s.h.byID["ns/b"]; closed = !open })
		return closed
	})
	_, row := s.follows(wire.Query{Args: []string{"state=queued,running"}})
	if ids, err := s.ask(s.tool(), &wire.Change{Verb: "retry", Args: []string{"ns/b/j"}}); err != nil || len(ids) != 1 {
		t.Fatalf("retried %q, %v", ids, err)
	}
	if r := row(); r.State != job.Queued || r.Attempt != 1 {
		t.Errorf("he is shown %+v", r)
	}
}
