package noded

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"distribute/lib/job"
	"distribute/lib/wire"
)

// What the head asks for before it lets an attempt go it gets, however soon that follows.
func TestTailBeforeItIsLetGo(t *testing.T) {
	t.Parallel()
	h := newFakeHead(t)
	h.spec = `{"kind":"command","build":["sh","-c","echo no; exit 3"],"resources":{"cpus":1}}`
	h.live(filepath.Join(t.TempDir(), "node"), nil)
	s, _ := h.session()
	st := h.start("true")
	s.say(st)
	if e := awaited[*wire.Ended](s); e.Fate != job.FateBuildFailed {
		t.Fatalf("it says %+v", e)
	}
	var ms []wire.Message
	const many = MaxTails + 6 // builds of so many batches may have ended while the node was away
	for x := range uint64(many) {
		ms = append(ms, &wire.Tail{X: x + 1, Attempt: st.Attempt, Build: true})
	}
	s.say(append(ms, &wire.Have{Attempt: st.Attempt}, &wire.Forget{Build: st.Job.Batch()})...)
	got := map[uint64]string{}
	for range ms {
		for over := false; !over; {
			switch m := s.recv().(type) {
			case *wire.Data:
				got[m.X] += string(m.Payload)
			case *wire.End:
				got[m.X] += m.Error
				over = true
			}
		}
	}
	for x := range uint64(many) {
		if got[x+1] != "no\n" {
			t.Errorf("log %d: %q", x+1, got[x+1])
		}
	}
}

// Of an output that nobody wants any more the rest is not sent.
func TestTailIsBrokenOff(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err == nil {
		err = f.Truncate(64 << 20)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := &daemon{acts: make(chan func()), over: make(chan struct{})}
	close(n.over)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go wire.New(ours).SendTransfer(&wire.Send{X: 1, Of: wire.OfLog}, func(w io.Writer) error {
		return n.follow(ctx, &output{File: f, of: &attempt{}}, &wire.Tail{}, w.(*wire.Writer))
	})
	c := wire.New(theirs)
	defer c.Close()
	send, err := wire.Expect[*wire.Send](c)
	if err != nil {
		t.Fatal(err)
	}
	r := c.RecvTransfer(send)
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if rest, err := io.Copy(io.Discard, r); rest > 4<<20 || !errors.Is(err, wire.ErrGaveUp) {
		t.Errorf("%d bytes come, %v", rest, err)
	}
}

// What a job has printed until its node ends is not taken for the whole.
func TestTailUntilTheNodeEnds(t *testing.T) {
	n := &daemon{acts: make(chan func()), over: make(chan struct{})}
	close(n.over)
	path := filepath.Join(t.TempDir(), "output")
	if err := os.WriteFile(path, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ours, theirs := net.Pipe()
	defer ours.Close()
	sent := make(chan error)
	go func() {
		sent <- wire.New(ours).SendTransfer(&wire.Send{X: 1, Of: wire.OfLog}, func(w io.Writer) error {
			return n.follow(ctx, &output{File: f, of: &attempt{}}, &wire.Tail{Follow: true}, w.(*wire.Writer))
		})
	}()
	c := wire.New(theirs)
	defer c.Close()
	send, err := wire.Expect[*wire.Send](c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c.RecvTransfer(send))
	if string(got) != "one\n" || !errors.Is(err, wire.ErrGaveUp) {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
