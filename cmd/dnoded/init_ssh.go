package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/conf"
	"distribute/lib/dial"
	"distribute/lib/durable"
	"distribute/lib/inventory"
	"distribute/lib/node"
)

// initSSH is initNode for a head that is dialled over ssh: key is that of its
// host. It prints the line of authorized_keys that lets this node in.
func initSSH(ctx context.Context, c *cli.Cmd, dir, head string, key node.Fingerprint) error {
	if err := (dial.Terms{}).Check(head); err != nil {
		return cli.Usagef("%q: %w", head, err)
	}
	known, err := hostKey(ctx, c, head, key)
	if err != nil {
		return err
	}
	file, err := settle(dir, head, "")
	if err != nil {
		return err
	}
	name, err := inventory.Name(file)
	if err != nil {
		return cli.Errorf(cli.Input, "%w; give the node a name in %q", err, nodeFile(dir))
	}
	command, err := dial.ForcedCommand(head, string(name))
	if err != nil {
		return cli.Errorf(cli.Input, "%w", err)
	}
	if err := keepHost(filepath.Join(dir, "known_hosts"), known); err != nil {
		return err
	}
	public, err := sshKey(ctx, dir)
	if err != nil {
		return err
	}
	c.Talk("the head lets this node in by this line, in authorized_keys of the user who runs dsched there")
	_, err = fmt.Fprintf(c.Stdout, "restrict,command=\"%s\" %s %s\n", command, public, name)
	return err
}

// hostKey is the line of known_hosts for the head, whose key has that
// fingerprint.
func hostKey(ctx context.Context, c *cli.Cmd, head string, key node.Fingerprint) (string, error) {
	shown, err := dial.HostKeys(ctx, head)
	if err != nil {
		return "", err
	}
	if key == trustFirst {
		c.Talk("%s shows the host key %s, and is trusted from now on", head, shown[0].Fingerprint)
		return shown[0].Line, nil
	}
	i := slices.IndexFunc(shown, func(k dial.HostKey) bool { return k.Fingerprint == key })
	if i < 0 {
		return "", cli.Errorf(cli.NotAllowed, "%s shows the host key %s, and not %s: it is another host, or somebody is between; nothing is written", head, shown[0].Fingerprint, key)
	}
	return shown[i].Line, nil
}

// keepHost writes the head's line of known_hosts. One that says something else
// is left alone.
func keepHost(path, line string) error {
	text, err := conf.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return durable.WriteFile(path, []byte(line+"\n"), 0o600)
	case err != nil:
		return err
	case !slices.Contains(strings.Split(string(text), "\n"), line):
		return cli.Errorf(cli.Input, "%q says something else of the head's host key; if that was changed on purpose, remove the file", path)
	}
	return nil
}

// sshKey is the public key of the node's ssh_key, which is made if it is not
// there, and never replaced.
func sshKey(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "ssh_key")
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(ctx, dir, path); err != nil {
			return "", err
		}
	}
	out, err := keygen(ctx, "-y", "-P", "", "-f", path)
	if err != nil {
		return "", cli.Errorf(cli.Input, "%q is not used as a key: %w; it is never replaced", path, err)
	}
	w := strings.Fields(string(out))
	if len(w) < 2 {
		return "", fmt.Errorf("ssh-keygen says %.100q of %q", out, path)
	}
	return w[0] + " " + w[1], nil
}

// makeKey has ssh-keygen make a key, which gets its name when it is durable.
func makeKey(ctx context.Context, dir, path string) error {
	tmp, err := os.MkdirTemp(dir, ".ssh_key.*.tmp~")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	made := filepath.Join(tmp, "key")
	if _, err := keygen(ctx, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", made); err != nil {
		return fmt.Errorf("no key can be made: %w", err)
	}
	text, err := os.ReadFile(made)
	if err != nil {
		return err
	}
	return durable.CreateNew(path, text, 0o600)
}

// keygen runs ssh-keygen, and makes an error of what it says.
func keygen(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "ssh-keygen", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("ssh-keygen is not installed: it comes with ssh(1)")
	}
	if err != nil {
		return nil, fmt.Errorf("ssh-keygen: %q", strings.Join(strings.Fields(said.String()), " "))
	}
	return out, nil
}
