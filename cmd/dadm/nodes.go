package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// accept has the head let a node in, and prints by what it is known then.
func accept(ctx context.Context, c *cli.Cmd, head string, dry bool, args []string) error {
	if len(args) != 2 {
		return cli.Usagef("accept takes a node and its fingerprint, the address where the head starts it, or - if it was removed and has neither")
	}
	by := args[1]
	if strings.HasPrefix(by, "SHA256:") {
		by = strings.TrimRight(by, ".…") // as it was cut on a terminal
	}
	h, err := dialAbout(ctx, c, head, args[0])
	if err != nil {
		return err
	}
	defer h.Close()
	a, err := h.Admit(ctx, args[0], by, dry)
	if err != nil {
		return err
	}
	said := "is let in now"
	switch {
	case a.Same && by == "-": // after a restart the head does not know by what it was let in
		said = "is not shut out"
	case a.Same:
		said = "was let in before"
	case dry:
		said = "would be let in"
	}
	c.Talk("%s %s", a.Node, said)
	if a.Jobs > 0 {
		c.Talk("%s has %s from before: it goes on if it comes with the directory that it had then; with another one, as another machine has, what it had is given up", a.Node, unit.Count(a.Jobs, "job"))
	}
	_, err = fmt.Fprintf(c.Stdout, "%s\t%s\n", a.Node, a.As)
	return err
}

// aboutNode tells the head that a node is lost, or, by the verb remove, that it
// is not to be let in any more, or, by drain, that it is to be given nothing, or, by
// resume, that that and its pauses are to end. It prints the jobs of which the node had something.
func aboutNode(ctx context.Context, c *cli.Cmd, head, verb string, dry bool, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("%s takes one node", verb)
	}
	h, err := dialAbout(ctx, c, head, args[0])
	if err != nil {
		return err
	}
	defer h.Close()
	out, n := bufio.NewWriter(c.Stdout), 0
	change := wire.Change{Verb: verb, Dry: dry}
	err = h.Change(ctx, change, &ask.Operands{Args: args}, func(id string) error {
		n++
		_, err := fmt.Fprintln(out, id)
		return err
	})
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	switch {
	case err == nil && n > 0 && verb == "remove" && !dry:
		c.Talk("what %[1]s has goes elsewhere after its lease, or at once by dadm lost %[1]s; if it is let in before, it goes on; jobs with retry: never go nowhere without dadm lost", args[0])
	case err != nil || n > 0:
	case verb == "resume", verb == "drain":
		c.Talk("%s has no job", args[0])
	default:
		c.Talk("%s had no attempt of any job", args[0])
	}
	return err
}

// dialAbout makes a session with the head in which a node is to be named.
func dialAbout(ctx context.Context, c *cli.Cmd, head, name string) (*ask.Head, error) {
	if err := job.CheckName(name); err != nil && node.CheckAbroad(name) != nil {
		return nil, cli.Usagef("%w", err)
	}
	return ask.Dial(ctx, c, head)
}
