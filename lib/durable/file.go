package durable

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	tempPrefix = "."
	tempSuffix = ".tmp~"
)

// IsTemp reports whether name, the last element of a path, is one that
// WriteFile and CreateNew give to a file they have not finished. A crash can
// leave such files; whoever owns the directory removes them when it starts.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// WriteFile makes path a file that holds data and has the permission bits of
// mode whatever the umask says, in the place of what was there. When it returns
// nil the file and its name are on the disk; after a crash the path has the old
// content or the new, whole. It costs two syncs.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, os.Rename)
}

// CreateNew is WriteFile for a path at which nothing may be: where there is
// something already, it is left alone and the error is fs.ErrExist.
func CreateNew(path string, data []byte, mode fs.FileMode) error {
	if _, err := os.Lstat(path); err == nil {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	return write(path, data, mode, Publish)
}

func write(path string, data []byte, mode fs.FileMode, rename func(from, to string) error) error {
	temp, err := writeTemp(path, data, mode)
	if err != nil {
		return err
	}
	if err := Step("file.rename"); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := Step("file.syncdir"); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// writeTemp writes data to a new file beside path and syncs it. On an error
// nothing is left.
func writeTemp(path string, data []byte, mode fs.FileMode) (string, error) {
	f, err := createTemp(path)
	if err != nil {
		return "", err
	}
	err = fill(f, data, mode)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func createTemp(path string) (*os.File, error) {
	dir, base := filepath.Split(path)
	if len(base) > 200 {
		base = base[:200] // leaves room for the rest in 255 bytes
	}
	var draw [8]byte
	rand.Read(draw[:])
	name := dir + tempPrefix + base + "." + hex.EncodeToString(draw[:]) + tempSuffix
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
}

func fill(f *os.File, data []byte, mode fs.FileMode) error {
	if err := Step("file.write"); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(mode.Perm()); err != nil {
		return err
	}
	if err := Step("file.sync"); err != nil {
		return err
	}
	return Sync(f)
}

// Publish renames a file or a directory to a name that nothing has; where
// something is there already, the error is fs.ErrExist and nothing changes. A
// plain rename would replace an empty directory in silence. Publish syncs
// neither parent: the caller does, once for many, with SyncDir.
//
// File systems of a network do not rename so. There a directory first makes an
// empty one of that name, which a crash may leave.
func Publish(oldpath, newpath string) error {
	return publish(unix.AT_FDCWD, oldpath, unix.AT_FDCWD, newpath)
}

// PublishIn is Publish from a path below one open directory to a path below another.
func PublishIn(from *os.File, oldpath string, into *os.File, newpath string) error {
	return publish(int(from.Fd()), oldpath, int(into.Fd()), newpath)
}

func publish(from int, oldpath string, into int, newpath string) error {
	for {
		err := unix.Renameat2(from, oldpath, into, newpath, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			err = publishInSteps(from, oldpath, into, newpath)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		default:
			return &os.LinkError{Op: "publish", Old: oldpath, New: newpath, Err: err}
		}
	}
}

// publishInSteps renames to a name that is made first, and with that is found to be free.
func publishInSteps(from int, oldpath string, into int, newpath string) error {
	var st unix.Stat_t
	err := unix.Fstatat(from, oldpath, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		if err := unix.Linkat(from, oldpath, into, newpath, 0); err != nil {
			return err
		}
		return unix.Unlinkat(from, oldpath, 0)
	}
	if err := unix.Mkdirat(into, newpath, 0o700); err != nil {
		return err
	}
	if err := unix.Renameat(from, oldpath, into, newpath); err != nil {
		return errors.Join(err, unix.Unlinkat(into, newpath, unix.AT_REMOVEDIR))
	}
	return nil
}

// SyncFile makes the content of the file path durable.
func SyncFile(path string) error { return syncPath(path) }

// SyncDir makes the names in the directory path durable.
func SyncDir(path string) error {
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = Sync(d)
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
