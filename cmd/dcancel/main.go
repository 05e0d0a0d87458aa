// Dcancel gives jobs up. See dcancel(1).
package main

import (
	"context"

	"distribute/lib/ask"
	"distribute/lib/cli"
)

const usage = `usage: dcancel [-nqv] [-H head] [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	return ask.Alter(ctx, c, "cancel", "cancelled: no job fits, or they are over")
}
