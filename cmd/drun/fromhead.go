package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/pull"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// ofHead asks the head what the jobs are that the operands mean, in whatever state
// they are there. Of that it does not hear.
func (r *runner) ofHead(ctx context.Context, flag string) error {
	ops, err := ask.Read(r.c, true)
	if err != nil || ops.None {
		return err
	}
	for i, a := range ops.Args {
		if batch, name, _, err := job.ParseID(a); err == nil && name != "" {
			ops.Args[i] = string(batch.Job(name)) // of an attempt, its job
		}
	}
	if r.head, err = ask.Dial(ctx, r.c, flag); err != nil {
		return err
	}
	var ids []job.ID
	batches := map[job.BatchID]bool{}
	err = ask.Rows(ctx, r.head, wire.Query{Of: "jobs"}, ops, func(row *job.Row) error {
		if _, _, _, err := job.ParseID(string(row.ID)); err != nil {
			return r.head.Odd(ctx, err)
		}
		batches[row.ID.Batch()] = true
		ids = append(ids, row.ID)
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(ids) == 0:
		return cli.Errorf(cli.NoSuch, "there are no such jobs on the head: nothing to run")
	case len(batches) > 1:
		names := []string{}
		for b := range batches {
			names = append(names, string(b))
		}
		slices.Sort(names)
		return cli.Errorf(cli.Input, "one batch is run at a time, and these jobs are of %d: name those of one (%.300s)", len(names), strings.Join(names, ", "))
	}
	return r.describe(ctx, ids)
}

// describe makes the batch of these jobs, but for its inputs.
func (r *runner) describe(ctx context.Context, ids []job.ID) error {
	namespace, name, _ := strings.Cut(string(ids[0].Batch()), "/")
	b := &job.Batch{Namespace: namespace, Name: name, Sources: map[string]job.Source{}}
	if err := r.object(ctx, &wire.Pull{ID: string(ids[0]), Of: wire.OfSpec}, &b.Spec); err != nil {
		return err
	}
	for _, id := range ids {
		j := job.Job{}
		if err := r.object(ctx, &wire.Pull{ID: string(id), Of: wire.OfJob}, &j); err != nil {
			return err
		}
		if j.Name != id.Name() {
			return r.head.Odd(ctx, fmt.Errorf("%w: the job %.100q for %q", line.ErrLine, j.Name, id))
		}
		b.Jobs = append(b.Jobs, j)
	}
	job.ForgetNeeds(b.Jobs)
	r.b = b
	return nil
}

// maxObject is how long what is common to a batch, or a job, may be as JSON.
const maxObject = 16 << 20

// object is an answer of the head that is one object.
func (r *runner) object(ctx context.Context, ask *wire.Pull, v any) error {
	ask.Ref = job.NewToken()
	in, err := r.head.Answer(ctx, ask)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(in, maxObject+1))
	if err == nil && len(text) > maxObject {
		err = fmt.Errorf("%w: %s of more than %d bytes", line.ErrLine, ask.Of, maxObject)
	}
	if err == nil {
		err = wire.Drain(in)
	}
	if err != nil {
		return r.head.Failed(ctx, err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return r.head.Odd(ctx, fmt.Errorf("%w: %v", line.ErrLine, err))
	}
	return nil
}

// fetch brings the inputs of the batch from the head, below dir, and leaves the head.
func (r *runner) fetch(ctx context.Context, dir string) error {
	bar := r.c.Progress("fetching inputs", 0, unit.FormatBytes)
	defer bar.Done()
	all := &pull.Inputs{Dir: dir, Sources: r.b.Sources, Some: wire.MaxSums, Grow: bar.Grow, Add: bar.Add}
	common := [][]job.Input{r.b.Spec.Inputs}
	if image := r.b.Spec.Image; image != nil {
		common = append(common, []job.Input{*image})
	}
	for i := range r.b.Jobs {
		j := &r.b.Jobs[i]
		err := all.Lack(append(common, j.Inputs), func(m pack.Manifest) error {
			ask := &wire.Pull{Ref: job.NewToken(), ID: string(r.b.ID().Job(j.Name)), Of: wire.OfInputs}
			for _, e := range m {
				ask.Sums = append(ask.Sums, e.Sum)
			}
			in, err := r.head.Answer(ctx, ask)
			if err != nil {
				return err
			}
			if err := pack.Receive(in, m, pack.Want{}, all); err != nil {
				return r.head.Failed(ctx, err)
			}
			return r.head.Failed(ctx, wire.Drain(in))
		})
		if err != nil {
			return err
		}
		common = nil
	}
	return r.head.Close()
}
