package pause

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// JobGroup is the group of the processes of jobs that run as others than the daemon. A place
// lets everybody write but this group, and the kernel lets no process leave a group.
const JobGroup = "distribute-job"

// The modes of a place: for everybody, and for all but the members of its group.
const (
	Open   = fs.ModeDir | fs.ModeSticky | 0o777
	Closed = fs.ModeDir | fs.ModeSticky | 0o757
)

// CloseTo lets no member of a group write in a place, if that is there. Only root may do that.
func CloseTo(place string, gid int) error {
	dir, err := openPlace(place)
	if err != nil || dir == nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: place, Err: err}
	}
	if st.Mode&0o7777 == 0o1757 && int(st.Gid) == gid {
		return nil
	}
	// In this order nobody is kept out meanwhile.
	return errors.Join(dir.Chmod(Open), dir.Chown(-1, gid), dir.Chmod(Closed))
}

// IsClosedTo reports whether no member of a group can write in a place, or it is not there.
func IsClosedTo(place string, gid int) bool {
	info, err := os.Lstat(place)
	st, ok := sysOf(info, err)
	return errors.Is(err, fs.ErrNotExist) || ok && info.Mode() == Closed && int(st.Gid) == gid
}

// InJob reports whether this process is one of a job, as it is in the group to which a place
// is closed.
func InJob(place string) bool {
	info, err := os.Lstat(place)
	st, ok := sysOf(info, err)
	if !ok || info.Mode() != Closed {
		return false
	}
	groups, err := os.Getgroups()
	return err == nil && slices.Contains(groups, int(st.Gid))
}
