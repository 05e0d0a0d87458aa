package main

import (
	"bufio"
	"context"
	"slices"
	"strings"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/lib/reading"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// maxTold is how many missing values are told of.
const maxTold = 10

// A table is what the command line asks for, and how far it is printed.
type table struct {
	c         *cli.Cmd
	all, json bool
	readings  []*reading.Reading
	fields    []query.Field[job.Row] // the columns

	rows     []job.Row // nil: the head has not answered yet
	left     int       // jobs that are not done
	next     int       // the first row that is not printed yet
	values   []value   // of the row that is printed
	missing  int       // values
	out      *bufio.Writer
	printer  query.Printer[job.Row]
	progress *cli.Progress
}

// session goes on with the table over one session with the head.
func (t *table) session(ctx context.Context, flag string, ops *ask.Operands, progress func()) error {
	h, err := ask.Dial(ctx, t.c, flag)
	if err != nil {
		return err
	}
	defer h.Close()
	progress()
	if t.rows == nil {
		if err := t.ask(ctx, h, ops); err != nil {
			return err
		}
	}
	for ; t.next < len(t.rows); t.next++ {
		row := &t.rows[t.next]
		t.values = make([]value, len(t.readings))
		if row.State == job.Done && len(t.values) > 0 {
			if t.values, err = read(ctx, h, row, t.readings); err != nil {
				return err
			}
			progress()
		}
		if err := t.print(row); err != nil {
			return err
		}
		t.progress.Add(1)
	}
	return nil
}

// ask asks for the jobs, and prints the names of the columns.
func (t *table) ask(ctx context.Context, h *ask.Head, ops *ask.Operands) error {
	h.TellNewer(ctx, t.c, ops)
	rows, left := []job.Row{}, 0
	err := ask.Rows(ctx, h, wire.Query{Of: "jobs"}, ops, func(r *job.Row) error {
		if _, _, _, err := job.ParseID(string(r.ID)); err != nil {
			return h.Odd(ctx, err)
		}
		if r.State != job.Done && !t.all {
			left++
			return nil
		}
		row := *r
		row.Param = slices.Clone(r.Param)
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		return err
	}
	t.rows, t.left = rows, left
	t.progress.Grow(int64(len(rows)))
	return t.header()
}

// header adds a column for each parameter to those that -c names, and prints their names.
func (t *table) header() error {
	var names []string
	for _, f := range t.fields {
		names = append(names, f.Name)
	}
	params := map[string]bool{}
	for _, row := range t.rows {
		for _, p := range row.Param {
			name, _, _ := strings.Cut(p, "=")
			if params[name] {
				continue
			}
			params[name] = true
			f, err := query.Pick(query.JobFields(), "param."+name)
			if err != nil {
				continue // the head says a name that no parameter can have
			}
			if !slices.Contains(names, name) {
				f[0].Name = name
			}
			t.fields, names = append(t.fields, f[0]), append(names, f[0].Name)
		}
	}
	for i, r := range t.readings {
		if slices.Contains(names, r.Name) {
			return cli.Usagef("there is a column %q already: give the value another name", r.Name)
		}
		t.fields = append(t.fields, query.Column(r.Name, func(*job.Row) string { return t.values[i].text }))
		names = append(names, r.Name)
	}
	if t.json {
		t.printer = &query.Objects[job.Row]{W: t.out, Fields: t.fields}
		return nil
	}
	t.printer = &query.Records[job.Row]{W: t.out, Fields: t.fields}
	_, err := t.out.WriteString(strings.Join(names, "\t") + "\n")
	return err
}

// print prints the line of a job, and tells why values are missing from it.
func (t *table) print(row *job.Row) error {
	for i, v := range t.values {
		if v.why == nil {
			continue
		}
		if t.missing++; t.missing <= maxTold {
			t.c.Talk("%s: %s: %v", row.ID, t.readings[i].Name, v.why)
		}
	}
	return t.printer.Print(row)
}

// verdict says what is missing from the table, and is the exit status.
func (t *table) verdict() error {
	if t.missing > maxTold {
		t.c.Talk("%s missing in all", unit.Count(t.missing, "value"))
	}
	if t.left > 0 {
		t.c.Talk("%s not done, and left out (-a has them too)", unit.Count(t.left, "job"))
	}
	if len(t.rows)+t.left == 0 {
		t.c.Talk("no job fits%s", filterHint(t.c.Args))
	}
	if t.missing > 0 || len(t.rows) == 0 {
		return cli.Quiet(cli.No)
	}
	return nil
}
