package dial

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is NGROUPS_MAX of Linux.
const maxGroups = 1 << 16

// groupsOf is the groups of the process that has connected the Unix socket fd:
// the one that creds names, and those that SO_PEERGROUPS tells. A kernel before
// 4.13, which does not know that, leaves the first.
func groupsOf(fd int, creds *syscall.Ucred) ([]int, error) {
	all := []int{int(creds.Gid)}
	for ids := make([]uint32, 64); ; ids = make([]uint32, maxGroups) {
		size := uint32(4 * len(ids))
		_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&ids[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == syscall.ENOPROTOOPT:
			return all, nil
		case errno == syscall.ERANGE && len(ids) < maxGroups:
			continue
		case errno != 0:
			return nil, fmt.Errorf("the kernel does not say of which groups the peer is: %w", errno)
		}
		for _, id := range ids[:size/4] {
			all = append(all, int(id))
		}
		return all, nil
	}
}

// ErrUnknown says that there is no user or group of a name.
var ErrUnknown = errors.New("nobody has that name")

// UserID is the number of the user with that name, also of one of a directory
// service, as [UserName].
func UserID(name string) (int, error) {
	if u, err := user.Lookup(name); err == nil {
		return strconv.Atoi(u.Uid)
	}
	return numberOf("passwd", name)
}

// GroupID is the number of the group with that name, as [UserID].
func GroupID(name string) (int, error) {
	if g, err := user.LookupGroup(name); err == nil {
		return strconv.Atoi(g.Gid)
	}
	return numberOf("group", name)
}

// numberOf is the number of a name, which is the third field in both databases.
func numberOf(database, name string) (int, error) {
	fields, err := getent(database, name)
	if err == nil && fields[0] != name { // it was taken for a number
		err = fmt.Errorf("%q: %w", name, ErrUnknown)
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[2])
}

// getent asks getent(1) for the entry of a name or a number, of three fields at
// least. The error is [ErrUnknown] if there is none, and another one if that
// cannot be known now.
func getent(database, name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "getent", database, "--", name).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 2 || errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%q: %w", name, ErrUnknown)
	}
	if err != nil {
		return nil, fmt.Errorf("getent %s: %w", database, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	fields := strings.Split(line, ":")
	if len(fields) < 3 {
		return nil, fmt.Errorf("%q: %w", name, ErrUnknown)
	}
	return fields, nil
}
