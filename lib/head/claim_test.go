package head

import (
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// claims asks for what a cluster has in a folder; with jobs it takes these there first.
func (s *site) claims(folder job.Token, jobs ...string) (got []wire.Claimed) {
	s.t.Helper()
	c := s.tool()
	s.send(c, &wire.Change{Ref: job.NewToken(), Verb: "claim", Node: "slurm:hpc", Folder: folder, Args: jobs, Dry: len(jobs) == 0})
	text, err := io.ReadAll(c.RecvTransfer(expect[*wire.Send](s.t, c)))
	if err != nil {
		s.t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		var one wire.Claimed
		if err := line.Unmarshal([]byte(strings.TrimSpace(l)), &one); err != nil {
			s.t.Fatal(err)
		}
		got = append(got, one)
	}
	return got
}

// The answer to a claim says which jobs were held until it took them, so that they can be
// held again if they come back unbegun: also one that was held after it was chosen.
func TestClaimSaysWhatWasHeld(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "a", "b")
	if lines, refusal := s.ask(s.tool(), &wire.Change{Verb: "hold", Args: []string{"ns/b/a"}}); refusal != nil || len(lines) != 1 {
		t.Fatalf("held %v, %v", lines, refusal)
	}
	folder := job.NewToken()
	held := map[job.ID]bool{}
	for _, c := range s.claims(folder, "ns/b") {
		held[c.Job] = c.Held
	}
	if want := map[job.ID]bool{"ns/b/a": true, "ns/b/b": false}; !maps.Equal(held, want) {
		t.Errorf("held are %v, want %v", held, want)
	}
}

// What was taken to a cluster is found again by its folder, by no other, and after a
// restart; its results come over the socket, and from nobody who is not proven.
func TestClaim(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "a", "b", "c")
	folder := job.NewToken()
	first := s.claims(folder, "ns/b/a", "ns/b/b")
	if len(first) != 2 || first[0].Job != "ns/b/a" || first[0].Attempt == first[1].Attempt {
		t.Fatalf("claimed %+v", first)
	}
	if again := s.claims(folder, "ns/b"); len(again) != 3 || !slices.Contains(again, first[0]) || !slices.Contains(again, first[1]) {
		t.Errorf("claimed again: %+v", again)
	}
	if other := s.claims(job.NewToken(), "ns/b"); len(other) != 0 {
		t.Errorf("another folder has %+v", other)
	}
	s.stop()
	s.start()
	if after := s.claims(folder); len(after) != 3 || !slices.Contains(after, first[0]) {
		t.Errorf("after a restart: %+v", after)
	}
	if row := s.becomes("ns/b/a", job.Queued); row.Node != "slurm:hpc" || !strings.HasPrefix(row.Reason, "taken to slurm:hpc") {
		t.Errorf("its row: %+v", row)
	}
	hello := wire.Hello{Role: wire.RoleNode, Name: "slurm:hpc", Boot: "-", State: "-"}
	if _, _, err := s.greet(s.addr, hello); err == nil || !strings.Contains(err.Error(), "only a person") {
		t.Errorf("a stranger is let in: %v", err)
	}
	hello.Name = "slurm:../x"
	if _, _, err := s.greet(s.dir, hello); err == nil {
		t.Error("a name that is none is let in")
	}
	socket, tcp := s.dir, s.addr
	s.addr = socket
	d := s.desk("slurm:hpc", "-", &wire.Item{Attempt: first[0].Attempt, Phase: job.PhaseRunning})
	s.addr = tcp
	expect[*wire.Keep](t, d.c)
	s.becomes("ns/b/a", job.Running)
	s.send(d.down, &wire.Fetch{Attempt: first[0].Attempt, Of: wire.OfSpec})
	expect[*wire.Error](t, d.down)
	s.h.do(func() { s.h.nodes.probe = time.Minute })
	second := make(chan error, 1)
	go func() {
		_, _, err := s.greet(socket, wire.Hello{Role: wire.RoleNode, Name: "slurm:hpc", Boot: "-", State: "-"})
		second <- err
	}()
	asked, ok := d.received().(*wire.Ping)
	if !ok {
		t.Fatal("the first session is not asked whether it is there")
	}
	s.send(d.c, &wire.Pong{N: asked.N})
	if err := <-second; err == nil || !strings.Contains(err.Error(), "jobs of the same user come back from slurm:hpc just now") {
		t.Errorf("a second session at a time: %v", err)
	}
	m, _ := result("text")
	s.send(d.c, ended(first[0].Attempt, 0, m))
	d.give(expect[*wire.Grant](t, d.c), "text")
	expect[*wire.Have](t, d.c)
	s.send(d.c, &wire.Gone{Attempt: first[0].Attempt})
	if row := s.becomes("ns/b/a", job.Done); row.Node != "slurm:hpc" || row.Attempt != 1 {
		t.Errorf("its row: %+v", row)
	}
	unknown := job.NewToken()
	s.send(d.c, ended(unknown, 0, m))
	if h := expect[*wire.Hold](t, d.c); h.Attempt != unknown {
		t.Errorf("hold of %s", h.Attempt)
	}
}

// I16: a user has many clusters, as each folder may be another, and is told when he has too
// many. Those of others do not count.
func TestClaimTooMany(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "a", "b")
	claim := func(name, id string) *wire.Error {
		lines, refusal := s.ask(s.tool(), &wire.Change{Verb: "claim", Node: name, Folder: job.NewToken(), Args: []string{id}})
		if refusal == nil && len(lines) != 1 {
			t.Errorf("%s gets %q of %s", name, lines, id)
		}
		return refusal
	}
	up := func(from, n, uid int) {
		s.h.do(func() {
			for i := from; i < n; i++ {
				s.h.apply(sched.NodeUp{Session: uint64(1000 + i), Node: node.Abroad(fmt.Sprint(i)), UID: uid})
			}
		})
	}
	up(0, 200, os.Getuid())
	up(200, 2*sched.MaxClusters, 61000)
	if refusal := claim("slurm:first", "ns/b/a"); refusal != nil {
		t.Errorf("one of 201: %v", refusal)
	}
	up(2*sched.MaxClusters, 3*sched.MaxClusters-201, os.Getuid())
	if refusal := claim("slurm:more", "ns/b/b"); refusal == nil || refusal.Status != cli.Later || !strings.Contains(refusal.Text, "too many clusters already, 1000 are the limit") {
		t.Errorf("too many: %v", refusal)
	}
	if refusal := claim("slurm:first", "ns/b/b"); refusal != nil {
		t.Errorf("one that is known: %v", refusal)
	}
}

// Nobody takes, sees or ends what another has taken to the same cluster.
func TestClaimOfAnother(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "a")
	folder := job.NewToken()
	mine := s.claims(folder, "ns/b/a")
	if len(mine) != 1 {
		t.Fatalf("claimed %+v", mine)
	}
	s.stop()
	s.proven = func(net.Conn) (dial.Peer, error) { return dial.Peer{UID: 61000, User: "ana", Proven: true}, nil }
	s.start()
	c := s.tool()
	s.send(c, &wire.Change{Ref: job.NewToken(), Verb: "claim", Node: "slurm:hpc", Folder: folder, Dry: true})
	if text, err := io.ReadAll(c.RecvTransfer(expect[*wire.Send](t, c))); err != nil || len(text) > 0 {
		t.Errorf("another is told %q, %v", text, err)
	}
	s.addr = s.dir
	d := s.desk("slurm:hpc", "-", &wire.Item{Attempt: mine[0].Attempt, Phase: job.PhaseRunning})
	expect[*wire.Hold](t, d.c)
	m, _ := result("forged")
	for _, says := range []wire.Message{ended(mine[0].Attempt, 0, m), &wire.Gone{Attempt: mine[0].Attempt}, &wire.Phase{Attempt: mine[0].Attempt, Phase: job.PhaseRunning}} {
		s.send(d.c, says)
		expect[*wire.Hold](t, d.c)
	}
	for _, of := range []string{wire.OfSpec, wire.OfJob} {
		s.send(d.down, &wire.Fetch{Attempt: mine[0].Attempt, Of: of})
		expect[*wire.Error](t, d.down)
	}
	if _, _, err := s.greet(s.dir, wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "b", State: "s"}); err == nil {
		t.Error("a user is let in as a node")
	}
	d.c.Close()
	s.stop()
	s.proven = nil
	s.start()
	if still := s.claims(folder); !slices.Equal(still, mine) {
		t.Errorf("then there is %+v", still)
	}
}
