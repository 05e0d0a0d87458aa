// Dlog shows what jobs print. See dlog(1).
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

const usage = `usage: dlog [-Bfqv] [-H head] [-L lines] [operand ...]`

// maxFollowed is how many jobs are followed at once: each has a connection.
const maxFollowed = 64

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	build, follow := c.Bool("B"), c.Bool("f")
	quiet, verbose := c.Bool("q"), c.Bool("v")
	head, lines := c.String("H", ""), c.Int("L", 0)
	if err := c.Parse(); err != nil {
		return err
	}
	if c.Given("L") && *lines < 1 {
		return cli.Usagef("-L %d: at least one line has to be wanted", *lines)
	}
	ops, err := ask.Read(c, true)
	if err != nil || ops.None {
		return err
	}
	h, err := ask.Dial(ctx, c, *head)
	if err != nil {
		return err
	}
	defer h.Close()
	ids, err := meant(ctx, h, ops)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return cli.Errorf(cli.No, "no job that fits has started")
	}
	out := &output{w: c.Stdout, quote: c.StdoutTTY()}
	if !*quiet {
		out.header = len(ids) > 1 || *verbose
	}
	l := wire.Log{Build: *build, Lines: *lines, Follow: *follow}
	if *follow && len(ids) > 1 {
		return followAll(ctx, c, *head, ids, l, out)
	}
	return each(ctx, h, ids, l, out)
}

// meant asks which jobs are meant, and gives the ids of those that have
// started, and of the attempts that are named.
func meant(ctx context.Context, h *ask.Head, ops *ask.Operands) ([]string, error) {
	ids := ops.Attempts()
	if len(ops.Args) == 0 {
		return ids, nil
	}
	return ids, ask.Rows(ctx, h, wire.Query{Of: "jobs"}, ops, func(r *job.Row) error {
		if r.Attempt > 0 {
			ids = append(ids, string(r.ID))
		}
		return nil
	})
}

// each prints what the jobs printed, one after another. Those that cannot be
// shown are named in the end.
func each(ctx context.Context, h *ask.Head, ids []string, l wire.Log, out *output) error {
	var problems []error
	for _, id := range ids {
		err := show(ctx, h, id, l, out)
		var refused *wire.Error
		if err != nil && !errors.As(err, &refused) {
			return errors.Join(append(problems, err)...)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func show(ctx context.Context, h *ask.Head, id string, l wire.Log, out *output) error {
	l.Ref, l.ID = job.NewToken(), id
	r, err := h.Answer(ctx, &l)
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	return out.copy(id, r, func(err error) error { return h.Failed(ctx, err) })
}

// followAll prints what the jobs print as it comes, each over a session of its
// own.
func followAll(ctx context.Context, c *cli.Cmd, head string, ids []string, l wire.Log, out *output) error {
	if len(ids) > maxFollowed {
		return cli.Usagef("-f: %d jobs fit, and %d can be followed at once", len(ids), maxFollowed)
	}
	problems := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			h, err := ask.Dial(ctx, c, head)
			if err == nil {
				err = show(ctx, h, id, l, out)
				h.Close()
			}
			problems[i] = err
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(problems...)
}
