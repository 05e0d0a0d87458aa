// Dfsck checks a spool or a node's directory. See dfsck(8).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"distribute/lib/account"
	"distribute/lib/check"
	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/dial"
	"distribute/lib/proc"
	"distribute/lib/timing"
	"distribute/lib/unit"
	"distribute/spool"
)

const usage = `usage: dfsck [-jqrsv] -S spool
       dfsck [-jqrsv] -D dir`

func main() { cli.Main(usage, run) }

// settles is how long a daemon at work is given to end what it is in the midst
// of.
var settles = timing.Wait(2 * time.Second)

func run(ctx context.Context, c *cli.Cmd) error {
	asJSON := c.Bool("j")
	c.Bool("q")
	mend := c.Bool("r")
	sums := c.Bool("s")
	c.Bool("v")
	spoolDir := c.String("S", "")
	nodeDir := c.String("D", "")
	if err := c.Parse(); err != nil {
		return err
	}
	switch {
	case len(c.Args) > 0:
		return cli.Usagef("no operands, please: %q", c.Args[0])
	case c.Given("S") == c.Given("D"):
		return cli.Usagef("name a spool with -S, or a node's directory with -D")
	}
	out := bufio.NewWriter(c.Stdout)
	kinds := make(map[check.Kind]int)
	read := c.Progress("reading", 0, unit.FormatBytes)
	r := &check.Run{Sums: *sums, Mend: *mend, Wait: settles, Key: dial.CheckKey, Seen: read.Add,
		Part: func(name string) { c.Verbose("looking at %s", name) }}
	r.Tell = func(f *check.Finding) error {
		kinds[f.Kind]++
		return tell(out, f, *asJSON)
	}
	examine := spool.Check
	if r.Dir = *spoolDir; c.Given("D") {
		r.Dir, examine = *nodeDir, checkNode
	}
	var err error
	if *mend { // what root would do there by path, jobs of that user could lead elsewhere
		err = account.BecomeOwner(r.Dir)
	}
	if err == nil {
		err = examine(ctx, r)
	}
	read.Done()
	if err != nil {
		return errors.Join(out.Flush(), classed(err))
	}
	c.Talk("%s", summary(r, kinds, c.Given("D")))
	if r.Open > 0 {
		return cli.Quiet(cli.No)
	}
	return nil
}

func checkNode(ctx context.Context, r *check.Run) error {
	boot, err := proc.Boot()
	if err != nil {
		return err
	}
	return desk.Check(ctx, r, boot, proc.Alive)
}

// classed gives an error its exit status.
func classed(err error) error {
	for status, all := range map[int][]error{
		cli.Input: {spool.ErrNoSpool, spool.ErrFormat, spool.ErrNetwork, desk.ErrNoDesk},
		cli.Later: {spool.ErrLocked, desk.ErrInUse},
	} {
		for _, e := range all {
			if errors.Is(err, e) {
				return cli.Errorf(status, "%w", err)
			}
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return cli.Errorf(cli.NotAllowed, "%w", err)
	}
	return err
}

// tell prints a finding, at once.
func tell(out *bufio.Writer, f *check.Finding, asJSON bool) error {
	text := []byte(f.Text())
	if asJSON {
		var err error
		if text, err = json.Marshal(f); err != nil {
			return err
		}
		text = unit.EscapeJSON(text)
	}
	if _, err := out.Write(append(text, '\n')); err != nil {
		return err
	}
	return out.Flush()
}

// summary is the last word: what was found, and in how much.
func summary(r *check.Run, kinds map[check.Kind]int, node bool) string {
	var parts []string
	found := 0
	for _, k := range []check.Kind{check.Torn, check.Left, check.Damaged, check.Strange} {
		if n := kinds[k]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", grouped(n), k))
			found += n
		}
	}
	head := "whole"
	if found > 0 {
		head = strings.Join(parts, ", ")
	}
	if mended := found - r.Open; mended > 0 {
		head += fmt.Sprintf(" (%s mended)", grouped(mended))
	}
	t := &r.Tally
	what := []string{amount(t.Batches, "batch", "batches"), amount(t.Results, "result", "results")}
	if node {
		what = []string{amount(t.Attempts, "attempt", "attempts"), amount(t.Builds, "build", "builds")}
	}
	if t.Files > 0 {
		what = append(what, amount(t.Files, "file", "files")+" compared")
	}
	return head + ": " + strings.Join(what, ", ") + ", " + unit.FormatBytes(t.Read) + " read"
}

func amount(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// grouped writes a number with a comma between its thousands.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
