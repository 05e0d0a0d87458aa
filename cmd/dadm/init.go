package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/spool"
)

// initSpool makes a spool, for a group if one is named, and the key of its head, whose
// fingerprint it prints. A spool that lacks nothing but the key is given one.
func initSpool(ctx context.Context, c *cli.Cmd, dir, group string) error {
	gid := spool.Private
	if group != "" {
		var err error
		switch gid, err = account.GroupID(ctx, group); {
		case errors.Is(err, account.ErrUnknown):
			return cli.Errorf(cli.Input, "there is no group %.64q here (id -Gn has yours)", group)
		case err != nil:
			return cli.Errorf(cli.Input, "group %.64q: %w", group, err)
		}
		if mine, err := os.Getgroups(); err == nil && os.Geteuid() != 0 && gid != os.Getegid() && !slices.Contains(mine, gid) {
			return cli.Errorf(cli.NotAllowed, "you are not in the group %s (id -Gn has yours), or must log in again", group)
		}
	}
	if err := account.BecomeOwnerIn(dir, gid); err != nil {
		return err
	}
	err := spool.Init(dir, gid)
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
		if me := account.UserName(os.Geteuid()); group == "" {
			c.Talk("it is for %s alone (-g GROUP makes one for a group; dspool(5), USERS, has the lines for this one)", me)
		} else {
			c.Talk("it is for %s and the group %s, which may use the head and read", me, account.GroupName(s.Group()))
		}
		c.Talk("%q is a spool now (dsched -S %s starts its head); the fingerprint of the head's key is", dir, dir)
	}
	_, err = fmt.Fprintln(c.Stdout, key.Fingerprint())
	return err
}
