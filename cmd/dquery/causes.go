package main

import (
	"context"
	"slices"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/query"
	"distribute/lib/unit"
)

// causes prints why jobs failed, or do not go on.
func (d *dquery) causes(ctx context.Context) error {
	ops, err := ask.Read(d.c, false)
	if err != nil {
		return err
	}
	if ops.None {
		return cli.Quiet(cli.No)
	}
	out, err := printer(d, query.CauseFields(), query.DefaultCause, query.NewCauseTable)
	if err != nil {
		return err
	}
	s, err := d.open(ctx, ops)
	if err != nil {
		return err
	}
	defer s.Close()
	rows, err := s.causes(ctx, ops)
	if err != nil {
		return err
	}
	if len(ops.Args) == 0 { // which are those that are not over
		failed, err := s.causes(ctx, &ask.Operands{Args: []string{"state=failed", "ended=-1d.."}})
		if err != nil {
			return err
		}
		rows = slices.Concat(rows, failed)
	}
	jobs := 0
	n, err := pour(d, nil, out, func(each func(*query.Cause) error) error {
		for i := range rows {
			jobs += rows[i].Jobs
			if err := each(&rows[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch {
	case d.table && n > 0:
		d.c.Talk("%s, %s", unit.Count(jobs, "job"), unit.Count(n, "cause"))
	case d.table:
		d.c.Talk("nothing that fits has failed or waits")
	}
	return answer(n)
}
