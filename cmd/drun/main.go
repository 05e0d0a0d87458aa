// Drun runs the jobs of a batch on this machine, with no head. See drun(1).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/proc"
	"distribute/lib/unit"
)

const usage = `usage: drun [-knqv] [-o directory] file [job ...]`

func main() {
	if proc.IsSupervisor() { // of a job, which is this program too
		if err := proc.Supervise(desk.WriteFile); err != nil {
			panic(err)
		}
		return
	}
	cli.Main(usage, run)
}

func run(ctx context.Context, c *cli.Cmd) error {
	dir := c.String("o", ".")
	keep, dry, quiet := c.Bool("k"), c.Bool("n"), c.Bool("q")
	verbose := c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return cli.Usagef("a batch file is wanted")
	}
	b, open, err := batchOf(ctx, c)
	if err != nil {
		return err
	}
	if b == nil {
		return nil
	}
	r := &runner{c: c, b: b, open: open, out: *dir, keep: *keep, quiet: *quiet, verbose: *verbose}
	if *dry {
		return r.dry(ctx)
	}
	return r.all(ctx)
}

// isFile says whether an operand means a batch file.
func isFile(s string) bool { return strings.HasSuffix(s, ".yaml") || strings.HasSuffix(s, ".yml") }

// batchOf is the batch that the operands mean, with the jobs that are to run, and how
// its inputs are opened. It is nil if there is nothing to do.
func batchOf(ctx context.Context, c *cli.Cmd) (*job.Batch, opener, error) {
	if !isFile(c.Args[0]) {
		return nil, nil, cli.Usagef("%q is no batch file: its name ends in .yaml or .yml", c.Args[0])
	}
	f, err := job.ReadFile(c.Args[0])
	if err != nil {
		return nil, nil, err
	}
	if len(c.Args) > 1 {
		names, err := jobNames(c)
		if err != nil || len(names) == 0 {
			return nil, nil, err
		}
		if err := only(f, names); err != nil {
			return nil, nil, err
		}
	}
	p := c.Progress("reading inputs", 0, unit.FormatBytes)
	defer p.Done()
	last := int64(0)
	b, err := f.Collect(ctx, func(n, total int64) {
		p.Grow(total - last)
		last = total
		p.Add(n)
	})
	if err != nil {
		return nil, nil, err
	}
	return b, fromHere(b), nil
}

// jobNames are the names of the operands behind the file: names of jobs, their ids,
// and - for those on stdin.
func jobNames(c *cli.Cmd) (names []string, err error) {
	words := c.Args[1:]
	if slices.Contains(words, "-") {
		if len(words) > 1 {
			return nil, cli.Usagef("- stands alone behind the file")
		}
		if words, err = c.IDs(); err != nil {
			return nil, err
		}
	}
	for _, w := range words {
		name, _, _ := strings.Cut(filepath.Base(w), "~")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// only leaves the named jobs in a file.
func only(f *job.File, names []string) error {
	var missing []error
	for _, n := range names {
		if !slices.ContainsFunc(f.Jobs, func(j job.Job) bool { return j.Name == n }) {
			missing = append(missing, cli.Errorf(cli.NoSuch, "%s has no job %q: %s", f.Path, n, some(f.Jobs)))
		}
	}
	if len(missing) == 0 {
		f.Only(func(name string) bool { return slices.Contains(names, name) })
	}
	return errors.Join(missing...)
}

// some names the first of the jobs that there are.
func some(jobs []job.Job) string {
	var names []string
	for _, j := range jobs[:min(3, len(jobs))] {
		names = append(names, j.Name)
	}
	text := "it has " + strings.Join(names, ", ")
	if more := len(jobs) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// fromHere opens the inputs of a batch file where they lie.
func fromHere(b *job.Batch) opener {
	return func(in job.Input) (file, error) {
		src, ok := b.Sources[in.Sum]
		if !ok {
			return nil, fmt.Errorf("%q is no input of the batch", in.Path)
		}
		f, err := src.Open()
		if err != nil {
			return nil, err
		}
		return &source{f, src}, nil
	}
}

// A source is an input that must be at its end what it was when it was hashed.
type source struct {
	*os.File
	of job.Source
}

// Unchanged says whether it is.
func (s *source) Unchanged() error { return s.of.Unchanged(s.File) }
