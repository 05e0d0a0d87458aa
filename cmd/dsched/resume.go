package main

import (
	"fmt"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

// resume ends the pauses of a node on the word of an operator. The node is told
// before who asked is answered with the jobs that it has.
func (t *tool) resume(m *wire.Change) error {
	name, err := t.ofNode(m, "only operators and the user who runs dsched may end a pause from here: who holds it does so there, by dpause -r")
	if err != nil {
		return err
	}
	var ids []job.ID
	ok := t.do(func() {
		s, known := t.sessions[t.byNode[name]], false
		if ids, known = t.given(name); s != nil {
			known = true
		}
		switch {
		case !known:
			err = &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("no node %q was ever here", name)}
		case s == nil:
			err = &wire.Error{Ref: m.Ref, Status: cli.Input, Text: fmt.Sprintf("%s is not connected, so it cannot be told: there, root can end every pause by dpause -r", name)}
		case !m.Dry:
			t.log.Info("resumed by an operator", "node", string(name), "by", t.peer.User)
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
