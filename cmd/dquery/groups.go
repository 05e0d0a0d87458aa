package main

import (
	"context"
	"slices"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/query"
	"distribute/lib/unit"
)

// showBatches prints the batches with jobs that fit.
func (d *dquery) showBatches(ctx context.Context) error {
	rows, err := gather(ctx, d, query.BatchFields(), query.DefaultBatch, query.NewBatchTable, batchesOf)
	if err != nil {
		return err
	}
	stranded := 0
	for i := range rows {
		stranded += rows[i].Stranded
	}
	d.sayStranded(stranded)
	if d.table {
		d.c.Talk("%s", d.summary(rows))
	}
	return answer(len(rows))
}

// showCauses prints why jobs failed, or do not go on.
func (d *dquery) showCauses(ctx context.Context) error {
	rows, err := gather(ctx, d, query.CauseFields(), query.DefaultCause, query.NewCauseTable, causesOf)
	if err != nil {
		return err
	}
	jobs := 0
	for i := range rows {
		jobs += rows[i].Jobs
	}
	switch {
	case d.table && len(rows) > 0:
		d.c.Talk("%s, %s", unit.Count(jobs, "job"), unit.Count(len(rows), "cause"))
	case d.table:
		d.c.Talk("nothing that fits has failed or waits")
	}
	return answer(len(rows))
}

// batchesOf is the batches with jobs that fit.
func batchesOf(ctx context.Context, s source, ops *ask.Operands) ([]query.Batch, error) {
	return s.count(ctx, ops)
}

// causesOf is the causes of the jobs that fit: with no operands of those that are not
// over, and of those that failed since yesterday.
func causesOf(ctx context.Context, s source, ops *ask.Operands) ([]query.Cause, error) {
	rows, err := s.causes(ctx, ops)
	if err != nil || len(ops.Args) > 0 {
		return rows, err
	}
	failed, err := s.causes(ctx, &ask.Operands{Args: []string{"state=failed", "ended=-1d.."}})
	return slices.Concat(rows, failed), err
}

// gather prints rows that come all at once, each of them about several jobs, and
// returns them.
func gather[R any](ctx context.Context, d *dquery, all []query.Field[R], usual string, table func(query.Look) query.Printer[R],
	rowsOf func(context.Context, source, *ask.Operands) ([]R, error)) ([]R, error) {
	ops, err := ask.Read(d.c, false)
	if err != nil {
		return nil, err
	}
	if ops.None {
		return nil, cli.Quiet(cli.No)
	}
	out, err := printer(d, all, usual, table)
	if err != nil {
		return nil, err
	}
	s, err := d.open(ctx, ops)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	rows, err := rowsOf(ctx, s, ops)
	if err != nil {
		return nil, err
	}
	_, err = pour(d, nil, out, func(each func(*R) error) error {
		for i := range rows {
			if err := each(&rows[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return rows, err
}
