package account

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Owns says whether a directory is there that belongs to uid.
func Owns(uid int, dir string) bool {
	st, err := statDir(dir)
	return err == nil && int(st.Uid) == uid
}

// BecomeOwner makes this process, for good, one of the user and of the group to
// whom a directory belongs, so that what root puts into it is theirs. It changes
// nothing for others than root, or where the directory is missing or root's.
func BecomeOwner(dir string) error { return BecomeOwnerIn(dir, -1) }

// BecomeOwnerIn is BecomeOwner, with another group, by its number, than that of the directory,
// unless this is -1.
func BecomeOwnerIn(dir string, group int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	st, err := statDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && st.Uid == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	uid, gid := int(st.Uid), int(st.Gid)
	if group != -1 {
		gid = group
	}
	if err := errors.Join(syscall.Setgroups([]int{gid}), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
		return fmt.Errorf("cannot become the user of %q (uid %d, gid %d): %w", dir, uid, gid, err)
	}
	return nil
}

func statDir(dir string) (*syscall.Stat_t, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok {
		return nil, &fs.PathError{Op: "stat", Path: dir, Err: syscall.ENOTDIR}
	}
	return st, nil
}
