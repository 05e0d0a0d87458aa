package noded

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pause"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

func TestMain(m *testing.M) {
	if proc.IsSupervisor() { // of a job of one of the tests
		if err := proc.Supervise(desk.MakeRoomFor); err != nil {
			panic(err)
		}
		return
	}
	// Tests that wait for these do so on the clock of the machine.
	presenceEvery, tryAfter, joinWithin = presenceEvery/5, tryAfter/20, joinWithin/20
	// A pause of this machine is none of theirs.
	places, err := os.MkdirTemp("", "places")
	if err != nil {
		panic(err)
	}
	pause.MachinePlace, pause.RunPlace = filepath.Join(places, "machine"), filepath.Join(places, "run")
	status := m.Run()
	os.RemoveAll(places)
	os.Exit(status)
}

// A fakeHead is the head as a node sees it, played by a test.
type fakeHead struct {
	t        *testing.T
	l        net.Listener
	sessions chan *fakeSession
	spec     string

	skew   atomic.Bool // it speaks another version
	narrow bool        // it lets one down stream in, as earlier releases do; set before a node comes
	late   int         // how often it refuses a third down stream, as if it had not noticed the end of the second; set before a node comes

	answer func(*wire.Conn, uint64, *wire.Fetch) bool // to a fetch, if it is not nil; set before a node comes
	asked  []wire.Want                                // of what is saved

	patience *float64 // that it tells; set before a node comes

	mu    sync.Mutex // guards up and downs
	up    map[job.Token]chan *wire.Conn
	downs map[job.Token]int // how many down streams the session has
}

// A fakeSession is a node's control stream.
type fakeSession struct {
	*fakeHead
	c      *wire.Conn
	up     chan *wire.Conn // its data stream for results
	before []wire.Message  // what came before the offers that offered waited for
}

// newFakeHead listens for a node; its batch has a spec without anything.
func newFakeHead(t *testing.T) *fakeHead {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeHead{t: t, l: l, sessions: make(chan *fakeSession, 10), up: map[job.Token]chan *wire.Conn{}, downs: map[job.Token]int{},
		spec: `{"kind":"command","resources":{"cpus":1}}`}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			stream, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { stream.Close() }) // and not before, by the garbage collector
			go h.greet(wire.New(stream))
		}
	}()
	return h
}

func (h *fakeHead) greet(c *wire.Conn) {
	m, err := c.Recv()
	hello, ok := m.(*wire.Hello)
	if err != nil || !ok {
		return
	}
	join, up := hello.Join, make(chan *wire.Conn, 1)
	h.mu.Lock()
	if hello.Role == wire.RoleNode {
		join = job.NewToken()
		h.up[join] = up
	} else {
		up = h.up[join]
	}
	if hello.State == "down" {
		h.downs[join]++
	}
	refused := h.narrow && h.downs[join] > 1 || h.downs[join] > 2 && h.downs[join] <= 2+h.late
	h.mu.Unlock()
	if refused {
		c.Send(&wire.Error{Status: 77, Text: "a session has 2 data streams at most"})
		return
	}
	proto := wire.Proto
	if h.skew.Load() {
		proto = [2]int{wire.Proto[1] + 6, wire.Proto[1] + 8}
	}
	if c.Send(&wire.Hello{Proto: proto, Role: wire.RoleHead, Join: join, Spool: "s", Patience: h.patience}) != nil {
		return
	}
	switch {
	case hello.Role == wire.RoleNode:
		h.sessions <- &fakeSession{fakeHead: h, c: c, up: up}
	case hello.State == "up":
		up <- c
	default:
		h.serveDown(c)
	}
}

// serveDown gives every attempt the same spec.
func (h *fakeHead) serveDown(c *wire.Conn) {
	for x := uint64(1); ; x++ {
		m, err := c.Recv()
		if err != nil {
			return
		}
		f, ok := m.(*wire.Fetch)
		if ok && h.answer != nil && h.answer(c, x, f) {
			continue
		}
		if ok && f.Of == wire.OfSpec {
			c.SendTransfer(&wire.Send{X: x, Of: wire.OfSpec, Attempt: f.Attempt}, func(w io.Writer) error {
				_, err := io.WriteString(w, h.spec)
				return err
			})
		}
	}
}

// start is an order to run a shell command.
func (h *fakeHead) start(command string) *wire.Start {
	sum := sha256.Sum256([]byte(h.spec))
	return &wire.Start{Attempt: job.NewToken(), Job: "lab/b/j", Try: 1, CPUs: 1, Spec: hex.EncodeToString(sum[:]),
		Work: &job.Job{Name: "j", Run: []string{"sh", "-c", command}}}
}

// session waits for the next session of the node, and reads its list.
func (h *fakeHead) session() (*fakeSession, []*wire.Item) {
	h.t.Helper()
	select {
	case s := <-h.sessions:
		var items []*wire.Item
		for {
			switch m := s.recv().(type) {
			case *wire.Item:
				if m.Build == "" {
					items = append(items, m)
				}
			case *wire.ListEnd:
				return s, items
			}
		}
	case <-time.After(2 * time.Minute):
		h.t.Fatal("the node begins no session")
		return nil, nil
	}
}

func (s *fakeSession) recv() wire.Message {
	s.t.Helper()
	s.c.ReadWithin(2 * time.Minute)
	for {
		m, err := s.c.Recv()
		if err != nil {
			s.t.Fatal(err)
		}
		if p, ok := m.(*wire.Ping); ok {
			s.say(&wire.Pong{N: p.N})
			continue
		}
		return m
	}
}

func (s *fakeSession) say(ms ...wire.Message) {
	s.t.Helper()
	if err := s.c.Send(ms...); err != nil {
		s.t.Fatal(err)
	}
}

// awaited is the next message of a kind; others are passed over.
func awaited[T wire.Message](s *fakeSession) T {
	s.t.Helper()
	for len(s.before) > 0 {
		m, ok := s.before[0].(T)
		if s.before = s.before[1:]; ok {
			return m
		}
	}
	for {
		if m, ok := s.recv().(T); ok {
			return m
		}
	}
}

// live runs a node of one cpu until the test ends, or the returned function is
// called.
func (h *fakeHead) live(dir string, uptime func() time.Duration) (stop func()) {
	return h.liveWith(dir, 1, uptime)
}

// liveWith is live for a node of so many cpus.
func (h *fakeHead) liveWith(dir string, cpus int, uptime func() time.Duration) (stop func()) {
	return h.liveAs(dir, func(s *Settings) { s.Offer.CPUs, s.Uptime = cpus, uptime })
}

// liveAs is live for a node with other settings.
func (h *fakeHead) liveAs(dir string, change func(*Settings)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	s := Settings{Addr: "tcp://" + h.l.Addr().String(), Name: "ws1", Offer: node.Offer{CPUs: 1}, Dir: dir,
		Path: os.Getenv("PATH"), Log: strictLog(slog.NewTextHandler(h.t.Output(), nil))}
	change(&s)
	go func() { ended <- Run(ctx, s) }()
	over := false
	stop = func() {
		if over {
			return
		}
		over = true
		cancel()
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
	}
	h.t.Cleanup(stop)
	return stop
}

// A start that comes twice, or again when its attempt runs, is over, or is let
// go, is run once.
func TestL43StartTwice(t *testing.T) {
	h := newFakeHead(t)
	dir := t.TempDir()
	h.live(filepath.Join(dir, "node"), nil)
	s, _ := h.session()
	journal, gate := filepath.Join(dir, "journal"), filepath.Join(dir, "gate")
	start := h.start(fmt.Sprintf("echo begun >>%s; until test -e %s; do sleep 0.02; done", journal, gate))
	s.say(start, start)
	for awaited[*wire.Phase](s).Phase != job.PhaseRunning {
	}
	s.say(start)
	for p := awaited[*wire.Phase](s); p.Phase != job.PhaseRunning; p = awaited[*wire.Phase](s) {
	}
	create(t, gate)
	e := awaited[*wire.Ended](s)
	s.say(start)
	if again := awaited[*wire.Ended](s); again.Attempt != e.Attempt || !again.OK() {
		t.Errorf("it says %+v", again)
	}
	s.say(&wire.Have{Attempt: e.Attempt})
	awaited[*wire.Gone](s)
	next := h.start("true")
	s.say(start, next) // late, and one after it that shows that it was looked at
	if e := awaited[*wire.Ended](s); e.Attempt != next.Attempt {
		t.Errorf("what was let go says that it ended: %+v", e)
	}
	if text, _ := os.ReadFile(journal); strings.Count(string(text), "begun") != 1 {
		t.Errorf("it began %q", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "node", "attempts", string(start.Attempt))); err == nil {
		t.Error("what was let go is there")
	}
}

// The word that a result is safe is lost with its session. The node says in the
// next one that it has the result, also after it was started anew, gives it
// again, and keeps it until it hears the word.
func TestL44HaveIsLost(t *testing.T) {
	h := newFakeHead(t)
	dir := filepath.Join(t.TempDir(), "node")
	stop := h.live(dir, nil)
	s, _ := h.session()
	start := h.start("echo precious >answer")
	s.say(start)
	m := awaited[*wire.Ended](s)
	take := func(s *fakeSession) {
		t.Helper()
		s.say(&wire.Grant{Attempt: start.Attempt, Manifest: true})
		up := <-s.up
		for _, of := range []string{wire.OfManifest, wire.OfTree} {
			send, err := wire.Expect[*wire.Send](up)
			if err != nil || send.Of != of {
				t.Fatalf("got %+v, %v", send, err)
			}
			if err := wire.Drain(up.RecvTransfer(send)); err != nil {
				t.Fatal(err)
			}
		}
	}
	take(s)
	s.c.Close()
	for range 2 {
		s, items := h.session()
		if len(items) != 1 || items[0].Attempt != start.Attempt || items[0].Phase != job.PhaseReturning || items[0].Result == nil ||
			items[0].Result.Manifest != m.Manifest {
			t.Fatalf("it lists %+v", items)
		}
		take(s)
		stop()
		stop = h.live(dir, nil)
	}
	s, _ = h.session()
	s.say(&wire.Have{Attempt: start.Attempt})
	awaited[*wire.Gone](s)
	if left, _ := os.ReadDir(filepath.Join(dir, "attempts")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Nothing of an attempt whose note is damaged runs when the next daemon tells the head that it
// is lost.
func TestUnreadableIsStopped(t *testing.T) {
	h := newFakeHead(t)
	dir := filepath.Join(t.TempDir(), "node")
	stop := h.live(dir, nil)
	s, _ := h.session()
	start := h.start("exec sleep 1000")
	s.say(start)
	for awaited[*wire.Phase](s).Phase != job.PhaseRunning {
	}
	attempt := filepath.Join(dir, "attempts", string(start.Attempt))
	for _, err := proc.HolderPid(attempt); err != nil; _, err = proc.HolderPid(attempt) {
		time.Sleep(time.Millisecond)
	}
	stop()
	f, err := os.OpenFile(filepath.Join(attempt, proc.RecordFile), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("rotten"), 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	h.live(dir, nil)
	s, items := h.session()
	if len(items) != 1 || items[0].Result == nil || items[0].Result.Fate != job.FateLost {
		t.Fatalf("it lists %+v", items)
	}
	if alive, err := proc.Alive(attempt); alive || err != nil {
		t.Errorf("its supervisor lives: %v, %v", alive, err)
	}
	s.say(&wire.Have{Attempt: start.Attempt})
	awaited[*wire.Gone](s)
}

// TestUnreadableAreStoppedAtOnce has two attempts with damaged notes whose ends are awaited: the
// node does not wait for one before it stops the other.
func TestUnreadableAreStoppedAtOnce(t *testing.T) {
	n := liveDaemon(t, nil)
	as, errs := n.desk.Begin([]desk.Note{{Order: 1, Token: job.NewToken(), Job: "lab/b/j", Try: 1, CPUs: 1, Spec: strings.Repeat("0", 64)},
		{Order: 2, Token: job.NewToken(), Job: "lab/b/k", Try: 1, CPUs: 1, Spec: strings.Repeat("0", 64)}})
	err := errors.Join(errs...)
	for _, a := range as {
		err = errors.Join(err, os.WriteFile(filepath.Join(a.Dir, proc.RecordFile), []byte("rotten\n"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &meetingMachine{Machine: n.Machine, all: make(chan struct{})}
	m.missing.Store(int32(len(as)))
	n.Machine = m
	n.Log = slog.New(slog.NewTextHandler(t.Output(), nil)) // what is damaged is an error
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := n.takeOver(ctx); err != nil || len(n.unreadable) != len(as) {
		t.Fatalf("%v; damaged: %v", err, n.unreadable)
	}
	if left := m.missing.Load(); left != 0 || ctx.Err() != nil {
		t.Errorf("%d were not waited for beside the others, %v", left, ctx.Err())
	}
}

// A meetingMachine waits for the end of each attempt until all are waited for.
type meetingMachine struct {
	Machine
	missing atomic.Int32
	all     chan struct{} // closed when none is missing
}

func (m *meetingMachine) AwaitFree(ctx context.Context, dir string) error {
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// After a sleep of its machine a node does nothing of what the session of before
// says, and begins a new one.
func TestL49Slept(t *testing.T) {
	var asleep atomic.Int64
	h := newFakeHead(t)
	dir := t.TempDir()
	h.live(filepath.Join(dir, "node"), func() time.Duration { return proc.Uptime() + time.Duration(asleep.Load()) })
	s, _ := h.session()
	gate := filepath.Join(dir, "gate")
	start := h.start(fmt.Sprintf("until test -e %s; do sleep 0.02; done", gate))
	s.say(start)
	for awaited[*wire.Phase](s).Phase != job.PhaseRunning {
	}
	asleep.Store(int64(time.Hour))
	late := h.start("true")
	s.c.Send(late) // it may be gone by now
	s, items := h.session()
	if len(items) != 1 || items[0].Attempt != start.Attempt || items[0].Phase != job.PhaseRunning {
		t.Errorf("it lists %+v", items)
	}
	create(t, gate)
	if e := awaited[*wire.Ended](s); e.Attempt != start.Attempt || !e.OK() {
		t.Errorf("it says %+v", e)
	}
}

// A short stop changes nothing, a long one is told of.
func TestL49Watch(t *testing.T) {
	now := time.Hour
	w := newWatch(func() time.Duration { return now }, nil)
	if now += silentAfter - 1; w.slept() != nil {
		t.Error("a short stop is taken for a sleep")
	}
	if now++; w.slept() == nil {
		t.Error("a sleep is not noticed")
	}
}

// create makes an empty file, for which a job may wait.
func create(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
