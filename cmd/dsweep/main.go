// Dsweep prints cases of parameters, a line each. See dsweep(1).
package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"distribute/lib/cli"
	"distribute/lib/sweep"
	"distribute/lib/unit"
)

const usage = `usage: dsweep [-jn] [-k number] [-s seed] [-x times] parameter ...`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	asJSON, dry := c.Bool("j"), c.Bool("n")
	drawn, seed, times := c.Int("k", 0), c.String("s", "1"), c.Int("x", 1)
	if err := c.Parse(); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return cli.Usagef("no parameter is given: dsweep nu=0.1,0.2 n=64:512:64")
	}
	if c.Given("s") && !c.Given("k") {
		return cli.Usagef("-s goes with -k: without it, nothing is drawn")
	}
	number, err := strconv.ParseUint(*seed, 10, 64)
	if err != nil {
		return cli.Usagef("-s %q is not a whole number from 0 on", *seed)
	}
	s, err := sweep.Parse(c.Args, readFile)
	if err != nil {
		return wrong(err)
	}
	if c.Given("x") {
		if err := s.Repeat(*times); err != nil {
			return cli.Errorf(cli.Input, "-x: %w", err)
		}
	}
	if c.Given("k") {
		if err := s.Draw(int64(*drawn), number); err != nil {
			return cli.Errorf(cli.Input, "-k: %w", err)
		}
	}
	if err := s.Check(); err != nil {
		return cli.Errorf(cli.Input, "%w (-k 1000)", err)
	}
	if *dry {
		c.Talk("%s", unit.Count(int(s.Count().Int64()), "case"))
		return nil
	}
	return print(ctx, c.Stdout, s, *asJSON)
}

// wrong is an error of operands: that of a file that cannot be read is one of
// the system.
func wrong(err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return err
	}
	return cli.Errorf(cli.Input, "%w", err)
}

func print(ctx context.Context, to io.Writer, s *sweep.Sweep, asJSON bool) error {
	out := bufio.NewWriterSize(to, 64<<10)
	appendCase := sweep.AppendLine
	if asJSON {
		appendCase = func(b []byte, params []sweep.Param) []byte { // as dsubmit -j reads a job
			return append(sweep.AppendObject(append(b, `{"param":`...), params), '}')
		}
	}
	var line []byte
	for params := range s.Cases() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line = append(appendCase(line[:0], params), '\n')
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// readFile reads a file of cases, and one byte more than the limit at most.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, sweep.MaxFile+1))
}
