// Dsched is the head: it keeps the spool and gives jobs to nodes. See dsched(8).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/head"
)

const usage = `usage: dsched [-v] [-S spool] [-l address ...] [-insecure]
       dsched -attach [-S spool] [node]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	dir := c.String("S", c.Getenv("DSPOOL"))
	addrs := c.Strings("l")
	insecure := c.Bool("insecure")
	carry := c.Bool("attach")
	verbose := c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	if *carry {
		if !c.Given("S") { // DSPOOL is of a dsched that serves
			*dir = ""
		}
		return attach(ctx, c, *dir)
	}
	if len(c.Args) > 0 {
		return cli.Usagef("dsched takes no operand, and got %q", c.Args[0])
	}
	if *dir == "" {
		*dir = dial.OwnSpool(c.Getenv)
	}
	syscall.Umask(0o027) // what the spool's files may be read by is said in dspool(5)
	log := c.Log(*verbose)
	defer cli.TellFigures(log)()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // one that comes while the spool is read counts
	h, err := head.Open(*dir, log)
	if err != nil {
		return err
	}
	h.Hangup = hangup
	return h.Serve(ctx, *addrs, *insecure, func() { c.Ready(log) })
}
