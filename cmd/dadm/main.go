// Dadm is for those who look after a head. See dadm(8).
package main

import (
	"context"

	"distribute/lib/cli"
)

const usage = `usage: dadm init [-g group] directory
       dadm accept [-nq] [-H head] node fingerprint
       dadm accept [-nq] [-H head] node ssh://[user@]host[:port]
       dadm accept [-nq] [-H head] node -
       dadm drain [-nq] [-H head] node
       dadm lost [-nq] [-H head] node
       dadm remove [-nq] [-H head] node
       dadm resume [-nq] [-H head] node`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	head, dry, group := c.String("H", ""), c.Bool("n"), c.String("g", "")
	c.Bool("q")
	if err := c.Parse(); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return cli.Usagef("what to do is missing")
	}
	if *group != "" && c.Args[0] != "init" {
		return cli.Usagef("-g goes with init alone")
	}
	switch what, args := c.Args[0], c.Args[1:]; what {
	case "accept":
		return accept(ctx, c, *head, *dry, args)
	case "init":
		switch {
		case len(args) != 1 || args[0] == "":
			return cli.Usagef("init takes one directory")
		case *dry || *head != "":
			return cli.Usagef("init takes no option but -g")
		}
		return initSpool(ctx, c, args[0], *group)
	case "drain", "lost", "remove", "resume":
		return aboutNode(ctx, c, *head, what, *dry, args)
	}
	return cli.Usagef("%q is nothing that dadm does", c.Args[0])
}
