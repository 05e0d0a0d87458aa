package head

import (
	"fmt"

	"distribute/lib/cli"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// drain has a node given nothing on the word of an operator, until resume.
func (t *tool) drain(m *wire.Change) error {
	return t.aboutNode(m, "only operators and the user who runs dsched may drain a node", func(name node.Name, _ *session) error {
		if m.Dry || t.machine.Drained(name) != "" {
			return nil
		}
		t.log.Info("node drained by an operator", "node", string(name), "by", t.peer.User)
		t.store.Drain(string(name), t.peer.User, false)
		t.apply(sched.Drain{Node: name, By: t.peer.User})
		return nil
	})
}

// resume has a node that was drained or rests given jobs again, and ends its pauses, on
// the word of an operator. The node is told before who asked is answered.
func (t *tool) resume(m *wire.Change) error {
	const only = "only operators and the user who runs dsched may end a pause from here: who holds it does so there, by dpause -r"
	return t.aboutNode(m, only, func(name node.Name, s *session) error {
		drained := t.machine.Drained(name) != ""
		if s == nil && !drained {
			return &wire.Error{Ref: m.Ref, Status: cli.Input, Text: fmt.Sprintf("%s is not connected, so it cannot be told: there, root can end every pause by dpause -r", name)}
		}
		if m.Dry {
			return nil
		}
		t.log.Info("node resumed by an operator", "node", string(name), "by", t.peer.User)
		t.undrain(name)
		if s != nil {
			s.tell(&wire.Resume{By: t.peer.User})
		}
		return nil
	})
}

// undrain has a node given jobs again, if it was drained or rests.
func (t *tool) undrain(name node.Name) {
	if t.machine.Drained(name) != "" {
		t.store.Drain(string(name), t.peer.User, true)
	}
	t.apply(sched.Drain{Node: name})
}
