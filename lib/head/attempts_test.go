package head

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/account"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// pass lets time pass for a head, as it counts it: in steps, so that nodes that
// are connected are heard from in between.
func (s *site) pass(d time.Duration, connected ...*desk) {
	s.t.Helper()
	for ; d > 0; d -= time.Minute {
		for _, n := range connected {
			s.send(n.c, &wire.Pong{})
		}
		s.h.do(func() {
			for _, n := range connected {
				s.h.apply(sched.Heard{Session: s.h.nodes.byName[node.Name(n.name)]})
			}
			s.h.now += min(d, time.Minute)
			s.h.apply(sched.Tick{})
		})
	}
}

// next is what the node is told next, of one kind; others are kept for later.
func next[T wire.Message](d *desk) T {
	d.t.Helper()
	for i, m := range d.passed {
		if m, ok := m.(T); ok {
			d.passed = slices.Delete(d.passed, i, i+1)
			return m
		}
	}
	d.c.ReadWithin(2 * time.Minute)
	for {
		m, err := d.c.Recv()
		if err != nil {
			d.t.Fatal(err)
		}
		if m, ok := m.(T); ok {
			return m
		}
		d.passed = append(d.passed, m)
	}
}

// listed is an attempt as a node lists it when it connects.
func listed(st *wire.Start, phase job.Phase, r *job.Result) *wire.Item {
	return &wire.Item{Attempt: st.Attempt, Job: st.Job, Try: st.Try, CPUs: 1, Phase: phase, Result: r}
}

// two is a site whose job ns/b/j has two attempts that run: the first on ws1,
// which was away for longer than its lease and is back, the second on ws2.
func two(t *testing.T) (s *site, ws1, ws2 *desk, first, second *wire.Start) {
	s, ws1, first = runningJob(t)
	ws2 = s.desk("ws2", "boot2")
	ws1.c.Close()
	s.becomes("ns/b/j", job.Unreachable)
	s.pass(15*time.Minute, ws2)
	second = next[*wire.Start](ws2)
	s.send(ws2.c, &wire.Phase{Attempt: second.Attempt, Phase: job.PhaseRunning})
	ws1 = s.desk("ws1", "boot1", listed(first, job.PhaseRunning, nil))
	next[*wire.Keep](ws1)
	return s, ws1, ws2, first, second
}

// A node is told with each start whose job it is, as the head has proven, and whether it
// is never to be started twice.
func TestStartTellsWhose(t *testing.T) {
	for spec, never := range map[string]bool{`{"kind":"command"}`: false, `{"kind":"command","retry":"never"}`: true} {
		s := newSite(t)
		s.submitAs("ns/b", spec, "j")
		d := s.desk("ws1", "boot1")
		if st := expect[*wire.Start](t, d.c); st.User != account.UserName(os.Getuid()) || st.Never != never {
			t.Errorf("%s: user %q, never %v", spec, st.User, st.Never)
		}
	}
}

// A node comes back after its job was given to another. Both attempts end, in
// either order, and say so twice: exactly one result is accepted, the other is
// put aside, and both nodes may delete what they have only then.
func TestL38L39BothAttempts(t *testing.T) {
	for _, order := range []string{"first", "second", "first of two that wait", "second of two that wait"} {
		t.Run(order, func(t *testing.T) {
			s, ws1, ws2, first, second := two(t)
			desks, starts := []*desk{ws1, ws2}, []*wire.Start{first, second}
			winner := 0
			if strings.HasPrefix(order, "second") {
				winner = 1
			}
			loser := 1 - winner
			text := func(i int) string { return fmt.Sprintf("of attempt %d\n", i+1) }
			end := func(i int) *wire.Grant {
				t.Helper()
				m, _ := result(text(i))
				for range 2 {
					s.send(desks[i].c, ended(starts[i].Attempt, 0, m))
				}
				return next[*wire.Grant](desks[i])
			}
			deliver := func(i int, g *wire.Grant) {
				t.Helper()
				desks[i].give(g, text(i))
				if h := next[*wire.Have](desks[i]); h.Attempt != starts[i].Attempt {
					t.Errorf("told to delete %s", h.Attempt)
				}
			}
			if strings.HasSuffix(order, "wait") {
				late := end(loser)
				deliver(winner, end(winner))
				deliver(loser, late)
			} else {
				deliver(winner, end(winner))
				if st := next[*wire.Stop](desks[loser]); st.Attempt != starts[loser].Attempt {
					t.Errorf("stopped is %+v", st)
				}
				deliver(loser, end(loser))
			}
			row := s.becomes("ns/b/j", job.Done)
			if row.Attempt != winner+1 || s.file("ns/b/out/j/out.txt") != text(winner) {
				t.Errorf("the result is that of attempt %d: %q", row.Attempt, s.file("ns/b/out/j/out.txt"))
			}
			if got := s.file(fmt.Sprintf("ns/b/attempts/j~%d/out.txt", loser+1)); got != text(loser) {
				t.Errorf("beside it lies %q", got)
			}
			if n := strings.Count(s.file("ns/b/log.jsonl"), `"e":"done"`); n != 1 {
				t.Errorf("%d are accepted", n)
			}
		})
	}
}

// A cancel at each moment of an attempt's life: there is one end, which stays,
// and what comes later is put aside.
func TestL45CancelAnyTime(t *testing.T) {
	m, _ := result("late\n")
	for _, when := range []string{"queued", "in flight", "running", "uploading", "offline", "done"} {
		t.Run(when, func(t *testing.T) {
			s := newSite(t)
			s.submit("ns/b", "j")
			want, kept := job.Cancelled, ""
			cancel := func() {
				t.Helper()
				c := s.tool()
				s.send(c, &wire.Change{Ref: job.NewToken(), Verb: "cancel", Args: []string{"ns/b/j"}})
				if err := wire.Drain(c.RecvTransfer(expect[*wire.Send](t, c))); err != nil {
					t.Fatal(err)
				}
			}
			if when == "queued" {
				cancel()
				s.becomes("ns/b/j", want)
				s.desk("ws1", "boot1")
			} else {
				kept, want = cancelOn(t, s, when, m, cancel)
			}
			if row := s.becomes("ns/b/j", want); row.State != want {
				t.Errorf("it is %s", row.State)
			}
			log := s.file("ns/b/log.jsonl")
			if n := strings.Count(log, `"e":"done"`) + strings.Count(log, `"e":"failed"`) + strings.Count(log, `"e":"cancelled"`); n != 1 {
				t.Errorf("%d ends in\n%s", n, log)
			}
			if got := s.file("ns/b/attempts/j~1/out.txt"); kept != "" && (got != kept || !strings.Contains(log, `"e":"late"`)) {
				t.Errorf("kept aside is %q, and the log is\n%s", got, log)
			}
		})
	}
}

// cancelOn is TestL45CancelAnyTime with a node that has got the job.
func cancelOn(t *testing.T, s *site, when string, m pack.Manifest, cancel func()) (kept string, want job.State) {
	t.Helper()
	d := s.desk("ws1", "boot1")
	st := expect[*wire.Start](t, d.c)
	if when == "in flight" {
		cancel()
		next[*wire.Stop](d)
		s.send(d.c, &wire.Ended{Attempt: st.Attempt, Result: job.Result{Fate: job.FateUnstarted}})
		next[*wire.Forget](d)
		return "", job.Cancelled
	}
	s.send(d.c, &wire.Phase{Attempt: st.Attempt, Phase: job.PhaseRunning})
	switch when {
	case "running":
		s.becomes("ns/b/j", job.Running)
		cancel()
		next[*wire.Stop](d)
		s.send(d.c, ended(st.Attempt, 0, m)) // it had ended before it could be stopped
		d.give(next[*wire.Grant](d), "late\n")
	case "uploading":
		s.send(d.c, ended(st.Attempt, 0, m))
		g := next[*wire.Grant](d)
		cancel()
		d.give(g, "late\n")
	case "offline":
		s.becomes("ns/b/j", job.Running)
		d.c.Close()
		s.becomes("ns/b/j", job.Unreachable)
		cancel()
		d = s.desk("ws1", "boot1", listed(st, job.PhaseRunning, nil))
		next[*wire.Stop](d)
		s.send(d.c, ended(st.Attempt, 0, m))
		d.give(next[*wire.Grant](d), "late\n")
	case "done":
		s.send(d.c, ended(st.Attempt, 0, m))
		d.give(next[*wire.Grant](d), "late\n")
		next[*wire.Have](d)
		cancel()
		return "", job.Done
	}
	next[*wire.Have](d)
	return "late\n", job.Cancelled
}

// The clocks of nodes stand at 1970, centuries ahead, or run backwards: jobs begin and end by
// the head's clock, also after a restart, and ran for as long as their nodes have measured. The
// head's log has what the clocks of their nodes said.
func TestL48Clocks(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j", "k", "l")
	submitted := time.Now().Add(-time.Second)
	times := [][2]time.Time{
		{time.Unix(0, 0).UTC(), time.Unix(1, 0).UTC()},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)},
		{time.Now().UTC(), time.Now().Add(-24 * time.Hour).UTC()},
	}
	check := func(row *job.Row) {
		t.Helper()
		if row.Started.Before(submitted) || row.Ended.Before(row.Started) || row.Ended.After(time.Now()) || row.Runtime < 10 {
			t.Errorf("%s ran for %v s from %v to %v; it was submitted at %v", row.ID, row.Runtime, row.Started, row.Ended, submitted)
		}
	}
	d := s.desk("ws1", "boot1")
	for i, name := range []string{"j", "k", "l"} {
		st := next[*wire.Start](d)
		if st.Job != job.ID("ns/b/"+name) {
			t.Fatalf("started is %s", st.Job)
		}
		text := name + "\n"
		m, _ := result(text)
		e := ended(st.Attempt, 0, m)
		e.Started, e.Ended, e.Runtime = times[i][0], times[i][1], float64(i+10)
		s.send(d.c, &wire.Phase{Attempt: st.Attempt, Phase: job.PhaseRunning}, e)
		d.give(next[*wire.Grant](d), text)
		next[*wire.Have](d)
		s.send(d.c, &wire.Gone{Attempt: st.Attempt})
		check(s.becomes(st.Job, job.Done))
	}
	for _, said := range []string{"node_started=1970-01-01T00:00:00.000Z node_ended=1970-01-01T00:00:01.000Z",
		"node_started=9999-01-01T00:00:00.000Z node_ended=9999-12-31T00:00:00.000Z", "node_ended=" + times[2][1].Format("2006-01-02T15:04")} {
		if log := s.log.String(); !strings.Contains(log, said) {
			t.Errorf("the log lacks %s: %s", said, log)
		}
	}
	s.stop()
	s.start()
	for _, name := range []string{"j", "k", "l"} {
		check(s.becomes(job.ID("ns/b/"+name), job.Done))
	}
}

// dsched is stopped for an hour with a node that cannot be heard meanwhile. That
// hour is not held against the node; the hour after it is.
func TestL50OwnPause(t *testing.T) {
	s, d, _ := runningJob(t)
	d.c.Close()
	s.becomes("ns/b/j", job.Unreachable)
	s.h.do(func() {
		s.h.lastWake = s.h.lastWake.Add(-time.Hour)
		s.h.apply(sched.Tick{})
	})
	if row := s.state("ns/b/j"); row.State != job.Unreachable {
		t.Errorf("after its own pause: %s", row.State)
	}
	s.pass(15 * time.Minute)
	if row := s.becomes("ns/b/j", job.Queued); row.Reason == "" {
		t.Errorf("why it waits again is not told: %+v", row)
	}
}

// The head goes down after it has written that a job starts, and before it has
// told the node. The job is started once more, as another attempt, which is told
// of; the one that nobody ever heard of counts against nothing.
func TestJ27LoggedAndNotTold(t *testing.T) {
	t.Run("once more", func(t *testing.T) { loggedAndNotTold(t, `{"kind":"command"}`, "1 job moves at ") })
	t.Run("never twice", func(t *testing.T) { loggedAndNotTold(t, `{"kind":"command","retry":"never"}`, "1 job waits for it") })
}

func loggedAndNotTold(t *testing.T, spec, note string) {
	s := newSite(t)
	s.submitAs("ns/b", spec, "j")
	first := expect[*wire.Start](t, s.desk("ws1", "boot1").c)
	s.stop()
	s.start()
	s.becomes("ns/b/j", job.Unreachable)
	var rows []node.Row
	s.h.do(func() { rows = s.h.nodeRows(true, nil) })
	if len(rows) != 1 || rows[0].State != node.Silent || !rows[0].Seen.IsZero() ||
		!strings.HasPrefix(rows[0].Note, "not back since dsched started; "+note) {
		t.Errorf("its node is shown as %+v", rows)
	}
	d := s.desk("ws1", "boot1") // it has nothing, as if the start had never come
	again := next[*wire.Start](d)
	if again.Attempt == first.Attempt || again.Try != 2 {
		t.Errorf("started again is %+v", again)
	}
	if log := s.file("ns/b/log.jsonl"); strings.Count(log, `"e":"start"`) != 2 || strings.Count(log, `"e":"back"`) != 1 {
		t.Errorf("the log is\n%s", log)
	}
}

// The spool is put back to an older copy, of before a job was given out. Its node
// brings an attempt that the head has never heard of: that is held, its result
// stays where it is, and the job is started with an id of its own.
func TestJ31OldCopy(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j")
	s.stop()
	log := filepath.Join(s.dir, "batches/ns/b/log.jsonl")
	before := s.file("ns/b/log.jsonl")
	s.start()
	d := s.desk("ws1", "boot1")
	first := expect[*wire.Start](t, d.c)
	s.send(d.c, &wire.Phase{Attempt: first.Attempt, Phase: job.PhaseRunning})
	s.becomes("ns/b/j", job.Running)
	s.stop()
	write(t, log, before)
	s.start()
	m, _ := result("precious\n")
	r := ended(first.Attempt, 0, m).Result
	d = s.desk("ws1", "boot1", listed(first, job.PhaseReturning, &r))
	if h := next[*wire.Hold](d); h.Attempt != first.Attempt {
		t.Errorf("held is %s", h.Attempt)
	}
	st := next[*wire.Start](d)
	if st.Attempt == first.Attempt {
		t.Error("the id of an attempt is used a second time")
	}
	m, _ = result("new\n")
	s.send(d.c, &wire.Phase{Attempt: st.Attempt, Phase: job.PhaseRunning}, ended(st.Attempt, 0, m))
	d.give(next[*wire.Grant](d), "new\n")
	if h := next[*wire.Have](d); h.Attempt != st.Attempt {
		t.Errorf("told to delete %s", h.Attempt)
	}
	s.becomes("ns/b/j", job.Done)
	if got := s.file("ns/b/out/j/out.txt"); got != "new\n" {
		t.Errorf("the result is %q", got)
	}
}
