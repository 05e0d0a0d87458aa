// Dpause stops this machine's jobs for a while. See dpause(1).
package main

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"distribute/lib/cli"
	"distribute/lib/pause"
	"distribute/lib/unit"
)

const usage = `usage: dpause [-qer] [-g cpus[,memory]] [-D dir] [duration | until]`

func main() { cli.Main(usage, run) }

// usual is how long -e and -g last if nothing is said.
const usual = time.Hour

func run(ctx context.Context, c *cli.Cmd) error {
	dir, part := c.String("D", ""), c.String("g", "")
	out, back := c.Bool("e"), c.Bool("r")
	c.Bool("q")
	if err := c.Parse(); err != nil {
		return err
	}
	switch {
	case len(c.Args) > 1:
		return cli.Usagef("%d operands: say how long in one word, like 2h or 17:30", len(c.Args))
	case *back && (*out || c.Given("g") || len(c.Args) > 0):
		return cli.Usagef("-r ends a pause, and goes with -D and -q only")
	case *out && c.Given("g"):
		return cli.Usagef("-e lets all jobs leave and -g keeps them")
	}
	clock, err := pause.Here()
	if err != nil {
		return err
	}
	wish, err := read(c, clock, *part, *out)
	if err != nil {
		return err
	}
	here, err := find(c, clock, *dir)
	switch {
	case err != nil && *dir == "" && c.Given("q") && wish == nil && !*back:
		return cli.Quiet(cli.Unreachable) // a login script is the same on machines without a node
	case err != nil:
		return err
	}
	if wish != nil {
		return here.pause(ctx, *wish)
	}
	if err := here.look(); err != nil {
		return err
	}
	switch {
	case *back:
		return here.resume(ctx)
	case c.Given("q"):
		return here.oneLine()
	}
	return here.show()
}

// read makes a pause of the options and the operand; nil if there is none.
func read(c *cli.Cmd, clock pause.Clock, part string, out bool) (*pause.Pause, error) {
	if len(c.Args) == 0 && !out && !c.Given("g") {
		return nil, nil
	}
	p := pause.For(clock, usual)
	if len(c.Args) > 0 {
		var err error
		if p, err = parseEnd(clock, c.Args[0]); err != nil {
			return nil, cli.Usagef("%w", err)
		}
	}
	p.Out = out
	if c.Given("g") {
		give, err := parseGive(part)
		if err != nil {
			return nil, cli.Usagef("-g: %w", err)
		}
		p.Give = &give
	}
	return &p, nil
}

// parseGive reads what is to be given back: 4, 4,8G or 0,8G.
func parseGive(s string) (g pause.Give, err error) {
	cpus, memory, both := strings.Cut(s, ",")
	n, err := strconv.ParseUint(cpus, 10, 31)
	if err != nil {
		return g, cli.Errorf(cli.Usage, "%q is no number of cpus: write it like 4 or 4,8G", cpus)
	}
	g.CPUs = int(n)
	if both {
		if g.Memory, err = unit.ParseBytes(memory); err != nil {
			return g, err
		}
		if g.Memory > 0 && g.Memory < 1<<20 {
			return g, cli.Errorf(cli.Usage, "%q is less than a mebibyte: did you mean %sG?", memory, memory)
		}
	}
	most, total := onlineCPUs(), totalMemory()
	switch {
	case g == pause.Give{}:
		return g, cli.Errorf(cli.Usage, "%q is nothing to give back: say how many cpus", s)
	case g.CPUs > most:
		return g, cli.Errorf(cli.Usage, "this machine has %d cpus, not %d", most, g.CPUs)
	case total > 0 && g.Memory > total:
		return g, cli.Errorf(cli.Usage, "this machine has %s of memory, not %s", unit.FormatBytes(total), unit.FormatBytes(g.Memory))
	}
	return g, nil
}

// onlineCPUs is how many cpus the machine has, whatever this process may use.
func onlineCPUs() int {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(string(b)), ",") {
		from, to, _ := strings.Cut(part, "-")
		lo, e1 := strconv.Atoi(from)
		hi, e2 := strconv.Atoi(cmp.Or(to, from))
		if err != nil || e1 != nil || e2 != nil || hi < lo {
			return runtime.NumCPU()
		}
		n += hi - lo + 1
	}
	return n
}

// totalMemory is how much the machine has, 0 if it does not say.
func totalMemory() int64 {
	var si syscall.Sysinfo_t
	if syscall.Sysinfo(&si) != nil {
		return 0
	}
	return int64(si.Totalram) * int64(si.Unit)
}

// names is some of many in words: ana, ana and bo, ana, bo and 3 others.
func names(all []string) string {
	all = slices.Compact(slices.Sorted(slices.Values(all)))
	switch n := len(all); {
	case n == 0:
		return ""
	case n == 1:
		return all[0]
	case n == 2:
		return all[0] + " and " + all[1]
	default:
		return all[0] + ", " + all[1] + " and " + count(n-2, "other")
	}
}

// count is a number of things in words.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
