package head

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// newState is a head whose state's goroutine the test starts, or plays.
func newState(t *testing.T) *Head {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s")
	if err := spool.Init(dir, os.Getegid()); err != nil {
		t.Fatal(err)
	}
	h, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.store.Close() })
	return h
}

// begin runs the state's goroutine. What it ends with comes on the channel.
func (h *Head) background(t *testing.T) <-chan error {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-h.over.Done()
	})
	return ended
}

// made is a batch that is in the spool, and of which the state knows nothing.
func made(t *testing.T, h *Head, id job.BatchID, names ...string) *spool.Batch {
	t.Helper()
	sub, err := h.store.Begin(job.NewToken(), id, "ana", h.uid)
	if err != nil {
		t.Fatal(err)
	}
	err = sub.Spec(job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}})
	for _, n := range names {
		err = errors.Join(err, sub.AddJob(&job.Job{Name: n, Run: []string{"true"}}))
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := sub.Finish(false)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Who finds a batch before dsched has taken it in may cancel it, and delete it too: dsched
// takes in what is left of it then.
func TestChangedBeforeItIsTakenIn(t *testing.T) {
	s := newSite(t)
	s.desk("ws1", "boot1") // it would be given the job
	c := s.tool()
	for _, deleted := range []bool{false, true} {
		b := made(t, s.h, "ns/b", "j")
		if got, refusal := s.ask(c, &wire.Change{Verb: "cancel", Args: []string{"ns/b"}}); refusal != nil || len(got) != 1 {
			t.Fatal(got, refusal)
		}
		for open := true; open; {
			s.h.do(func() { _, open = s.h.byID["ns/b"] })
		}
		if deleted {
			if got, refusal := s.ask(c, &wire.Change{Verb: "delete", Args: []string{"ns/b"}}); refusal != nil {
				t.Fatal(got, refusal)
			}
		}
		if err := s.h.accept(b); err != nil {
			t.Fatal(err)
		}
		s.h.settled(func() {
			if n, open := s.h.byID["ns/b"]; open {
				t.Errorf("deleted %v: it is open, and its job is %v", deleted, s.h.machine.State(sched.Ref{Batch: n}))
			}
		})
		if deleted {
			return
		}
		s.becomes("ns/b/j", job.Cancelled)
		if _, refusal := s.ask(c, &wire.Change{Verb: "delete", Args: []string{"ns/b"}}); refusal != nil {
			t.Fatal(refusal)
		}
	}
}

// Who asks that a batch be deleted that dsched has not yet taken in is told that its jobs are
// not over, and they run all the same.
func TestDeletedBeforeItIsTakenIn(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	b := made(t, s.h, "ns/b", "j")
	got, refusal := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: []string{"ns/b"}})
	if said := fmt.Sprint(got, refusal); !strings.Contains(said, "is not over") {
		t.Error(said)
	}
	next[*wire.Start](d)
	if err := s.h.accept(b); err != nil {
		t.Fatal(err)
	}
	s.becomes("ns/b/j", job.Running)
}

// What jobs of a new batch ask for and whom they need is found before the batch comes
// into the state, which reads none of their lines for it.
func TestReadBeside(t *testing.T) {
	h := newState(t)
	sub, err := h.store.Begin(job.NewToken(), "ns/b", "ana", h.uid)
	must(t, err)
	must(t, sub.Spec(job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}}))
	const jobs = 1000
	for i := range jobs {
		j := job.Job{Name: fmt.Sprint("j", i), Run: []string{"true"}}
		if i > 0 {
			j.Needs = []string{fmt.Sprint("j", i-1)}
		}
		must(t, sub.AddJob(&j))
	}
	b, err := sub.Finish(false)
	must(t, err)
	read, err := readAsked(b)
	must(t, err)
	lines := filepath.Join(h.spool.Dir(), "batches/ns/b/jobs.jsonl")
	text, err := os.ReadFile(lines)
	must(t, err)
	must(t, os.Truncate(lines, 0))
	n, err := h.enlist(read, false)
	if err != nil {
		t.Fatalf("it reads lines: %v", err)
	}
	must(t, os.WriteFile(lines, text, 0o640)) // the names, for what is told
	if why := h.machine.Reasons(n)(jobs - 1).Why; why != "waits for j998" {
		t.Errorf("the last job %q", why)
	}
}

// A job that is longer as a message than as a line does not cost its node the
// session.
func TestLongWork(t *testing.T) {
	s := newSite(t)
	c, ref := s.tool(), job.NewToken()
	s.send(c, &wire.Submit{Ref: ref, Batch: "ns/b", Jobs: 1})
	s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
	s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, `{"kind":"command","resources":{"cpus":1}}`)
	long := job.Job{Name: "j", Run: []string{"echo", strings.Repeat("<", 400<<10)}}
	s.transfer(c, &wire.Send{X: 3, Of: wire.OfJobs}, string(append(job.AppendJob(nil, &long), '\n')))
	expect[*wire.Lack](t, c)
	expect[*wire.Accepted](t, c)
	d := s.desk("ws1", "boot1")
	if start := expect[*wire.Start](t, d.c); start.Work != nil {
		t.Error("the job came along, and should be fetched")
	}
}

// What peers say of why something happened does not fill the logs.
func TestLongReasons(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j", "k")
	d := s.desk("ws1", "boot1")
	start := expect[*wire.Start](t, d.c)
	e := ended(start.Attempt, 1, nil)
	e.Manifest, e.Reason, e.Signal = "", strings.Repeat("why ", 100<<10), strings.Repeat("x", 500)
	s.send(d.c, e)
	if row := s.becomes("ns/b/j", job.Failed); len(row.Reason) > maxReason || len(row.Signal) > 20 {
		t.Errorf("a reason of %d bytes, a signal of %d", len(row.Reason), len(row.Signal))
	}
	c := s.tool()
	s.send(c, &wire.Change{Ref: job.NewToken(), Verb: "cancel", Args: []string{"ns/b/k"}, Reason: strings.Repeat("why ", 100<<10)})
	if e := expect[*wire.Error](t, c); e.Status != 64 {
		t.Errorf("got %+v", e)
	}
}

// A refusal with more lines than a message can have tells the first ones.
func TestLongRefusal(t *testing.T) {
	s := newSite(t)
	c := s.tool()
	var names []string
	for i := range 32_000 {
		names = append(names, fmt.Sprintf("%05x", i))
	}
	s.send(c, &wire.Query{Ref: job.NewToken(), Of: "jobs", Args: names})
	lines := strings.Split(expect[*wire.Error](t, c).Text, "\n")
	if first, last := lines[0], lines[len(lines)-1]; !strings.Contains(first, `"00000"`) || last != "and more of this kind" || len(lines) > 32_000 {
		t.Errorf("%d lines from %q to %q", len(lines), first, last)
	}
	s.send(c, &wire.Query{Ref: job.NewToken(), Of: "jobs"})
	expect[*wire.Send](t, c)
}

// A batch that somebody asks for between the moment it is made and the moment
// the state has it is opened once.
func TestOpenOnce(t *testing.T) {
	h := newState(t)
	b := made(t, h, "ns/b", "j")
	h.background(t)
	var ref sched.Ref
	var err error
	h.do(func() { ref, err = h.ref("ns/b/j") })
	if err != nil {
		t.Fatal(err)
	}
	if err := h.accept(b); err != nil {
		t.Fatal(err)
	}
	h.do(func() {
		if len(h.batches) != 1 || h.byID["ns/b"] != ref.Batch {
			t.Errorf("%d batches are open", len(h.batches))
		}
		h.nodeUp(&session{name: "ws1", out: newQueue[wire.Message](10), log: h.log, conn: wire.New(nil)},
			&wire.Hello{Boot: "b", State: "s"}, node.Offer{CPUs: 8})
		h.apply(sched.ListEnd{Session: h.nodes.last})
		h.decide()
		n := 0
		h.machine.Live(func(sched.Attempt) { n++ })
		if n != 1 {
			t.Errorf("%d attempts of one job begin", n)
		}
	})
}

// What the machine decides about a job whose line cannot be read any more is
// neither done nor told: dsched ends, and goes by the disk when it is started.
func TestJ25UnreadableJob(t *testing.T) {
	h := newState(t)
	b := made(t, h, "ns/b", "j")
	ended := h.background(t)
	if err := h.accept(b); err != nil {
		t.Fatal(err)
	}
	told := false
	h.do(func() {
		b.Close() // so that it cannot be read, and is not damaged
		h.apply(sched.Cancel{Ref: sched.Ref{Batch: h.byID["ns/b"]}, By: "ana", Request: job.NewToken()})
		h.ticks.after = append(h.ticks.after, func() { told = true })
	})
	select {
	case err := <-ended:
		if err == nil || told {
			t.Errorf("it ended with %v, told %v", err, told)
		}
	case <-time.After(2 * time.Minute):
		t.Error("dsched goes on")
	}
}

// A result whose job cannot be named any more is not said to be safe.
func TestJ25UnreadablePlace(t *testing.T) {
	h := newState(t)
	b := made(t, h, "ns/b", "j")
	if _, err := h.open(b, false); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	h.ticks.actions = append(h.ticks.actions, sched.Publish{Ref: sched.Ref{Batch: h.byID["ns/b"]}, Attempt: job.NewToken(), Out: true})
	if h.begin(); h.ticks.failed == nil {
		t.Error("it goes on")
	}
}

// A log that is asked for when its node has just gone ends at once.
func TestTailAfterEnd(t *testing.T) {
	a, b := pipe(t)
	s := &session{conn: wire.New(a), out: newQueue[wire.Message](10), asks: newQueue[*grant](10),
		gone: make(chan struct{}), tails: map[uint64]*tailing{}}
	b.Close()
	s.close()
	log, stop := s.tail(wire.Tail{Attempt: job.NewToken(), Follow: true}, 1, 0)
	select {
	case _, more := <-log.frames:
		if more {
			t.Error("a frame came of a session that is over")
		}
	case <-time.After(2 * time.Minute):
		t.Error("nothing ends it")
	}
	if why := stop(); why != errAway {
		t.Errorf("it ended because %v", why)
	}
}

// I16: of the logs that are followed on a node each user has a share: if there are as many
// as may be, the newest ends of whoever has most, and nobody else is kept out. Those that
// the head reads itself are nobody's.
func TestTailsShared(t *testing.T) {
	s := &session{out: newQueue[wire.Message](1000), gone: make(chan struct{}), tails: map[uint64]*tailing{}}
	stops := map[int][]func() error{}
	follow := func(uid int) bool {
		log, stop := s.tail(wire.Tail{Attempt: job.NewToken(), Follow: true}, 8, uid)
		if log != nil {
			stops[uid] = append(stops[uid], stop)
		}
		return log != nil
	}
	has := func() (of [4]int) {
		for _, l := range s.tails {
			of[l.uid+1]++
		}
		return of
	}
	for range 3 {
		s.tail(wire.Tail{Attempt: job.NewToken()}, 100, dschedItself)
	}
	for range 5 {
		follow(0)
	}
	if follow(0) {
		t.Error("one more than may be")
	}
	for range 3 {
		follow(1)
	}
	if got := has(); got != [4]int{3, 3, 2, 0} {
		t.Errorf("followed are %v", got)
	}
	if !follow(2) || follow(1) || follow(0) || follow(2) {
		t.Error("a share is wrong")
	}
	if got := has(); got != [4]int{3, 2, 2, 1} {
		t.Errorf("at last followed are %v", got)
	}
	for i, stop := range stops[0] {
		if why := stop(); (why == errYielded) != (i >= 2) {
			t.Errorf("log %d of the first user ended because %v", i, why)
		}
	}
}

// Users who come at once when as many logs are followed as may be end one each.
func TestTailsAtOnce(t *testing.T) {
	for range 200 {
		s := &session{out: newQueue[wire.Message](1000), gone: make(chan struct{}), tails: map[uint64]*tailing{}}
		for range 8 {
			s.tail(wire.Tail{Attempt: job.NewToken(), Follow: true}, 8, 0)
		}
		var all sync.WaitGroup
		for uid := range 4 {
			all.Go(func() { s.tail(wire.Tail{Attempt: job.NewToken(), Follow: true}, 8, uid+1) })
		}
		all.Wait()
		if len(s.tails) != 8 {
			t.Fatalf("%d logs are followed", len(s.tails))
		}
	}
}

// While one stream brings a result, or all of it has come, another stream of the
// node does not get at it; nor do two sessions of one name mix up.
func TestClaimOnce(t *testing.T) {
	places := make(chan struct{}, 1)
	places <- struct{}{}
	g := &grant{attempt: job.NewToken(), done: places}
	s := &session{gone: make(chan struct{}), grants: map[job.Token]*grant{}}
	s.addGrant(g)
	if s.claim(g.attempt) != g || s.claim(g.attempt) != nil {
		t.Error("two streams have one result")
	}
	if s.unclaim(newState(t), g); s.claim(g.attempt) != g {
		t.Error("the tree cannot come after its manifest")
	}
	if !s.drop(g) || s.claim(g.attempt) != nil || len(places) != 0 {
		t.Error("it is wanted after its end")
	}
}

// A result whose transfer ended between its manifest and its tree, and that was
// asked for again, is not given up again when the next one comes.
func TestD88LeftOnce(t *testing.T) {
	h, places := newState(t), make(chan struct{}, 1)
	s := &session{gone: make(chan struct{}), grants: map[job.Token]*grant{}}
	before := &grant{attempt: job.NewToken()}
	again := &grant{attempt: before.attempt, done: places}
	s.addGrant(again)
	h.leave(s, before)
	if s.claim(again.attempt) != again {
		t.Error("its tree is not taken any more")
	}
}

// Somebody has moved the directory of a closed batch away, and its name is used
// again: the new batch is there after a restart, before anything of it is begun.
func TestL35NameOfOneMovedAway(t *testing.T) {
	h := newState(t)
	b := made(t, h, "ns/b", "old")
	h.store.Append(b, &job.Record{Kind: job.KindCancelled, Job: "old"})
	err := h.store.Commit()
	h.store.CloseBatch(b)
	away := filepath.Join(t.TempDir(), "b")
	if err := errors.Join(err, h.store.Commit(), b.Close(), os.Rename(filepath.Join(h.spool.Dir(), "batches/ns/b"), away)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.run(ctx) }()
	err = h.accept(made(t, h, "ns/b", "new"))
	stop()
	if err := errors.Join(err, <-ended, h.store.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := Open(h.spool.Dir(), h.log)
	if err != nil {
		t.Fatal(err)
	}
	defer again.store.Close()
	if len(again.batches) != 1 {
		t.Errorf("%d batches are open", len(again.batches))
	}
}

// newSession is a session of the node ws1 that nothing runs.
func newSession(h *Head, c *wire.Conn) *session {
	return &session{name: "ws1", out: newQueue[wire.Message](10), asks: newQueue[*grant](10), gone: make(chan struct{}),
		grants: map[job.Token]*grant{}, log: h.log, conn: c}
}

// A result that is about to be asked for when its node goes is not asked for any
// more: it would keep its hold of what is staged, which the node's next session
// must have.
func TestD88AskedWhenItsNodeGoes(t *testing.T) {
	h := newState(t)
	a, _ := pipe(t)
	s := newSession(h, wire.New(a))
	h.nodeUp(s, &wire.Hello{Boot: "b", State: "s"}, node.Offer{CPUs: 8})
	h.nodeDown(s, io.EOF)
	if s.addGrant(&grant{session: s, attempt: job.NewToken()}) {
		t.Error("a result was asked for of a session that is over")
	}
}

// What a failed attempt has printed is read, as its result is made durable, while its node
// goes: the race detector finds who looks at it then.
func TestReadAsItsNodeGoes(t *testing.T) {
	h := newState(t)
	a, _ := pipe(t)
	s := newSession(h, wire.New(a))
	h.nodeUp(s, &wire.Hello{Boot: "b", State: "s"}, node.Offer{CPUs: 8})
	g := &grant{session: s, batch: made(t, h, "ns/b", "j"), attempt: job.NewToken(), prints: "j_output.txt", done: make(chan struct{}, 1), taken: true}
	g.done <- struct{}{}
	s.addGrant(g)
	var reading sync.WaitGroup
	reading.Go(func() { g.readSaid(h) })
	h.nodeDown(s, io.EOF)
	reading.Wait()
	if s.drop(g) {
		t.Error("it is wanted still")
	}
}

func TestL42TwoAtOnce(t *testing.T) {
	h := newState(t)
	for range 2 {
		a, _ := pipe(t)
		h.nodeUp(newSession(h, wire.New(a)), &wire.Hello{Boot: "b", State: "s"}, node.Offer{CPUs: 8})
	}
	h.nodeDown(h.nodes.sessions[2], nil)
	if h.nodes.sessions[h.nodes.byName["ws1"]] == nil {
		t.Error("the session that stays cannot be found by its node's name")
	}
}

// One user's sessions do not keep others out.
func TestI16Sessions(t *testing.T) {
	h := newState(t)
	h.background(t)
	ana := dial.Peer{UID: 1000}
	for range maxTools {
		if h.admit(ana) != nil {
			t.Fatal("too few are let in")
		}
	}
	if h.admit(ana) == nil || h.admit(dial.Peer{UID: 1001}) != nil {
		t.Error("the limit is not each user's own")
	}
	h.do(func() { h.tools.count(1000, user{tools: -1}); h.tools.count(1001, user{tools: -1}) })
	if h.admit(ana) != nil || h.admit(ana) == nil || len(h.tools.users) != 1 {
		t.Error("who has left is counted still")
	}
}

// A tool that asks while dsched ends is told so.
func TestAskedAtTheEnd(t *testing.T) {
	h := newState(t)
	h.stop()
	err := (&tool{Head: h}).rows(nil, nil, nil)
	if e := asRefusal(err); e == nil || e.Status != 75 {
		t.Errorf("got %v", err)
	}
	if _, err := h.work(&session{}, job.NewToken()); asRefusal(err) != nil {
		t.Errorf("a node is refused what is its own: %v", err)
	}
}

// A job whose result is on its way home has run for as long as it ran.
func TestRuntimeOfReturning(t *testing.T) {
	s, d, start := givenJob(t)
	m, _ := result("hello\n")
	e := ended(start.Attempt, 0, m)
	e.Runtime = 1234
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseReturning}, e)
	expect[*wire.Grant](t, d.c)
	if row := s.state("ns/b/j"); row.State != job.Running || row.Phase != job.PhaseReturning || row.Runtime != 1234 {
		t.Errorf("the row is %+v", row)
	}
}

// A batch that was loaded for a change that changes nothing is dropped again.
func TestUnchangedIsDropped(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j")
	request := job.NewToken()
	change := func(verb string, ref job.Token, want string) {
		t.Helper()
		c := s.tool()
		s.send(c, &wire.Change{Ref: ref, Verb: verb, Args: []string{"ns/b"}})
		text, err := io.ReadAll(c.RecvTransfer(expect[*wire.Send](t, c)))
		if err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", verb, text, err, want)
		}
	}
	change("cancel", request, "ns/b/j\n")
	change("retry", job.NewToken(), "ns/b/j\n")
	change("cancel", job.NewToken(), "ns/b/j\n")
	change("cancel", request, "")
	log := s.file("ns/b/log.jsonl")
	change("retry", request, "") // that request was taken before
	if got := s.file("ns/b/log.jsonl"); got != log {
		t.Errorf("the log grew by %q", strings.TrimPrefix(got, log))
	}
	s.h.do(func() {
		if len(s.h.batches) != 0 {
			t.Errorf("%d batches are open", len(s.h.batches))
		}
	})
}

// A batch that is opened again and over again while its end is written down is
// not dropped before what happened is in its log.
func TestReopenedAndOver(t *testing.T) {
	h := newState(t)
	if _, err := h.open(made(t, h, "ns/b", "j"), false); err != nil {
		t.Fatal(err)
	}
	n := h.byID["ns/b"]
	ref := sched.Ref{Batch: n}
	settle := func() {
		t.Helper()
		h.begin()
		if err := errors.Join(h.whenCommitted(<-h.ticks.committed), h.whenPlaced(<-h.ticks.placed)); err != nil {
			t.Fatal(err)
		}
	}
	h.apply(sched.Cancel{Ref: ref, By: "ana", Request: job.NewToken()})
	settle() // the record; then the batch is to be closed
	h.begin()
	h.apply(sched.Retry{Ref: ref, By: "ana", Request: job.NewToken()})
	h.apply(sched.Cancel{Ref: ref, By: "ana", Request: job.NewToken()})
	if err := errors.Join(h.whenCommitted(<-h.ticks.committed), h.whenPlaced(<-h.ticks.placed)); err != nil {
		t.Fatal(err)
	}
	settle()
	text, err := os.ReadFile(filepath.Join(h.spool.Dir(), "batches/ns/b/log.jsonl"))
	if err != nil || strings.Count(string(text), `"e":"cancelled"`) != 2 {
		t.Errorf("%v; the log is\n%s", err, text)
	}
}

// pipe is a stream within this process.
func pipe(t *testing.T) (net.Conn, net.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// runs says that an attempt runs, and waits until the head has heard it.
func (d *desk) runs(start *wire.Start) {
	d.t.Helper()
	d.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, &wire.Ping{N: 1})
	expect[*wire.Pong](d.t, d.c)
}

// tailed is a tool that follows the log of ns/b/j from so many last lines on, and what its
// node is asked for.
func (d *desk) tailed(start *wire.Start, lines int) (*wire.Conn, *wire.Tail) {
	d.t.Helper()
	d.runs(start)
	c := d.tool()
	d.send(c, &wire.Log{Ref: job.NewToken(), ID: "ns/b/j", Lines: lines, Follow: true})
	return c, expect[*wire.Tail](d.t, d.c)
}

// A log that is asked for just when its node has deleted what came home goes on
// from there, where it was.
func TestTailOfWhatCameHome(t *testing.T) {
	for _, lines := range []int{0, 1} {
		s, d, start := givenJob(t)
		c, tail := d.tailed(start, lines)
		if tail.Lines != lines {
			t.Errorf("the node is asked for %d lines, not for %d", tail.Lines, lines)
		}
		text := "first\nlast\n"
		m, _ := result(text)
		s.send(d.c, ended(start.Attempt, 0, m))
		d.give(expect[*wire.Grant](t, d.c), text)
		expect[*wire.Have](t, d.c)
		if err := os.WriteFile(filepath.Join(s.dir, "batches/ns/b/out/j/j_output.txt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want, begin := "last\n", &wire.Send{X: tail.X, Of: wire.OfLog, Attempt: tail.Attempt, From: -1}
		if lines == 0 {
			want, begin.From = text, 0
		}
		s.send(d.c, begin)
		if lines == 0 {
			s.send(d.c, &wire.Data{X: tail.X, N: 3, Payload: []byte(text[:3])})
		}
		s.send(d.c, &wire.End{X: tail.X, Error: "it is not here"})
		send := expect[*wire.Send](t, c)
		if got, err := io.ReadAll(c.RecvTransfer(send)); err != nil || string(got) != want || send.From != int64(len(text)-len(want)) || send.Try != 1 {
			t.Errorf("with %d lines: %q of attempt %d from %d, %v", lines, got, send.Try, send.From, err)
		}
	}
}

// A log whose node is lost is not taken for the whole, and where its last lines
// begin is not guessed.
func TestTailOfALostNode(t *testing.T) {
	for _, lines := range []int{0, 1} {
		s, d, start := givenJob(t)
		c, tail := d.tailed(start, lines)
		if lines > 0 {
			d.c.Close()
			refused(t, c, 66, "not connected")
			continue
		}
		s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog, Attempt: tail.Attempt}, &wire.Data{X: tail.X, N: 3, Payload: []byte("one")})
		d.c.Close()
		got, err := io.ReadAll(c.RecvTransfer(expect[*wire.Send](t, c)))
		if string(got) != "one" || !errors.Is(err, wire.ErrGaveUp) || !strings.Contains(err.Error(), "not connected") {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// A node whose user has spoiled a result says so in its session, which goes on: the
// job is tried again, and what others have there comes home. Before anything of
// the result has come, and after its manifest.
func TestSpoiledResult(t *testing.T) {
	for _, begun := range []bool{false, true} {
		s, d, start := givenJob(t)
		text := "first\n"
		m, _ := result(text)
		s.send(d.c, ended(start.Attempt, 0, m))
		next[*wire.Grant](d)
		if begun {
			if err := d.up.SendTransfer(&wire.Send{X: 1, Of: wire.OfManifest, Attempt: start.Attempt}, m.Encode); err != nil {
				t.Fatal(err)
			}
		}
		s.send(d.c, &wire.Ended{Attempt: start.Attempt, Result: job.Result{Fate: job.FateLost, Outcome: job.Outcome{Reason: "its files on the node are damaged"}}})
		next[*wire.Have](d)
		s.send(d.c, &wire.Gone{Attempt: start.Attempt})
		again := next[*wire.Start](d)
		if again.Try != 2 {
			t.Errorf("it is started as attempt %d", again.Try)
		}
		s.send(d.c, ended(again.Attempt, 0, m))
		d.give(next[*wire.Grant](d), text)
		next[*wire.Have](d)
		s.send(d.c, &wire.Gone{Attempt: again.Attempt})
		c := s.tool()
		s.send(c, &wire.Query{Ref: job.NewToken(), Of: "jobs", Args: []string{"ns/b"}})
		rows, err := io.ReadAll(c.RecvTransfer(expect[*wire.Send](t, c)))
		if err != nil || !strings.Contains(string(rows), `"state":"done"`) {
			t.Errorf("%v: %s", err, rows)
		}
		d.c.Close()
		d.up.Close()
		d.down.Close()
		for end := time.Now().Add(2 * time.Minute); !s.nothingPromised(); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("room is promised yet")
			}
		}
	}
}

// Who was cut off goes on at the byte where he was: with what the node sends, and
// with what has come home.
func TestLogFromAByte(t *testing.T) {
	s, d, start := givenJob(t)
	d.runs(start)
	ask := func(m wire.Log) (*wire.Conn, *wire.Send) {
		c := s.tool()
		m.Ref, m.Follow = job.NewToken(), true
		s.send(c, &m)
		if m.Lines > 0 { // only the node knows where they begin
			tail := expect[*wire.Tail](t, d.c)
			s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog, From: 6})
		}
		return c, expect[*wire.Send](t, c)
	}
	if _, send := ask(wire.Log{ID: "ns/b/j", Lines: 1}); send.From != 6 || send.Try != 1 {
		t.Errorf("the last line begins at %d, of attempt %d", send.From, send.Try)
	}
	if _, send := ask(wire.Log{ID: "ns/b/j~1", From: 8}); send.From != 8 {
		t.Errorf("it goes on at %d", send.From)
	}
	if tail := next[*wire.Tail](d); tail.From != 8 || tail.Lines != 0 {
		t.Errorf("the node is asked for %+v", tail)
	}
	c := s.tool()
	s.send(c, &wire.Log{Ref: job.NewToken(), ID: "ns/b/j", From: -1})
	refused(t, c, 64, "byte -1")
	text := "first\nlast\n"
	m, _ := result(text)
	s.send(d.c, ended(start.Attempt, 0, m))
	d.give(next[*wire.Grant](d), text)
	next[*wire.Have](d)
	if err := os.WriteFile(filepath.Join(s.dir, "batches/ns/b/out/j/j_output.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.send(d.c, &wire.Gone{Attempt: start.Attempt})
	c, send := ask(wire.Log{ID: "ns/b/j~1", From: 8})
	if got, err := io.ReadAll(c.RecvTransfer(send)); err != nil || string(got) != "st\n" {
		t.Errorf("of what came home: %q, %v", got, err)
	}
}

// A stream that cannot go on, such as that of a submission which is accepted
// just when dsched ends, is closed without a word, and the tool asks again; unless
// there is something to be told before.
func TestHungUpIsNotTold(t *testing.T) {
	if told := asRefusal(errors.Join(nil, errHungUp)); told != nil {
		t.Errorf("it is told as %v", told)
	}
	why := &wire.Error{Status: 65, Text: "its jobs do not end"}
	if told := asRefusal(errors.Join(why, errHungUp)); told != why {
		t.Errorf("told is %v", told)
	}
}
