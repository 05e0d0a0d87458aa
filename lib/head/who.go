package head

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/wire"
	"distribute/spool"
)

// operatorFor is how long it is remembered who is an operator: users and groups
// of a directory service are asked for by another program.
const operatorFor = time.Minute

// nameFor is how long a user's name is remembered.
const nameFor = 5 * time.Second

// A named is the name of a user, or its number and why.
type named struct {
	name string
	err  error
}

func nameOf(uid int) named {
	name, err := account.Name(uid)
	return named{name, err}
}

func (n named) passing() bool { return n.err != nil && !errors.Is(n.err, account.ErrUnknown) }

// nameOfUser returns the name of a user, as [account.Name] does.
func (h *Head) nameOfUser(uid int) (string, error) {
	n := h.names.Of(uid)
	return n.name, n.err
}

// nameless refuses what would keep the name of the peer while it cannot be looked up: nodes
// know the user of a job by that name, for as long as the job is there.
func (t *tool) nameless() error {
	if t.peer.Named == nil {
		return nil
	}
	return &wire.Error{Status: cli.Later, Text: fmt.Sprintf("the name of the user %d cannot be looked up now (%v): try again", t.peer.UID, t.peer.Named)}
}

// operator says whether the peer may act on everybody's batches, and see them:
// whom head.yaml names, the user who runs dsched, and root.
func (t *tool) operator() bool {
	return t.peer.UID == 0 || t.peer.UID == t.uid || t.isNamed()
}

// isNamed says whether head.yaml names the peer as an operator.
func (t *tool) isNamed() bool {
	if set := t.settings(); t.by != set || time.Since(t.asked) > operatorFor {
		t.by, t.asked = set, time.Now()
		t.named = slices.ContainsFunc(set.Operators, func(o string) bool {
			is, err := t.isOperator(o, t.peer)
			if (numbered{err: err}).passing() {
				t.asked = time.Now().Add(nameFor - operatorFor) // it may be one soon
			}
			return err == nil && is
		})
	}
	return t.named
}

// isOperator says whether an operator of head.yaml, a name or @group, is the
// peer or a group of his: a name that has another number is somebody else.
func (h *Head) isOperator(o string, p dial.Peer) (bool, error) {
	n := h.tools.operators.Of(o)
	if strings.HasPrefix(o, "@") {
		return n.err == nil && slices.Contains(p.Groups, n.id), n.err
	}
	return n.err == nil && n.id == p.UID, n.err
}

// A numbered is the number of a user or a group, or why there is none.
type numbered struct {
	id  int
	err error
}

func (n numbered) passing() bool { return n.err != nil && !errors.Is(n.err, account.ErrUnknown) }

// numberOf is the number of an operator of head.yaml.
func numberOf(o string) numbered {
	if group, ok := strings.CutPrefix(o, "@"); ok {
		gid, err := account.GroupID(context.Background(), group)
		return numbered{gid, err}
	}
	a, err := account.Lookup(context.Background(), o)
	if err != nil {
		return numbered{0, err}
	}
	return numbered{a.UID, nil}
}

// checkOperators says in the log which operators of head.yaml, and users of its
// namespaces, nobody is, as far as can be known now.
func (h *Head) checkOperators(ctx context.Context) {
	set := h.settings()
	for _, o := range set.Operators {
		if _, err := h.isOperator(o, dial.Peer{UID: -1}); err != nil && ctx.Err() == nil {
			h.log.Warn("unknown operator in head.yaml", "operator", o, "why", err)
		}
	}
	for name, whose := range set.Namespaces {
		for _, o := range whose {
			if _, err := h.isOperator(o, dial.Peer{UID: -1}); err != nil && ctx.Err() == nil {
				h.log.Warn("unknown user of a namespace in head.yaml", "namespace", name, "user", o, "why", err)
			}
		}
	}
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
