// D2slurm takes jobs to a Slurm cluster and brings their results back. See d2slurm(1).
package main

import (
	"context"

	"distribute/lib/cli"
	"distribute/lib/job"
)

const usage = `usage: d2slurm -r [-Cknqvx] [-H head] [-N name] folder`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	bring := c.Bool("r")
	claim, kill, giveUp, dry := c.Bool("C"), c.Bool("k"), c.Bool("x"), c.Bool("n")
	head, name := c.String("H", ""), c.String("N", "")
	c.Bool("q")
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	if !*bring {
		return cli.Usagef("-r is to be given")
	}
	if *name != "" {
		if err := job.CheckName(*name); err != nil {
			return cli.Usagef("-N: %w", err)
		}
	}
	b := &back{c: c, head: *head, name: *name, dry: *dry, claim: *claim, kill: *kill, giveUp: *giveUp}
	return b.run(ctx)
}
