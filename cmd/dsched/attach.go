package main

import (
	"bytes"
	"context"
	"errors"
	"io"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
)

// maxAttach is how many bytes the first line of a stream may have.
const maxAttach = 8192

// attach carries the stream on stdin and stdout, which is that of an ssh, to the
// dsched that runs here. With a node's name what comes is that node.
func attach(ctx context.Context, c *cli.Cmd, dir string) error {
	if len(c.Args) > 1 {
		return cli.Usagef("one node at most, %d operands were given", len(c.Args))
	}
	first, err := firstLine(c.Stdin)
	if err != nil {
		return err
	}
	m, err := wire.New(struct {
		io.Reader
		io.WriteCloser
	}{first, nil}).Recv()
	asked, ok := m.(*wire.Attach)
	if err == nil && !ok {
		err = errors.New("the stream does not begin with attach")
	}
	if err != nil {
		return cli.Errorf(cli.Input, "%w: dsched -attach is started by ssh, for a tool or a node", err)
	}
	to := &wire.Attach{Parts: asked.Parts}
	if len(c.Args) == 1 {
		to.Node = c.Args[0]
		if err := job.CheckName(to.Node); err != nil {
			return cli.Usagef("%w", err)
		}
	}
	if dir == "" && to.Node == "" {
		dir = asked.Spool
	}
	addr, err := dial.Head(c.Getenv, dir)
	if err != nil {
		return err
	}
	if _, ok := dial.Spool(addr); !ok {
		return cli.Errorf(cli.Input, "the head of this machine is at %q, and not here", addr)
	}
	stream, err := dial.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := wire.New(stream).Send(to); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { stream.Close() })
	ends := make(chan error, 2)
	go func() {
		_, err := io.Copy(stream, c.Stdin)
		ends <- err
	}()
	go func() {
		_, err := io.Copy(c.Stdout, stream)
		ends <- err
	}()
	return <-ends
}

// firstLine reads a line and nothing after it.
func firstLine(r io.Reader) (io.Reader, error) {
	var b []byte
	for one := make([]byte, 1); len(b) < maxAttach; {
		if _, err := io.ReadFull(r, one); err != nil {
			return nil, err
		}
		if b = append(b, one[0]); one[0] == '\n' {
			return bytes.NewReader(b), nil
		}
	}
	return nil, line.ErrLine
}
