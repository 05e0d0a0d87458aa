package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"distribute/lib/wire"
)

// reachWithin is how long a desk may take until its dnoded speaks, and after that
// until its sshd has answered.
const reachWithin = time.Minute

// Reach starts dnoded -stdio at ssh://[user@]desk[:port], which has to be the node
// of that name, and has sshd there listen on a socket in its directory, whose
// streams come to the head's socket, in the directory of [Terms.Control]. What
// ends the ssh, and with it all these streams, comes over the channel; end ends it.
func (t Terms) Reach(ctx context.Context, addr, node, socket string) (over <-chan error, end func(), err error) {
	a, err := parseSSH(addr)
	if err == nil && a.spool != "" {
		err = fmt.Errorf("%q has a path: the address of a desk is ssh://[user@]desk[:port]", addr)
	}
	if err != nil {
		return nil, nil, err
	}
	t.Afresh()
	stream, err := t.startSSH(ctx, a, "dnoded -stdio")
	if err != nil {
		return nil, nil, err
	}
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	c := wire.New(stream)
	said, err := attached(c)
	if err == nil && said.Node != node {
		err = fmt.Errorf("it says that it is node %.100q: name it %q in its node.yaml, or in keys/nodes what it is", said.Node, node)
	}
	if err == nil {
		said, err = attached(c)
	}
	if err == nil {
		err = t.forward(ctx, a, said.Socket, socket)
	}
	if err == nil {
		err = c.Send(&wire.Attach{})
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Recv() // there is nothing more to be said
		if err == nil || err == io.EOF {
			err = errors.New("its dnoded has ended")
		}
		ended <- err
	}()
	return ended, func() { c.Close() }, nil
}

// attached is the next word of a dnoded -stdio.
func attached(c *wire.Conn) (*wire.Attach, error) {
	c.ReadWithin(reachWithin)
	defer c.ReadWithin(0)
	said, err := wire.Expect[*wire.Attach](c)
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("its dnoded has ended before it said which socket it wants")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("its dnoded says nothing for %v", reachWithin)
	}
	return said, err
}

// forward has the sshd of a desk listen on a socket there, whose streams the ssh
// that is connected brings to the head's.
func (t Terms) forward(ctx context.Context, a sshAddr, there, socket string) error {
	if !filepath.IsAbs(there) || len(there) > MaxPath || strings.ContainsAny(there, ":\\\x00\n\"%$") {
		return fmt.Errorf("its dnoded asks for the socket %.200q, which sshd cannot listen on", there)
	}
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	args := slices.Concat([]string{"-O", "forward", "-o", "BatchMode=yes"}, t.control(), []string{"-R", there + ":" + here(socket)}, a.words())
	cmd := exec.CommandContext(ctx, "ssh", args...)
	cmd.Dir = filepath.Dir(t.Control)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("its sshd does not forward the head's socket: AllowStreamLocalForwarding and DisableForwarding in its sshd_config may forbid that, "+
			"or the line of authorized_keys, where %q allows it (%.200q)", "restrict,port-forwarding,command=...", cmp.Or(lastLine(string(said)), err.Error()))
	}
	return nil
}
