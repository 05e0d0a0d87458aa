package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"distribute/lib/account"
	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/spool"
)

// open finds the source: the head, or the files of its spool if that is here
// and no dsched runs on it.
func (d *dquery) open(ctx context.Context, ops *ask.Operands) (source, error) {
	h, err := d.dial(ctx)
	if err == nil {
		d.sayWaiting(h.Addr)
		h.TellNewer(ctx, d.c, ops)
		l := &live{Head: h, d: d, ops: ops}
		h.Noted = l.noted
		return l, nil
	}
	var unreachable *dial.Error
	if !errors.As(err, &unreachable) || errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	dir, ok := dial.Spool(unreachable.Addr)
	if !ok {
		return nil, err
	}
	s, serr := spool.Open(dir)
	switch {
	case errors.Is(serr, spool.ErrNoSpool):
		return nil, err
	case serr != nil:
		return nil, serr
	case d.follow:
		return nil, fmt.Errorf("%w (and files do not tell what changes: leave out -f)", err)
	}
	d.c.Talk("no dsched runs on %q; read from its files at %s", dir, d.now().Format(time.DateTime))
	d.sayWaiting(dir)
	return &files{Spool: s, d: d, ops: ops}, nil
}

// files is a spool without a dsched. Nothing in it changes.
type files struct {
	*spool.Spool
	d   *dquery
	ops *ask.Operands
}

// Close has nothing to do.
func (*files) Close() error { return nil }

func (f *files) jobs(ctx context.Context, _ bool, each func(*job.Row) error) error {
	q, infos, err := f.query(f.ops)
	if err != nil {
		return err
	}
	return f.read(ctx, q, infos, func(r *job.Row) error {
		if !q.Match(r) {
			return nil
		}
		if !f.d.attempts {
			return each(r)
		}
		for _, a := range r.Attempts() {
			if err := each(&a); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *files) count(ctx context.Context, ops *ask.Operands) ([]query.Batch, error) {
	q, infos, err := f.query(ops)
	if err != nil {
		return nil, err
	}
	tally := query.NewTally(q)
	err = f.read(ctx, q, infos, func(r *job.Row) error { tally.Add(r); return nil })
	return tally.Rows(time.Time{}), err // how long what runs has run is not known
}

func (f *files) causes(ctx context.Context, ops *ask.Operands) ([]query.Cause, error) {
	q, infos, err := f.query(ops)
	if err != nil {
		return nil, err
	}
	causes := query.NewCauses(q)
	err = f.read(ctx, q, infos, func(r *job.Row) error { causes.Add(r, time.Time{}); return nil })
	return causes.Rows(), err
}

// query does what the head does with operands.
func (f *files) query(ops *ask.Operands) (*query.Query, []spool.Info, error) {
	q, err := query.Parse(ops.Args, f.d.now())
	if err != nil {
		return nil, nil, cli.Usagef("%w", err)
	}
	if !f.d.all {
		q.For(os.Getuid())
	}
	infos, problems, err := f.Batches(nil)
	for _, p := range problems {
		if !p.Closed { // others' batches are none of one's own
			f.d.c.Talk("%s", p)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	there := make(map[job.BatchID]bool, len(infos))
	for _, i := range infos {
		there[i.ID] = true
	}
	err = q.Resolve(os.Getuid(), account.UserName(os.Getuid()), func(yield func(job.BatchID, int) bool) {
		for _, i := range infos {
			if !yield(i.ID, i.Head.UID) {
				return
			}
		}
	})
	for _, p := range problems {
		named := q.About(p.Batch) || errors.Is(err, query.ErrNone) && q.Names(p.Batch)
		if p.Batch != "" && !p.Closed && !there[p.Batch] && named {
			return nil, nil, errDamaged(p.Batch)
		}
	}
	switch {
	case errors.Is(err, query.ErrNone):
		return nil, nil, cli.Errorf(cli.NoSuch, "%w", err)
	case err != nil:
		return nil, nil, cli.Errorf(cli.Input, "%w", err)
	}
	batches, jobs := q.IDs()
	for _, id := range jobs {
		batches = append(batches, id.Batch())
	}
	for _, id := range batches {
		if !there[id] {
			return nil, nil, cli.Errorf(cli.NoSuch, "no batch %q", id)
		}
	}
	return q, infos, nil
}

// read calls each for every job of the batches that may be meant, or are named. What is
// damaged is named and passed over; a job that is named and is not there is an
// error.
func (f *files) read(ctx context.Context, q *query.Query, infos []spool.Info, each func(*job.Row) error) error {
	_, jobs := q.IDs()
	missing := make(map[job.ID]bool, len(jobs))
	for _, id := range jobs {
		missing[id] = true
	}
	doubt, damaged := false, error(nil)
	for _, i := range infos {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !q.About(i.ID) && (!q.MayFit(i.ID, &i.Head) || q.OnlyLive() && !i.Open) {
			continue
		}
		if err := f.Settle(i.ID); err != nil && !doubt {
			doubt = true
			f.d.c.Talk("what is shown may be lost if the power goes: %v", err)
		}
		read := f.Read
		if f.d.attempts {
			read = f.ReadAttempts
		}
		err := read(i.ID, -1, func(r *job.Row) error { delete(missing, r.ID); return each(r) })
		var damage *spool.Problem
		switch {
		case errors.Is(err, fs.ErrNotExist): // a head that has begun deleted it
		case errors.As(err, &damage):
			f.d.c.Talk("%s", damage)
			if damaged == nil && q.About(i.ID) {
				damaged = errDamaged(i.ID)
			}
		case err != nil:
			return err
		}
	}
	if damaged != nil {
		return damaged
	}
	for id := range missing {
		return cli.Errorf(cli.NoSuch, "no job %q", id)
	}
	return nil
}

// errDamaged is the error where a batch that is named cannot be read.
func errDamaged(id job.BatchID) error {
	return cli.Errorf(cli.IO, "the files of %q are damaged: dfsck tells what is whole", id)
}
