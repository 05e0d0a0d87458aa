package main

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
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
	rows, err := s.able(ctx, needs)
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

// needsOf returns what the jobs of a batch need of nodes, each once, and the name of the first
// job that does.
func needsOf(b *job.Batch) (needs, first []string, err error) {
	there := map[string]bool{}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		need := wire.Need{Kind: b.Spec.Kind, Capabilities: slices.Concat(b.Spec.Capabilities, j.Capabilities), Resources: *cmp.Or(j.Resources, &b.Spec.Resources)}
		need.Resources.Time = 0
		text, err := json.Marshal(need)
		if err != nil {
			return nil, nil, err
		}
		if !there[string(text)] {
			there[string(text)] = true
			needs, first = append(needs, string(text)), append(first, j.Name)
		}
	}
	return needs, first, nil
}

// able asks the head how many nodes could meet each of some needs.
func (s *submission) able(ctx context.Context, needs []string) (rows []wire.Able, err error) {
	h, err := ask.Dial(ctx, s.Cmd, *s.head)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.Able(ctx, needs)
}
