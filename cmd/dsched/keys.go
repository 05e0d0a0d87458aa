package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// ownKey is the head's key, if one of the addresses needs it.
func (h *head) ownKey(addrs []string) (k dial.Key, err error) {
	if !slices.ContainsFunc(addrs, func(a string) bool { return strings.HasPrefix(a, "tls://") }) {
		return k, nil
	}
	k, err = dial.ReadKey(h.spool.KeyFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return k, cli.Errorf(cli.Input, "the head has no key, and TLS needs one: dadm init %s makes it", h.spool.Dir())
	case errors.Is(err, dial.ErrBadKey):
		return k, cli.Errorf(cli.Input, "%w", err)
	}
	return k, err
}

// nodeOfKey is the node that has the key, as far as somebody has accepted it.
func (h *head) nodeOfKey(key node.Fingerprint) (name node.Name, ok bool) {
	f, err := os.Open(filepath.Join(h.spool.Dir(), "keys", "nodes"))
	if err != nil {
		return "", false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if w := strings.Fields(lines.Text()); len(w) == 2 && w[1] == string(key) {
			return node.Name(w[0]), true
		}
	}
	return "", false
}

// mayHold reports why the peer with a key may not be the node of that name.
func (h *head) mayHold(key node.Fingerprint, name string) error {
	if err := job.CheckName(name); err != nil {
		return &wire.Error{Status: cli.Input, Text: err.Error()}
	}
	listed, ok := h.nodeOfKey(key)
	switch {
	case !ok:
		return &wire.Error{Status: cli.NotAllowed, Pending: true, Text: fmt.Sprintf(
			"this node waits to be accepted; on the head: dadm accept %s %s", name, key)}
	case string(listed) != name:
		return &wire.Error{Status: cli.NotAllowed, Text: fmt.Sprintf(
			"the key %s is that of node %q, and the node says that it is %.100q", key, listed, name)}
	}
	return nil
}
