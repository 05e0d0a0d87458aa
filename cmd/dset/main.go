// Dset changes what is asked for of jobs that are not over. See dset(1).
package main

import (
	"context"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

const usage = `usage: dset [-nqv] [-H head] [-T time] [-m max_running] [-p priority]
       [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	values := []struct {
		flag, key string
		text      *string
	}{{"T", "time", c.String("T", "")}, {"m", "max_running", c.String("m", "")}, {"p", "priority", c.String("p", "")}}
	return ask.AlterAs(ctx, c, func() (wire.Change, string, error) {
		change := wire.Change{Verb: "set", Set: new(job.Set)}
		for _, v := range values {
			if *v.text == "" {
				continue
			}
			if err := change.Set.Read(v.key, *v.text); err != nil {
				return change, "", cli.Usagef("-%s: %w", v.flag, err)
			}
		}
		if *change.Set == (job.Set{}) {
			return change, "", cli.Usagef("nothing is to be changed: give -T, -m or -p")
		}
		return change, "changed: no job fits, or they are over or have that already", nil
	})
}
