package head

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/dial"
)

// ownKey is the head's key, if one of the addresses needs it.
func (h *Head) ownKey(addrs []string) (k dial.Key, err error) {
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
