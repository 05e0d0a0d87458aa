package head

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// lines is messages as they go over the wire.
func lines(t *testing.T, ms ...wire.Message) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := wire.New(nowhere{&b}).Send(ms...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type nowhere struct{ *bytes.Buffer }

func (nowhere) Close() error { return nil }

// raw is a stream of bytes to the head.
func (s *site) raw(addr string) net.Conn {
	s.t.Helper()
	c, err := dial.Dial(s.t.Context(), addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// A node's words that are cut at any byte are obeyed up to the last whole line.
// The word that is cut here is the one that would end the job.
func TestT81CutAtEachByte(t *testing.T) {
	s, d, start := runningJob(t)
	d.c.Close()
	exit := 3
	word := lines(t, &wire.Ended{Attempt: start.Attempt, Result: job.Result{Outcome: job.Outcome{Exit: &exit}}})
	item := &wire.Item{Attempt: start.Attempt, Job: "ns/b/j", Try: 1, CPUs: 1, Phase: job.PhaseRunning}
	before := lines(t, &wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, item, &wire.ListEnd{Items: 1}, &wire.Ping{N: 7})
	session := func(word []byte) net.Conn {
		c := s.raw(s.addr)
		w := wire.New(c)
		if _, err := wire.Greet(w, wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "boot1", State: "state-ws1"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(append(bytes.Clone(before), word...)); err != nil {
			t.Fatal(err)
		}
		for keep, pong := false, false; !keep || !pong; { // what came before the cut was taken
			switch m := expect[wire.Message](t, w).(type) {
			case *wire.Keep:
				keep = true
			case *wire.Pong:
				pong = true
			default:
				t.Fatalf("got %#v", m)
			}
		}
		return c
	}
	for cut := range word {
		session(word[:cut]).Close()
	}
	c := session(nil)
	if row := s.state("ns/b/j"); row.State != job.Running || row.Attempt != 1 {
		t.Fatalf("half a word was obeyed: %+v", row)
	}
	for i := range word { // and byte by byte it is the same word
		if _, err := c.Write(word[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	s.becomes("ns/b/j", job.Failed)
}

// Many messages in one segment are as many messages.
func TestT81ManyAtOnce(t *testing.T) {
	s := newSite(t)
	c := s.raw(s.dir)
	all := lines(t, &wire.Hello{Proto: wire.Proto, Role: wire.RoleTool})
	for n := range uint64(1000) {
		all = append(all, lines(t, &wire.Ping{N: n})...)
	}
	if _, err := c.Write(all); err != nil {
		t.Fatal(err)
	}
	w := wire.New(c)
	expect[*wire.Hello](t, w)
	for n := range uint64(1000) {
		if p := expect[*wire.Pong](t, w); p.N != n {
			t.Fatalf("got %d, want %d", p.N, n)
		}
	}
}

// What is no message ends the session that says it, with the reason, and no other.
func TestT82Garbage(t *testing.T) {
	s := newSite(t)
	bystander := s.tool()
	for _, tt := range []struct{ text, want string }{
		{`{"m":"query","ref":"x","of":"jobs","of":"nodes"}`, "twice"},
		{`{"M":"query"}`, "lower case"},
		{`{"m":"query","of":7}`, "query message"},
		{`{"m":"query","ref":null,"of":"jobs","args":[]}`, ""},
		{"\x16\x03\x01\x02\x00\x01\x00", "UTF-8|JSON"},
		{"GET / HTTP/1.1\r", "not JSON"},
		{"\xff\xfe{\x00", "UTF-8"},
		{`{"m":"ping","n":1e400}`, "ping message"},
	} {
		c := s.raw(s.dir)
		w := wire.New(c)
		if _, err := wire.Greet(w, wire.Hello{Role: wire.RoleTool}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(tt.text + "\n")); err != nil {
			t.Fatal(err)
		}
		if tt.want == "" {
			wire.Drain(w.RecvTransfer(expect[*wire.Send](t, w)))
			continue
		}
		e := expect[*wire.Error](t, w)
		told := false
		for _, want := range strings.Split(tt.want, "|") {
			told = told || strings.Contains(e.Text, want)
		}
		if !told || e.Status != 65 {
			t.Errorf("%q: told %+v, want %q", tt.text, e, tt.want)
		}
		if _, err := w.Recv(); err != io.EOF {
			t.Errorf("%q: and then %v", tt.text, err)
		}
	}
	s.send(bystander, &wire.Ping{N: 1})
	expect[*wire.Pong](t, bystander)
}

// A message that is not known, or not for a tool, is answered, and the session goes on.
func TestUnknownIsAnswered(t *testing.T) {
	s := newSite(t)
	c := s.raw(s.dir)
	w := wire.New(c)
	if _, err := wire.Greet(w, wire.Hello{Role: wire.RoleTool}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("{\"m\":\"later\",\"z\":1}\n")); err != nil {
		t.Fatal(err)
	}
	if e := expect[*wire.Error](t, w); !strings.Contains(e.Text, `unknown message "later"`) {
		t.Errorf("told %+v", e)
	}
	s.send(w, &wire.Ping{N: 1})
	expect[*wire.Pong](t, w)
}

// A peer of other versions is told both ranges, whatever it wants to be.
func TestT85OtherVersions(t *testing.T) {
	s := newSite(t)
	for _, role := range []string{wire.RoleNode, wire.RoleTool, wire.RoleData} {
		c := s.raw(s.dir)
		if _, err := c.Write(lines(t, &wire.Hello{Proto: [2]int{7, 9}, Role: role, Name: "ws1", Boot: "b", State: "s"})); err != nil {
			t.Fatal(err)
		}
		mine := fmt.Sprintf("%d to %d", wire.Proto[0], wire.Proto[1])
		refused(t, wire.New(c), 65, "7 to 9", mine, "upgrade the older one")
	}
}

// A node says things in every order, of attempts that are not its own, over, or
// nobody's: nothing comes of it but a line in the log.
func TestT87OutOfOrder(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j", "k")
	d := s.desk("ws1", "boot1")
	start := expect[*wire.Start](t, d.c)
	other := s.desk("ws2", "boot2")
	theirs := expect[*wire.Start](t, other.c)
	m, _ := result("hello\n")
	exit := 0
	words := []wire.Message{
		&wire.Phase{Attempt: theirs.Attempt, Phase: job.PhaseRunning},
		&wire.Phase{Attempt: job.NewToken(), Phase: job.PhaseBuilding},
		&wire.Phase{Attempt: "no token", Phase: "no phase"},
		&wire.Phase{Attempt: start.Attempt, Phase: "no phase"},
		ended(theirs.Attempt, 0, m),
		ended(job.NewToken(), 0, m),
		&wire.Ended{Attempt: theirs.Attempt, Result: job.Result{Fate: job.FateUnstarted}},
		&wire.Ended{Attempt: job.NewToken(), Result: job.Result{Outcome: job.Outcome{Exit: &exit}}},
		&wire.Gone{Attempt: theirs.Attempt},
		&wire.Gone{Attempt: start.Attempt},
		&wire.Gone{Attempt: job.NewToken()},
		&wire.List{}, &wire.ListEnd{Items: 3}, &wire.ListEnd{},
		&wire.Item{Attempt: theirs.Attempt, Job: "ns/b/k", Try: 1, CPUs: 1, Phase: job.PhaseRunning},
		&wire.Item{Build: "ns/b"}, &wire.Item{Build: "../../x"},
		&wire.End{X: 99}, &wire.Send{X: 98, Of: wire.OfLog}, &wire.Data{X: 97},
		&wire.Offer{Offer: node.Offer{CPUs: -5}},
		&wire.Pong{N: 12345},
		&wire.Start{Attempt: job.NewToken(), Job: "ns/b/j"}, &wire.Have{Attempt: start.Attempt}, &wire.Submit{Ref: job.NewToken(), Batch: "ns/c"},
	}
	for range 3 {
		for _, i := range rand.Perm(len(words)) {
			s.send(d.c, words[i])
		}
	}
	s.send(d.c, &wire.Ping{N: 4})
	for {
		d.c.ReadWithin(2 * time.Minute)
		m, err := d.c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := m.(*wire.Pong); ok && p.N == 4 {
			break
		}
		switch m := m.(type) {
		case *wire.Have:
			t.Errorf("the thief was told that %s is safe", m.Attempt)
		case *wire.Grant:
			t.Errorf("the thief was asked for the result of %s", m.Attempt)
		}
	}
	if row := s.state("ns/b/k"); row.State != job.Running || row.Node != "ws2" || row.Attempt != 1 {
		t.Errorf("the row is %+v", row)
	}
	s.send(other.c, &wire.Phase{Attempt: theirs.Attempt, Phase: job.PhaseRunning}, ended(theirs.Attempt, 0, m))
	other.give(expect[*wire.Grant](t, other.c), "hello\n")
	s.becomes("ns/b/k", job.Done)
	s.stop()
	if !strings.Contains(s.log.String(), "protocol violation by node") {
		t.Error("nothing is in the log")
	}
}

// A result that is cut again and again, anywhere, goes on from what is there, and
// nothing of it is seen before all of it is safe. Now and then the head is
// started anew.
func TestD88CutAnywhere(t *testing.T) {
	s, d, start := givenJob(t)
	text := make([]byte, 900_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range text {
		text[i] = byte(rng.Uint32())
	}
	var m pack.Manifest
	parts := map[string]string{}
	for i, n := range []int{0, 300_000, 1, 599_999} {
		name := fmt.Sprint("f", i)
		parts[name], text = string(text[:n]), text[n:]
		m = append(m, pack.Entry{Path: name, Type: pack.File, Size: int64(n), Mode: 0o644, Time: time.Unix(1, 0).UTC(), Sum: sumOf(parts[name])})
	}
	open := func(_ int, e pack.Entry) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(parts[e.Path])), nil
	}
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, ended(start.Attempt, 0, m))
	r := ended(start.Attempt, 0, m).Result
	item := &wire.Item{Attempt: start.Attempt, Job: "ns/b/j", Try: 1, CPUs: 1, Phase: job.PhaseReturning, Result: &r}
	left := int64(1 << 62)
	for round := 0; ; round++ {
		g := d.granted()
		want := pack.Want(g.Want)
		if g.Manifest {
			if err := d.up.SendTransfer(&wire.Send{X: 1, Of: wire.OfManifest, Attempt: g.Attempt}, m.Encode); err != nil {
				t.Fatal(err)
			}
		}
		if n := want.Bytes(m); n > left {
			t.Errorf("round %d: %d bytes are wanted, after %d", round, n, left)
		} else {
			left = n
		}
		if round >= 40 && left < 900_000 || round == 400 {
			d.tree(g, m, open)
			break
		}
		var whole bytes.Buffer
		if err := pack.Send(&whole, m, want, open); err != nil {
			t.Fatal(err)
		}
		frame := whole.Bytes()[:rng.IntN(min(whole.Len(), 300_000))]
		s.send(d.up, &wire.Send{X: 2, Of: wire.OfTree, Attempt: g.Attempt})
		for part := range slices.Chunk(frame, wire.MaxFrame) {
			s.send(d.up, &wire.Data{X: 2, N: len(part), Payload: part})
		}
		d.c.Close()
		if _, err := os.Lstat(filepath.Join(s.dir, "batches/ns/b/out/j")); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("round %d: something is visible: %v", round, err)
		}
		if round%10 == 9 {
			s.stop()
			s.start()
		}
		d = s.desk("ws1", "boot1", item)
	}
	// How much was there before each cut is by chance; of so many some was.
	if left >= 900_000 {
		t.Errorf("%d of 900000 bytes were to be sent in the end", left)
	}
	s.becomes("ns/b/j", job.Done)
	await(t, s.nothingPromised)
	for name, want := range parts {
		if s.file("ns/b/out/j", name) != want {
			t.Errorf("%s differs", name)
		}
	}
}

// granted waits for the head to ask for a result.
func (d *desk) granted() *wire.Grant {
	d.t.Helper()
	for {
		if g, ok := d.received().(*wire.Grant); ok {
			return g
		}
	}
}

func (d *desk) tree(g *wire.Grant, m pack.Manifest, open func(int, pack.Entry) (io.ReadCloser, error)) {
	d.t.Helper()
	err := d.up.SendTransfer(&wire.Send{X: 2, Of: wire.OfTree, Attempt: g.Attempt}, func(w io.Writer) error {
		return pack.Send(w, m, pack.Want(g.Want), open)
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// A node that declares a megabyte and sends more, or less, or something that is
// well packed and never ends, has not brought a result; it is asked again.
func TestD90OtherThanDeclared(t *testing.T) {
	s, d, start := givenJob(t)
	m, _ := result("hello\n")
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, ended(start.Attempt, 0, m))
	g := d.granted()
	if err := d.up.SendTransfer(&wire.Send{X: 1, Of: wire.OfManifest, Attempt: g.Attempt}, m.Encode); err != nil {
		t.Fatal(err)
	}
	big, open := result(strings.Repeat("more\n", 400_000))
	if err := d.up.SendTransfer(&wire.Send{X: 2, Of: wire.OfTree, Attempt: g.Attempt}, func(w io.Writer) error {
		return pack.Send(w, big, pack.Want{}, open)
	}); err != nil {
		t.Fatal(err)
	}
	if h := expect[*wire.Hold](t, d.c); h.Attempt != start.Attempt {
		t.Errorf("held is %+v", h)
	}
	if got := s.file("ns/b/out/j/out.txt"); !strings.Contains(got, "no such file") {
		t.Errorf("there is %.20q", got)
	}
}

// A submission that is cut after any of its messages, or within one, is not
// there and leaves nothing; the same one again is a batch.
func TestD88CutSubmission(t *testing.T) {
	s := newSite(t)
	content := strings.Repeat("input ", 40_000)
	j := job.Job{Name: "j", Run: []string{"true"}, Inputs: []job.Input{{Path: "in", Size: int64(len(content)), Mode: 0o644, Sum: sumOf(content)}}}
	var b bytes.Buffer
	w := wire.New(nowhere{&b})
	text := func(x uint64, of, text string) {
		if err := w.SendTransfer(&wire.Send{X: x, Of: of}, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
			t.Fatal(err)
		}
	}
	ref := job.NewToken()
	b.Write(lines(t, &wire.Hello{Proto: wire.Proto, Role: wire.RoleTool}, &wire.Submit{Ref: ref, Batch: "ns/b", Jobs: 1}))
	text(1, wire.OfBatch, "the file")
	text(2, wire.OfSpec, `{"kind":"command","resources":{"cpus":1}}`)
	text(3, wire.OfJobs, string(append(job.AppendJob(nil, &j), '\n')))
	inputs := pack.Blobs(map[string]int64{sumOf(content): int64(len(content))})
	if err := w.SendTransfer(&wire.Send{X: 4, Of: wire.OfInputs}, func(w io.Writer) error {
		return pack.SendStored(w, inputs, pack.Want{}, func(int, pack.Entry) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil })
	}); err != nil {
		t.Fatal(err)
	}
	all := b.Bytes()
	for cut := 0; cut < len(all); cut += 1 + cut/100*cut/20 { // at each byte, then at fewer
		c := s.raw(s.dir)
		if _, err := c.Write(all[:cut]); err != nil {
			t.Fatal(err)
		}
		c.(*net.UnixConn).CloseWrite()
		io.Copy(io.Discard, c) // until the head has let go
		c.Close()
	}
	s.h.do(func() {
		if len(s.h.batches) != 0 {
			t.Errorf("%d batches are there", len(s.h.batches))
		}
	})
	if left, _ := filepath.Glob(filepath.Join(s.dir, "batches/*/.new-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	c := s.raw(s.dir)
	if _, err := c.Write(all); err != nil {
		t.Fatal(err)
	}
	again := wire.New(c)
	expect[*wire.Hello](t, again)
	expect[*wire.Lack](t, again)
	if a := expect[*wire.Accepted](t, again); a.Batch != "ns/b" || a.Same {
		t.Errorf("got %+v", a)
	}
}

// A node that sends one manifest after another, and no trees, does not fill the
// memory with them: a manifest is forgotten when another result begins.
func TestI16ManifestsWithoutTrees(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j", "k", "l")
	d := s.desk("ws1", "boot1")
	m, _ := result("hello\n")
	var gs []*wire.Grant
	for len(gs) < 3 {
		d.c.ReadWithin(2 * time.Minute)
		got, err := d.c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		switch got := got.(type) {
		case *wire.Start:
			s.send(d.c, &wire.Phase{Attempt: got.Attempt, Phase: job.PhaseRunning}, ended(got.Attempt, 0, m))
		case *wire.Grant:
			gs = append(gs, got)
		}
	}
	for i, g := range gs {
		if err := d.up.SendTransfer(&wire.Send{X: uint64(i + 1), Of: wire.OfManifest, Attempt: g.Attempt}, m.Encode); err != nil {
			t.Fatal(err)
		}
	}
	g := gs[2]
	g.Manifest = false
	d.give(g, "hello\n")
	if h := expect[*wire.Have](t, d.c); h.Attempt != g.Attempt {
		t.Errorf("safe is %s", h.Attempt)
	}
	s.h.do(func() {
		for _, n := range s.h.nodes.sessions {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, g := range n.grants {
				if g.m != nil {
					t.Errorf("the manifest of %s is kept", g.attempt)
				}
			}
		}
	})
}
