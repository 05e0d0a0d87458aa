package head

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/conf"
	"distribute/lib/dial"
	"distribute/lib/job"
)

// head.yaml may say whose a namespace is. Others cannot submit batches there, and so take
// no name from its users. Who may see a batch is another matter.

// namespaces is what head.yaml says of namespaces: for each the users, and groups as
// @group, whose it is.
func namespaces(n conf.Node) map[string][]string {
	all := map[string][]string{}
	for _, p := range n.AnyMap().Pairs() {
		if err := job.CheckName(p.Name); err != nil {
			p.Key.Errorf("%w", err)
		}
		if all[p.Name] = p.Texts("write a list of users and groups: [ana, '@cfd']"); len(all[p.Name]) == 0 {
			p.Errorf("whose is it? write a list of users and groups: [ana, '@cfd']")
		}
	}
	return all
}

// maySubmit reports why a user may not submit batches in a namespace.
func (h *Head) maySubmit(p dial.Peer, batch job.BatchID) error {
	set := h.settings()
	whose, given := set.Namespaces[batch.Namespace()]
	if !given || p.UID == 0 || p.UID == h.uid {
		return nil
	}
	var passing error
	for _, o := range slices.Concat(whose, set.Operators) {
		is, err := h.isOperator(o, p)
		if err == nil && is {
			return nil
		}
		if (numbered{err: err}).passing() {
			passing = err
		}
	}
	if passing != nil {
		return cli.Errorf(cli.Later, "whose the namespace %s is cannot be looked up now (%w): try again", batch.Namespace(), passing)
	}
	return cli.Errorf(cli.NotAllowed, "the namespace %s is that of %s: submit the batch in another one, as in -b %s/NAME", batch.Namespace(), strings.Join(whose, ", "), p.User)
}

// mayHaveLeft is maySubmit for a user who is not connected.
func (h *Head) mayHaveLeft(uid int, name string, batch job.BatchID) error {
	if len(h.settings().Namespaces) == 0 {
		return nil
	}
	p := dial.Peer{UID: uid, User: name}
	switch a, err := account.Lookup(context.Background(), name); {
	case err == nil && a.UID == uid:
		p.Groups = a.Groups
	case err != nil && !errors.Is(err, account.ErrUnknown):
		return fmt.Errorf("the groups of %s cannot be looked up now: %w", name, err)
	}
	return h.maySubmit(p, batch)
}
