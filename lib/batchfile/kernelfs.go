package batchfile

import (
	"fmt"
	"io/fs"
	"syscall"

	"distribute/lib/msg"
)

// kernelFS has the file systems, by their magic numbers (statfs(2)), that the kernel makes of its
// own state: their files have no size before they are read, and their trees may have no end.
var kernelFS = map[uint32]string{
	0x9fa0: "proc", 0x62656572: "sysfs", 0x27e0eb: "cgroup", 0x63677270: "cgroup2", 0x64626720: "debugfs", 0x74726163: "tracefs",
	0x73636673: "securityfs", 0x62656570: "configfs", 0xcafe4a11: "bpf", 0x6165676c: "pstore", 0xde5e81e4: "efivarfs",
	0x65735543: "fusectl", 0xf97cff8c: "selinuxfs", 0x42494e4d: "binfmt_misc", 0x6e736673: "nsfs", 0x1cd1: "devpts",
}

// ofKernel reports that a file or directory is of such a file system. It asks once for each one.
func (c *collector) ofKernel(name string, st fs.FileInfo) error {
	info, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	kind, seen := c.kernel[info.Dev]
	if !seen {
		var about syscall.Statfs_t
		if syscall.Statfs(name, &about) == nil {
			kind = kernelFS[uint32(about.Type)]
		}
		c.kernel[info.Dev] = kind
	}
	if kind == "" {
		return nil
	}
	return fmt.Errorf("%s is on %s, a file system of the kernel, which has no files to send: copy it to a file first", msg.Quote(name), kind)
}
