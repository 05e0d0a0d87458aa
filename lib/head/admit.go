package head

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// minPrefix is how many characters of a fingerprint's 43 there must be.
const minPrefix = 4

// admit lets a node in, for good.
func (t *tool) admit(m *wire.Change) error {
	if !t.operator() {
		return &wire.Error{Ref: m.Ref, Status: cli.NotAllowed, Text: "only operators and the user who runs dsched may let a node in"}
	}
	if len(m.Args) != 2 || job.CheckName(m.Args[0]) != nil {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: "a node, and its fingerprint or address, are to be named"}
	}
	line, err := t.lineFor(node.Name(m.Args[0]), m.Args[1])
	if err != nil {
		return cli.Errorf(cli.Input, "%w", err)
	}
	var known, here, gone bool // gone: a line let it in, and no line does any more
	var ids []job.ID
	if !t.do(func() {
		ids, known = t.given(line.Node)
		here, gone = t.nodes.byName[line.Node] != 0, t.nodes.byLine[line.Node]
	}) {
		return errEndingNow
	}
	changed, err := t.changeNodes(m.Dry, func(l *spool.NodeList) (*spool.NodeList, error) {
		_, listed := l.Named(line.Node)
		switch {
		case line.Shut():
			return unshut(l, line.Node, known, gone)
		case here && !listed:
			return nil, cli.Errorf(cli.Input, "a node %[1]s is connected already, without a key or an address on the list, and would lose its name (dadm remove %[1]s first, if it is to go)", line.Node)
		}
		after, err := l.With(line)
		if err != nil {
			return nil, cli.Errorf(cli.Input, "%w", err)
		}
		return after, nil
	})
	if err != nil {
		return err
	}
	if changed && !m.Dry {
		t.log.Info("node accepted", "node", string(line.Node), "as", line.By(), "by", t.peer.User)
		t.do(func() {
			delete(t.nodes.removed, line.Node)
			t.apply(sched.Removed{Node: line.Node, Back: true})
		})
	}
	a := &wire.Admission{Node: line.Node, As: line.By(), Same: !changed}
	if !here {
		a.Jobs = len(ids)
	}
	s := t.send(wire.OfRows)
	s.Ref = m.Ref
	return t.c.SendTransfer(s, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(a)
	})
}

// unshut returns the list without the line that shuts a node out, which was removed and
// proves itself by no key. Gone says that it was let in by a line that is there no more.
func unshut(l *spool.NodeList, name node.Name, known, gone bool) (*spool.NodeList, error) {
	switch line, listed := l.Named(name); {
	case listed && !line.Shut():
		return nil, cli.Errorf(cli.Input, "%s is let in by %s", name, line.By())
	case !listed && gone:
		return nil, cli.Errorf(cli.Input, "%[1]s was let in by a fingerprint or an address: write that for - to let it in again (dquery -N %[1]s)", name)
	case !listed && !known:
		return nil, cli.Errorf(cli.Input, "no node %q was removed; one that is new is let in by its fingerprint, or its address", name)
	}
	return l.Without(name), nil
}

// lineFor is the line that lets a node in by what an operator says of it: a
// fingerprint, the beginning of that of a node that waits, or an address; or, of "-", the
// one that shuts it out.
func (t *tool) lineFor(name node.Name, by string) (line spool.NodeLine, err error) {
	digits, key := strings.CutPrefix(by, "SHA256:")
	whole := node.Fingerprint(by).Check() == nil
	switch {
	case key && !whole:
		if line, err = t.lineOfPrefix(name, by, digits); err != nil {
			return line, err
		}
	default:
		if line, err = spool.ReadNodeLine(string(name), by); err != nil {
			return line, err
		}
	}
	switch {
	case line.Shut():
		return line, nil
	case line.Addr != "":
		return line, dial.Terms{}.Check(line.Addr)
	case line.Key == t.terms.Key.Fingerprint():
		return line, fmt.Errorf("%s is the key of this head, and no node's", line.Key)
	}
	for _, w := range t.door.waiting() {
		if w.key == line.Key && w.name != name {
			return line, fmt.Errorf("the node with %s calls itself %s (dadm accept %s %s)", w.key, w.name, w.name, w.key)
		}
	}
	return line, nil
}

// lineOfPrefix is the line of the one node of that name whose fingerprint begins
// so, among those that wait and the one that is let in already.
func (t *tool) lineOfPrefix(name node.Name, prefix, digits string) (spool.NodeLine, error) {
	var fit []spool.NodeLine
	list, _ := t.door.nodes()
	if line, listed := list.Named(name); listed && strings.HasPrefix(string(line.Key), prefix) {
		fit = append(fit, line)
	}
	waiting := t.door.waiting()
	for _, w := range waiting {
		if w.name == name && strings.HasPrefix(string(w.key), prefix) {
			fit = append(fit, spool.NodeLine{Node: w.name, Key: w.key})
		}
	}
	var text strings.Builder
	switch {
	case len(digits) < minPrefix:
		return spool.NodeLine{}, fmt.Errorf("%q is too short: at least %d characters after SHA256: tell one key from another", prefix, minPrefix)
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1:
		fmt.Fprintf(&text, "%d keys of %s begin with %s; write one of them whole:", len(fit), name, prefix)
		for _, f := range fit {
			fmt.Fprintf(&text, "\n%s %s", f.Node, f.Key)
		}
	case len(waiting) == 0:
		fmt.Fprintf(&text, "no node waits to be accepted, and %.60q is no whole fingerprint: that is SHA256: and 43 characters", prefix)
	default:
		fmt.Fprintf(&text, "no node %s waits whose key begins with %.60q; these wait:", name, prefix)
		for _, w := range waiting {
			fmt.Fprintf(&text, "\n%s %s", w.name, w.key)
		}
	}
	return spool.NodeLine{}, fmt.Errorf("%s", text.String())
}

// shutOut removes a node: nobody is let in by its name any more. What it had is that of any
// node that is silent: it goes elsewhere when its lease is over, and is taken up again if the
// node is let in before.
func (t *tool) shutOut(m *wire.Change) error {
	if !t.operator() {
		return &wire.Error{Ref: m.Ref, Status: cli.NotAllowed, Text: "only operators and the user who runs dsched may remove a node"}
	}
	if len(m.Args) != 1 || job.CheckName(m.Args[0]) != nil {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: "one node is to be named"}
	}
	name := node.Name(m.Args[0])
	var ids []job.ID
	var known, gone bool // gone: no line lets it in any more
	if !t.do(func() {
		ids, known = t.given(name)
		gone = t.nodes.byLine[name]
	}) {
		return errEndingNow
	}
	_, err := t.changeNodes(m.Dry, func(l *spool.NodeList) (*spool.NodeList, error) {
		line, listed := l.Named(name)
		switch {
		case listed && !line.Shut():
			gone = true
			return l.Without(name), nil
		case listed, gone:
			return l, nil
		case known: // by nothing that is on the list
			return l.With(spool.NodeLine{Node: name})
		}
		return nil, &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("no node %q is let in, or was here", name)}
	})
	if err == nil && !m.Dry {
		ids, err = t.noteRemoved(name, gone)
	}
	if err != nil {
		return err
	}
	return t.tellIDs(m, ids)
}

// noteRemoved forgets of a node whose streams have ended that it was drained. byLine says that it
// was let in by a line, which is gone. It returns the jobs that the node has.
func (t *tool) noteRemoved(name node.Name, byLine bool) (ids []job.ID, err error) {
	ok := t.settled(func() {
		ids, _ = t.given(name)
		t.log.Warn("node removed by an operator", "node", string(name), "by", t.peer.User)
		t.undrain(name)
		t.apply(sched.Removed{Node: name})
		t.nodes.removed[name] = true
		if byLine {
			t.nodes.byLine[name] = true
		}
	})
	if !ok {
		return nil, errEndingNow
	}
	return ids, nil
}
