package head

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
	return t.aboutNode(m, "only operators and the user who runs dsched may give up a node", func(name node.Name, s *session) error {
		switch {
		case s != nil:
			return &wire.Error{Ref: m.Ref, Status: cli.Input, Text: fmt.Sprintf("%s is connected: it is not lost", name)}
		case !m.Dry:
			t.log.Warn("attempt given up by an operator", "node", string(name), "by", t.peer.User)
			t.apply(sched.NodeGone{Node: name})
			t.forgetHome(name)
		}
		return nil
	})
}

// aboutNode has done what an operator says of a node that is known, with its session
// if it is connected. When that is durable, he is answered with the jobs of which it
// had an attempt before. Others are told only whose right it is.
func (t *tool) aboutNode(m *wire.Change, only string, do func(name node.Name, s *session) error) error {
	name, err := t.ofNode(m, only)
	if err != nil {
		return err
	}
	var ids []job.ID
	ok := t.settled(func() {
		known, s := false, t.nodes.sessions[t.nodes.byName[name]]
		ids, known = t.given(name)
		for _, o := range t.nodes.sessions {
			if o.abroad && o.name == name && len(ids) == 0 {
				s = o // and nobody else has anything there
			}
		}
		if its, had := t.nodes.homes[name]; m.Verb == "lost" && had && (its.machine != "" || its.session > 0) {
			known = true // its directory may be refused
		}
		if !known && s == nil {
			err = &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("no node %q was ever here", name)}
			return
		}
		err = do(name, s)
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
	if len(m.Args) != 1 || job.CheckName(m.Args[0]) != nil && (m.Verb != "lost" || node.CheckAbroad(m.Args[0]) != nil) {
		return "", &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: "one node is to be named"}
	}
	return node.Name(m.Args[0]), nil
}

// given is the jobs of which a node has attempts or ranks, as far as the head knows, and
// whether it knows the node.
func (h *Head) given(name node.Name) (ids []job.ID, known bool) {
	known = h.machine.Drained(name) != "" ||
		slices.ContainsFunc(h.machine.Nodes(), func(r sched.Node) bool { return r.Node == name })
	add := func(a sched.Attempt) {
		b := h.batches[a.Ref.Batch]
		if b == nil {
			return
		}
		known = true
		if name.Abroad() && h.nodes.byName[name.Of(b.Head.UID)] != 0 {
			return // somebody brings these back just now
		}
		if name, err := b.Name(int(a.Ref.Job)); err == nil {
			ids = append(ids, b.ID.Job(name))
		}
	}
	h.machine.Live(func(a sched.Attempt) {
		if a.Node == name {
			add(a)
		}
	})
	h.machine.Guests(name, add)
	for n := range h.batches {
		known = known || slices.ContainsFunc(h.machine.Holders(n), func(p sched.Holder) bool { return p.Node == name })
	}
	slices.Sort(ids)
	return slices.Compact(ids), known
}
