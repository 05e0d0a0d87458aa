package main

import (
	"fmt"
	"slices"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// lost gives up a node on the word of an operator: what it was given is lost,
// and nothing waits for it any more.
func (t *tool) lost(m *wire.Change) error {
	name, err := t.ofNode(m, "only operators and the user who runs dsched may give up a node")
	if err != nil {
		return err
	}
	var ids []job.ID
	ok := t.settled(func() {
		var there bool
		ids, there = t.given(name)
		switch {
		case t.sessions[t.byNode[name]] != nil:
			err = &wire.Error{Ref: m.Ref, Status: cli.Input, Text: fmt.Sprintf("%s is connected: it is not lost", name)}
		case !there:
			err = &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("no node %q was ever here", name)}
		case !m.Dry:
			t.log.Warn("given up by an operator", "node", string(name), "by", t.peer.User)
			t.apply(sched.NodeGone{Node: name})
		}
	})
	switch {
	case !ok:
		return errEndingNow
	case err != nil:
		return err
	}
	return t.tellIDs(m, ids)
}

// ofNode is the one node that an operator names; others are told only whose right
// it is.
func (t *tool) ofNode(m *wire.Change, only string) (node.Name, error) {
	if !t.operator() {
		return "", &wire.Error{Ref: m.Ref, Status: cli.NotAllowed, Text: only}
	}
	if len(m.Args) != 1 || job.CheckName(m.Args[0]) != nil {
		return "", &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: "one node is to be named"}
	}
	return node.Name(m.Args[0]), nil
}

// given is the jobs of which a node has attempts, as far as the head knows, and
// whether it knows the node.
func (h *head) given(name node.Name) (ids []job.ID, known bool) {
	known = slices.ContainsFunc(h.machine.Nodes(), func(r sched.Node) bool { return r.Node == name })
	h.machine.Live(func(a sched.Attempt) {
		b := h.batches[a.Ref.Batch]
		if a.Node != name || b == nil {
			return
		}
		known = true
		if name, err := b.Name(int(a.Ref.Job)); err == nil {
			ids = append(ids, b.ID.Job(name))
		}
	})
	for n := range h.batches {
		known = known || slices.ContainsFunc(h.machine.Holders(n), func(p sched.Holder) bool { return p.Node == name })
	}
	slices.Sort(ids)
	return slices.Compact(ids), known
}
