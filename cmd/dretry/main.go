// Dretry has jobs tried again that failed or were cancelled. See dretry(1).
package main

import (
	"context"

	"distribute/lib/ask"
	"distribute/lib/cli"
)

const usage = `usage: dretry [-nqv] [-H head] [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	return ask.Alter(ctx, c, "retry", "tried again: none of these jobs has failed or was cancelled")
}
