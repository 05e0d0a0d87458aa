package ask

import (
	"bufio"
	"context"
	"fmt"

	"distribute/lib/cli"
	"distribute/lib/wire"
)

// Alter is the whole of a tool that changes jobs: it reads the operands, asks
// the head, and prints the id of every job that was changed. The verb is that
// of [wire.Change]; done is its participle and why no job may have been changed, for the
// person.
func Alter(ctx context.Context, c *cli.Cmd, verb, done string) error {
	return AlterAs(ctx, c, func() (wire.Change, string, error) { return wire.Change{Verb: verb}, done, nil })
}

// AlterAs is Alter for a tool with options and operands of its own: what tells, when
// they are parsed, which change that is, and done. It leaves in c.Args the
// operands that name jobs.
func AlterAs(ctx context.Context, c *cli.Cmd, what func() (change wire.Change, done string, err error)) error {
	head, dry := c.String("H", ""), c.Bool("n")
	c.Bool("q")
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	change, done, err := what()
	if err != nil {
		return err
	}
	change.Dry = *dry
	ops, err := Read(c, true)
	if err != nil {
		return err
	}
	if ops.None {
		return nil
	}
	if len(ops.Parts()) > 1 && change.Set != nil && (change.Set.Priority != nil || change.Set.MaxRunning != nil) {
		return cli.Usagef("%d ids are too many to change their batches: name these", len(ops.Args)) // each part would have its own jobs printed
	}
	h, err := Dial(ctx, c, *head)
	if err != nil {
		return err
	}
	defer h.Close()
	h.TellNewer(ctx, c, ops)
	out, n := bufio.NewWriter(c.Stdout), 0
	err = h.Change(ctx, change, ops, func(id string) error {
		n++
		_, err := fmt.Fprintln(out, id)
		return err
	})
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err == nil && n == 0 {
		return cli.Errorf(cli.No, "nothing %s", done)
	}
	return err
}
