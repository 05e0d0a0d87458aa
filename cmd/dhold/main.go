// Dhold keeps jobs from starting until they are released. See dhold(1).
package main

import (
	"context"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/wire"
)

const usage = `usage: dhold [-nqrv] [-H head] [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	release := c.Bool("r")
	return ask.AlterAs(ctx, c, func() (wire.Change, string, error) {
		if *release {
			return wire.Change{Verb: "release"}, "released", nil
		}
		return wire.Change{Verb: "hold"}, "held", nil
	})
}
