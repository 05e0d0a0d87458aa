package spool

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	"distribute/lib/check"
)

// keys looks at the keys, not into those that are secret, and reads the list of
// nodes.
func (c *checker) keys(u *check.Unit) error {
	list, err := c.list(u, "keys")
	for _, e := range list {
		name := "keys/" + e.Name()
		switch {
		case slices.Contains([]string{"head", "nodes", "ssh_key"}, e.Name()):
			if c.wantFile(u, name, e, 0o600) && e.Name() == "nodes" {
				err = errors.Join(err, c.nodeList(u, name))
			}
		case e.Name() == "ssh_key.pub", strings.HasPrefix(e.Name(), "known_hosts"):
			c.wantFile(u, name, e, 0o644)
		case unfinished(u, name, e):
		default:
			u.Odd(name, "it is no key, and no list of nodes")
		}
	}
	return err
}

// nodeList finds what is wrong in the list of nodes. People write it, so they
// put it right.
func (c *checker) nodeList(u *check.Unit, name string) error {
	const cure = "nothing: correct the line, or take it out; dsched goes by the list before until then, and does not start"
	f, err := check.Open(c.NodesFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return c.unreadable(u, name, err, "nothing: put it back from a copy")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxNodeList))
	if err != nil {
		return c.unreadable(u, name, err, "nothing: put it back from a copy")
	}
	u.Count(int64(len(text)))
	_, wrong := ParseNodes(text)
	found := damages{u: u, cure: cure}
	at, line := int64(0), 1
	for l := range strings.Lines(string(text)) {
		if len(wrong) == 0 {
			break
		}
		if wrong[0].Line == line {
			found.add(check.Finding{Kind: check.Damaged, Path: name, Line: line, Byte: at, What: wrong[0].Why, Cure: cure})
			wrong = wrong[1:]
		}
		at += int64(len(l))
		line++
	}
	return nil
}
