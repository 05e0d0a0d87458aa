// Drun runs the jobs of a batch on this machine, with no head. See drun(1).
package main

import (
	"context"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/proc"
)

const usage = `usage: drun [-knqv] [-c capability ...] [-o directory] file [job ...]
       drun [-knqv] [-c capability ...] [-H head] [-o directory] [id ...]`

func main() {
	if proc.IsSupervisor() { // of a job, which is this program too
		if err := proc.Supervise(desk.MakeRoomFor); err != nil {
			panic(err)
		}
		return
	}
	cli.Main(usage, run)
}

func run(ctx context.Context, c *cli.Cmd) (err error) {
	flag, has := c.String("H", ""), c.Strings("c")
	dir := c.String("o", ".")
	keep, dry, quiet := c.Bool("k"), c.Bool("n"), c.Bool("q")
	verbose := c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	for _, word := range *has {
		if err := job.CheckName(word); err != nil {
			return cli.Usagef("-c: %w", err)
		}
	}
	r := &runner{c: c, has: *has, out: *dir, keep: *keep, quiet: *quiet, verbose: *verbose}
	if len(c.Args) > 0 && ask.IsFile(c.Args[0]) {
		if c.Given("H") {
			return cli.Usagef("-H goes with jobs of a head: no head is asked for a batch file")
		}
		err = r.ofFile(ctx)
	} else {
		err = r.ofHead(ctx, *flag)
	}
	switch {
	case err != nil || r.b == nil:
		return err
	case *dry:
		return r.dry(ctx)
	}
	return r.all(ctx)
}
