package durable

import (
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Tree is what lies below root, to be walked (fs.WalkDir) while whoever owns it
// may change it: no link is followed out of it, and what was a directory and is
// another thing now is not opened. A directory on which something is mounted is empty, but
// for the root itself.
func Tree(root *os.Root) fs.ReadDirFS { return tree{root} }

type tree struct{ *os.Root }

func (t tree) Open(name string) (fs.File, error) {
	return t.OpenFile(name, readPlain, 0)
}

func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	d, err := t.OpenFile(name, readPlain|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if name != "." && Mounted(d) {
		return nil, nil
	}
	list, err := d.ReadDir(-1)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// Mounted says that f is where a file system, or a part of one, is mounted, also of the same
// file system. Linux before 5.8 does not tell.
func Mounted(f *os.File) bool {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
