// D2slurm takes jobs to a Slurm cluster and brings their results back. See d2slurm(1).
package main

import (
	"context"

	"distribute/lib/cli"
	"distribute/lib/job"
)

const usage = `usage: d2slurm -o dir [-qv] [-A program] [-H head] [-M line ...] [-N name]
               [-u destination] [--secret variable ...] [operand ...]
       d2slurm -o dir [-qv] [-A program] [-b batch] [-H head] [-M line ...]
               [-N name] [-s ids] [-U] [-u destination]
               [--secret variable ...] file
       d2slurm -r [-Cknqvx] [-b batch] [-H head] [-N name] folder`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	bring, dir := c.Bool("r"), c.String("o", "")
	claim, kill, giveUp, dry, unique := c.Bool("C"), c.Bool("k"), c.Bool("x"), c.Bool("n"), c.Bool("U")
	head, name, batch := c.String("H", ""), c.String("N", ""), c.String("b", "")
	runtime, modules, ids, upload := c.String("A", ""), c.Strings("M"), c.String("s", ""), c.String("u", "")
	secrets := c.Strings("-secret")
	c.Bool("q")
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	if *name != "" {
		if err := job.CheckName(*name); err != nil {
			return cli.Usagef("-N: %w", err)
		}
	}
	if *bring == (*dir != "") {
		return cli.Usagef("one of -o and -r is to be given")
	}
	for _, o := range []struct {
		name string
		of   bool // of -r
	}{{"C", true}, {"k", true}, {"n", true}, {"x", true}, {"A", false}, {"M", false}, {"s", false}, {"U", false}, {"u", false}, {"-secret", false}} {
		switch {
		case !c.Given(o.name) || o.of == *bring:
		case o.of:
			return cli.Usagef("-%s goes with -r", o.name)
		default:
			return cli.Usagef("-%s goes with -o", o.name)
		}
	}
	if !*bring {
		o := &out{c: c, head: *head, dir: *dir, name: *name, batch: *batch, unique: *unique, ids: *ids, upload: *upload, modules: *modules, runtime: *runtime, secrets: *secrets}
		return o.run(ctx)
	}
	b := &back{c: c, head: *head, name: *name, batch: *batch, dry: *dry, claim: *claim, kill: *kill, giveUp: *giveUp}
	return b.run(ctx)
}
