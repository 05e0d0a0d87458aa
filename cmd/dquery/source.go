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
	// when it changes.
	jobs(ctx context.Context, follow bool, each func(*job.Row) error) error
	// count gives the batches with jobs that fit other operands.
	count(ctx context.Context, ops *ask.Operands) ([]query.Batch, error)
	Close() error
}

// live is a head.
type live struct {
	*ask.Head
	d   *dquery
	ops *ask.Operands
}

func (l *live) jobs(ctx context.Context, follow bool, each func(*job.Row) error) error {
	return ask.Rows(ctx, l.Head, wire.Query{Of: "jobs", All: l.d.all, Follow: follow}, l.ops, each)
}

func (l *live) count(ctx context.Context, ops *ask.Operands) ([]query.Batch, error) {
	var rows []query.Batch
	err := ask.Rows(ctx, l.Head, wire.Query{Of: "batches", All: l.d.all}, ops, func(b *query.Batch) error {
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
