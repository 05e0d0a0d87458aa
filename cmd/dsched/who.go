package main

import (
	"slices"
	"strings"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/spool"
)

// operatorFor is how long it is remembered who is an operator: users and groups
// of a directory service are asked for by another program.
const operatorFor = time.Minute

// operator says whether the peer may act on everybody's batches, and see them:
// whom head.yaml names, the user who runs dsched, and root.
func (t *tool) operator() bool {
	if t.peer.UID == 0 || t.peer.UID == t.uid {
		return true
	}
	if t.asked.IsZero() || time.Since(t.asked) > operatorFor {
		t.named, t.asked = t.settings.names(t.peer, t.head.cannotTell), time.Now()
	}
	return t.named
}

// names says whether the operators that are named are, or hold, the peer: a
// name or @group of another number is another. What keeps that from being known
// goes to broken.
func (s *settings) names(p dial.Peer, broken func(operator string, err error)) bool {
	return slices.ContainsFunc(s.Operators, func(o string) bool {
		group, isGroup := strings.CutPrefix(o, "@")
		if isGroup {
			gid, err := dial.GroupID(group)
			if err != nil {
				broken(o, err)
			}
			return err == nil && slices.Contains(p.Groups, gid)
		}
		uid, err := dial.UserID(o)
		if err != nil {
			broken(o, err)
		}
		return err == nil && uid == p.UID
	})
}

// cannotTell logs that an operator is not known.
func (h *head) cannotTell(operator string, err error) {
	h.log.Warn("an operator of head.yaml is not known", "operator", operator, "why", err)
}

// owns says whether a batch is the peer's own: by the number of its owner,
// which was proven when it was submitted.
func (t *tool) owns(uid int) bool { return uid == t.peer.UID }

// mayChange says whether the peer may change a batch whose owner has that
// number.
func (t *tool) mayChange(uid int) bool { return t.owns(uid) || t.operator() }

// sees says whether the peer may know of a batch, and read all of it: his own,
// an operator any, and others as the modes of the spool say, which are those of
// its owner alone for a private one.
func (t *tool) sees(id job.BatchID, head *job.Head) bool {
	return t.mayChange(head.UID) || t.spool.Readable(id, t.reader())
}

func (t *tool) reader() spool.Reader { return spool.Reader{UID: t.peer.UID, Groups: t.peer.Groups} }

// seesID is sees of a batch of which only the name is known. Nobody but an
// operator sees one that is not there, or cannot be read.
func (t *tool) seesID(id job.BatchID) bool {
	if t.operator() || t.spool.Readable(id, t.reader()) {
		return true
	}
	uid, err := t.spool.Owner(id)
	return err == nil && t.owns(uid)
}
