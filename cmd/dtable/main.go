// Dtable prints parameters and values that it reads from results. See dtable(1).
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"regexp"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/query"
	"distribute/lib/reading"
)

const usage = `usage: dtable [-ajqv] [-c fields] [-H head] [operand ...] name=file:what ...`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	all, json := c.Bool("a"), c.Bool("j")
	fields, head := c.String("c", "id"), c.String("H", "")
	c.Bool("q")
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	t := &table{c: c, all: *all, json: *json, out: bufio.NewWriter(c.Stdout), progress: c.Progress("reading", 0, nil)}
	var err error
	if t.fields, err = query.Pick(query.JobFields(), *fields); err != nil {
		return cli.Usagef("-c: %w", err)
	}
	if c.Args, t.readings, err = parseReadings(c.Args); err != nil {
		return cli.Usagef("%w", err)
	}
	ops, err := ask.Read(c, true)
	if err != nil || ops.None {
		return err
	}
	err = ask.Again(ctx, c, func(progress func()) error { return t.session(ctx, *head, ops, progress) })
	t.progress.Done()
	if flushed := t.out.Flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return err
	}
	return t.verdict()
}

// named is an operand that says what is to be read, or asks for a field.
var named = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]*)=`)

// parseReadings takes the readings out of the operands: what is named as no field is.
func parseReadings(operands []string) (rest []string, readings []*reading.Reading, err error) {
	var errs []error
	names := map[string]bool{}
	for _, o := range operands {
		m := named.FindStringSubmatch(o)
		if m == nil || isField(m[1]) {
			rest = append(rest, o)
			continue
		}
		r, err := reading.Parse(o)
		if err == nil && names[m[1]] {
			err = cli.Usagef("%s is there twice", m[1])
		}
		names[m[1]] = true
		readings, errs = append(readings, r), append(errs, err)
	}
	return rest, readings, errors.Join(errs...)
}

// filterHint is said of the first filter that has the form of a reading, "" if there is none: its
// name is that of a field.
func filterHint(operands []string) string {
	for _, o := range operands {
		m := named.FindStringSubmatch(o)
		if m == nil || len(o) == len(m[0]) || '0' <= o[len(m[0])] && o[len(m[0])] <= '9' { // as of a time
			continue
		}
		if _, err := reading.Parse(o); err == nil {
			return fmt.Sprintf("; %.300q chooses jobs, as %s is a field: give the value another name", o, m[1])
		}
	}
	return ""
}

func isField(name string) bool {
	_, err := query.Pick(query.JobFields(), name)
	return err == nil
}
