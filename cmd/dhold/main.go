// Dhold keeps jobs from starting until they are released. See dhold(1).
package main

import (
	"context"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/wire"
)

const usage = `usage: dhold [-npqrv] [-H head] [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	freeze, release := c.Bool("p"), c.Bool("r")
	return ask.AlterAs(ctx, c, func() (wire.Change, string, error) {
		switch {
		case *freeze && *release:
			return wire.Change{}, "", cli.Usagef("-p and -r exclude each other: -r releases what -p has paused, too")
		case *release:
			return wire.Change{Verb: "release"}, "released: none of these jobs is held", nil
		case *freeze:
			return wire.Change{Verb: "hold", Freeze: true}, "held: no job fits, or they are over, held already or running on a cluster", nil
		}
		return wire.Change{Verb: "hold"}, "held: no job fits, or they are over, held already, on a cluster or running; -p freezes running ones", nil
	})
}
