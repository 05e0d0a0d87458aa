package desk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"syscall"

	"distribute/lib/durable"
)

// RemoveAll is os.RemoveAll for trees as jobs leave them: directories that are
// closed to their owner, and trees deeper than there are descriptors, or than a
// path can be long. Where something is mounted in it, nothing is removed. Whoever owns what
// is in the tree may change it meanwhile, to no harm of what is elsewhere; the directory that
// path is in must be ours.
func RemoveAll(path string) error {
	if err := unmounted(path); err != nil {
		return err
	}
	parent, err := durable.OpenRoot(filepath.Dir(path))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer parent.Close()
	return removeFrom(parent, filepath.Base(path))
}

// RemoveIn removes what is at a path below root, which may be in the tree of a job. It is
// [RemoveAll] without a look at the list of what is mounted: what is mounted there stays, and
// what is around it may go.
func RemoveIn(root *os.Root, name string) error {
	parent, err := root.OpenRoot(path.Dir(name) + "/.")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer parent.Close()
	return removeFrom(parent, path.Base(name))
}

// removeFrom removes what has that name in a directory.
func removeFrom(parent *os.Root, name string) error {
	if removeAll(parent, name) == nil {
		return nil
	}
	info, err := parent.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		err = flatten(parent, name)
	}
	if err != nil {
		return err
	}
	return parent.Remove(name)
}

// maxWalked limits the length of the paths of directories that a walk enters in a tree of a job.
// A walk holds the paths of all directories above the one that it is in, so its memory grows with
// the square of the depth.
const maxWalked = 1 << 14

// removeAll removes a tree, or as much of it as it can, without what is below paths of maxWalked
// bytes. Where something is mounted now, also if that was not so when the caller looked, what is
// there stays.
func removeAll(parent *os.Root, name string) error {
	err := parent.Remove(name)
	if gone(err) {
		return nil
	}
	root, oerr := parent.OpenRoot(name + "/.") // a link that has come in its place leads nowhere else
	if oerr != nil {
		return errors.Join(err, oerr)
	}
	defer root.Close()
	if err := notMounted(root); err != nil {
		return err
	}
	durable.Walk(root, func(e durable.Entry, err error) error { // what cannot be removed keeps path
		switch {
		case err == nil && !e.Info.IsDir():
			e.Dir.Remove(e.Name)
		case len(e.Path) >= maxWalked:
			return fs.SkipDir
		}
		return nil
	}, func(e durable.Entry) error {
		e.Dir.Remove(e.Name)
		return nil
	})
	return parent.Remove(name)
}

// notMounted returns an error if root is where something is mounted. What is mounted there
// later does not concern root, which is open.
func notMounted(root *os.Root) error {
	f, err := root.OpenFile(".", os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if durable.Mounted(f) {
		return &fs.PathError{Op: "remove", Path: root.Name(), Err: errMounted}
	}
	return nil
}

// flatten empties a directory. What is two deep is moved one up, so that no path
// grows, and no more than three directories are open. What is mounted in it stays.
func flatten(parent *os.Root, name string) error {
	if err := unlock(parent.Chmod, name); err != nil {
		return err
	}
	top, err := parent.OpenRoot(name + "/.")
	if err != nil {
		return err
	}
	defer top.Close()
	if err := notMounted(top); err != nil {
		return err
	}
	moved := 0
	for {
		names, err := someNames(top)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			for !gone(top.Remove(name)) { // not a file, and not empty
				if err := raiseAll(top, name, &moved); err != nil {
					return err
				}
			}
		}
	}
}

func gone(err error) bool { return err == nil || errors.Is(err, fs.ErrNotExist) }

// unlock opens a directory to its owner. Root needs that not, and would do it
// with what somebody else has put in its place.
func unlock(chmod func(string, fs.FileMode) error, name string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return chmod(name, 0o700)
}

// raiseAll removes the first files and empty directories of a directory, which is opened to
// its owner, and moves other directories to the top. It does nothing if the directory vanishes.
func raiseAll(top *os.Root, name string, moved *int) error {
	err := unlock(top.Chmod, name)
	if err == nil {
		err = raiseSome(top, name, moved)
	}
	if gone(err) {
		return nil
	}
	return err
}

func raiseSome(top *os.Root, name string, moved *int) error {
	dir, err := top.OpenRoot(name + "/.") // so that a FIFO that has come in its place is not waited for
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := notMounted(dir); err != nil {
		return err
	}
	inner, err := someNames(dir)
	if err == nil && len(inner) == 0 {
		err = top.Remove(name)
	}
	if err != nil {
		return err
	}
	for _, in := range inner {
		if gone(dir.Remove(in)) {
			continue
		}
		unlock(dir.Chmod, in) // its own .. changes
		if err := top.Rename(name+"/"+in, freeName(top, moved)); err != nil {
			return err
		}
	}
	return nil
}

// freeName returns a name that nothing in top has.
func freeName(top *os.Root, moved *int) string {
	for {
		*moved++
		name := ".up-" + strconv.Itoa(*moved)
		if _, err := top.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name
		}
	}
}

// someNames returns the first names in a directory.
func someNames(dir *os.Root) ([]string, error) {
	f, err := dir.OpenFile(".", os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(1024)
	if err == io.EOF {
		err = nil
	}
	return names, err
}
