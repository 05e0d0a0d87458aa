package main

import (
	"fmt"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// drain has a node given nothing on the word of an operator, until resume. Who asked
// is answered with the jobs that it has still.
func (t *tool) drain(m *wire.Change) error {
	name, err := t.ofNode(m, "only operators and the user who runs dsched may drain a node")
	if err != nil {
		return err
	}
	var ids []job.ID
	ok := t.settled(func() {
		known := false
		if ids, known = t.given(name); !known {
			err = &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("no node %q was ever here", name)}
			return
		}
		t.setDrained(name, m.Dry, false)
	})
	switch {
	case !ok:
		return errEndingNow
	case err != nil:
		return err
	}
	return t.tellIDs(m, ids)
}

// setDrained has a node be drained, or no longer. What is so already is not said
// again.
func (t *tool) setDrained(name node.Name, dry, off bool) {
	if dry || (t.machine.Drained(name) == "") == off {
		return
	}
	by := t.peer.User
	t.store.Drain(string(name), by, off)
	if off {
		by = ""
	}
	t.log.Info(map[bool]string{false: "drained", true: "no longer drained"}[off], "node", string(name), "by", t.peer.User)
	t.apply(sched.Drain{Node: name, By: by})
}

// resume ends the pauses of a node on the word of an operator, and has it given jobs
// if it was drained. The node is told before who asked is answered with the jobs that
// it has.
func (t *tool) resume(m *wire.Change) error {
	name, err := t.ofNode(m, "only operators and the user who runs dsched may end a pause from here: who holds it does so there, by dpause -r")
	if err != nil {
		return err
	}
	var ids []job.ID
	ok := t.settled(func() {
		s, known := t.sessions[t.byNode[name]], false
		if ids, known = t.given(name); s != nil {
			known = true
		}
		switch {
		case !known:
			err = &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("no node %q was ever here", name)}
		case s == nil && t.machine.Drained(name) != "":
			t.setDrained(name, m.Dry, true)
		case s == nil:
			err = &wire.Error{Ref: m.Ref, Status: cli.Input, Text: fmt.Sprintf("%s is not connected, so it cannot be told: there, root can end every pause by dpause -r", name)}
		case !m.Dry:
			t.log.Info("resumed by an operator", "node", string(name), "by", t.peer.User)
			t.setDrained(name, false, true)
			s.tell(&wire.Resume{By: t.peer.User})
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
