// Dlog shows what jobs print. See dlog(1).
package main

import (
	"context"
	"errors"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

const usage = `usage: dlog [-Bfqv] [-H head] [-L lines] [-r rank] [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	build, follow := c.Bool("B"), c.Bool("f")
	quiet, verbose := c.Bool("q"), c.Bool("v")
	head, lines, rank := c.String("H", ""), c.Int("L", 0), c.Int("r", 0)
	if err := c.Parse(); err != nil {
		return err
	}
	if c.Given("L") && *lines < 1 {
		return cli.Usagef("-L %d: at least one line has to be wanted", *lines)
	}
	switch {
	case *rank < 0:
		return cli.Usagef("-r %d: ranks are numbered from 0", *rank)
	case *build && c.Given("r"):
		return cli.Usagef("-B and -r exclude each other: a build has no ranks")
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
	want := wire.Log{Build: *build, Rank: *rank, Lines: *lines, Follow: *follow}
	if *follow {
		c.EndWithReader()
		return follows(ctx, c, *head, ids, want, out)
	}
	heads, err := ask.NewSessions(c, *head)
	if err != nil {
		return err
	}
	in := &session{heads: heads}
	defer in.close()
	return each(ids, func(id string) error { return newLog(id, want).show(ctx, c, in, out) })
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
	h.TellNewer(ctx, c, ops)
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

// each shows one job after another. Those of which the head has nothing to
// show, or not all, are named in the end.
func each(ids []string, show func(id string) error) error {
	var problems []error
	for _, id := range ids {
		err := show(id)
		problems = append(problems, err)
		if err != nil && !answered(err) {
			break
		}
	}
	return errors.Join(problems...)
}
