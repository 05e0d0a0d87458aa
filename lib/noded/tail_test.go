package noded

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"distribute/lib/wire"
)

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
