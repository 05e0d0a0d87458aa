package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/dial"
)

// keyFile is the node's key in its directory.
func keyFile(dir string) string { return filepath.Join(dir, "key") }

// ownKey is the node's key, if the head's address needs it.
func ownKey(dir, addr string) (k dial.Key, err error) {
	if !strings.HasPrefix(addr, "tls://") {
		return k, nil
	}
	k, err = dial.ReadKey(keyFile(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return k, cli.Errorf(cli.Input, "this node has no key (%q), and TLS needs one: dnoded -init %s and the head's fingerprint make it", keyFile(dir), addr)
	case errors.Is(err, dial.ErrBadKey):
		return k, cli.Errorf(cli.Input, "%w", err)
	}
	return k, err
}
