package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/query"
	"distribute/lib/reading"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// A table is what the command line asks for, and how far it is printed.
type table struct {
	c         *cli.Cmd
	all, json bool
	readings  []*reading.Reading
	fields    []query.Field[job.Row] // before the values

	rows     []job.Row // nil: the head has not answered yet
	left     int       // jobs that are not done
	next     int       // the first row that is not printed yet
	missing  int       // values
	out      *bufio.Writer
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
		values := make([]string, len(t.readings))
		if row.State == job.Done && len(t.readings) > 0 {
			if values, err = t.read(ctx, h, row); err != nil {
				return err
			}
			progress()
		}
		if err := t.print(row, values); err != nil {
			return err
		}
		t.progress.Add(1)
	}
	return nil
}

// ask asks for the jobs, and prints the names of the columns.
func (t *table) ask(ctx context.Context, h *ask.Head, ops *ask.Operands) error {
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
	for _, r := range t.readings {
		if slices.Contains(names, r.Name) {
			return cli.Usagef("there is a column %q already: give the value another name", r.Name)
		}
		names = append(names, r.Name)
	}
	if t.json {
		return nil
	}
	_, err := t.out.WriteString(strings.Join(names, "\t") + "\n")
	return err
}

// print prints the line of a job; a value that is missing is empty.
func (t *table) print(row *job.Row, values []string) error {
	if !t.json {
		var cells []string
		for _, f := range t.fields {
			cells = append(cells, f.Text(row))
		}
		for _, v := range values {
			cells = append(cells, cmp.Or(v, "-"))
		}
		_, err := t.out.WriteString(strings.Join(cells, "\t") + "\n")
		return err
	}
	var object bytes.Buffer
	fields := query.Objects[job.Row]{W: &object, Fields: t.fields}
	if err := fields.Print(row); err != nil {
		return err
	}
	b := bytes.TrimSuffix(object.Bytes(), []byte("}\n"))
	for i, v := range values {
		if len(b) > len("{") {
			b = append(b, ',')
		}
		b = append(line.AppendText(b, t.readings[i].Name), ':')
		switch {
		case v == "":
			b = append(b, "null"...)
		case v[0] != '"' && v != "null" && json.Valid([]byte(v)):
			b = append(b, v...)
		default:
			b = line.AppendText(b, v)
		}
	}
	_, err := t.out.Write(append(b, "}\n"...))
	return err
}

// maxTold is how many missing values are told of.
const maxTold = 10

// tellMissing tells why values of a job are missing.
func (t *table) tellMissing(id job.ID, why []error) {
	for i, err := range why {
		if err == nil {
			continue
		}
		if t.missing++; t.missing <= maxTold {
			t.c.Talk("%s: %s: %v", id, t.readings[i].Name, err)
		}
	}
}

// verdict says what is missing from the table, and is the exit status.
func (t *table) verdict() error {
	if t.missing > maxTold {
		t.c.Talk("%s missing in all", unit.Count(t.missing, "value"))
	}
	if t.left > 0 {
		t.c.Talk("%s not done, and left out (-a has them too)", unit.Count(t.left, "job"))
	}
	if t.missing > 0 || len(t.rows) == 0 {
		return cli.Quiet(cli.No)
	}
	return nil
}
