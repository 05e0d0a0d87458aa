package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
)

// maxAttach is how many bytes the first line of a stream may have.
const maxAttach = 8192

// attach carries the stream on stdin and stdout, which is that of an ssh, to the
// dsched that runs here. With a node's name what comes is that node. Why it
// cannot be is told on the stream, too.
func attach(ctx context.Context, c *cli.Cmd, dir string) error {
	asked, err := readAttach(c.Stdin)
	if err != nil {
		return cli.Errorf(cli.Input, "%w: dsched -attach is started by ssh, for a tool or a node", err)
	}
	stream, err := connect(ctx, c, asked, dir)
	if err != nil {
		wire.New(ends{nil, c.Stdout}).Send(&wire.Error{Status: cli.Status(err), Text: err.Error()})
		return err
	}
	defer stream.Close()
	context.AfterFunc(ctx, func() { stream.Close() })
	return relay(stream, c)
}

// connect makes the stream to dsched, and says on it what it is that is carried.
func connect(ctx context.Context, c *cli.Cmd, asked *wire.Attach, dir string) (net.Conn, error) {
	to := &wire.Attach{Parts: asked.Parts}
	switch len(c.Args) {
	case 0:
	case 1:
		to.Node = c.Args[0]
		if err := job.CheckName(to.Node); err != nil {
			return nil, cli.Usagef("%w", err)
		}
	default:
		return nil, cli.Usagef("one node at most, %d operands were given", len(c.Args))
	}
	if dir == "" && to.Node == "" {
		dir = asked.Spool
	}
	addr, err := dial.Head(c.Getenv, dir)
	if errors.Is(err, dial.ErrNoHead) {
		return nil, cli.Errorf(cli.Unreachable, "no head is set there: name its spool, as in ssh://HOST/SPOOL, or have an operator write that into /etc/distribute/head there")
	}
	if err != nil {
		return nil, err
	}
	if strings.Contains(addr, "://") {
		return nil, cli.Errorf(cli.Unreachable, "the head is not on that machine, where it is said to be at %q: use that address", addr)
	}
	stream, err := dial.Dial(ctx, addr)
	var unreached *dial.Error
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, cli.Errorf(cli.NotAllowed, "the spool %q there is not for this user (permission denied)", addr)
	case errors.As(err, &unreached):
		return nil, cli.Errorf(cli.Unreachable, "%q there: %w", addr, unreached.Err)
	case err != nil:
		return nil, err
	}
	if err := wire.New(stream).Send(to); err != nil {
		stream.Close()
		return nil, err
	}
	return stream, nil
}

// relayed is how many bytes are carried at a time: what a socket gives at once.
// Splicing was tried, and is slower.
const relayed = 256 << 10

// relay copies both ways until one of them has ended: neither side of the
// protocol goes on when the other has stopped.
func relay(stream net.Conn, c *cli.Cmd) error {
	ended := make(chan error, 2)
	carry := func(to io.Writer, from io.Reader) { // past their own ways of copying, which take less at a time
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, relayed))
		ended <- err
	}
	go carry(stream, c.Stdin)
	go carry(c.Stdout, stream)
	return <-ended
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
		if b.Len() == maxAttach {
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
