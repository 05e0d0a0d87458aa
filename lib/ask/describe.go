package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/pull"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// Describe makes a batch of the jobs that operands mean, in whatever state they are, but
// for its inputs. They are to be of one batch.
func (h *Head) Describe(ctx context.Context, ops *Operands) (*job.Batch, error) {
	for i, a := range ops.Args {
		if batch, name, _, err := job.ParseID(a); err == nil && name != "" {
			ops.Args[i] = string(batch.Job(name)) // of an attempt, its job
		}
	}
	var ids []job.ID
	batches := map[string]bool{}
	err := Rows(ctx, h, wire.Query{Of: "jobs"}, ops, func(r *job.Row) error {
		if _, _, _, err := job.ParseID(string(r.ID)); err != nil {
			return h.Odd(ctx, err)
		}
		batches[string(r.ID.Batch())] = true
		ids = append(ids, r.ID)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(ids) == 0:
		return nil, cli.Errorf(cli.NoSuch, "there are no such jobs on the head: nothing to run")
	case len(batches) > 1:
		names := strings.Join(slices.Sorted(maps.Keys(batches)), ", ")
		return nil, cli.Errorf(cli.Input, "one batch is run at a time, and these jobs are of %d: name those of one (%.300s)", len(batches), names)
	}
	of := ids[0].Batch()
	b := &job.Batch{Namespace: of.Namespace(), Name: of.Name(), Jobs: make([]job.Job, len(ids)), Sources: map[string]job.Source{}}
	asks, into := []*wire.Pull{{ID: string(ids[0]), Of: wire.OfSpec}}, []any{&b.Spec}
	for i, id := range ids {
		asks, into = append(asks, &wire.Pull{ID: string(id), Of: wire.OfJob}), append(into, &b.Jobs[i])
	}
	if err := h.objects(ctx, asks, into); err != nil {
		return nil, err
	}
	for i, id := range ids {
		if name := b.Jobs[i].Name; name != id.Name() {
			return nil, h.Odd(ctx, fmt.Errorf("%w: the job %.100q for %q", line.ErrLine, name, id))
		}
	}
	job.ForgetNeeds(b.Jobs)
	return b, nil
}

// maxObject is how long what is common to a batch, or a job, may be as JSON.
const maxObject = 16 << 20

// objects asks for one object after another, and does not wait for an answer before it
// asks the next question. After an error the session is closed.
func (h *Head) objects(ctx context.Context, asks []*wire.Pull, into []any) error {
	asked := make(chan error, 1)
	go func() {
		var err error
		for _, ask := range asks {
			ask.Ref = job.NewToken()
			if err = h.Send(ask); err != nil {
				break
			}
		}
		asked <- err
	}()
	var err error
	for i := 0; i < len(into) && err == nil; i++ {
		err = h.object(ctx, asks[i].Of, into[i])
	}
	if err != nil {
		h.Close()
		<-asked
		return err
	}
	return <-asked
}

// object reads an answer of the head that is one object.
func (h *Head) object(ctx context.Context, of string, v any) error {
	s, err := wire.Expect[*wire.Send](h.Conn)
	if err != nil {
		return h.Failed(ctx, err)
	}
	in := h.RecvTransfer(s)
	text, err := io.ReadAll(io.LimitReader(in, maxObject+1))
	if err == nil && len(text) > maxObject {
		err = fmt.Errorf("%w: %s of more than %d bytes", line.ErrLine, of, maxObject)
	}
	if err == nil {
		err = wire.Drain(in)
	}
	if err != nil {
		return h.Failed(ctx, err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return h.Odd(ctx, fmt.Errorf("%w: %v", line.ErrLine, err))
	}
	return nil
}

// Inputs brings the inputs of a batch that Describe has made into the directory dir.
func (h *Head) Inputs(ctx context.Context, c *cli.Cmd, b *job.Batch, dir string) error {
	bar := c.Progress("fetching inputs", 0, unit.FormatBytes)
	defer bar.Done()
	all := &pull.Inputs{Dir: dir, Sources: b.Sources, Some: wire.MaxSums, Grow: bar.Grow, Add: bar.Add}
	common := [][]job.Input{b.Spec.Inputs}
	if image := b.Spec.Image; image != nil {
		common = append(common, []job.Input{*image})
	}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		err := all.Lack(append(common, j.Inputs), func(m pack.Manifest) error {
			ask := &wire.Pull{Ref: job.NewToken(), ID: string(b.ID().Job(j.Name)), Of: wire.OfInputs}
			for _, e := range m {
				ask.Sums = append(ask.Sums, e.Sum)
			}
			in, err := h.Answer(ctx, ask)
			if err != nil {
				return err
			}
			if err := pack.Receive(in, m, pack.Want{}, all); err != nil {
				return h.wrong(ctx, ask.ID, in, err)
			}
			return h.Failed(ctx, wire.Drain(in))
		})
		if err != nil {
			return err
		}
		common = nil
	}
	return nil
}
