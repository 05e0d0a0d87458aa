package head

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// Each test here lives in a bubble of synctest, where time goes on when
// everybody waits.

// met is a peer that a head has on a stream, and when the head let it go.
type met struct {
	net.Conn
	began time.Time
	over  chan time.Duration
}

// meets gives the head a stream whose other end the test has. serve is what the
// head does with it, converse unless it is given.
func meets(t *testing.T, h *Head, serve func(net.Conn)) *met {
	a, b := net.Pipe()
	m := &met{a, time.Now(), make(chan time.Duration, 1)}
	if serve == nil {
		serve = func(c net.Conn) { h.converse(t.Context(), c, func() {}) }
	}
	go func() {
		serve(b)
		m.over <- time.Since(m.began)
	}()
	return m
}

// bubble runs a test with a head in a bubble.
func bubble(t *testing.T, f func(t *testing.T, h *Head)) {
	synctest.Test(t, func(t *testing.T) {
		h := newState(t)
		ctx, stop := context.WithCancel(t.Context())
		go h.run(ctx)
		f(t, h)
		stop()
		<-h.over.Done()
	})
}

// ends expects that the head lets the peer go after that time, and not for ever.
func (m *met) ends(t *testing.T, after time.Duration) {
	t.Helper()
	if got := <-m.over; got != after {
		t.Errorf("the head lets it go after %v, want %v", got, after)
	}
}

func TestT79SaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		m := meets(t, h, nil)
		text, err := io.ReadAll(m)
		if err != nil || !strings.Contains(string(text), "too long") {
			t.Errorf("it is told %q, %v", text, err)
		}
		m.ends(t, wire.HelloWithin)
	})
}

// A hello of one byte a second is not waited for, however long it goes on.
func TestT79SlowHello(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		m := meets(t, h, nil)
		go io.Copy(io.Discard, m)
		var err error
		n := 0
		for ; err == nil && n < 60; n++ {
			_, err = m.Write([]byte("x"))
			time.Sleep(time.Second) // of the bubble's clock
		}
		if err == nil {
			t.Error("the head goes on reading")
		}
		m.ends(t, wire.HelloWithin)
	})
}

// greets begins a node's session by hand.
func greets(t *testing.T, h *Head, name string) (*met, *wire.Conn) {
	t.Helper()
	return greetsWith(t, h, name, "state-"+name)
}

// greetsWith is greets of a node with that directory.
func greetsWith(t *testing.T, h *Head, name, state string) (*met, *wire.Conn) {
	t.Helper()
	m := meets(t, h, nil)
	c := wire.New(m)
	_, err := wire.Greet(c, wire.Hello{Role: wire.RoleNode, Name: name, Boot: "b", State: state})
	if err == nil {
		err = c.Send(&wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, c
}

// A node that takes everything and says nothing is let go after three pings that
// it has not answered; one that answers stays.
func TestT80FrozenNode(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		frozen, c := greets(t, h, "ws1")
		alive, d := greets(t, h, "ws2")
		stop := make(chan struct{})
		go func() {
			for {
				m, err := d.Recv()
				if p, ok := m.(*wire.Ping); ok {
					err = d.Send(&wire.Pong{N: p.N})
				}
				if err != nil {
					close(stop)
					return
				}
			}
		}()
		pings := 0
		for {
			m, err := c.Recv()
			if err != nil {
				break
			}
			if _, ok := m.(*wire.Ping); ok {
				pings++
			}
		}
		frozen.ends(t, silentAfter)
		if pings < 2 || pings > 3 {
			t.Errorf("it was pinged %d times", pings)
		}
		h.do(func() {
			if h.nodes.byName["ws1"] != 0 || h.nodes.byName["ws2"] == 0 {
				t.Errorf("connected are %v", h.nodes.byName)
			}
		})
		time.Sleep(time.Hour)
		h.do(func() {
			if h.nodes.byName["ws2"] == 0 {
				t.Error("the one that answers was let go")
			}
		})
		alive.Close()
		<-alive.over
		<-stop
	})
}

// A node that comes with another name, after a power loss of which the head knows nothing,
// ends the session that it had with its former one. One whose directory was copied, and that
// answers, stays.
func TestRenamedNodeEndsItsOldSession(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		dead, _ := greetsWith(t, h, "ws1", "state")
		synctest.Wait()
		alive, c := greetsWith(t, h, "ws2", "state")
		var hands sync.WaitGroup
		hands.Go(func() {
			for {
				m, err := c.Recv()
				if p, ok := m.(*wire.Ping); ok {
					err = c.Send(&wire.Pong{N: p.N})
				}
				if err != nil {
					return
				}
			}
		})
		synctest.Wait()
		h.do(func() {
			if h.nodes.byName["ws1"] != 0 || h.nodes.byName["ws2"] == 0 {
				t.Errorf("connected are %v", h.nodes.byName)
			}
		})
		copied, _ := greetsWith(t, h, "ws3", "state")
		synctest.Wait()
		h.do(func() {
			if h.nodes.byName["ws2"] == 0 || h.nodes.byName["ws3"] == 0 {
				t.Errorf("connected are %v", h.nodes.byName)
			}
		})
		for _, m := range []*met{dead, alive, copied} {
			m.Close()
			<-m.over
		}
		hands.Wait()
	})
}

// Two copies of a node's directory that come within a moment both ask the node whether it is
// there. It answers both, and stays.
func TestProbedTwiceAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		alive, c := greetsWith(t, h, "ws1", "state")
		var hands sync.WaitGroup
		hands.Go(func() {
			for {
				m, err := c.Recv()
				if p, ok := m.(*wire.Ping); ok {
					err = c.Send(&wire.Pong{N: p.N})
				}
				if err != nil {
					return
				}
			}
		})
		synctest.Wait()
		copies := make(chan *met, 2)
		for i := range 2 {
			go func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // of the bubble's clock
				m, _ := greetsWith(t, h, fmt.Sprint("copy", i), "state")
				copies <- m
			}()
		}
		all := []*met{alive, <-copies, <-copies}
		synctest.Wait()
		h.do(func() {
			if len(h.nodes.byName) != 3 {
				t.Errorf("connected are %v", h.nodes.byName)
			}
		})
		for _, m := range all {
			m.Close()
			<-m.over
		}
		hands.Wait()
	})
}

// A node that is asked for a result and sends nothing of it loses its session, though
// it answers.
func TestAskedAndSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		m, c := greets(t, h, "ws1")
		synctest.Wait()
		token, place := job.NewToken(), make(chan struct{}, 1)
		place <- struct{}{}
		h.do(func() {
			for _, s := range h.nodes.sessions {
				s.mu.Lock()
				s.grants[token], s.moved = &grant{session: s, attempt: token, done: place, taken: true}, time.Now()
				s.mu.Unlock()
			}
		})
		for {
			got, err := c.Recv()
			if p, ok := got.(*wire.Ping); ok {
				err = c.Send(&wire.Pong{N: p.N})
			}
			if err != nil {
				break
			}
		}
		if got := <-m.over; got <= stallLimit || got > stallLimit+time.Minute || stallLimit != 5*time.Minute {
			t.Errorf("the head lets it go after %v", got)
		}
	})
}

// A node that reads nothing, not even the pings, is let go too.
func TestT80NeverReads(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		m, c := greets(t, h, "ws1")
		var err error
		for n := uint64(0); err == nil; n++ { // it says much, and reads nothing
			time.Sleep(10 * time.Second)
			err = c.Send(&wire.Ping{N: n})
		}
		if got := <-m.over; got > 2*wire.WriteWithin {
			t.Errorf("the head let it go after %v", got)
		}
	})
}

// serves gives the head a tool's stream, whose user is proven.
func serves(t *testing.T, h *Head) (*met, *wire.Conn, chan error) {
	ended := make(chan error, 1)
	m := meets(t, h, func(s net.Conn) {
		c := wire.New(s)
		c.LimitFrames(wire.FrameWithin)
		err := h.serveTool(t.Context(), c, dial.Peer{UID: 1000, User: "ana", Groups: []int{os.Getgid()}, Proven: true}, func() {})
		s.Close()
		ended <- err
	})
	c := wire.New(m)
	if _, err := wire.Expect[*wire.Hello](c); err != nil {
		t.Fatal(err)
	}
	return m, c, ended
}

// A submission that stops half-way is given up, leaves nothing, and does not
// count as its user's any more.
func TestT79SlowTransfer(t *testing.T) {
	stages := map[string]func(c *wire.Conn) error{
		"after submit": func(*wire.Conn) error { return nil },
		"within the file": func(c *wire.Conn) error {
			return c.Send(&wire.Send{X: 1, Of: wire.OfBatch}, &wire.Data{X: 1, N: 3, Payload: []byte("abc")})
		},
		"within a frame": func(c *wire.Conn) error {
			return c.Send(&wire.Send{X: 1, Of: wire.OfBatch}, &wire.Data{X: 1, N: 30, Payload: []byte("abc")})
		},
	}
	for name, stage := range stages {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *Head) {
				m, c, ended := serves(t, h)
				if err := errors.Join(c.Send(&wire.Submit{Ref: job.NewToken(), Batch: "ns/b", Jobs: 1}), stage(c)); err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(m)
				m.ends(t, wire.FrameWithin)
				if e := asRefusal(<-ended); e == nil || e.Status != cli.Later {
					t.Errorf("it would be told %+v, and was %q", e, text)
				}
				h.do(func() {
					if len(h.tools.users) != 0 {
						t.Errorf("counted are %v", h.tools.users)
					}
				})
				if left, err := h.spool.Waiting(); err != nil || len(left) > 0 {
					t.Errorf("left: %v, %v", left, err)
				}
			})
		})
	}
}

func TestT79SilentTool(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		m, _, ended := serves(t, h)
		m.ends(t, toolWithin)
		if e := asRefusal(<-ended); e == nil || e.Status != cli.Later {
			t.Errorf("it would be told %+v", e)
		}
	})
}

// unauthenticatedPeers is the list of them, which of them were closed, and how one is added.
func unauthenticatedPeers() (s *unauthenticated, closed map[net.Conn]bool, add func(origin string) *noted) {
	s, closed = newUnauthenticated(), map[net.Conn]bool{}
	return s, closed, func(origin string) *noted {
		c := &noted{closed: closed}
		s.add(origin, c)
		return c
	}
}

// Thousands that say nothing do not keep out one that does; the oldest of
// those who have the most go.
func TestT79Strangers(t *testing.T) {
	s, closed, add := unauthenticatedPeers()
	quiet := add("10.0.0.9")
	var flood []*noted
	for range 4000 {
		flood = append(flood, add("10.0.0.1"))
	}
	if closed[quiet] || len(closed) != 4001-maxUnauthenticated {
		t.Errorf("%d were closed, the quiet one: %v", len(closed), closed[quiet])
	}
	for i, c := range flood {
		if closed[c] != (i < 4001-maxUnauthenticated) {
			t.Fatalf("number %d of 4000 is closed: %v", i, closed[c])
		}
	}
	s.drop(quiet)
	s.drop(quiet)
	for _, c := range flood {
		s.drop(c)
	}
	if len(s.all) != 0 || len(s.of) != 0 {
		t.Errorf("left are %d of %v", len(s.all), s.of)
	}
}

// T79: a host that comes from all the addresses of its network pushes out its
// own, and hosts that come once each push out the oldest and not who comes last.
func TestT79StrangersFromEverywhere(t *testing.T) {
	_, closed, add := unauthenticatedPeers()
	quiet := add("2001:db8:1::7")
	for i := range 4000 {
		add(fmt.Sprintf("2001:db8:2::%x", i))
	}
	if closed[quiet] || len(closed) != 4001-maxUnauthenticated {
		t.Errorf("%d were closed, the quiet one: %v", len(closed), closed[quiet])
	}
	for i := range maxUnauthenticated {
		add(fmt.Sprintf("10.%d.%d.1", i/256, i%256))
	}
	if last := add("10.9.0.1"); closed[last] {
		t.Error("who comes last is closed")
	}
}

// noted is a stream that notes that it was closed.
type noted struct {
	net.Conn
	closed map[net.Conn]bool
}

func (n *noted) Close() error {
	n.closed[n] = true
	return nil
}

// The same with a head: as many silent streams as there may be and more, and a node and a
// tool get in.
func TestT79OthersGetIn(t *testing.T) {
	s := newSite(t)
	for range maxUnauthenticated + 50 {
		for _, addr := range []string{s.addr, s.dir} {
			c, err := dial.Dial(t.Context(), addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
	}
	s.submit("ns/b", "j")
	d := s.desk("ws1", "b")
	expect[*wire.Start](t, d.c)
}

// Who reads an answer slowly does not keep the others waiting for ever.
func TestT79SlowReader(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		h.tools.reading = newQuota(30_000)
		names := make([]string, 30_000)
		for i := range names {
			names[i] = fmt.Sprint("a-job-with-a-name-that-is-not-short-", i)
		}
		if err := h.accept(made(t, h, "ns/b", names...)); err != nil {
			t.Fatal(err)
		}
		ask := func() (*met, *wire.Conn) {
			m, c, _ := serves(t, h)
			if err := c.Send(&wire.Query{Ref: job.NewToken(), Of: "jobs", Args: []string{"ns/b"}, All: true}); err != nil {
				t.Fatal(err)
			}
			return m, c
		}
		slow, _ := ask()
		ended := make(chan bool)
		go func() { // six kilobytes a second
			defer close(ended)
			for part := make([]byte, 6<<10); ; time.Sleep(time.Second) {
				if _, err := io.ReadFull(slow, part); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		quick, c := ask()
		s, err := wire.Expect[*wire.Send](c)
		if err == nil {
			err = wire.Drain(c.RecvTransfer(s))
		}
		if err != nil {
			t.Errorf("the other one is told %v", err)
		}
		slow.ends(t, answerWithin)
		<-ended
		quick.Close()
		<-quick.over
	})
}

// I16: one user has half of the memory for answers, however much he asks for: others need not
// wait until he has read. What is over leaves nothing behind.
func TestQuotaOfUsers(t *testing.T) {
	q, ctx := newQuota(100), t.Context()
	var back []func()
	for range 5 {
		giveBack, err := q.take(ctx, 1, 10)
		if err != nil {
			t.Fatal(err)
		}
		back = append(back, giveBack)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := q.take(ctx, 1, 10)
			ended <- err
		}()
		synctest.Wait()
		if n := q.waiting.Load(); n != 1 {
			t.Errorf("%d wait", n)
		}
		if giveBack, err := q.take(ctx, 2, 50); err != nil {
			t.Error(err)
		} else {
			giveBack()
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("he has more than half")
		}
	})
	for _, b := range back {
		b()
	}
	if giveBack, err := q.take(ctx, 3, 1000); err != nil {
		t.Error(err)
	} else {
		giveBack()
	}
	if len(q.of) != 0 || q.waiting.Load() != 0 {
		t.Errorf("left are %v, and %d wait", q.of, q.waiting.Load())
	}
}

// A tool that does not take a large result, whose manifest is in memory meanwhile, does not
// keep the others waiting for ever.
func TestSlowPull(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		fillPulling(t, h)
		pull := func() (*met, *wire.Conn, error) {
			m, c, _ := serves(t, h)
			err := c.Send(&wire.Pull{Ref: job.NewToken(), ID: "ns/b/j"})
			var s *wire.Send
			if err == nil {
				s, err = wire.Expect[*wire.Send](c)
			}
			if err == nil {
				err = wire.Drain(c.RecvTransfer(s))
			}
			return m, c, err
		}
		idle, _, err := pull()
		if err != nil {
			t.Fatal(err)
		}
		quick, c, err := pull()
		if err == nil {
			err = c.Send(&wire.Pick{None: true})
		}
		if err != nil {
			t.Errorf("the other one is told %v", err)
		}
		idle.ends(t, answerWithin)
		quick.Close()
		<-quick.over
	})
}

// fillPulling makes a job ns/b/j with a result whose manifest takes all memory that pulls may have.
func fillPulling(t *testing.T, h *Head) {
	t.Helper()
	h.tools.pulling = newQuota(1 << 20)
	b := made(t, h, "ns/b", "j")
	if err := h.accept(b); err != nil {
		t.Fatal(err)
	}
	var m pack.Manifest
	for i := range 20_000 {
		m = append(m, pack.Entry{Path: fmt.Sprintf("directory-%05d", i), Type: pack.Dir, Mode: 0o755, Time: time.Now()})
	}
	var text bytes.Buffer
	batch := filepath.Join(h.spool.Dir(), "batches/ns/b")
	if err := errors.Join(m.Encode(&text), os.MkdirAll(filepath.Join(batch, "out/j"), 0o777),
		os.WriteFile(filepath.Join(batch, "manifests/j.jsonl"), text.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// The manifest of a result is let go when its tool has all that it wants of it: a tool pulls any
// number of large results over one session.
func TestPullsOneAfterAnother(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		fillPulling(t, h)
		m, c, _ := serves(t, h)
		late := time.AfterFunc(answerWithin, func() { c.Close() })
		defer late.Stop()
		for range 5 {
			err := c.Send(&wire.Pull{Ref: job.NewToken(), ID: "ns/b/j"})
			var s *wire.Send
			if err == nil {
				s, err = wire.Expect[*wire.Send](c)
			}
			if err == nil {
				err = wire.Drain(c.RecvTransfer(s))
			}
			if err == nil {
				err = c.Send(&wire.Pick{None: true})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		m.Close()
		<-m.over
	})
}

// A node may be at work for long with what has come, as with the first part of a large
// file that was cut: what it has asked for waits until it reads on.
func TestNodeReadsDataLate(t *testing.T) {
	bubble(t, func(t *testing.T, h *Head) {
		session := wire.New(meets(t, h, nil))
		head, err := wire.Greet(session, wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "b", State: "s"})
		if err == nil {
			err = session.Send(&wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{})
		}
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for err := error(nil); err == nil; {
				var m wire.Message
				m, err = session.Recv()
				if p, ok := m.(*wire.Ping); ok {
					err = session.Send(&wire.Pong{N: p.N})
				}
			}
		}()
		for _, way := range []string{"down", "down"} {
			data := wire.New(meets(t, h, nil))
			if _, err := wire.Greet(data, wire.Hello{Role: wire.RoleData, Name: "ws1", Join: head.Join, State: way}); err != nil {
				t.Fatal(err)
			}
			if err := data.Send(&wire.Fetch{Attempt: job.NewToken(), Of: wire.OfSpec}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * wire.WriteWithin) // of the bubble's clock
			if m, err := data.Recv(); err != nil {
				t.Errorf("after two minutes it gets %v, %v", m, err)
			}
			data.Close()
		}
		session.Close()
		<-ended
	})
}
