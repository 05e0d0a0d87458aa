// Dtable prints parameters and values that it reads from results. See dtable(1).
package main

import (
	"context"
	"errors"
	"regexp"
	"strings"

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
	t := &table{c: c, all: *all, json: *json}
	var err error
	if t.fields, err = query.Pick(query.JobFields(), *fields); err != nil {
		return cli.Usagef("-c: %w", err)
	}
	if c.Args, err = t.operands(c.Args); err != nil {
		return err
	}
	ops, err := ask.Read(c, true)
	if err != nil || ops.None {
		return err
	}
	err = ask.Again(ctx, c, func(progress func()) error { return t.session(ctx, *head, ops, progress) })
	return t.verdict(err)
}

// maxReadings is how many values can be asked for.
const maxReadings = 1000

// named is an operand that says what is to be read, or asks for a field.
var named = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]*)=`)

// operands takes the readings out of the operands.
func (t *table) operands(args []string) (rest []string, err error) {
	fields := map[string]bool{}
	for _, f := range query.JobFields() {
		fields[f.Name] = true
	}
	var errs []error
	for _, a := range args {
		m := named.FindStringSubmatch(a)
		if m == nil || fields[m[1]] || strings.HasPrefix(m[1], "param.") {
			rest = append(rest, a)
			continue
		}
		r, err := reading.Parse(a)
		if err == nil {
			for _, other := range t.readings {
				if other.Name == r.Name {
					err = cli.Usagef("%s is there twice", r.Name)
				}
			}
			t.readings = append(t.readings, r)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, cli.Usagef("%w", err)
	}
	if len(t.readings) > maxReadings {
		return nil, cli.Usagef("%d values are asked for, and %d is the limit", len(t.readings), maxReadings)
	}
	return rest, nil
}
