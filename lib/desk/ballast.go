package desk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"distribute/lib/durable"
)

// ballastSize is how many bytes are given up on a full disk, so that the end of
// the attempt that filled it can be written, and what it left brought home and
// removed.
const ballastSize = 4 << 20

// spares is how many inodes are given up with it, on a file system that counts
// them.
const spares = 16

// MakeRoom gives up the ballast if err is for want of space, and says whether
// that made any: then what failed is worth another try at once.
func (d *Desk) MakeRoom(err error) bool { return makeRoom(d.dir, err) }

func makeRoom(dir string, err error) (some bool) {
	if !durable.NoRoom(err) {
		return false
	}
	some = os.Remove(filepath.Join(dir, "ballast")) == nil
	for i := range spares {
		some = os.Remove(spare(dir, i)) == nil || some
	}
	return some
}

// Ballast returns the bytes of free space that are there only because the ballast was given
// up: what ran when the disk was full had less.
func (d *Desk) Ballast() int64 {
	if _, err := os.Lstat(d.path("ballast")); err == nil {
		return 0
	}
	return ballastSize
}

// spare is the name of a file that holds an inode.
func spare(dir string, i int) string { return filepath.Join(dir, "spare", strconv.Itoa(i)) }

// MakeRoomFor is [Desk.MakeRoom] for who has the directory of an attempt or a build alone.
func MakeRoomFor(dir string, err error) bool { return makeRoom(filepath.Dir(filepath.Dir(dir)), err) }

// Stock makes the ballast if it is gone and there is plenty of room. Without it
// the node works, until its disk is full; so it is no error that it cannot.
func (d *Desk) Stock() {
	_, err := os.Lstat(d.path("ballast"))
	_, serr := os.Lstat(spare(d.dir, spares-1))
	if err == nil && serr == nil {
		return
	}
	space, serr := d.Space()
	if serr != nil {
		return
	}
	if err != nil && space.Free >= 8*ballastSize {
		d.stock(d.path("ballast"))
	}
	if space.AllInodes == 0 || space.Inodes < 8*spares || makeDir(d.path("spare")) != nil {
		return
	}
	for i := range spares {
		if f, err := durable.Open(spare(d.dir, i), os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			f.Close()
		}
	}
}

// stock makes the file with the bytes of the ballast.
func (d *Desk) stock(name string) {
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

// makeDir makes a directory if it is not there.
func makeDir(name string) error {
	if err := os.Mkdir(name, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
