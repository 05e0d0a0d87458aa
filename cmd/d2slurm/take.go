package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/slurm"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// Jobs of a head are taken to a cluster before their folder is made, so that from then
// on they run nowhere else. What is taken is in the list of a folder first, which is
// durable: whatever happens, d2slurm -r -x gives it back.

// backWithin is how long the head may take to take back what was taken from it.
const backWithin = time.Minute

// A take is jobs of a head on their way into a folder.
type take struct {
	*out
	head *ask.Head
	dir  string // the folder
	tmp  string // the folder before there is one: its list, and inputs
	held []job.ID

	batch job.BatchID
	ids   []job.ID // that may be taken
}

// fromHead makes a folder of jobs of the head.
func (o *out) fromHead(ctx context.Context, dir string) error {
	ops, err := ask.Read(o.c, true)
	if err != nil || ops.None {
		return err
	}
	if _, err := os.Lstat(dir); err == nil {
		return o.isThere()
	}
	t := &take{out: o, dir: dir}
	if t.head, err = ask.Dial(ctx, o.c, o.head); err != nil {
		return err
	}
	defer t.head.Close()
	if err := t.choose(ctx, ops); err != nil {
		return err
	}
	if err := t.check(ctx); err != nil {
		return err
	}
	return t.take(ctx)
}

// choose finds out which of the jobs that the operands mean can be taken.
func (t *take) choose(ctx context.Context, ops *ask.Operands) error {
	batches, left := map[job.BatchID]bool{}, 0
	err := ask.Rows(ctx, t.head, wire.Query{Of: "jobs"}, ops, func(r *job.Row) error {
		if r.State != job.Queued && r.State != job.Held {
			left++
			return nil
		}
		if r.State == job.Held {
			t.held = append(t.held, r.ID)
		}
		t.batch = r.ID.Batch()
		batches[t.batch] = true
		t.ids = append(t.ids, r.ID)
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(t.ids) == 0:
		return cli.Errorf(cli.No, "no job to be taken to the cluster: only what is queued or held can be (%s)", unit.Count(left, "other job"))
	case len(batches) > 1:
		names := []string{}
		for b := range batches {
			names = append(names, string(b))
		}
		slices.Sort(names)
		return cli.Errorf(cli.Input, "a folder has jobs of one batch, and these are of %d: name those of one (%.300s)", len(names), strings.Join(names, ", "))
	case left > 0:
		t.c.Talk("%s left: they run or are over", unit.Count(left, "job"))
	}
	return nil
}

// check finds out whether a folder can be made of these jobs, before they are taken: one
// that was held may begin when it is given back.
func (t *take) check(ctx context.Context) error {
	batch, err := t.head.Describe(ctx, t.operands())
	if err != nil {
		return err
	}
	if err := slurm.Check(batch); err != nil {
		return cli.Errorf(cli.Input, "%w", err)
	}
	t.values, err = ask.Secrets(t.c, batch.Spec.Secrets, t.secrets, func(string) string { return string(batch.ID()) })
	return err
}

// operands are the jobs that may be taken.
func (t *take) operands() *ask.Operands {
	ops := &ask.Operands{}
	for _, id := range t.ids {
		ops.Args = append(ops.Args, string(id))
	}
	return ops
}

// take takes the jobs, fetches them and makes the folder, or gives them back.
func (t *take) take(ctx context.Context) (err error) {
	if t.tmp, err = os.MkdirTemp(filepath.Dir(t.dir), ".d2slurm-"); err != nil {
		return err
	}
	list := &slurm.Folder{Version: 1, ID: job.NewToken(), Name: t.name, Batch: t.batch, Kind: job.Command}
	for i, id := range t.ids {
		list.Jobs = append(list.Jobs, slurm.FolderJob{Job: id.Name(), Dir: "jobs/" + id.Name(), Index: i})
	}
	if err := errors.Join(list.Write(t.tmp), durable.SyncTree(t.tmp), durable.SyncDir(filepath.Dir(t.dir))); err != nil {
		return errors.Join(err, os.RemoveAll(t.tmp))
	}
	batch, notes, err := t.fill(ctx, list.ID)
	if err != nil {
		return t.giveBack(ctx, err)
	}
	if err := os.RemoveAll(t.tmp); err != nil {
		return err
	}
	return t.tell(ctx, t.dir, batch, notes)
}

// fill takes the jobs to the cluster, fetches them, and writes the folder of them.
func (t *take) fill(ctx context.Context, folder job.Token) (*job.Batch, []string, error) {
	taken, err := t.claim(ctx, folder)
	if err != nil {
		return nil, nil, err
	}
	batch, err := t.head.Describe(ctx, taken)
	if err == nil {
		err = t.head.Inputs(ctx, t.c, batch, t.tmp)
	}
	if err != nil {
		return nil, nil, err
	}
	notes, err := t.write(ctx, t.dir, batch, folder, false)
	return batch, notes, err
}

// claim takes the jobs to the cluster, and returns those that are there.
func (t *take) claim(ctx context.Context, folder job.Token) (*ask.Operands, error) {
	taken, held := &ask.Operands{}, map[job.ID]bool{}
	for _, id := range t.held {
		held[id] = true
	}
	err := t.head.Claim(ctx, string(node.Abroad(t.name)), folder, t.operands(), func(c *wire.Claimed) error {
		if !c.Void && !c.Ended {
			taken.Args = append(taken.Args, string(c.Job))
		}
		if c.Held && !held[c.Job] { // since it was chosen
			t.held = append(t.held, c.Job)
		}
		return nil
	})
	left := len(t.ids) - len(taken.Args)
	switch {
	case err != nil:
		return nil, err
	case len(taken.Args) == 0:
		return nil, cli.Errorf(cli.No, "no job to be taken to the cluster: all of these wait for others, have begun meanwhile, or are on a cluster")
	case left > 0:
		t.c.Talk("%s left: they wait for others, have begun meanwhile, or are on a cluster", unit.Count(left, "job"))
	}
	return taken, nil
}

// giveBack gives back what was taken, since no folder came of it. What was held is to be held
// before it is back: on the way a free node could begin it.
func (t *take) giveBack(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backWithin)
	defer cancel()
	c := *t.c
	c.Args = []string{t.tmp}
	b := &back{c: &c, head: t.out.head, giveUp: true, silent: true}
	left, err := t.hold(ctx, t.held)
	if back := b.run(ctx); back != nil {
		return errors.Join(why, fmt.Errorf("what was taken from the head was not given back: %w: when it can be, d2slurm -r -x %s does that", back, t.tmp))
	}
	if left = slices.DeleteFunc(left, func(id job.ID) bool { return !b.given[id] }); len(left) > 0 {
		_, err = t.hold(ctx, left) // what was taken behind the first hold
	}
	if err != nil {
		err = fmt.Errorf("what was taken from the head is given back and queued, and not held again as it was: %w", err)
	}
	return errors.Join(why, err, os.RemoveAll(t.tmp))
}

// hold holds jobs that were held before they were taken, or has them be held when they come
// back. It returns those of which nothing was changed.
func (t *take) hold(ctx context.Context, ids []job.ID) (left []job.ID, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	h, err := ask.Dial(ctx, t.c, t.out.head)
	if err != nil {
		return ids, err
	}
	defer h.Close()
	ops, held := &ask.Operands{}, map[string]bool{}
	for _, id := range ids {
		ops.Args = append(ops.Args, string(id))
	}
	err = h.Change(ctx, wire.Change{Verb: "hold", Freeze: true}, ops, func(id string) error {
		held[id] = true
		return nil
	})
	return slices.DeleteFunc(slices.Clone(ids), func(id job.ID) bool { return held[string(id)] }), err
}
