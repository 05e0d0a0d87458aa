package proc

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// An Identity is the user as whom processes run, and with whose rights files are
// reached that are his.
type Identity struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"` // the other groups; GID may be among them
}

// Do calls f with the rights that the identity has in file systems, and no
// others, so that f reaches nothing through what the user has put in its way
// that he does not reach himself. It holds for the system calls of f's own
// goroutine, and costs some microseconds; f is to start no process. Only root may
// call it; with a nil identity f is simply called. That the rights cannot be
// taken back is a panic.
func (id *Identity) Do(f func() error) error {
	if id == nil {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ours := Identity{UID: fsuid(), GID: fsgid()}
	var err error
	if ours.Groups, err = unix.Getgroups(); err != nil {
		return fmt.Errorf("own groups: %w", err)
	}
	defer func() {
		if err := ours.assume(); err != nil {
			panic(err)
		}
	}()
	if err := id.assume(); err != nil {
		return err
	}
	return f()
}

// assume sets what this thread alone may reach in file systems. The kernel's
// word on whether it could is what it says afterwards.
func (id *Identity) assume() error {
	if err := unix.Setgroups(id.Groups); err != nil {
		return fmt.Errorf("cannot take on the groups %v: %w", id.Groups, err)
	}
	unix.Setfsgid(id.GID)
	unix.Setfsuid(id.UID)
	if uid, gid := fsuid(), fsgid(); uid != id.UID || gid != id.GID {
		return fmt.Errorf("cannot take on the rights of uid %d, gid %d: they are those of uid %d, gid %d", id.UID, id.GID, uid, gid)
	}
	return nil
}

// fsuid asks for what never is a user's number, which changes nothing and
// returns what is set.
func fsuid() int {
	uid, _ := unix.SetfsuidRetUid(-1)
	return uid
}

func fsgid() int {
	gid, _ := unix.SetfsgidRetGid(-1)
	return gid
}

// credential is the identity for a process to be started.
func (id *Identity) credential() (uid, gid uint32, groups []uint32) {
	for _, g := range slices.Compact(slices.Sorted(slices.Values(id.Groups))) {
		groups = append(groups, uint32(g))
	}
	return uint32(id.UID), uint32(id.GID), groups
}

// renounce takes from this thread, and from all that it starts, what a program
// of root or with file capabilities would give, and the keys that dnoded was
// started with. It cannot be undone; the caller has locked the thread.
func renounce() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	unix.KeyctlJoinSessionKeyring("") // kernels without keys have none to give
	return nil
}
