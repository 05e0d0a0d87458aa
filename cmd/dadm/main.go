// Dadm is for those who look after a head. See dadm(8).
package main

import (
	"bufio"
	"context"
	"fmt"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

const usage = `usage: dadm init directory
       dadm lost [-nq] [-H head] node`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	head, dry := c.String("H", ""), c.Bool("n")
	c.Bool("q")
	if err := c.Parse(); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return cli.Usagef("what to do is missing")
	}
	switch what, args := c.Args[0], c.Args[1:]; {
	case what == "init" && (len(args) != 1 || args[0] == ""):
		return cli.Usagef("init takes one directory")
	case what == "init" && (*dry || *head != ""):
		return cli.Usagef("init takes no options")
	case what == "init":
		return initSpool(c, args[0])
	case what == "lost" && len(args) != 1:
		return cli.Usagef("lost takes one node")
	case what == "lost":
		return giveUp(ctx, c, *head, args[0], *dry)
	}
	return cli.Usagef("%q is nothing that dadm does", c.Args[0])
}

// giveUp tells the head that a node is lost, and prints what it had.
func giveUp(ctx context.Context, c *cli.Cmd, head, node string, dry bool) error {
	if err := job.CheckName(node); err != nil {
		return cli.Usagef("%w", err)
	}
	h, err := ask.Dial(ctx, c, head)
	if err != nil {
		return err
	}
	defer h.Close()
	out, n := bufio.NewWriter(c.Stdout), 0
	change := wire.Change{Verb: "lost", Dry: dry}
	err = h.Change(ctx, change, &ask.Operands{Args: []string{node}}, func(id string) error {
		n++
		_, err := fmt.Fprintln(out, id)
		return err
	})
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err == nil && n == 0 {
		c.Talk("%s had no attempt of any job", node)
	}
	return err
}
