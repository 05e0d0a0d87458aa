package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
)

// attach carries the stream on stdin and stdout, which is that of an ssh, to the
// dsched that runs here. With a node's name what comes is that node. Why it cannot
// be is told on the stream, too.
func attach(ctx context.Context, c *cli.Cmd, dir string) error {
	asked, err := readAttach(c.Stdin)
	if err != nil {
		return cli.Errorf(cli.Input, "%w: dsched -attach is started by ssh, for a tool or a node", err)
	}
	err = attached(ctx, c, asked, dir)
	if told := (*untold)(nil); errors.As(err, &told) {
		wire.New(ends{nil, c.Stdout}).Send(&wire.Error{Status: cli.Status(err), Text: err.Error()})
	}
	return err
}

// An untold is an error of which the stream does not know yet.
type untold struct{ error }

// Unwrap returns the cause.
func (e *untold) Unwrap() error { return e.error }

// attached brings the stream on stdin and stdout to dsched, and returns when that
// is done with it.
func attached(ctx context.Context, c *cli.Cmd, asked *wire.Attach, dir string) error {
	node, err := nodeOf(c)
	if err != nil {
		return &untold{err}
	}
	getenv := c.Getenv
	if node != "" {
		getenv = homeOnly(c.Getenv)
	} else if dir == "" {
		if dir = asked.Spool; dir != "" && !filepath.IsAbs(dir) { // nor any other socket of this user
			return &untold{cli.Errorf(cli.Input, "%q is no path of a spool: it begins with /", dir)}
		}
	}
	stream, err := connect(ctx, getenv, dir)
	if err != nil {
		return &untold{err}
	}
	if err := wire.New(stream).Send(&wire.Attach{Node: node, Local: asked.Local}); err != nil {
		return &untold{err}
	}
	return dial.Relay(ctx, stream, c.Stdin, c.Stdout)
}

// nodeOf is the node that the other end is, if the command line says one.
func nodeOf(c *cli.Cmd) (string, error) {
	switch len(c.Args) {
	case 0:
		return "", nil
	case 1:
		if err := job.CheckName(c.Args[0]); err != nil {
			return "", cli.Usagef("%w", err)
		}
		return c.Args[0], nil
	}
	return "", cli.Usagef("one node at most, %d operands were given", len(c.Args))
}

// connect makes a stream to dsched.
func connect(ctx context.Context, getenv func(string) string, dir string) (net.Conn, error) {
	addr, from, err := dial.HeadFrom(getenv, dir)
	if errors.Is(err, dial.ErrNoHead) {
		return nil, cli.Errorf(cli.Unreachable, "no head is set there: name its spool, as in ssh://HOST/SPOOL, or have an operator write that into /etc/distribute/head there")
	}
	if err != nil {
		return nil, err
	}
	if strings.Contains(addr, "://") {
		by := "it is said to be"
		if from != "" {
			by = from + " says that it is"
		}
		return nil, cli.Errorf(cli.Unreachable, "the head is not on that machine, where %s at %q: use that address", by, addr)
	}
	stream, err := dial.Dial(ctx, addr)
	var unreached *dial.Error
	var idle *dial.Idle
	switch {
	case errors.As(err, &idle):
		host, _ := os.Hostname()
		return nil, cli.Errorf(cli.Unreachable, "no dsched runs on %s's %q (%w)", cmp.Or(host, "that machine"), addr, idle.Err)
	case errors.Is(err, fs.ErrPermission):
		return nil, cli.Errorf(cli.NotAllowed, "the spool %q there is not for this user (permission denied)", addr)
	case errors.As(err, &unreached):
		return nil, cli.Errorf(cli.Unreachable, "%q there: %w", addr, unreached.Err)
	}
	return stream, err
}

// homeOnly is an environment of which nothing may be set by who comes over ssh:
// sshd(8) sets HOME itself, after what the other end sends.
func homeOnly(getenv func(string) string) func(string) string {
	return func(name string) string {
		if name != "HOME" {
			return ""
		}
		return getenv(name)
	}
}

// ends are the two ends of a stream that nobody closes.
type ends struct {
	io.Reader
	io.Writer
}

func (ends) Close() error { return nil }

// readAttach reads the line with which a stream begins, and nothing after it.
func readAttach(r io.Reader) (*wire.Attach, error) {
	var b strings.Builder
	for one := make([]byte, 1); b.Len() == 0 || one[0] != '\n'; b.Write(one) {
		if b.Len() == wire.MaxHello {
			return nil, line.ErrLine
		}
		if _, err := io.ReadFull(r, one); err != nil {
			return nil, fmt.Errorf("the stream ends before it begins: %w", err)
		}
	}
	m, err := wire.New(ends{strings.NewReader(b.String()), nil}).Recv()
	if err != nil {
		return nil, err
	}
	a, ok := m.(*wire.Attach)
	if !ok {
		return nil, errors.New("the stream does not begin with attach")
	}
	return a, nil
}
