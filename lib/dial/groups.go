package dial

import (
	"fmt"
	"syscall"
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
