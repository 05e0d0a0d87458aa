package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"distribute/lib/batchfile"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/unit"
)

// ofFile finds the batch of a batch file, and opens its inputs where they lie.
func (r *runner) ofFile(ctx context.Context) error {
	f, err := batchfile.ReadFile(r.c.Args[0])
	if err != nil {
		return err
	}
	if len(r.c.Args) > 1 {
		names, err := r.jobNames()
		if err != nil || len(names) == 0 {
			return err
		}
		if err := only(f, names); err != nil {
			return err
		}
	}
	p := r.c.Progress("reading inputs", 0, unit.FormatBytes)
	defer p.Done()
	last := int64(0)
	r.b, err = f.Collect(ctx, func(n, total int64) {
		p.Grow(total - last)
		last = total
		p.Add(n)
	})
	return err
}

// jobNames are the names of the operands behind the file: names of jobs, their ids,
// and - for those on stdin.
func (r *runner) jobNames() (names []string, err error) {
	words := r.c.Args[1:]
	if slices.Contains(words, "-") {
		if len(words) > 1 {
			return nil, cli.Usagef("- stands alone behind the file")
		}
		if words, err = r.c.IDs(); err != nil {
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
func only(f *batchfile.File, names []string) error {
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

// openInput opens an input of the batch.
func (r *runner) openInput(in job.Input) (*source, error) {
	src, ok := r.b.Sources[in.Sum]
	if !ok {
		return nil, fmt.Errorf("%q is no input of the batch", in.Path)
	}
	f, err := src.Open()
	if err != nil {
		return nil, err
	}
	return &source{f, src}, nil
}

// A source is an input that must be at its end what it was when it was hashed.
type source struct {
	*os.File
	of job.Source
}

// Unchanged says whether it is.
func (s *source) Unchanged() error { return s.of.Unchanged(s.File) }
