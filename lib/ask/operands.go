package ask

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"distribute/lib/batchfile"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/lib/wire"
)

// maxPart is about how many bytes of operands go into one request, far below
// what a message may have.
const maxPart = 256 << 10

// Operands are the words that say which jobs are meant, without those that
// only this side understands.
type Operands struct {
	Args []string // ids, filters and names, as the head reads them
	None bool     // they were ids on stdin, of which there are none: no work

	files []batchFile // that were operands
}

// A batchFile is a batch file and the id of the batch that it names.
type batchFile struct{ name, id string }

// Read makes operands of the command's: batch files become the ids of their
// batches, "-" the ids on stdin, and the rest is checked, so that what is
// wrong is said before the head is asked. If there are none and act is set,
// the ids are on stdin; a terminal there is a usage error.
func Read(c *cli.Cmd, act bool) (*Operands, error) {
	words := c.Args
	if len(words) == 0 && act {
		words = []string{"-"}
	}
	ops := &Operands{}
	stdin, selects := false, false
	var errs []error
	for _, w := range words {
		switch {
		case w == "-" && stdin:
			return nil, cli.Usagef(`"-" stands twice, and there is one standard input`)
		case w == "-":
			ids, err := c.IDs()
			if err = cmp.Or(err, CheckIDs(ids)); err != nil {
				return nil, err
			}
			stdin, ops.Args = true, append(ops.Args, ids...)
			selects = selects || len(ids) > 0
		case IsFile(w):
			id, err := fileID(w)
			errs = append(errs, err)
			ops.Args, selects = append(ops.Args, id), true
			ops.files = append(ops.files, batchFile{w, id})
		default:
			ops.Args = append(ops.Args, w)
			selects = selects || !IsFilter(w)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	ops.None = stdin && !selects
	return ops, Check(ops.Args)
}

// Check reports what is wrong with operands that are ids, filters and names.
func Check(args []string) error {
	if _, err := query.Parse(args, time.Now()); err != nil {
		return cli.Usagef("%w", err)
	}
	return nil
}

// CheckIDs reports what is no id among words that came on standard input. A filter is none: the
// name of a job, as n=4, would mean all that were given four.
func CheckIDs(words []string) error {
	for _, w := range words {
		if IsFilter(w) {
			return cli.Errorf(cli.Input, "standard input: %q is a filter, and ids are wanted there", w)
		}
	}
	if _, err := query.Parse(words, time.Now()); err != nil {
		return cli.Errorf(cli.Input, "standard input: %w", err)
	}
	return nil
}

// IsFile says whether an operand names a batch file: it ends as one, and is no filter on a
// field.
func IsFile(word string) bool {
	if IsFilter(word) && Check([]string{word}) == nil {
		return false
	}
	return strings.HasSuffix(word, ".yaml") || strings.HasSuffix(word, ".yml")
}

func fileID(name string) (string, error) {
	f, err := batchfile.ReadOlder(name)
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return "", err
	case err != nil:
		return "", cli.Errorf(cli.Input, "%w", err)
	}
	return string(f.ID()), nil
}

// IsFilter reports whether an operand is a filter on a field.
func IsFilter(word string) bool {
	i := strings.IndexAny(word, "/=!~<>")
	return i >= 0 && word[i] != '/'
}

// Parts are the operands in portions that fit a request each: the filters
// with some of the ids. Doubles among the ids are left out.
func (o *Operands) Parts() [][]string {
	var filters, others []string
	for _, a := range o.Args {
		if IsFilter(a) {
			filters = append(filters, a)
		} else {
			others = append(others, a)
		}
	}
	seen := make(map[string]bool, len(others))
	others = slices.DeleteFunc(others, func(a string) bool {
		double := seen[a]
		seen[a] = true
		return double
	})
	var parts [][]string
	part, size := slices.Clone(filters), 0
	for _, a := range others {
		if size += len(a) + 3; size > maxPart {
			parts = append(parts, part)
			part, size = slices.Clone(filters), len(a)+3
		}
		part = append(part, a)
	}
	return append(parts, part)
}

// Attempts takes the ids of attempts out of the operands, and returns those of jobs that
// fit the filters. That of the attempt whose result was accepted becomes its job's id,
// under which the result is.
func (h *Head) Attempts(ctx context.Context, o *Operands) (ids []string, err error) {
	attempts, filters := o.attempts()
	if attempts == nil {
		return nil, nil
	}
	fits, accepted := map[string]bool{}, map[string]job.ID{}
	err = Rows(ctx, h, wire.Query{Of: "jobs"}, &Operands{Args: slices.Concat(attempts, filters)}, func(r *job.Row) error {
		fits[string(r.ID)] = true
		if r.State == job.Done {
			accepted[r.ID.Try(r.Attempt)] = r.ID
		}
		return nil
	})
	for _, id := range attempts {
		if of, _, _ := strings.Cut(id, "~"); fits[of] {
			ids = append(ids, cmp.Or(string(accepted[id]), id))
		}
	}
	return ids, err
}

// attempts takes the ids of attempts out of the operands, and with the last of other ids
// the filters, which alone would mean all jobs.
func (o *Operands) attempts() (attempts, filters []string) {
	o.Args = slices.DeleteFunc(o.Args, func(a string) bool {
		if IsFilter(a) {
			filters = append(filters, a)
			return false
		}
		_, _, try, err := job.ParseID(a)
		if err == nil && try > 0 {
			attempts = append(attempts, a)
		}
		return err == nil && try > 0
	})
	if attempts != nil && len(filters) == len(o.Args) {
		o.Args = nil
	}
	return attempts, filters
}
