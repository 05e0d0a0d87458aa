// Drm deletes batches that are over. See drm(1).
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

const usage = `usage: drm [-anqv] [-H head] [operand ...]`

// maxKept is how many batches that stay are told of by name.
const maxKept = 100

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	head, all, dry := c.String("H", ""), c.Bool("a"), c.Bool("n")
	c.Bool("q")
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
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
	h.TellNewer(ctx, c, ops)
	out, n, bytes := bufio.NewWriter(c.Stdout), 0, int64(0)
	var kept []error
	err = h.Delete(ctx, wire.Change{All: *all, Dry: *dry}, ops, func(d *wire.Deletion) error {
		if d.Why != "" {
			kept = append(kept, cli.Errorf(cli.No, "%s stays: %s", d.Batch, d.Why))
			return nil
		}
		n, bytes = n+1, bytes+d.Bytes
		_, err := fmt.Fprintln(out, d.Batch)
		return err
	})
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	switch {
	case err != nil:
		return err
	case n+len(kept) == 0:
		return cli.Errorf(cli.No, "no batch to be deleted")
	case *dry && n > 0:
		what := "1 batch"
		if n != 1 {
			what = fmt.Sprintf("%d batches", n)
		}
		c.Talk("%s would be deleted, %s on the head's disk", what, unit.FormatBytes(bytes))
	}
	if more := len(kept) - maxKept; more > 0 {
		kept = append(kept[:maxKept], cli.Errorf(cli.No, "and %d others stay", more))
	}
	return errors.Join(kept...)
}
