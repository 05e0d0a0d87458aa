package head

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/wire"
	"distribute/spool"
)

// A site is a head that runs in this process, and what it logs.
type site struct {
	t    *testing.T
	dir  string
	addr string // of TCP, or of TLS
	log  *sheet
	h    *Head
	stop func()

	proven func(net.Conn) (dial.Peer, error) // instead of the head's own
	scheme string                            // of addr, if not tcp
}

// newSite starts a head on a new spool.
func newSite(t *testing.T) *site { return newSiteIn(t, filepath.Join(t.TempDir(), "s")) }

// newSiteIn starts a head on a new spool there.
func newSiteIn(t *testing.T, dir string) *site {
	if err := spool.Init(dir, os.Getegid()); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir, log: &sheet{}}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *site) start() {
	h, err := Open(s.dir, slog.New(slog.NewTextHandler(s.log, nil)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.h = h
	if s.proven != nil {
		h.proven = s.proven
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = cmp.Or(s.scheme, "tcp") + "://" + l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	up := make(chan struct{})
	go func() {
		ended <- h.serve(ctx, []string{"unix:" + h.spool.Socket(), s.addr}, func() { close(up) })
	}()
	select {
	case <-up:
	case err := <-ended:
		if cancel(); !errors.Is(err, syscall.EADDRINUSE) {
			s.t.Fatal(err)
		}
		s.start() // somebody else got the port that was free
		return
	}
	s.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
		s.stop = func() {}
	}
}

// greet begins a session, or returns why not.
func (s *site) greet(addr string, h wire.Hello) (*wire.Conn, *wire.Hello, error) {
	return dial.Greet(s.t.Context(), addr, h)
}

func (s *site) tool() *wire.Conn {
	c, _, err := s.greet(s.dir, wire.Hello{Role: wire.RoleTool})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// submit gives a batch of one command job for each name.
func (s *site) submit(batch job.BatchID, names ...string) {
	s.t.Helper()
	s.submitAs(batch, `{"kind":"command","resources":{"cpus":1}}`, names...)
}

// submitAs is submit with another spec.
func (s *site) submitAs(batch job.BatchID, spec string, names ...string) {
	s.t.Helper()
	c, ref := s.tool(), job.NewToken()
	s.send(c, &wire.Submit{Ref: ref, Batch: batch, Jobs: len(names)})
	s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
	s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, spec)
	var jobs []byte
	for _, n := range names {
		jobs = append(job.AppendJob(jobs, &job.Job{Name: n, Run: []string{"true"}}), '\n')
	}
	s.transfer(c, &wire.Send{X: 3, Of: wire.OfJobs}, string(jobs))
	lack := expect[*wire.Lack](s.t, c)
	if !lack.None {
		s.t.Fatalf("it lacks %v", lack.Want)
	}
	expect[*wire.Accepted](s.t, c)
}

func (s *site) send(c *wire.Conn, ms ...wire.Message) {
	s.t.Helper()
	if err := c.Send(ms...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) transfer(c *wire.Conn, send *wire.Send, text string) {
	s.t.Helper()
	err := c.SendTransfer(send, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
	if err != nil {
		s.t.Fatal(err)
	}
}

func expect[T wire.Message](t *testing.T, c *wire.Conn) T {
	t.Helper()
	c.ReadWithin(2 * time.Minute)
	for {
		m, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *wire.Ping:
		case T:
			return m
		default:
			t.Fatalf("got %#v", m)
		}
	}
}

// grantBefore is the grant that comes before the answer to a ping, or nil.
func grantBefore(t *testing.T, c *wire.Conn, ping uint64) (g *wire.Grant) {
	t.Helper()
	for {
		c.ReadWithin(2 * time.Minute)
		m, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *wire.Ping:
		case *wire.Grant:
			g = m
		case *wire.Pong:
			if m.N == ping {
				return g
			}
		default:
			t.Fatalf("got %#v", m)
		}
	}
}

// state asks for the state of one job.
func (s *site) state(id job.ID) *job.Row {
	s.t.Helper()
	c := s.tool()
	s.send(c, &wire.Query{Ref: job.NewToken(), Of: "jobs", Args: []string{string(id)}})
	r := c.RecvTransfer(expect[*wire.Send](s.t, c))
	text, err := io.ReadAll(r)
	if err != nil {
		s.t.Fatal(err)
	}
	var row job.Row
	if err := line.Unmarshal(bytes.TrimSpace(text), &row); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return &row
}

// becomes waits until a job is in a state.
func (s *site) becomes(id job.ID, want job.State) *job.Row {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); ; <-tick.C {
		row := s.state(id)
		if row.State == want {
			return row
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s is %s (%s), want %s", id, row.State, row.Reason, want)
		}
	}
}

// A desk is a node as the head sees it, played by a test.
type desk struct {
	*site
	name     string
	c        *wire.Conn
	join     job.Token
	up, down *wire.Conn
	passed   []wire.Message // that next went past
}

// desk begins a node's session. Its list is empty unless items are given.
func (s *site) desk(name, boot string, items ...wire.Message) *desk {
	s.t.Helper()
	c, head, err := s.greet(s.addr, wire.Hello{Role: wire.RoleNode, Name: name, Boot: boot, State: "state-" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	d := &desk{site: s, name: name, c: c, join: head.Join}
	s.send(c, &wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{})
	s.send(c, items...)
	s.send(c, &wire.ListEnd{Items: len(items)})
	d.up, d.down = d.data("up"), d.data("down")
	d.heard()
	return d
}

// givenJob is a site with the job ns/b/j, which its only node has just been given.
func givenJob(t *testing.T) (*site, *desk, *wire.Start) {
	t.Helper()
	s := newSite(t)
	s.submit("ns/b", "j")
	d := s.desk("ws1", "boot1")
	return s, d, expect[*wire.Start](t, d.c)
}

// runningJob is the same, and the node has said that it runs.
func runningJob(t *testing.T) (*site, *desk, *wire.Start) {
	t.Helper()
	s, d, start := givenJob(t)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	s.becomes("ns/b/j", job.Running)
	return s, d, start
}

// connected says whether a node, or anybody at a cluster, has a session.
func (h *Head) connected(name node.Name) bool {
	for _, s := range h.nodes.sessions {
		if s.name == name {
			return true
		}
	}
	return false
}

// heard waits until the head has heard what the node offers.
func (d *desk) heard() {
	d.t.Helper()
	await(d.t, func() (there bool) {
		return !d.h.do(func() { there = d.h.connected(node.Name(d.name)) }) || there
	})
}

func (d *desk) data(way string) *wire.Conn {
	d.t.Helper()
	c, _, err := d.greet(d.addr, wire.Hello{Role: wire.RoleData, Name: d.name, Join: d.join, State: way})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
}

// result is the manifest and the files of a result with one file.
func result(text string) (pack.Manifest, func(int, pack.Entry) (io.ReadCloser, error)) {
	m := pack.Manifest{{Path: "out.txt", Type: pack.File, Size: int64(len(text)), Mode: 0o644,
		Time: time.Unix(1, 0).UTC(), Sum: sumOf(text)}}
	return m, func(int, pack.Entry) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

func ended(t job.Token, exit int, m pack.Manifest) *wire.Ended {
	return &wire.Ended{Attempt: t, Result: job.Result{Outcome: job.Outcome{Exit: &exit}, Manifest: m.Sum(),
		Entries: len(m), Files: len(m), Bytes: m.Bytes()}}
}

// give sends what a grant asks for.
func (d *desk) give(g *wire.Grant, text string) {
	d.t.Helper()
	m, open := result(text)
	if g.Manifest {
		err := d.up.SendTransfer(&wire.Send{X: 1, Of: wire.OfManifest, Attempt: g.Attempt}, m.Encode)
		if err != nil {
			d.t.Fatal(err)
		}
	}
	err := d.up.SendTransfer(&wire.Send{X: 2, Of: wire.OfTree, Attempt: g.Attempt}, func(w io.Writer) error {
		return pack.Send(w, m, pack.Want(g.Want), open)
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// file is what lies in the spool at a place of a batch.
func (s *site) file(elem ...string) string {
	b, err := os.ReadFile(filepath.Join(append([]string{s.dir, "batches"}, elem...)...))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// resultIs holds that the result of ns/b/j that has come home is the file of result.
func (s *site) resultIs(text string) {
	s.t.Helper()
	if got := s.file("ns/b/out/j/out.txt"); got != text {
		s.t.Errorf("the result is %q", got)
	}
}

// A result comes home, is accepted once, and said to be safe as often as the
// node asks.
func TestL44ResultTwice(t *testing.T) {
	s, d, start := givenJob(t)
	if start.Job != "ns/b/j" || start.Try != 1 || start.CPUs != 1 || start.Work == nil {
		t.Fatalf("got %+v", start)
	}
	m, _ := result("hello\n")
	for range 2 {
		s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, ended(start.Attempt, 0, m))
	}
	d.give(expect[*wire.Grant](t, d.c), "hello\n")
	expect[*wire.Have](t, d.c)
	s.resultIs("hello\n")
	if row := s.state("ns/b/j"); row.State != job.Done || row.Node != "ws1" || *row.Exit != 0 {
		t.Errorf("the row is %+v", row)
	}
	s.send(d.c, ended(start.Attempt, 0, m))
	expect[*wire.Have](t, d.c)
	s.send(d.c, &wire.Gone{Attempt: start.Attempt})
	if n := strings.Count(s.file("ns/b/log.jsonl"), `"e":"done"`); n != 1 {
		t.Errorf("%d records accept it", n)
	}
}

// What a node says of attempts that are not its own has no effect, and it gets
// nothing that it was not given.
func TestT87NotItsOwn(t *testing.T) {
	s, d, start := givenJob(t)
	thief := s.desk("ws2", "boot2")
	m, _ := result("stolen\n")
	s.send(thief.c, ended(start.Attempt, 0, m), &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, ended("nonsense", 0, m))
	s.send(thief.down, &wire.Fetch{Attempt: start.Attempt, Of: wire.OfSpec})
	if e := expect[*wire.Error](t, thief.down); e.Status != 77 {
		t.Errorf("the thief was told %+v", e)
	}
	s.send(d.down, &wire.Fetch{Attempt: start.Attempt, Of: wire.OfInputs, Sums: []string{strings.Repeat("0", 64)}})
	if e := expect[*wire.Error](t, d.down); e.Status != 77 {
		t.Errorf("for what is no input of the attempt: %+v", e)
	}
	s.send(d.down, &wire.Fetch{Attempt: start.Attempt, Of: wire.OfSpec})
	if err := wire.Drain(d.down.RecvTransfer(expect[*wire.Send](t, d.down))); err != nil {
		t.Error(err)
	}
	if row := s.state("ns/b/j"); row.State != job.Running || row.Node != "ws1" {
		t.Errorf("the row is %+v", row)
	}
}

// A result whose bytes are not those of its manifest is not taken, and asked
// for again.
func TestD89WrongBytes(t *testing.T) {
	s, d, start := givenJob(t)
	m, _ := result("hello\n")
	s.send(d.c, ended(start.Attempt, 0, m))
	g := expect[*wire.Grant](t, d.c)
	if err := d.up.SendTransfer(&wire.Send{X: 1, Of: wire.OfManifest, Attempt: g.Attempt}, m.Encode); err != nil {
		t.Fatal(err)
	}
	err := d.up.SendTransfer(&wire.Send{X: 2, Of: wire.OfTree, Attempt: g.Attempt}, func(w io.Writer) error {
		return pack.Send(w, m, pack.Want{}, func(int, pack.Entry) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("jello\n")), nil
		})
	})
	if err == nil {
		t.Log("the sender did not notice") // its own check may end the transfer first
	}
	var more *wire.Grant
	for more == nil { // the head may not know yet that they are wrong
		s.later(again)
		s.send(d.c, &wire.Ping{N: 1})
		more = grantBefore(t, d.c, 1)
	}
	d.give(more, "hello\n")
	expect[*wire.Have](t, d.c)
	s.resultIs("hello\n")
	await(t, s.nothingPromised)
}

// A result of which every byte arrived before the head went down is not sent
// again: it is hashed where it lies.
func TestL35ResultIsHereAlready(t *testing.T) {
	s, _, start := runningJob(t)
	m, _ := result("hello\n")
	d := s.staged(start, m, map[string]string{"out.txt": "hello\n"})
	expect[*wire.Have](t, d.c)
	s.resultIs("hello\n")
}

// staged is the node ws1 once the head has started again and found these files of a result.
func (s *site) staged(start *wire.Start, m pack.Manifest, files map[string]string) *desk {
	s.t.Helper()
	s.stop()
	dir := filepath.Join(s.dir, "batches/ns/b/staging", string(start.Attempt))
	for name, text := range files {
		write(s.t, filepath.Join(dir, "tree", name), text)
	}
	var text strings.Builder
	if err := m.Encode(&text); err != nil {
		s.t.Fatal(err)
	}
	write(s.t, filepath.Join(dir, "manifest.jsonl"), text.String())
	s.start()
	r := ended(start.Attempt, 0, m).Result
	return s.desk("ws1", "boot1", listed(start, job.PhaseReturning, &r))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

// An attempt that the head does not know is held, not dropped (J31).
func TestJ31UnknownIsHeld(t *testing.T) {
	s := newSite(t)
	m, _ := result("precious\n")
	item := ended("", 0, m).Result
	token := job.NewToken()
	d := s.desk("ws1", "boot1", &wire.Item{Attempt: token, Job: "ns/gone/j", Try: 3, CPUs: 1, Phase: job.PhaseReturning, Result: &item})
	if h := expect[*wire.Hold](t, d.c); h.Attempt != token {
		t.Errorf("held is %s", h.Attempt)
	}
}

func TestStrangers(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct {
		addr, want string
		h          wire.Hello
	}{
		{s.addr, "does not prove which user you are", wire.Hello{Role: wire.RoleTool}},
		{s.addr, "nobody is let in as", wire.Hello{Role: "king"}},
		{s.addr, "bad name", wire.Hello{Role: wire.RoleNode, Name: "../x", Boot: "b", State: "s"}},
		{s.addr, "boot id", wire.Hello{Role: wire.RoleNode, Name: "x", State: "s"}},
		{s.addr, "never was", wire.Hello{Role: wire.RoleData, Name: "x", Join: job.NewToken(), State: "up"}},
	} {
		_, _, err := s.greet(tt.addr, tt.h)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.h, err, tt.want)
		}
	}
	c := s.tool()
	s.send(c, &wire.Start{})
	if e := expect[*wire.Error](t, c); e.Status != 64 {
		t.Errorf("a tool that starts an attempt is told %+v", e)
	}
	s.send(c, &wire.Query{Ref: job.NewToken(), Of: "jobs", Args: []string{"ns/none"}})
	if e := expect[*wire.Error](t, c); e.Status != 66 {
		t.Errorf("for a batch that is not there: %+v", e)
	}
}

// A submission with mistakes is refused, read to its end, and leaves nothing.
func TestRefusedSubmission(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct{ spec, jobs, want string }{
		{`{"kind":"magic"}`, `{"name":"j","run":["true"]}`, "magic"},
		{`{"kind":"command"}`, `{"name":"../j","run":["true"]}`, "../j"},
		{`{"kind":"command"}`, `{"name":"j","run":["true"]}` + "\n" + `{"name":"j","run":["true"]}`, "two jobs"},
		{`{"kind":"command"}`, `{"name":"j","run":["true"],"inputs":[{"path":"../x","size":1,"mode":420,"sum":"` + sumOf("x") + `"}]}`, "../x"},
		{`{"kind":"command"`, `{"name":"j","run":["true"]}`, "common part"},
		{`{"kind":"command"}`, `{"name":7}`, "a job"},
	} {
		c := s.tool()
		s.send(c, &wire.Submit{Ref: job.NewToken(), Batch: "ns/b", Jobs: 1})
		s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
		s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, tt.spec)
		s.transfer(c, &wire.Send{X: 3, Of: wire.OfJobs}, tt.jobs+"\n")
		if e := expect[*wire.Error](t, c); e.Status != 65 || !strings.Contains(e.Text, tt.want) {
			t.Errorf("%s %s: told %+v, want %q", tt.spec, tt.jobs, e, tt.want)
		}
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "batches", "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	hidden, _ := filepath.Glob(filepath.Join(s.dir, "batches", "*", ".*"))
	if len(hidden) > 0 {
		t.Errorf("left are %v", hidden)
	}
}

func sumOf(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}
