package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/noded"
	"distribute/lib/wire"
)

// forwardWithin is how long the head may take until its socket is here.
const forwardWithin = time.Minute

// A carried is what the head has started over ssh: standard input and output, and a
// socket of the node's directory whose streams sshd brings to the head.
type carried struct {
	conn   *wire.Conn
	socket string
	end    context.CancelFunc

	once sync.Once
	err  error       // why the socket is not there
	over atomic.Bool // the head has ended it
}

// serveStdio is the life of a node whose head has started it: it lasts as long
// as one session, and as standard input. What runs then goes on.
func serveStdio(ctx context.Context, c *cli.Cmd, s noded.Settings) error {
	if c.StdinTTY() {
		return cli.Usagef("dnoded -stdio is started by the head, through ssh, and not at a terminal")
	}
	in, out, err := c.Stdio()
	if err != nil {
		return err
	}
	socket, err := filepath.Abs(filepath.Join(s.Dir, "head"))
	if err != nil {
		return err
	}
	if len(socket) > dial.MaxPath {
		return cli.Errorf(cli.Input, "the path of %q is too long for a socket: with -stdio the node's directory needs one of %d characters at most", socket, dial.MaxPath-len("/head"))
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	h := &carried{conn: wire.New(stdio{in, out}), socket: socket, end: end}
	if err := h.conn.Send(&wire.Attach{Node: string(s.Name)}); err != nil {
		return notStarted(err)
	}
	from, _, _ := strings.Cut(c.Getenv("SSH_CONNECTION"), " ")
	s.Addr = "ssh://" + cmp.Or(from, "head")
	s.Once = true
	s.Up = func() { tellLeft(s.Log, s.Dir, nil) }
	s.Dial = h.dial
	if err = noded.Run(ctx, s); h.over.Load() {
		return nil
	}
	return err
}

// dial makes a stream to the head. The first has the directory's lock, and so may
// ask for the socket.
func (h *carried) dial(ctx context.Context, _ string) (net.Conn, error) {
	if h.once.Do(func() { h.err = h.ask() }); h.err != nil {
		return nil, h.err
	}
	return dial.Dial(ctx, "unix:"+h.socket)
}

// ask asks the head for its socket, and waits until it is here. From then on the
// end of standard input ends the daemon.
func (h *carried) ask() error {
	if err := os.Remove(h.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err := h.conn.Send(&wire.Attach{Socket: h.socket})
	if err == nil {
		h.conn.ReadWithin(forwardWithin)
		_, err = wire.Expect[*wire.Attach](h.conn)
		h.conn.ReadWithin(0)
	}
	if err != nil {
		return notStarted(err)
	}
	go func() {
		h.conn.Recv() // nothing more is said
		h.over.Store(true)
		h.end()
	}()
	return nil
}

// notStarted is why there is no head at the other end.
func notStarted(err error) error {
	return cli.Errorf(cli.Unreachable, "dnoded -stdio is started by the head, through ssh: %w", err)
}

// A stdio is the stream on stdin and stdout.
type stdio struct{ in, out *os.File }

func (s stdio) Read(p []byte) (int, error)         { return s.in.Read(p) }
func (s stdio) Write(p []byte) (int, error)        { return s.out.Write(p) }
func (s stdio) Close() error                       { return errors.Join(s.in.Close(), s.out.Close()) }
func (s stdio) SetReadDeadline(t time.Time) error  { return s.in.SetReadDeadline(t) }
func (s stdio) SetWriteDeadline(t time.Time) error { return s.out.SetWriteDeadline(t) }
