package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/noded"
	"distribute/lib/wire"
)

// serveStdio is the life of a node whose head has started it: it lasts as long
// as one session over stdin and stdout. What runs then goes on.
func serveStdio(ctx context.Context, c *cli.Cmd, s noded.Settings) error {
	if c.StdinTTY() {
		return cli.Usagef("dnoded -stdio is started by the head, through ssh, and not at a terminal")
	}
	in, out, err := c.Stdio()
	if err != nil {
		return err
	}
	conn := wire.New(stdio{in, out})
	if err := conn.Send(&wire.Attach{Node: string(s.Name), Parts: true}); err != nil {
		conn.Close()
		return cli.Errorf(cli.Unreachable, "dnoded -stdio is started by the head, through ssh: %w", err)
	}
	parts := dial.Share(conn, true)
	defer parts.Close()
	from, _, _ := strings.Cut(c.Getenv("SSH_CONNECTION"), " ")
	s.Addr = "ssh://" + cmp.Or(from, "head")
	s.Once = true
	s.Dial = func(context.Context, string) (net.Conn, error) { return parts.Begin() }
	err = noded.Run(ctx, s)
	if e := parts.Err(); e != nil && errors.Is(err, e) {
		return nil // the head has ended it
	}
	return err
}

// A stdio is the stream on stdin and stdout.
type stdio struct{ in, out *os.File }

func (s stdio) Read(p []byte) (int, error)         { return s.in.Read(p) }
func (s stdio) Write(p []byte) (int, error)        { return s.out.Write(p) }
func (s stdio) Close() error                       { return errors.Join(s.in.Close(), s.out.Close()) }
func (s stdio) SetReadDeadline(t time.Time) error  { return s.in.SetReadDeadline(t) }
func (s stdio) SetWriteDeadline(t time.Time) error { return s.out.SetWriteDeadline(t) }
