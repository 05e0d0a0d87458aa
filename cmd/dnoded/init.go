package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"distribute/lib/cli"
	"distribute/lib/conf"
	"distribute/lib/dial"
	"distribute/lib/durable"
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
		return cli.Usagef("%w", err)
	}
	shown, away := dial.KeyAt(ctx, head)
	switch {
	case away != nil && (key == trustFirst || errors.Is(away, dial.ErrHandshake)):
		return away
	case key == trustFirst:
		key = shown
		c.Talk("%s shows the key %s, and is trusted from now on", head, key)
	case away == nil && shown != key:
		return cli.Errorf(cli.NotAllowed, "%s shows the key %s, and not %s: it is another head, or somebody is between; nothing is written", head, shown, key)
	}
	file, err := settle(dir, head, key)
	if err != nil {
		return err
	}
	name := whatIsHere(file, c.Getenv).name
	if name.err != nil {
		return cli.Errorf(cli.Input, "%w; give the node a name in %q", name.err, nodeFile(dir))
	}
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
		c.Talk("%v; the settings are written all the same", away)
	case there: // and may be in use
		c.Talk("the node has a key already; if it is not accepted yet, on the head: dadm accept %s %s", name.value, own.Fingerprint())
	default:
		if err := knock(ctx, c, dial.Terms{Key: own, HeadKey: key}, head, name.value); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(c.Stdout, "%s\t%s\n", name.value, own.Fingerprint())
	return err
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

// nodeFile is the node's file in its directory.
func nodeFile(dir string) string { return filepath.Join(dir, "node.yaml") }

// settle has the node's file say where the head is and which key it has, if any
// counts. What stands there besides stays as it is.
func settle(dir, head string, key node.Fingerprint) (*node.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return nil, cli.Errorf(cli.NotAllowed, "%q belongs to user %d: run this as that user", dir, st.Uid)
	}
	name := nodeFile(dir)
	text, err := conf.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := node.Parse(name, text)
	if err != nil {
		return nil, err
	}
	var lack bytes.Buffer
	for _, k := range []struct{ key, is, want string }{{"head", file.Head, head}, {"head_key", string(file.HeadKey), string(key)}} {
		switch {
		case k.is == k.want, k.want == "":
		case k.is == "":
			fmt.Fprintf(&lack, "%s: %s\n", k.key, k.want)
		default:
			return nil, cli.Errorf(cli.Input, "%q says that %s is %s, and not %s: change it there if it is to be so", name, k.key, k.is, k.want)
		}
	}
	if lack.Len() == 0 {
		return file, nil
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, lack.Bytes()...)
	file, err = node.Parse(name, text)
	if err != nil || file.Head != head || key != "" && file.HeadKey != key {
		return nil, cli.Errorf(cli.Input, "%q cannot be added to; write there: %s", name, strings.ReplaceAll(strings.TrimSpace(lack.String()), "\n", ", "))
	}
	return file, durable.WriteFile(name, text, 0o640)
}
