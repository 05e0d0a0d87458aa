package durable

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// writersWithin bounds [AwaitWriters].
const writersWithin = 10 * time.Second

// AwaitWriters waits until no process has a regular file open for writing: such a file
// cannot be executed (ETXTBSY). A program that this process is starting has what was open
// here until the kernel has executed it, which is after [syscall.ForkLock] is free again. Call
// it after a file that others may execute was closed. It returns at once if the file
// system cannot tell, and after ten seconds at the latest.
func AwaitWriters(root *os.Root, name string) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	// The kernel grants a lease for reading only while nobody writes.
	begin := time.Now()
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		if err == nil {
			unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		}
		if err != unix.EAGAIN || isRemote(f) || time.Since(begin) > writersWithin {
			return
		}
		time.Sleep(wait)
	}
}

// isRemote reports whether a file is on NFS or SMB. They refuse a lease, by the same error, also
// if nobody writes, unless the server has granted one.
func isRemote(f *os.File) bool {
	var st unix.Statfs_t
	if statfs(int(f.Fd()), &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return true
	}
	return false
}

var statfs = unix.Fstatfs
