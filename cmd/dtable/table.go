package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/lib/reading"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// A table is what the command line asks for, and how far it has come.
type table struct {
	c         *cli.Cmd
	all, json bool
	readings  []*reading.Reading
	fields    []query.Field[job.Row] // those before the values

	rows     []job.Row // nil: not asked for yet
	left     int       // jobs that are not done
	next     int       // the row of which nothing has been printed
	out      *bufio.Writer
	progress *cli.Progress
	missing  int // values
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
		if err := t.head(); err != nil {
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

// ask asks for the jobs.
func (t *table) ask(ctx context.Context, h *ask.Head, ops *ask.Operands) error {
	t.left = 0
	rows := []job.Row{}
	err := ask.Rows(ctx, h, wire.Query{Of: "jobs"}, ops, func(r *job.Row) error {
		if _, _, _, err := job.ParseID(string(r.ID)); err != nil {
			return h.Odd(ctx, err)
		}
		if r.State != job.Done && !t.all {
			t.left++
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
	t.rows = rows
	return nil
}

// head finds the columns and prints their names.
func (t *table) head() error {
	taken := map[string]bool{}
	for i := range t.fields {
		taken[t.fields[i].Name] = true
	}
	var params []string
	there := map[string]bool{}
	for i := range t.rows {
		for _, p := range t.rows[i].Param {
			name, _, _ := strings.Cut(p, "=")
			if !there[name] {
				params, there[name] = append(params, name), true
			}
		}
	}
	for _, name := range params {
		f, err := query.Pick(query.JobFields(), "param."+name)
		if err != nil {
			continue // the head says a name that none can have
		}
		if !taken[name] {
			f[0].Name = name
		}
		taken[f[0].Name] = true
		t.fields = append(t.fields, f[0])
	}
	for _, r := range t.readings {
		if taken[r.Name] {
			return cli.Usagef("there is a column %q already: give the value another name", r.Name)
		}
	}
	t.out = bufio.NewWriter(t.c.Stdout)
	t.progress = t.c.Progress("reading", int64(len(t.rows)), nil)
	if t.json {
		return nil
	}
	var names []string
	for i := range t.fields {
		names = append(names, t.fields[i].Name)
	}
	for _, r := range t.readings {
		names = append(names, r.Name)
	}
	_, err := t.out.WriteString(strings.Join(names, "\t") + "\n")
	return err
}

// print prints the line of a job; a value that is missing is empty.
func (t *table) print(row *job.Row, values []string) error {
	var b bytes.Buffer
	if !t.json {
		line := query.Records[job.Row]{W: &b, Fields: t.fields}
		if err := line.Print(row); err != nil {
			return err
		}
		b.Truncate(b.Len() - len("\n"))
		for _, v := range values {
			if v == "" {
				v = "-"
			}
			b.WriteString("\t" + v)
		}
	} else {
		line := query.Objects[job.Row]{W: &b, Fields: t.fields}
		if err := line.Print(row); err != nil {
			return err
		}
		b.Truncate(b.Len() - len("}\n"))
		for i, v := range values {
			if b.Len() > len("{") {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Quote(t.readings[i].Name) + ":" + ofJSON(v))
		}
		b.WriteByte('}')
	}
	b.WriteByte('\n')
	_, err := t.out.Write(b.Bytes())
	return err
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// ofJSON is a value as JSON: what has the form of a number, an object or a list is
// one.
func ofJSON(v string) string {
	switch {
	case v == "":
		return "null"
	case jsonNumber.MatchString(v), v == "true", v == "false", (v[0] == '{' || v[0] == '[') && json.Valid([]byte(v)):
		return v
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(v) // of a string there is no error
	return strings.TrimSuffix(b.String(), "\n")
}

// maxTold is how many missing values are told of.
const maxTold = 10

// lacks says why a value is missing.
func (t *table) lacks(id job.ID, name string, why error) {
	if t.missing++; t.missing <= maxTold {
		t.c.Talk("%s: %s: %v", id, name, why)
	}
}

// verdict ends the table.
func (t *table) verdict(err error) error {
	if t.progress != nil {
		t.progress.Done()
	}
	if t.out != nil {
		if ferr := t.out.Flush(); err == nil {
			err = ferr
		}
	}
	switch {
	case err != nil:
		return err
	case t.missing > maxTold:
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
