// Dadm is for those who look after a head. See dadm(8).
package main

import (
	"context"
	"errors"
	"io/fs"

	"distribute/lib/cli"
	"distribute/spool"
)

const usage = `usage: dadm init directory`

func main() { cli.Main(usage, run) }

func run(_ context.Context, c *cli.Cmd) error {
	if err := c.Parse(); err != nil {
		return err
	}
	switch {
	case len(c.Args) == 0:
		return cli.Usagef("what to do is missing")
	case c.Args[0] != "init":
		return cli.Usagef("%q is nothing that dadm does", c.Args[0])
	case len(c.Args) != 2 || c.Args[1] == "":
		return cli.Usagef("init takes one directory")
	}
	return initSpool(c, c.Args[1])
}

func initSpool(c *cli.Cmd, dir string) error {
	err := spool.Init(dir)
	switch {
	case errors.Is(err, fs.ErrExist), errors.Is(err, spool.ErrNetwork), errors.Is(err, spool.ErrPlace):
		return cli.Errorf(cli.Input, "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return cli.Errorf(cli.NotAllowed, "%w", err)
	case err != nil:
		return err
	}
	c.Talk("%q is a spool now (dsched -S %s starts its head)", dir, dir)
	return nil
}
