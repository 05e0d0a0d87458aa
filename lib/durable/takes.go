package durable

import (
	"encoding/binary"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Takes returns how many bytes of the disk a file takes, of which stat(2) told the mode, the blocks of
// 512 bytes and the size.
//
// The blocks that XFS keeps ready behind the end of a file that grows, up to twice as much as it has,
// do not count: XFS takes them back later, and as soon as the disk gets full ("speculative
// preallocation" in the FAQ of XFS). Blocks that a program has reserved there do. Only for a file
// that has such blocks, open is called.
func Takes(mode uint32, blocks, size int64, open func() (*os.File, error)) int64 {
	const unit, least = 4096, 64 << 10
	taken, whole := blocks*512, (size+unit-1)/unit*unit
	if mode&unix.S_IFMT != unix.S_IFREG || taken <= whole || taken > 3*whole+least {
		return taken
	}
	f, err := open()
	if err != nil {
		return taken
	}
	defer f.Close()
	if !keptReady(f) {
		return taken
	}
	return whole
}

// Takes returns how many bytes of the disk the entry takes, without what is in a directory.
func (e Entry) Takes() int64 {
	st, ok := e.Info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return Takes(st.Mode, st.Blocks, st.Size, func() (*os.File, error) { return openEntry(e) })
}

// keptReady reports whether blocks behind the end of a file are there for XFS only: no program has
// reserved any in it.
func keptReady(f *os.File) bool {
	const getAttributes, reserved = 0x801c581f, 2 // FS_IOC_FSGETXATTR, FS_XFLAG_PREALLOC
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type != unix.XFS_SUPER_MAGIC {
		return false
	}
	var attributes [28]byte
	_, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getAttributes, uintptr(unsafe.Pointer(&attributes)))
	return e == 0 && binary.NativeEndian.Uint32(attributes[:])&reserved == 0
}
