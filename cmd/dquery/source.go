package main

import (
	"context"
	"slices"

	"distribute/lib/ask"
	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/lib/wire"
)

// source is where rows come from: a head, or the files of a spool.
type source interface {
	// jobs gives the rows that the operands fit, and with follow each again
	// when it changes; with -A a row for each attempt of those that fit.
	jobs(ctx context.Context, follow bool, each func(*job.Row) error) error
	// count gives the batches with jobs that fit other operands.
	count(ctx context.Context, ops *ask.Operands) ([]query.Batch, error)
	// causes gives why jobs that fit other operands failed or do not go on.
	causes(ctx context.Context, ops *ask.Operands) ([]query.Cause, error)
	Close() error
}

// live is a head.
type live struct {
	*ask.Head
	d   *dquery
	ops *ask.Operands

	note string // was told last
}

func (l *live) jobs(ctx context.Context, follow bool, each func(*job.Row) error) error {
	if follow {
		return l.follow(ctx, each)
	}
	of := "jobs"
	if l.d.attempts {
		of = "attempts"
	}
	return ask.Rows(ctx, l.Head, wire.Query{Of: of, All: l.d.all, Notes: true}, l.ops, each)
}

// noted says what the head notes after rows, once.
func (l *live) noted(text string) {
	if l.note != text {
		l.d.c.Talk("%s", text)
	}
	l.note = text
}

// follow gives the rows that fit, and each again when it changes. When the head
// is lost and comes back it gives what has changed meanwhile. It costs some bytes
// of memory for each row.
func (l *live) follow(ctx context.Context, each func(*job.Row) error) error {
	// What each was shown as: its last record, and how it runs, which is in none.
	type way struct {
		seq   uint64
		state job.State
		stops bool
	}
	shown := map[job.ID]way{}
	return ask.Again(ctx, l.d.c, func(progress func()) error {
		if l.Head == nil {
			h, err := ask.Dial(ctx, l.d.c, l.d.head)
			if err != nil {
				return err
			}
			l.Head = h
		}
		progress()
		err := ask.Rows(ctx, l.Head, wire.Query{Of: "jobs", All: l.d.all, Follow: true}, l.ops, func(r *job.Row) error {
			now := way{r.Seq, r.State, r.Phase == job.PhaseStopping}
			if last, was := shown[r.ID]; was && last == now {
				return nil
			}
			shown[r.ID] = now
			return each(r)
		})
		l.Head.Close()
		l.Head = nil
		return err
	})
}

// Close ends the session with the head, if there is one.
func (l *live) Close() error {
	if l.Head == nil {
		return nil
	}
	return l.d.closeUnlessKept(l.Head)
}

func (l *live) count(ctx context.Context, ops *ask.Operands) ([]query.Batch, error) {
	var rows []query.Batch
	err := ask.Rows(ctx, l.Head, wire.Query{Of: "batches", All: l.d.all, Notes: true}, ops, func(b *query.Batch) error {
		// A batch may come once for each part of the operands.
		if i := slices.IndexFunc(rows, func(r query.Batch) bool { return r.ID == b.ID }); i >= 0 {
			rows[i].Sum(b)
			return nil
		}
		rows = append(rows, *b)
		return nil
	})
	return rows, err
}

func (l *live) causes(ctx context.Context, ops *ask.Operands) (rows []query.Cause, err error) {
	err = ask.Rows(ctx, l.Head, wire.Query{Of: "causes", All: l.d.all, Notes: true}, ops, func(c *query.Cause) error {
		rows = append(rows, *c)
		return nil
	})
	return query.JoinCauses(rows), err
}
