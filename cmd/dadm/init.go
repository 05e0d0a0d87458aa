package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/spool"
)

// initSpool makes a spool and the key of its head, whose fingerprint it prints.
// A spool that lacks nothing but the key is given one.
func initSpool(c *cli.Cmd, dir string) error {
	if err := account.BecomeOwner(dir); err != nil {
		return err
	}
	err := spool.Init(dir)
	there := errors.Is(err, fs.ErrExist)
	switch {
	case there:
	case errors.Is(err, spool.ErrNetwork), errors.Is(err, spool.ErrPlace):
		return cli.Errorf(cli.Input, "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return cli.Errorf(cli.NotAllowed, "%w", err)
	case err != nil:
		return err
	}
	s, oerr := spool.Open(dir)
	if oerr != nil {
		return cli.Errorf(cli.Input, "%w", errors.Join(err, oerr))
	}
	if s.User() != os.Geteuid() {
		return cli.Errorf(cli.NotAllowed, "%q belongs to user %d: run this as that user", dir, s.User())
	}
	key, kerr := dial.NewKey(s.KeyFile())
	switch {
	case errors.Is(kerr, fs.ErrExist) && there:
		if key, kerr = dial.ReadKey(s.KeyFile()); kerr != nil {
			return cli.Errorf(cli.Input, "%w, and %w", err, kerr)
		}
		return cli.Errorf(cli.Input, "%w; the fingerprint of its head's key is %s", err, key.Fingerprint())
	case errors.Is(kerr, fs.ErrPermission):
		return cli.Errorf(cli.NotAllowed, "%w", kerr)
	case kerr != nil:
		return kerr
	}
	if there {
		c.Talk("%q is a spool already; its head has a key now, whose fingerprint is", dir)
	} else {
		c.Talk("it is for %s and the group %s, which may use the head and read (dspool(5), USERS, has the lines for others)",
			account.UserName(os.Geteuid()), account.GroupName(s.Group()))
		c.Talk("%q is a spool now (dsched -S %s starts its head); the fingerprint of the head's key is", dir, dir)
	}
	_, err = fmt.Fprintln(c.Stdout, key.Fingerprint())
	return err
}
