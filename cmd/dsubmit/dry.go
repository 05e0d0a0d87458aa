package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"distribute/lib/ask"
	"distribute/lib/capability"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// tellNodes says how many nodes could run the jobs of a batch that is not submitted. It returns
// the error with which the head would refuse the batch because no node could.
func (s *submission) tellNodes(ctx context.Context, b *job.Batch) error {
	needs, first, err := needsOf(b)
	if err != nil || len(needs) == 0 {
		return err
	}
	rows, err := s.able(ctx, b.ID(), needs)
	if err != nil {
		s.talk("which nodes could run them is not known: %v", err)
		return nil
	}
	least := 0
	for i := range rows {
		if rows[i].Able < rows[least].Able {
			least = i
		}
	}
	r := rows[least]
	switch nodes := unit.Count(r.Nodes, "node"); {
	case r.Nodes == 0:
		s.talk("no node is known yet")
	case r.Why != "" && !*s.queue:
		return cli.Errorf(cli.Input, "no node could ever run %q: %s", first[least], r.Why)
	case len(rows) > 1:
		s.talk("%d of %s could run %s, and as many or more each other job", r.Able, nodes, first[least])
	default:
		s.talk("%d of %s could run %s", r.Able, nodes, map[bool]string{true: "it", false: "them"}[len(b.Jobs) == 1])
	}
	return nil
}

// needsOf returns what the jobs of a batch need of nodes, and the name of the first job that does.
// Of needs that differ in the disk alone it returns the one with most. It returns an error if these
// are more than the head takes.
func needsOf(b *job.Batch) (needs, first []string, err error) {
	var all []wire.Need
	var requests job.Requests
	at := map[string]int{}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if err := requests.Add(&b.Spec, j); err != nil {
			return nil, nil, cli.Errorf(cli.Input, "%w", err)
		}
		need := wire.Need{Kind: b.Spec.Kind, Capabilities: slices.Concat(b.Spec.Capabilities, j.Capabilities), Resources: *cmp.Or(j.Resources, &b.Spec.Resources)}
		if len(b.Spec.Secrets) > 0 {
			need.Capabilities = append(need.Capabilities, capability.TakesSecrets)
		}
		slices.Sort(need.Capabilities)
		need.Capabilities = slices.Compact(need.Capabilities)
		disk := need.Resources.Disk
		need.Resources.Time, need.Resources.Disk = 0, 0
		text, err := json.Marshal(need)
		if err != nil {
			return nil, nil, err
		}
		need.Resources.Disk = disk
		n, there := at[string(text)]
		switch {
		case !there:
			at[string(text)] = len(all)
			all, first = append(all, need), append(first, j.Name)
		case disk > all[n].Resources.Disk:
			all[n], first[n] = need, j.Name
		}
	}
	for _, need := range all {
		text, err := json.Marshal(need)
		if err != nil {
			return nil, nil, err
		}
		needs = append(needs, string(text))
	}
	return needs, first, nil
}

// able asks the head how many nodes could meet each of some needs. It tells if the head has a batch
// of the name already.
func (s *submission) able(ctx context.Context, id job.BatchID, needs []string) (rows []wire.Able, err error) {
	h, err := ask.Dial(ctx, s.Cmd, *s.head)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	if rows, err = h.Able(ctx, needs); err == nil {
		s.tellTaken(ctx, h, id)
	}
	return rows, err
}

// tellTaken says that the name of a batch that is not submitted is taken, and what that means. It is
// silent if it is free, or the head does not answer.
func (s *submission) tellTaken(ctx context.Context, h *ask.Head, id job.BatchID) {
	_ = ask.Rows(ctx, h, wire.Query{Of: "batches"}, &ask.Operands{Args: []string{string(id)}}, func(r *query.Batch) error {
		there := fmt.Sprintf("%s is there already, with %s", r.ID, unit.Count(r.Jobs, "job"))
		switch {
		case *s.adds:
			s.talk("%s: only jobs that it lacks would be added", there)
		case *s.unique:
			s.talk("%s: another batch would get the next free name", there)
		default:
			s.talk("%s: another batch would be refused", there)
		}
		return nil
	})
}
