package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/inventory"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// trustFirst stands for the fingerprint of whatever answers.
const trustFirst = "first"

// initNode makes this machine a node of the head that args name: it writes the
// node's key and where the head is, and prints what the head's operators accept.
func initNode(ctx context.Context, c *cli.Cmd, dir string, args []string) error {
	if len(args) != 2 {
		return cli.Usagef("-init takes a head and the fingerprint of its key, %d operands were given", len(args))
	}
	head, key := args[0], node.Fingerprint(args[1])
	if !strings.Contains(head, "://") {
		head = "tls://" + head
	}
	if key != trustFirst {
		if err := key.Check(); err != nil {
			return cli.Usagef("%w (dadm init prints it; or %q to trust whatever answers now)", err, trustFirst)
		}
	}
	if strings.HasPrefix(head, "ssh://") {
		return initSSH(ctx, c, dir, head, key)
	}
	return initTLS(ctx, c, dir, head, key)
}

// initTLS is initNode for a head that is dialled over TLS.
func initTLS(ctx context.Context, c *cli.Cmd, dir, head string, key node.Fingerprint) error {
	if err := dial.CheckTLS(head); err != nil {
		return cli.Usagef("%q: %w", head, err)
	}
	key, away, err := compare(ctx, c, head, key)
	if err != nil {
		return err
	}
	file, err := settle(dir, head, key)
	if err != nil {
		return err
	}
	if len(file.Nodes) == 0 {
		name, err := inventory.Name(file)
		if err != nil {
			return cli.Errorf(cli.Input, "%w; give the node a name in %q", err, nodeFile(dir))
		}
		return join(ctx, c, dir, name, head, key, away)
	}
	for _, n := range file.Nodes {
		part, err := partDir(dir, n.Name)
		if err != nil {
			return err
		}
		if err := join(ctx, c, part, n.Name, head, key, away); err != nil {
			return err
		}
	}
	return nil
}

// join makes the key of a node, if it has none, and prints what the head's operators
// accept. Away is why the head cannot be reached, if it cannot.
func join(ctx context.Context, c *cli.Cmd, dir string, name node.Name, head string, key node.Fingerprint, away error) error {
	own, err := dial.NewKey(keyFile(dir))
	there := errors.Is(err, fs.ErrExist)
	if there {
		own, err = ownKey(dir, head)
	}
	if err != nil {
		return err
	}
	switch {
	case away != nil:
		c.Talk("%v; the settings are written all the same, into %q", away, nodeFile(dir))
	case there: // and may be in use
		c.Talk("the node has a key already; if it is not accepted yet, on the head: dadm accept %s %s", name, own.Fingerprint())
	default:
		if err := knock(ctx, c, dial.Terms{Key: own, HeadKey: key}, head, string(name)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(c.Stdout, "%s\t%s\n", name, own.Fingerprint())
	return err
}

// compare dials the head once, and holds the key that it shows against the one
// that it should have, which it returns. A head that is away is told of by away.
func compare(ctx context.Context, c *cli.Cmd, head string, want node.Fingerprint) (key node.Fingerprint, away, err error) {
	shown, away := dial.KeyAt(ctx, head)
	switch {
	case away != nil && (want == trustFirst || errors.Is(away, dial.ErrHandshake)):
		return "", nil, away
	case away != nil:
		return want, away, nil
	case want == trustFirst:
		c.Talk("%s shows the key %s, and is trusted from now on", head, shown)
		return shown, nil, nil
	case shown != want:
		return "", nil, cli.Errorf(cli.NotAllowed, "%s shows the key %s, and not %s: it is another head, or somebody is between; nothing is written", head, shown, want)
	}
	return want, nil, nil
}

// knock says hello to the head with a new key, so that the head knows of the
// node, and says whether somebody has accepted the key beforehand.
func knock(ctx context.Context, c *cli.Cmd, terms dial.Terms, head, name string) error {
	conn, _, err := terms.Greet(ctx, head, wire.Hello{Role: wire.RoleNode, Name: name, Boot: "init", State: "init"})
	var refusal *wire.Error
	switch {
	case errors.As(err, &refusal) && refusal.Pending:
		c.Talk("waiting to be accepted; on the head: dadm accept %s %s", name, terms.Key.Fingerprint())
		return nil
	case err != nil:
		return err
	}
	c.Talk("%s is accepted already", name)
	return conn.Close()
}
