package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"distribute/lib/cli"
	"distribute/lib/conf"
	"distribute/lib/durable"
	"distribute/lib/inventory"
	"distribute/lib/node"
)

// nodeFile is the node's file in its directory.
func nodeFile(dir string) string { return filepath.Join(dir, "node.yaml") }

// settle has the node's file say where the head is and which key it has, if any
// counts. What stands there besides stays as it is.
func settle(dir, head string, key node.Fingerprint) (*inventory.File, error) {
	if err := ownedDir(dir); err != nil {
		return nil, err
	}
	name, mode := nodeFile(dir), fs.FileMode(0o640)
	if info, err := os.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	text, err := conf.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := inventory.Parse(name, text)
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
	if !bytes.Contains(text, []byte("auto_pause")) {
		text = append(text, "# auto_pause: 15m  # jobs stand still while somebody is at this machine, dnode(5)\n"...)
	}
	file, err = inventory.Parse(name, text)
	if err != nil || file.Head != head || key != "" && file.HeadKey != key {
		return nil, cli.Errorf(cli.Input, "%q cannot be added to; write there: %s", name, strings.ReplaceAll(strings.TrimSpace(lack.String()), "\n", ", "))
	}
	return file, durable.WriteFile(name, text, mode)
}

// ownedDir makes the node's directory, if it is not there; one of another user is
// refused.
func ownedDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return cli.Errorf(cli.NotAllowed, "%q belongs to user %d: run this as that user", dir, st.Uid)
	}
	return nil
}
