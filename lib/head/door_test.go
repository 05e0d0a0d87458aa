package head

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// accept lets a node in, or says why not.
func (s *site) accept(name string, by any) error {
	s.t.Helper()
	if _, e := s.ask(s.tool(), &wire.Change{Verb: "accept", Args: []string{name, fmt.Sprint(by)}}); e != nil {
		return e
	}
	return nil
}

// list is what keys/nodes says.
func (s *site) list() string {
	text, err := os.ReadFile(s.h.spool.NodesFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// knock is what the head says to a node that is not to be let in; nil if it is.
func (s *site) knock(terms dial.Terms, h wire.Hello) *wire.Error {
	s.t.Helper()
	c, _, err := terms.Greet(s.t.Context(), s.addr, h)
	if err == nil {
		c.Close()
		return nil
	}
	var e *wire.Error
	if !errors.As(err, &e) {
		s.t.Fatal(err)
	}
	return e
}

func helloOf(name string) wire.Hello {
	return wire.Hello{Role: wire.RoleNode, Name: name, Boot: "boot-" + name, State: "state-" + name}
}

// deskOver is desk on some terms.
func (s *site) deskOver(terms dial.Terms, name string) *desk {
	s.t.Helper()
	greet := func(h wire.Hello) (*wire.Conn, *wire.Hello) {
		c, head, err := terms.Greet(s.t.Context(), s.addr, h)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { c.Close() })
		return c, head
	}
	c, head := greet(helloOf(name))
	d := &desk{site: s, name: name, c: c, join: head.Join}
	s.send(c, &wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{})
	d.up, _ = greet(wire.Hello{Role: wire.RoleData, Name: name, Join: d.join, State: "up"})
	d.down, _ = greet(wire.Hello{Role: wire.RoleData, Name: name, Join: d.join, State: "down"})
	d.heard()
	return d
}

// streamEnds reads a stream until it ends and gives the last error
// that the head has told on it.
func streamEnds(t *testing.T, c *wire.Conn) (told string) {
	t.Helper()
	c.ReadWithin(20 * time.Second) // less than the head waits for one that is silent
	for {
		m, err := c.Recv()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the stream goes on")
		}
		if err != nil {
			return told
		}
		if e, ok := m.(*wire.Error); ok {
			told = e.Text
		}
	}
}

// X98: a stolen machine is removed. Its streams end within a second, it hears
// why, what it had goes elsewhere when it is given up, and nothing that it has kept opens a
// door; another node notices nothing. When it is accepted again it works.
func TestX98Removed(t *testing.T) {
	s := newSite(t)
	head := s.withTLS()
	ws1, ws2 := as(t, head), as(t, head)
	for name, of := range map[string]dial.Terms{"ws1": ws1, "ws2": ws2} {
		if err := s.accept(name, of.Key.Fingerprint()); err != nil {
			t.Fatal(err)
		}
	}
	stolen := s.deskOver(ws1, "ws1")
	s.submit("ns/b", "j")
	start := expect[*wire.Start](t, stolen.c)
	s.send(stolen.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	s.becomes("ns/b/j", job.Running)
	other := s.deskOver(ws2, "ws2")

	ids, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws1"}})
	if e != nil || !slices.Equal(ids, []string{"ns/b/j"}) {
		t.Fatalf("it answers %q, %v", ids, e)
	}
	if told := streamEnds(t, stolen.c); !strings.Contains(told, "not let in any more") {
		t.Errorf("it is told %q", told)
	}
	streamEnds(t, stolen.up)
	streamEnds(t, stolen.down)
	if ids, e := s.ask(s.tool(), &wire.Change{Verb: "lost", Args: []string{"ws1"}}); e != nil || !slices.Equal(ids, []string{"ns/b/j"}) {
		t.Fatalf("it is given up: %q, %v", ids, e)
	}
	again := expect[*wire.Start](t, other.c)
	if again.Job != "ns/b/j" || again.Try != 2 {
		t.Errorf("ws2 gets %+v", again)
	}
	if e := s.knock(ws1, wire.Hello{Role: wire.RoleData, Name: "ws1", Join: stolen.join, State: "up"}); e == nil || e.Status != 77 {
		t.Errorf("its data stream: %v", e)
	}
	if e := s.knock(ws1, wire.Hello{Role: wire.RoleData, Name: "ws2", Join: other.join, State: "up"}); e == nil || e.Status != 77 {
		t.Errorf("a data stream of another: %v", e)
	}
	if e := s.knock(ws1, helloOf("ws1")); e == nil || !e.Pending {
		t.Errorf("it comes again: %v", e)
	}
	s.send(other.c, &wire.Ping{N: 7})
	expect[*wire.Pong](t, other.c)
	if got, want := s.list(), fmt.Sprintf("ws2 %s\n", ws2.Key.Fingerprint()); got != want {
		t.Errorf("the list is %q, want %q", got, want)
	}

	if ids, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws1"}}); e != nil || len(ids) > 0 {
		t.Errorf("again: %q, %v", ids, e)
	}
	if err := s.accept("ws1", ws1.Key.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	back := s.deskOver(ws1, "ws1")
	s.submit("ns/c", "k")
	expect[*wire.Start](t, back.c)
}

// Whoever is connected without a line keeps its name until it is removed.
func TestAcceptConnectedName(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	key := as(t, dial.Terms{}).Key.Fingerprint()
	if err := s.accept("ws1", key); err == nil || !strings.Contains(err.Error(), "dadm remove ws1 first") {
		t.Fatalf("it is let in beside it: %v", err)
	}
	s.send(d.c, &wire.Ping{N: 7})
	expect[*wire.Pong](t, d.c)
	if _, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws1"}}); e != nil {
		t.Fatal(e)
	}
	if err := s.accept("ws1", key); err != nil {
		t.Error(err)
	}
}

// A node that is removed and accepted again goes on with what it has: nothing starts twice, and
// what may never be started twice does not fail.
func TestRemovedAndAccepted(t *testing.T) {
	s := newSite(t)
	ws1 := as(t, s.withTLS())
	key := ws1.Key.Fingerprint()
	if err := s.accept("ws1", key); err != nil {
		t.Fatal(err)
	}
	d := s.deskOver(ws1, "ws1")
	s.submit("ns/b", "j")
	start := expect[*wire.Start](t, d.c)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	s.becomes("ns/b/j", job.Running)
	if ids, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws1"}}); e != nil || !slices.Equal(ids, []string{"ns/b/j"}) {
		t.Fatalf("it answers %q, %v", ids, e)
	}
	streamEnds(t, d.c)
	if err := s.accept("ws1", key); err != nil {
		t.Fatal(err)
	}
	c, _, err := ws1.Greet(t.Context(), s.addr, helloOf("ws1"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.send(c, &wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.Item{Attempt: start.Attempt, Phase: job.PhaseRunning, CPUs: 1}, &wire.ListEnd{})
	if k := expect[*wire.Keep](t, c); k.Attempt != start.Attempt {
		t.Errorf("it is to keep %s", k.Attempt)
	}
	if r := s.becomes("ns/b/j", job.Running); r.Attempt != 1 {
		t.Errorf("the job runs in attempt %d", r.Attempt)
	}
}

// X98: what somebody takes out of the list by hand is out within a second, and
// what he adds is in.
func TestX98TakenOutByHand(t *testing.T) {
	s := newSite(t)
	head := s.withTLS()
	ws1, ws2 := as(t, head), as(t, head)
	if err := s.accept("ws1", ws1.Key.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	d := s.deskOver(ws1, "ws1")
	write(t, s.h.spool.NodesFile(), "# ws1 is away\nws2 "+string(ws2.Key.Fingerprint())+"\n")
	for _, c := range []*wire.Conn{d.c, d.up, d.down} {
		streamEnds(t, c)
	}
	s.h.rereadNodes() // it may have been read when half of it was written
	s.deskOver(ws2, "ws2")
	if _, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws1"}}); e != nil || strings.Contains(s.list(), "\nws1") {
		t.Errorf("one that is taken out is removed: %v, and the list is %q", e, s.list())
	}

	// One with a mistake does not count, and the log says where.
	write(t, s.h.spool.NodesFile(), "ws1 "+string(ws1.Key.Fingerprint())+"\nws2 SHA256:short\n")
	s.h.rereadNodes()
	if e := s.knock(ws1, helloOf("ws1")); e == nil || !e.Pending {
		t.Errorf("a list with a mistake counts: %v", e)
	}
	if rows := strings.Join(s.nodeRows(t), ""); !strings.Contains(rows, "as it was before a mistake") || !strings.Contains(rows, s.h.spool.NodesFile()+":2: ") {
		t.Errorf("the rows of nodes do not tell of the mistake:\n%s", rows)
	}
	s.accept("ws3", ws1.Key.Fingerprint())
	if err := s.accept("ws3", as(t, head).Key.Fingerprint()); err == nil || !strings.Contains(err.Error(), s.h.spool.NodesFile()+":2: ") {
		t.Errorf("a list with a mistake is changed: %v", err)
	}
	s.stop()
	if !strings.Contains(s.log.String(), s.h.spool.NodesFile()+":2: ") {
		t.Errorf("the log does not tell of the mistake: %s", s.log)
	}
}

// A node that is removed between its hello and its offer is not let in by what
// was on its way.
func TestX98RemovedWhileItComes(t *testing.T) {
	s := newSite(t)
	head := s.withTLS()
	ws1 := as(t, head)
	if err := s.accept("ws1", ws1.Key.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	c, _, err := ws1.Greet(t.Context(), s.addr, helloOf("ws1"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws1"}}); e != nil {
		t.Fatal(e)
	}
	c.Send(&wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{})
	streamEnds(t, c)
	s.h.do(func() {
		if s.h.machine.Knows("ws1") || len(s.h.nodes.sessions) > 0 {
			t.Error("the node is in the state")
		}
	})
}

// I14: whatever comes from nodes that nobody has accepted, however many, nothing
// of it reaches the state, the disk or the log, and few of them are kept.
func TestI14X100NothingOfStrangers(t *testing.T) {
	s := newSite(t)
	head := s.withTLS()
	logged := func() string { b, _ := os.ReadFile(filepath.Join(s.dir, "head.jsonl")); return string(b) }
	before := logged()
	honest := as(t, head)
	const evil = "\x1b]0;x\x07%s{{.}}\nlevel=ERROR"
	most := maxWaiters * 3 / 2
	for i := range most {
		terms := as(t, head)
		name := fmt.Sprintf("evil%d", i)
		for _, h := range []wire.Hello{
			helloOf(name), helloOf(evil), helloOf(strings.Repeat("x", 1000)), helloOf("../../x"),
			{Role: wire.RoleData, Name: evil, Join: job.NewToken(), State: evil},
			{Role: wire.RoleTool, Name: evil}, {Role: evil, Name: evil},
		} {
			e := s.knock(terms, h)
			if e == nil {
				t.Fatalf("%+v is let in", h)
			}
			if strings.ContainsAny(e.Text, "\x1b\x07") || strings.Contains(e.Text, "\nlevel") {
				t.Fatalf("it is told %q", e.Text)
			}
		}
		c, err := terms.Dial(t.Context(), s.addr)
		if err != nil {
			t.Fatal(err)
		}
		w := wire.New(c)
		w.Send(&wire.Attach{Node: name})
		w.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleNode, Name: name, Boot: "b", State: "s"})
		refused(t, w, 77, "authorized_keys")
		c.Close()
		if i == 0 {
			s.knock(honest, helloOf("honest"))
		}
	}
	s.knock(honest, helloOf("honest"))
	s.h.do(func() {
		if n := len(s.h.machine.Nodes()) + len(s.h.nodes.sessions) + len(s.h.nodes.joins); n > 0 {
			t.Errorf("%d of them are in the state", n)
		}
	})
	rows := s.nodeRows(t)
	if len(rows) != maxWaiters {
		t.Errorf("%d wait", len(rows))
	}
	for _, want := range []string{"honest", fmt.Sprint("evil", most-1)} {
		if !strings.Contains(strings.Join(rows, "\n"), want) {
			t.Errorf("%s is not shown", want)
		}
	}
	s.stop()
	if after := logged(); after != before {
		t.Errorf("head.jsonl has become %q", after)
	}
	if list, _ := os.ReadDir(filepath.Join(s.dir, "nodes")); len(list) > 0 {
		t.Errorf("nodes/ has %v", list)
	}
	if s.list(); !strings.Contains(s.list(), "no such file") {
		t.Errorf("keys/nodes is %q", s.list())
	}
	if n := strings.Count(s.log.String(), "\n"); n > 15 || strings.Contains(s.log.String(), "evil") {
		t.Errorf("%d lines are logged: %s", n, s.log)
	}
}

// nodeRows is what a tool is shown of nodes.
func (s *site) nodeRows(t *testing.T) []string {
	t.Helper()
	c := s.tool()
	s.send(c, &wire.Query{Ref: job.NewToken(), Of: "nodes"})
	text, err := io.ReadAll(c.RecvTransfer(expect[*wire.Send](t, c)))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(bytes.TrimSpace(text))))
}

// A flood from one address pushes out its own and nobody else's.
func TestWaiters(t *testing.T) {
	var ws waiters
	now := time.Now()
	told := 0
	for i := range 1000 {
		now = now.Add(time.Millisecond)
		if i%500 == 0 && ws.add(waiter{"lap7", "SHA256:lap7", "10.0.0.7", now}) {
			told++
		}
		if ws.add(waiter{node.Name(fmt.Sprint("x", i)), node.Fingerprint(fmt.Sprint("SHA256:", i)), "10.0.0.9", now}) {
			told++
		}
	}
	if ws.len() != maxWaiters || told != 1 {
		t.Errorf("%d wait, and it was told %d times", ws.len(), told)
	}
	if !slices.ContainsFunc(ws.all, func(w waiter) bool { return w.name == "lap7" }) {
		t.Error("lap7 was pushed out")
	}
	if ws.add(waiter{"lap9", "SHA256:lap9", "10.0.0.8", now.Add(59 * time.Minute)}); ws.len() != maxWaiters {
		t.Errorf("within an hour %d wait", ws.len())
	}
	if !ws.add(waiter{"lap8", "SHA256:lap8", "10.0.0.8", now.Add(2 * time.Hour)}) || ws.len() != 1 {
		t.Errorf("after two hours %d wait", ws.len())
	}
}

// X98: a node that was let in cannot fill the log, by what it says or by coming
// again and again; what another is the cause of is logged as before.
func TestX98NodeFillsNoLog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.desk("ws1", "b")
	for range 2 * nodeLines {
		s.send(d.c, &wire.Error{Text: strings.Repeat("x", 10_000)},
			&wire.Phase{Attempt: job.Token(strings.Repeat("y", 10_000)), Phase: job.PhaseRunning}, &wire.Phase{Attempt: job.NewToken(), Phase: job.PhaseRunning})
	}
	var hands sync.WaitGroup
	hands.Go(func() { // it is there, so that no other takes over
		for {
			m, err := d.c.Recv()
			if err != nil {
				return
			}
			if p, ok := m.(*wire.Ping); ok {
				d.c.Send(&wire.Pong{N: p.N})
			}
		}
	})
	s.h.do(func() { s.h.nodes.probe = time.Minute })
	for range nodeLines + 5 {
		if _, _, err := s.greet(s.addr, helloOf("ws1")); err == nil {
			t.Fatal("a second one is let in")
		}
	}
	other := s.desk("ws2", "b")
	s.send(other.c, &wire.Ping{N: 1})
	expect[*wire.Pong](t, other.c)
	s.stop()
	hands.Wait()
	if n := strings.Count(s.log.String(), "node=ws1"); n > nodeLines || len(s.log.String()) > nodeLines*2*maxReason {
		t.Errorf("%d lines, and %d bytes in all", n, len(s.log.String()))
	}
	if !strings.Contains(s.log.String(), "node=ws2") {
		t.Error("of ws2 nothing is said")
	}
}

// X96: who calls himself as a node is called that is here by other means is
// shown as another.
func TestX96WaitsByTheNameOfAnother(t *testing.T) {
	s := newSite(t)
	s.withTLS()
	a, b := pipe(t)
	known := make(chan struct{})
	go s.h.serveRole(t.Context(), wire.New(a), dial.Peer{UID: -1, Node: "ws1"}, &wire.Hello{Proto: wire.Proto, Role: wire.RoleNode, Name: "ws1", Boot: "b", State: "s"}, func() { close(known) })
	real := wire.New(b)
	<-known
	expect[*wire.Hello](t, real)
	s.send(real, &wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{}, &wire.Ping{N: 1})
	expect[*wire.Pong](t, real)
	head, err := dial.ReadKey(s.h.spool.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	other := as(t, dial.Terms{HeadKey: head.Fingerprint()})
	if e := s.knock(other, helloOf("ws1")); e == nil || !e.Pending {
		t.Fatal(e)
	}
	if rows := strings.Join(s.nodeRows(t), "\n"); !strings.Contains(rows, "another node ws1 is here") {
		t.Error(rows)
	}
	real.Close()
}

// What is wrong with an accept is told, and changes nothing.
func TestAcceptMistakes(t *testing.T) {
	s := newSite(t)
	head := s.withTLS()
	ws1, ws2, lap7 := as(t, head), as(t, head), as(t, head)
	key := func(terms dial.Terms) string { return string(terms.Key.Fingerprint()) }
	for _, err := range []error{s.accept("ws1", key(ws1)), s.accept("ws2", key(ws2)), s.accept("ws3", "ssh://ws3"), s.accept("ws1", key(ws1))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.knock(lap7, helloOf("lap7"))
	s.knock(lap7, helloOf("lap7"))
	for name, secret := range map[string]string{"ws1": key(ws1), "ws3": "ssh://ws3"} {
		if e := s.knock(as(t, head), helloOf(name)); e == nil || !e.Pending || !strings.Contains(e.Text, "dadm remove "+name) || strings.Contains(e.Text, secret) {
			t.Errorf("who says that it is %s is told %v", name, e)
		}
		if rows := strings.Join(s.nodeRows(t), ""); !strings.Contains(rows, "("+name+" is known by "+secret+": dadm remove "+name+" first)") {
			t.Errorf("an operator is shown %s", rows)
		}
	}
	list := s.list()
	for _, tt := range []struct {
		name, by, want string
		status         int
	}{
		{"..", key(lap7), "are to be named", 64},
		{"lap7", "", "is neither a fingerprint", 65},
		{"lap7", "-", "was removed; one that is new is let in by", 65},
		{"lap7", "SHA256:", "at least 4 characters", 65},
		{"lap7", key(lap7)[:10], "too short", 65},
		{"lap7", "SHA256:AAAA", "these wait:\nlap7 " + key(lap7) + "\n", 65},
		{"lap8", key(lap7)[:20], "no node lap8 waits whose key begins with", 65},
		{"lap8", key(lap7), "calls itself lap7 (dadm accept lap7 ", 65},
		{"ws1", key(lap7), "calls itself lap7", 65},
		{"ws1", key(ws2), "ws1 is known by " + key(ws1) + " (dadm remove ws1 first)", 65},
		{"ws4", key(ws2), key(ws2) + " is that of ws2", 65},
		{"ws4", "ssh://ws3", "ssh://ws3 is that of ws3", 65},
		{"ws4", "ssh://-oProxyCommand=x", "no address of a node", 65},
		{"ws4", "ssh://a b", "", 65},
		{"ws4", "ssh://ws4/spool", "no address of a node", 65},
		{"ws4", key(dial.Terms{Key: s.h.terms.Key}), "the key of this head", 65},
	} {
		var e *wire.Error
		if err := s.accept(tt.name, tt.by); !errors.As(err, &e) || e.Status != tt.status || !strings.Contains(e.Text, tt.want) {
			t.Errorf("accept %s %s: %v, want %q", tt.name, tt.by, err, tt.want)
		}
	}
	if s.list() != list {
		t.Errorf("the list has become %q", s.list())
	}
	if err := s.accept("lap7", key(lap7)[:15]); err != nil {
		t.Error(err)
	}
	if err := s.accept("lap7", key(lap7)[:15]); err != nil {
		t.Errorf("again: %v", err)
	}
	if s.list() != list+"lap7 "+key(lap7)+"\n" {
		t.Errorf("the list is %q", s.list())
	}
	if _, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws9"}}); e == nil || e.Status != 66 {
		t.Errorf("an unknown node is removed: %v", e)
	}
	if _, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws1"}, Dry: true}); e != nil || s.list() != list+"lap7 "+key(lap7)+"\n" {
		t.Errorf("tried only: %v, and the list is %q", e, s.list())
	}
}

// Two operators at once: each line is there, and no name has two.
func TestTwoOperators(t *testing.T) {
	s := newSite(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 20 {
		own, same := dial.Terms{}, dial.Terms{}
		own, same = as(t, own), as(t, same)
		all.Go(func() {
			if err := s.accept(fmt.Sprintf("ws%d", i), own.Key.Fingerprint()); err != nil {
				t.Error(err)
			}
			if s.accept("one", same.Key.Fingerprint()) == nil {
				mu.Lock()
				defer mu.Unlock()
				won++
			}
		})
	}
	all.Wait()
	if n := strings.Count(s.list(), "\n"); n != 21 || won != 1 {
		t.Errorf("%d lines, and %d have accepted the one node", n, won)
	}
}

// A node that was shut out, whose line somebody took out of the list, and that has not come
// since, is shut out when it is removed again.
func TestX98RemovedAgain(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	for range 2 {
		if _, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws1"}}); e != nil || s.list() != "ws1 -\n" {
			t.Fatalf("%v, and the list is %q", e, s.list())
		}
		streamEnds(t, d.c)
		write(t, s.h.spool.NodesFile(), "")
		s.h.rereadNodes()
	}
}

// A name that has a line is let in by that line and by nothing else; one that is
// shut out by none.
func TestX98OnlyAsTheListSays(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	if _, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws1"}}); e != nil {
		t.Fatal(e)
	}
	streamEnds(t, d.c)
	if got := s.list(); got != "ws1 -\n" {
		t.Errorf("the list is %q", got)
	}
	key := as(t, dial.Terms{}).Key.Fingerprint()
	if err := s.accept("ws2", key); err != nil {
		t.Fatal(err)
	}
	if err := s.accept("ws3", "ssh://ws3"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		p    dial.Peer
		name string
		want string // "": it is let in
	}{
		{dial.Peer{UID: -1}, "ws1", "shut out"},
		{dial.Peer{UID: -1}, "ws2", "known by its key"},
		{dial.Peer{UID: -1}, "ws3", "started by the head"},
		{dial.Peer{UID: -1}, "ws4", ""},
		{dial.Peer{UID: -1, Node: "ws1"}, "ws1", "shut out"},
		{dial.Peer{UID: -1, Node: "ws2"}, "ws2", "known by its key"},
		{dial.Peer{UID: -1, Node: "ws4"}, "ws4", ""},
		{dial.Peer{UID: -1, Node: "ws4"}, "ws5", "is that of node"},
		{dial.Peer{UID: s.h.uid, Proven: true}, "ws2", "known by its key"},
		{dial.Peer{UID: s.h.uid, Proven: true}, "ws4", ""},
		{dial.Peer{UID: 0, Proven: true}, "ws4", ""},
		{dial.Peer{UID: s.h.uid + 12345, Proven: true}, "ws4", "may not serve as a node"},
		{dial.Peer{UID: -1, Key: key}, "ws2", ""},
		{dial.Peer{UID: -1, Key: key}, "ws1", "is the key of node \"ws2\""},
		{dial.Peer{UID: -1, Node: "ws3", Addr: "ssh://ws3"}, "ws3", ""},
		{dial.Peer{UID: -1, Node: "ws3", Addr: "ssh://old"}, "ws3", "any more"},
		{dial.Peer{UID: -1, Node: "ws4", Addr: "ssh://ws4"}, "ws4", "any more"},
	} {
		g, err := s.h.enter(tt.p, tt.name, false, func(*wire.Error) {})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v as %s: %v, want %q", tt.p, tt.name, err, tt.want)
		}
		if err == nil {
			s.h.door.leave(g)
		}
	}
}
