package noded

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// leftIn is an attempt that has ended and left what is in a directory.
func leftIn(t *testing.T, files map[string]string) (*Ran, string) {
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	exit := 0
	return &Ran{Attempt: job.NewToken(), Result: &job.Result{Outcome: job.Outcome{Exit: &exit}}, Over: func(bool) {},
		Left: &Left{Job: "j", Kind: job.Command, Printed: map[string]string{"j_output.txt": "printed"}, Inputs: []string{"in/mesh"}, Open: func() (*os.Root, error) { return os.OpenRoot(dir) }}}, dir
}

// telling begins to tell a head of attempts.
func telling(t *testing.T, all ...*Ran) (*fakeHead, *fakeSession, <-chan error) {
	h, told := newFakeHead(t), make(chan error, 1)
	go func() {
		told <- Tell(t.Context(), Settings{Addr: "tcp://" + h.l.Addr().String(), Name: "slurm:hpc"}, all)
	}()
	s, items := h.session()
	if len(items) > 0 {
		t.Fatalf("it lists %v", items)
	}
	return h, s, told
}

// What runs elsewhere is told as running; what is over comes home, small things with the
// word of it, and each is gone when the head has it. It ends when the head has answered.
func TestTellOfWhatRanElsewhere(t *testing.T) {
	runs, waits := &Ran{Attempt: job.NewToken(), For: 2.5}, &Ran{Attempt: job.NewToken(), Waits: true}
	small, _ := leftIn(t, map[string]string{"printed": "said", "work/in/mesh": "1", "work/out": "2", "work/distribute_save/kept": "3"})
	large, _ := leftIn(t, map[string]string{"work/out": string(make([]byte, pack.SmallBytes+1))})
	unwanted, _ := leftIn(t, nil)
	have := map[*Ran]bool{}
	for _, r := range []*Ran{small, large, unwanted} {
		r.Over = func(h bool) { have[r] = h }
	}
	_, s, told := telling(t, runs, waits, small, large, unwanted)
	if p := awaited[*wire.Phase](s); p.Attempt != runs.Attempt || p.Phase != job.PhaseRunning || p.Ran != 2.5 {
		t.Errorf("it says %+v", p)
	}
	if p := awaited[*wire.Phase](s); p.Attempt != waits.Attempt || p.Phase != job.PhaseWaiting {
		t.Errorf("it says %+v", p)
	}
	e := awaited[*wire.Ended](s)
	m, err := pack.ParseList(e.List, pack.DefaultLimits())
	if err != nil || e.Attempt != small.Attempt || e.Manifest != m.Sum() || e.Entries != 3 || len(e.Data) == 0 {
		t.Errorf("the small result: %v, %+v", err, e)
	}
	for _, p := range []string{"j_output.txt", "kept", "out"} {
		if _, is := m.Find(p); !is {
			t.Errorf("it has not left %s", p)
		}
	}
	if e = awaited[*wire.Ended](s); e.Attempt != large.Attempt || e.Manifest == "" || len(e.Data) > 0 {
		t.Errorf("the large result: %+v", e)
	}
	if e = awaited[*wire.Ended](s); e.Attempt != unwanted.Attempt {
		t.Errorf("the unwanted result: attempt %s", e.Attempt)
	}
	s.say(&wire.Have{Attempt: small.Attempt}, &wire.Grant{Attempt: large.Attempt, Manifest: true})
	up := <-s.up
	for _, of := range []string{wire.OfManifest, wire.OfTree} {
		send, err := wire.Expect[*wire.Send](up)
		if err != nil || send.Of != of || send.Attempt != large.Attempt {
			t.Fatalf("%v, %+v", err, send)
		}
		in := up.RecvTransfer(send)
		if of == wire.OfTree {
			err = pack.Receive(in, m, pack.Want{}, into{})
		} else {
			m, err = pack.DecodeManifest(in, pack.DefaultLimits())
		}
		if err = errors.Join(err, wire.Drain(in)); err != nil {
			t.Fatal(err)
		}
	}
	s.say(&wire.Forget{Attempt: large.Attempt}, &wire.Hold{Attempt: unwanted.Attempt})
	for _, r := range []*Ran{small, large} {
		if g := awaited[*wire.Gone](s); g.Attempt != r.Attempt {
			t.Errorf("gone is %+v", g)
		}
	}
	ping, err := wire.Expect[*wire.Ping](s.c)
	if err != nil || ping.N != lastPing {
		t.Fatalf("%v, %+v", err, ping)
	}
	s.say(&wire.Pong{N: ping.N})
	if err := <-told; err != nil || len(have) != 3 || !have[small] || !have[large] || have[unwanted] {
		t.Errorf("%v, the head has %v", err, have)
	}
}

// into is a sink that takes everything.
type into struct{}

func (into) Put(_ int, _ pack.Entry, _ int64, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// Telling ends with why it did: what the head has said, that it went away, or that what
// was left is not what it was.
func TestTellingEndsEarly(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*fakeSession, *Ran, string)
		want func(error) bool
	}{
		"the head says why": {func(s *fakeSession, _ *Ran, _ string) { s.say(&wire.Error{Status: 75, Text: "later"}) },
			func(err error) bool { e := (*wire.Error)(nil); return errors.As(err, &e) && e.Status == 75 }},
		"the head is gone": {func(s *fakeSession, _ *Ran, _ string) { s.c.Close() },
			func(err error) bool { return errors.Is(err, ErrLost) }},
		"a file is another": {func(s *fakeSession, r *Ran, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "work/out"), bytes.Repeat([]byte("x"), pack.SmallBytes+2), 0o600); err != nil {
				t.Error(err)
			}
			s.say(&wire.Grant{Attempt: r.Attempt})
			go io.Copy(io.Discard, (<-s.up).RecvTransfer(&wire.Send{X: 1, Of: wire.OfTree}))
		}, func(err error) bool { return errors.Is(err, pack.ErrChanged) }},
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := leftIn(t, map[string]string{"work/out": string(make([]byte, pack.SmallBytes+1))})
			_, s, told := telling(t, r)
			awaited[*wire.Ended](s)
			c.do(s, r, dir)
			if err := <-told; !c.want(err) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// How long it takes to read what was left is not the head's time: only what the head has
// not taken, or not answered, for so long is.
func TestTellReadsForLong(t *testing.T) {
	for _, tt := range []struct {
		name            string
		takes, answered bool
		want            error
	}{
		{"the head takes everything", true, true, nil},
		{"the head takes nothing", false, true, ErrStuck},
		{"the head does not answer the last ping", true, false, ErrStuck},
	} {
		var all []*Ran
		for range 2 {
			r, _ := leftIn(t, map[string]string{"work/out": "2"})
			open := r.Left.Open
			r.Left.Open = func() (*os.Root, error) {
				time.Sleep(2 * stuckAfter)
				return open()
			}
			all = append(all, r)
		}
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				serve := func(c *wire.Conn) {
					defer c.Close()
					_, err := c.Recv()
					answer := wire.Message(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, Join: job.NewToken(), Spool: "s"})
					for m := wire.Message(nil); err == nil; m, err = c.Recv() {
						switch m := m.(type) {
						case *wire.Ping:
							if m.N != lastPing || tt.answered {
								answer = &wire.Pong{N: m.N}
							}
						case *wire.Ended:
							if tt.takes {
								answer = &wire.Have{Attempt: m.Attempt}
							}
						}
						if answer != nil {
							err = c.Send(answer)
							answer = nil
						}
						if err != nil {
							return
						}
					}
				}
				err := Tell(t.Context(), Settings{Addr: "/spool", Name: "slurm:hpc", Machine: bareMachine{}, Uptime: func() time.Duration { return time.Since(began) },
					Dial: func(context.Context, string) (net.Conn, error) {
						a, b := net.Pipe()
						go serve(wire.New(b))
						return a, nil
					}}, all)
				if !errors.Is(err, tt.want) {
					t.Errorf("it ends with %v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// T82: a head that answers the last ping again, or what was not asked, ends nothing else.
func TestT82AnsweredTwice(t *testing.T) {
	r := &results{answered: make(chan struct{})}
	for _, n := range []uint64{lastPing - 1, lastPing, lastPing} {
		if !r.now(&wire.Pong{N: n}) {
			t.Errorf("the answer to %d is left to be obeyed", n)
		}
	}
	<-r.answered
}

// An input that a killed job has left is no output, also when it is younger than the job by the
// clock of the submitter's machine; one that the job has changed is.
func TestLeftInputs(t *testing.T) {
	started := time.Unix(1764400000, 0)
	placed := map[string]time.Time{"old": started.Add(-time.Hour), "young": started.Add(time.Hour + 123), "old2": started.Add(-time.Hour), "older": started.Add(-time.Hour), "young2": started.Add(time.Hour), "template": started.Add(-time.Second / 4), "linked": started.Add(time.Hour), "cloned": started.Add(time.Hour)}
	files := map[string]string{"work/out": "1"}
	for name := range placed {
		files["work/"+name] = name
	}
	r, dir := leftIn(t, files)
	l := r.Left
	l.Started, l.Inputs = started, nil
	for name, at := range placed {
		l.Inputs, l.MTimes = append(l.Inputs, name), append(l.MTimes, at.UnixNano())
		if name == "old2" || name == "young2" {
			at = started.Add(time.Minute) // the job has written to it
		}
		if name == "older" {
			at = started.Add(-2 * time.Hour) // the job has put an older file there
		}
		if name == "linked" || name == "cloned" { // another input has the same content, and another time
			l.Inputs, l.MTimes = append(l.Inputs, name), append(l.MTimes, started.Add(2*time.Hour).UnixNano())
		}
		if name == "linked" {
			at = started.Add(2 * time.Hour)
		}
		at = at.Truncate(time.Second)
		if name == "template" {
			at = started.Add(time.Second / 4) // as soon as it had begun
		}
		if err := os.Chtimes(filepath.Join(dir, "work", name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	l.Inputs = append(l.Inputs, "replaced", "in/put") // by directories with nothing in them
	for _, name := range []string{"replaced", "in"} {
		if err := os.Mkdir(filepath.Join(dir, "work", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := l.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.root.Close()
	for name, want := range map[string]bool{"out": true, "replaced": true, "in": false, "old": false, "young": false, "old2": true, "older": true,
		"young2": true, "template": true, "linked": false, "cloned": false} {
		if _, got := tree.m.Find(name); got != want {
			t.Errorf("%s comes home: %v, want %v", name, got, want)
		}
	}
}

// TestSendingOnSimulatedClock closes a result while it is sent over a slow connection. The clock of
// a simulation goes on meanwhile, as it would not if one of the two waited for a mutex.
func TestSendingOnSimulatedClock(t *testing.T) {
	left, _ := leftIn(t, map[string]string{"work/out": "1"})
	synctest.Test(t, func(t *testing.T) {
		n := Settings{}
		r := &results{n: &n, all: []*Ran{left}, late: time.NewTimer(time.Hour), sending: map[job.Token]*sending{}}
		tree, err := left.Left.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := &sending{Ran: left, tree: tree, use: make(chan struct{}, 1)}
		r.sending[left.Attempt] = w
		ours, theirs := net.Pipe()
		go func() {
			time.Sleep(time.Second)
			io.Copy(io.Discard, theirs)
		}()
		sent := make(chan error, 1)
		go func() {
			var x uint64
			sent <- r.deliver(wire.New(ours), &x, &wire.Grant{Attempt: left.Attempt, Manifest: true})
		}()
		synctest.Wait()
		w.close()
		if err := <-sent; err != nil || w.tree != nil {
			t.Errorf("sent: %v; closed: %v", err, w.tree == nil)
		}
		ours.Close()
	})
}
