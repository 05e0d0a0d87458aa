// Dretry has jobs tried again that failed or were cancelled. See dretry(1).
package main

import (
	"context"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/wire"
)

const usage = `usage: dretry [-Bnqv] [-H head] [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	anew := c.Bool("B")
	return ask.AlterAs(ctx, c, func() (wire.Change, string, error) {
		return wire.Change{Verb: "retry", Anew: *anew}, "tried again: none of these jobs has failed or was cancelled", nil
	})
}
