// Dlog shows what jobs print. See dlog(1).
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

const usage = `usage: dlog [-Bfqv] [-H head] [-L lines] [operand ...]`

// maxFollowed is how many jobs are followed at once: each has a session.
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
	ids, err := meant(ctx, c, *head, ops, *build)
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
	heads, err := ask.NewSessions(c, *head)
	if err != nil {
		return err
	}
	defer heads.Close()
	one := func(id string) error {
		log := wire.Log{ID: id, Build: *build, Lines: *lines, Follow: *follow}
		err := show(ctx, heads, log, out)
		var refusal *wire.Error
		if !*follow || *build || !errors.As(err, &refusal) || refusal.Status != cli.NoSuch {
			return err
		}
		if err := begun(ctx, heads, id); err != nil {
			return err
		}
		return show(ctx, heads, log, out)
	}
	if *follow && len(ids) > 1 {
		return together(ctx, ids, one)
	}
	return each(ids, one)
}

// meant asks which jobs are meant, and gives the ids of those that have
// started, and of the attempts that are named. Of the jobs that share a build,
// which are those of a batch on a node, it gives the first if builds are wanted.
func meant(ctx context.Context, c *cli.Cmd, head string, ops *ask.Operands, build bool) ([]string, error) {
	h, err := ask.Dial(ctx, c, head)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	ids, err := h.Attempts(ctx, ops)
	if err != nil || len(ops.Args) == 0 {
		return ids, err
	}
	shared := map[[2]string]bool{}
	err = ask.Rows(ctx, h, wire.Query{Of: "jobs"}, ops, func(r *job.Row) error {
		at := [2]string{string(r.ID.Batch()), r.Node}
		if r.Attempt > 0 && !(build && shared[at]) {
			shared[at] = true
			ids = append(ids, string(r.ID))
		}
		return nil
	})
	return ids, err
}

// errBegun ends the answer to the question of begun.
var errBegun = errors.New("it runs, or does not any more")

// begun waits while a job is on its node and its command does not run yet. It
// takes a session of its own, since the answer has no end.
func begun(ctx context.Context, heads *ask.Sessions, id string) error {
	h, err := heads.Dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	_, _, try, err := job.ParseID(id)
	if err != nil {
		return err
	}
	late := []string{wire.Running, wire.Stuck, wire.Returning}
	err = ask.Rows(ctx, h, wire.Query{Of: "jobs", Follow: true}, &ask.Operands{Args: []string{id}}, func(r *job.Row) error {
		if r.State == job.Running && !slices.Contains(late, r.Phase) && (try == 0 || try == r.Attempt) {
			return nil
		}
		return errBegun
	})
	if errors.Is(err, errBegun) {
		return nil
	}
	return err
}

// show prints what one job printed. It takes a session of its own, since one
// over which output was sent as it came cannot be used for more.
func show(ctx context.Context, heads *ask.Sessions, l wire.Log, out *output) error {
	h, err := heads.Dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	l.Ref = job.NewToken()
	r, err := h.Answer(ctx, &l)
	if err != nil {
		return fmt.Errorf("%s: %w", l.ID, err)
	}
	return out.copy(l.ID, r, func(err error) error { return h.Failed(ctx, err) })
}

// each shows one job after another. Those of which the head has nothing to
// show are named in the end.
func each(ids []string, show func(id string) error) error {
	var problems []error
	for _, id := range ids {
		err := show(id)
		problems = append(problems, err)
		var refused *wire.Error
		if err != nil && !errors.As(err, &refused) {
			break
		}
	}
	return errors.Join(problems...)
}

// together shows all jobs at once, as they print.
func together(ctx context.Context, ids []string, show func(id string) error) error {
	if len(ids) > maxFollowed {
		return cli.Usagef("-f: %d jobs fit, and %d can be followed at once", len(ids), maxFollowed)
	}
	problems := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { problems[i] = show(id) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(problems...)
}
