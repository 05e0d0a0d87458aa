package desk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"distribute/lib/durable"
)

// ballastSize is how many bytes are given up on a full disk, so that the end of
// the attempt that filled it can be written, and what it left brought home and
// removed.
const ballastSize = 4 << 20

// MakeRoom gives up the ballast if err is for want of space, and says whether
// that made any: then what failed is worth another try at once.
func (d *Desk) MakeRoom(err error) bool { return makeRoom(d.dir, err) }

func makeRoom(dir string, err error) bool {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return false
	}
	return os.Remove(filepath.Join(dir, "ballast")) == nil
}

// WriteFile is [durable.WriteFile] for a file of an attempt or a build, by its
// absolute name, and gives up the ballast for it if the disk is full.
func WriteFile(name string, data []byte, mode fs.FileMode) error {
	err := durable.WriteFile(name, data, mode)
	if makeRoom(filepath.Dir(filepath.Dir(filepath.Dir(name))), err) {
		err = durable.WriteFile(name, data, mode)
	}
	return err
}

// stock makes the ballast if it is gone and there is plenty of room. Without it
// the node works, until its disk is full; so it is no error that it cannot.
func (d *Desk) stock() {
	name := d.path("ballast")
	if _, err := os.Lstat(name); err == nil {
		return
	}
	var st syscall.Statfs_t
	if syscall.Statfs(d.dir, &st) != nil || int64(st.Bavail)*int64(st.Bsize) < 8*ballastSize {
		return
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	// Allocated and not written: what counts is that its blocks are its own.
	err = syscall.Fallocate(int(f.Fd()), 0, 0, ballastSize)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		_, err = f.Write(make([]byte, ballastSize))
	}
	if errors.Join(err, f.Close()) != nil {
		os.Remove(name)
	}
}
