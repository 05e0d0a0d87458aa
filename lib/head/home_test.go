package head

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// A homely is a node of which the test keeps what its directory knows.
type homely struct {
	*site
	name, state, machine string
	session              uint64
	old                  bool // of a release that knows neither machine nor session
	forgets              bool // it cannot note the number
}

// comes begins a session of the node, with a list of these items, until end.
func (n *homely) comes(items ...wire.Message) (end func(), err error) {
	hello := wire.Hello{Role: wire.RoleNode, Name: n.name, Boot: "boot-" + n.machine, State: n.state}
	if last := n.session; !n.old {
		hello.Machine, hello.Session = n.machine, &last
	}
	c, head, err := n.greet(n.addr, hello)
	if err != nil {
		return nil, err
	}
	offer := &wire.Offer{Offer: node.Offer{CPUs: 1}}
	switch {
	case n.old && head.Session != nil:
		n.t.Error("a node that knows no sessions is given a number")
	case !n.old && !n.forgets:
		n.session, offer.Session = *head.Session, *head.Session
	}
	n.send(c, offer, &wire.List{})
	n.send(c, items...)
	n.send(c, &wire.ListEnd{Items: len(items)})
	n.up(true)
	return func() { c.Close(); n.up(false) }, nil
}

// up waits until the node is connected, or is not.
func (n *homely) up(want bool) {
	n.t.Helper()
	await(n.t, func() (is bool) {
		n.h.settled(func() { is = n.h.nodes.byName[node.Name(n.name)] != 0 })
		return is == want
	})
}

// runs has the node come, begin a job of retry: never, and go. It returns what it then lists.
func (n *homely) runs() *wire.Item {
	n.t.Helper()
	n.submitAs("ns/b", `{"kind":"command","resources":{"cpus":1},"retry":"never"}`, "j")
	c, head, err := n.greet(n.addr, wire.Hello{Role: wire.RoleNode, Name: n.name, Boot: "boot-" + n.machine, State: n.state, Machine: n.machine, Session: &n.session})
	if err != nil {
		n.t.Fatal(err)
	}
	n.session = *head.Session
	n.send(c, &wire.Offer{Offer: node.Offer{CPUs: 1}, Session: n.session}, &wire.List{}, &wire.ListEnd{})
	start := expect[*wire.Start](n.t, c)
	n.send(c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	n.becomes("ns/b/j", job.Running)
	c.Close()
	n.up(false)
	return &wire.Item{Attempt: start.Attempt, Phase: job.PhaseRunning}
}

// visits has the node come and go.
func (n *homely) visits() {
	n.t.Helper()
	end, err := n.comes()
	if err != nil {
		n.t.Fatal(err)
	}
	end()
}

// refusedFor checks that the node is refused, and that it and the head's log are told so.
func (n *homely) refusedFor(texts ...string) {
	n.t.Helper()
	_, err := n.comes()
	if err == nil {
		n.t.Fatalf("%s is let in", n.name)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) || !strings.Contains(n.log.String(), text) {
			n.t.Errorf("%q is neither told nor logged: %v\n%s", text, err, n.log)
		}
	}
}

// noted checks that dquery shows the node as silent, with this before how long.
func (n *homely) noted(want string) {
	n.t.Helper()
	var rows []node.Row
	n.h.settled(func() { rows = n.h.nodeRows(true, nil) })
	if len(rows) != 1 || rows[0].State != node.Silent {
		n.t.Fatalf("dquery shows %+v", rows)
	}
	if got, _, _ := strings.Cut(rows[0].Note, "silent"); got != want {
		n.t.Errorf("dquery shows %q, expected %q", rows[0].Note, want)
	}
}

func (s *site) again() {
	s.stop()
	s.start()
}

// lose gives up a node.
func (s *site) lose(name string) (lines []string, refusal *wire.Error) {
	return s.ask(s.tool(), &wire.Change{Verb: "lost", Args: []string{name}})
}

// The directory of a node that runs a job of retry: never is copied to another machine, which
// connects while the node is away: under the node's name, and under another one, also after a restart
// of the head. The job stays the node's, until an operator gives the node up.
func TestCopyOnAnotherMachine(t *testing.T) {
	s := newSite(t)
	n := &homely{site: s, name: "ws1", state: "s1", machine: "m1"}
	item := n.runs()
	for _, name := range []string{"ws1", "ws2"} {
		copied := *n
		copied.name, copied.machine = name, "m2"
		copied.refusedFor("another machine", "dnoded -init", "dadm lost ws1")
		s.again()
		copied.refusedFor("another machine")
	}
	if r := s.state("ns/b/j"); r.State != job.Running && r.State != job.Unreachable {
		t.Errorf("the job is %s: %s", r.State, r.Reason)
	}
	end, err := n.comes(item)
	if err != nil {
		t.Fatal(err)
	}
	s.becomes("ns/b/j", job.Running)
	if _, e := s.lose("ws1"); e == nil {
		t.Error("a connected node is given up")
	}
	end()
	s.again()
	if ids, e := s.lose("ws1"); e != nil || fmt.Sprint(ids) != "[ns/b/j]" {
		t.Errorf("given up: %v, %v", ids, e)
	}
	s.again()
	moved := *n
	moved.machine = "m3"
	moved.visits()
	n.session = moved.session
	n.refusedFor("another machine")
}

// A directory that is older than the head knows it is refused under another name, and while the
// node has a job, whatever machine has it, until an operator gives the node up.
func TestOlderCopy(t *testing.T) {
	for _, machine := range []string{"m1", ""} {
		s := newSite(t)
		n := &homely{site: s, name: "ws1", state: "s1", machine: machine}
		n.visits()
		backup := *n
		n.visits()
		if n.session != backup.session {
			t.Errorf("a session at once after another has number %d after %d", n.session, backup.session)
		}
		backup.visits()
		s.later(sessionEvery)
		n.visits()
		image := backup // of a machine that is put back to it at each boot
		image.name = "ws2"
		image.refusedFor("older copy", "dadm lost ws1")
		image.name = "ws1"
		image.visits()
		item := n.runs()
		for _, name := range []string{"ws1", "ws2"} {
			copied := backup
			copied.name = name
			copied.refusedFor("older copy", "dadm lost ws1")
		}
		s.again()
		backup.refusedFor("older copy")
		end, err := n.comes(item)
		if err != nil {
			t.Fatal(err)
		}
		n.becomes("ns/b/j", job.Running)
		end()
		n.noted("")
		backup.refusedFor("older copy")
		n.noted("refused as a copy: dadm lost ws1 lets it in, see dnoded(8); ")
		if _, e := s.lose("ws1"); e != nil {
			t.Errorf("it cannot be given up: %v", e)
		}
		n.noted("")
		backup.visits()
	}
}

// A node has a job also when the batch of that is damaged, and was set aside or will be: an older
// copy of its directory would be taken for a node that has lost the job.
func TestOlderCopyWithJobOfDamagedBatch(t *testing.T) {
	for _, aside := range []bool{false, true} {
		s := newSite(t)
		n := &homely{site: s, name: "ws1", state: "s1", machine: "m1"}
		n.visits()
		backup := *n
		s.later(sessionEvery)
		n.runs()
		s.spoil("ns/b", "j")
		if aside {
			s.h.settled(func() { s.h.setAside(s.h.byID["ns/b"], errors.New("it is damaged")) })
		}
		if _, err := backup.comes(); err == nil || !strings.Contains(err.Error(), "older copy") {
			t.Errorf("set aside %v: told %v", aside, err)
		}
		if _, e := s.lose("ws1"); e != nil {
			t.Errorf("it cannot be given up: %v", e)
		}
		if aside {
			backup.visits()
		}
	}
}

// No node is refused, of whatever release it and its head are, and whatever lost power or was
// put back to an older copy, but the node.
func TestNoGoodNodeIsRefused(t *testing.T) {
	s := newSite(t)
	n := &homely{site: s, name: "ws1", state: "s1", machine: "m1"}
	old := *n
	old.old = true
	old.visits() // then it is upgraded
	n.visits()
	spool, err := os.ReadFile(filepath.Join(s.dir, "head.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	next := func() {
		t.Helper()
		s.later(sessionEvery)
		n.visits()
	}
	next()
	n.forgets = true // its disk is full, or it loses power before the number is there
	next()
	n.forgets = false
	next()
	n.session += 5 // the head lost power before it had noted the number
	next()
	for range 2 { // both sessions of a bad network
		c, head, err := s.greet(s.addr, wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "boot-m1", State: "s1", Machine: "m1", Session: &n.session})
		if err != nil {
			t.Fatal(err)
		}
		n.session = *head.Session
		c.Close()
	}
	next()
	old.visits() // downgraded, and upgraded again
	next()
	n.state, n.session = "s2", 0 // a new directory
	next()
	n.name = "ws9" // renamed, and back
	next()
	n.name = "ws1"
	next()
	n.machine = "" // it cannot be read
	next()
	s.stop()
	if err := os.WriteFile(filepath.Join(s.dir, "head.jsonl"), spool, 0o640); err != nil { // as of a backup
		t.Fatal(err)
	}
	s.start()
	n.machine = "m1"
	next()
	s.again()
	next()
}

// An earlier release takes a line of head.jsonl for damaged if it has a member that it does not know.
func TestEarlierReleaseReadsWhereNodesAre(t *testing.T) {
	s := newSite(t)
	n := &homely{site: s, name: "ws1", state: "s1", machine: "m1"}
	n.visits()
	s.stop()
	log, err := os.ReadFile(filepath.Join(s.dir, "head.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for line := range bytes.Lines(log) {
		var members map[string]any
		if err := json.Unmarshal(line, &members); err != nil {
			t.Fatal(err)
		}
		if members["e"] != string(job.KindNode) {
			continue
		}
		nodes++
		got := slices.Sorted(maps.Keys(members))
		if want := []string{"crc", "e", "first", "machine", "node", "seq", "state", "t"}; !slices.Equal(got, want) {
			t.Errorf("the record of a node has %q, expected %q", got, want)
		}
	}
	if nodes != 1 {
		t.Errorf("%d records of nodes", nodes)
	}
	s.start()
	n.runs()
	n.session = 0
	n.refusedFor("older copy")
}

// A number that a node did not give to its directory is not noted, and one out of reach is refused.
func TestHostileSession(t *testing.T) {
	s := newSite(t)
	n := &homely{site: s, name: "ws1", state: "s1", machine: "m1"}
	n.visits()
	c, _, err := s.greet(s.addr, wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "b", State: "s1", Machine: "m1", Session: &n.session})
	if err != nil {
		t.Fatal(err)
	}
	s.send(c, &wire.Offer{Offer: node.Offer{CPUs: 1}, Session: 1 << 40}, &wire.List{}, &wire.ListEnd{})
	n.up(true)
	c.Close()
	n.up(false)
	n.visits()
	n.session = maxSession + 1
	if _, err := n.comes(); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("told %v", err)
	}
	last := &homely{site: s, name: "ws3", state: "s3", machine: "m3", session: maxSession}
	last.visits()
	s.later(sessionEvery)
	last.visits()                                                                               // it was not given a larger one
	other := &homely{site: s, name: "ws2", state: "s1", machine: "m1", session: maxSession - 1} // whoever knows the state id
	other.visits()
	n.session = 1
	s.later(time.Second)
	n.visits()
}

// An older copy that is let in is the node from then on: the directory that was newer before is
// refused while the copy has a job, also if both came within a minute.
func TestOlderCopyIsNewerThen(t *testing.T) {
	s := newSite(t)
	n := &homely{site: s, name: "ws1", state: "s1", machine: "m1"}
	n.visits()
	image := *n
	s.later(sessionEvery)
	n.visits()
	item := image.runs()
	n.refusedFor("older copy")
	end, err := image.comes(item)
	if err != nil {
		t.Fatal(err)
	}
	image.becomes("ns/b/j", job.Running)
	end()
}

// An older copy that greets while the node has no job, and goes on when it has one, is refused,
// also with the number that it was given.
func TestOlderCopyWaits(t *testing.T) {
	s := newSite(t)
	n := &homely{site: s, name: "ws1", state: "s1", machine: "m1"}
	n.visits()
	backup := *n
	s.later(sessionEvery)
	n.visits()
	c, head, err := n.greet(n.addr, wire.Hello{Role: wire.RoleNode, Name: n.name, Boot: "boot-m1", State: n.state, Machine: n.machine, Session: &backup.session})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	item := n.runs()
	n.send(c, &wire.Offer{Offer: node.Offer{CPUs: 1}, Session: *head.Session}, &wire.List{}, &wire.ListEnd{})
	if m, err := c.Recv(); err == nil {
		t.Errorf("it is told %+v", m)
	}
	backup.session = *head.Session
	backup.refusedFor("older copy")
	end, err := n.comes(item)
	if err != nil {
		t.Fatal(err)
	}
	n.becomes("ns/b/j", job.Running)
	end()
}

// An older copy that cannot note its number, as on a full disk, gets no job: it would be refused
// with that.
func TestOlderCopyWithoutNumber(t *testing.T) {
	s := newSite(t)
	n := &homely{site: s, name: "ws1", state: "s1", machine: "m1"}
	n.visits()
	image := *n
	s.later(sessionEvery)
	n.visits()
	s.submit("ns/b", "j")
	c, _, err := n.greet(n.addr, wire.Hello{Role: wire.RoleNode, Name: n.name, Boot: "boot-m1", State: n.state, Machine: n.machine, Session: &image.session})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n.send(c, &wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{})
	if m, err := c.Recv(); err == nil {
		t.Errorf("it is told %+v", m)
	}
	image.visits()
}

// A copy that is refused while the node is connected is not why the node is away later.
func TestCopyRefusedBesideItsNode(t *testing.T) {
	s := newSite(t)
	n := &homely{site: s, name: "ws1", state: "s1", machine: "m1"}
	end, err := n.comes()
	if err != nil {
		t.Fatal(err)
	}
	copied := *n
	copied.machine = "m2"
	copied.refusedFor("another machine")
	end()
	n.noted("")
}
