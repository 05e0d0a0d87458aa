package desk

import (
	"errors"
	"io"
	"io/fs"
	"os"
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
	if removeAll(path) == nil {
		return nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		err = flatten(path)
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// removeAll is [os.RemoveAll], which would wait for the other end of a FIFO in the place of
// the directory that path is in.
func removeAll(path string) error {
	parent, err := durable.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	return parent.RemoveAll(filepath.Base(path))
}

// flatten empties a directory. What is two deep is moved one up, so that no path
// grows, and no more than two directories are open.
func flatten(dir string) error {
	if err := unlock(os.Chmod, dir); err != nil {
		return err
	}
	top, err := durable.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer top.Close()
	moved := 0
	for {
		names, err := someNames(top, ".")
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			for !gone(top.Remove(name)) { // not a file, and not empty
				inner, err := someNames(top, name)
				if err == nil && len(inner) == 0 {
					err = top.Remove(name)
				}
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				for _, in := range inner {
					if err := raise(top, name+"/"+in, &moved); err != nil {
						return err
					}
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

// raise removes a file or an empty directory, and moves another to the top.
func raise(top *os.Root, path string, moved *int) error {
	if gone(top.Remove(path)) {
		return nil
	}
	unlock(top.Chmod, path) // its own .. changes
	for {
		*moved++
		to := ".up-" + strconv.Itoa(*moved)
		if _, err := top.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			return top.Rename(path, to)
		}
	}
}

// someNames is the first names in a directory, which is opened to its owner.
// Nobody waits for a FIFO that has come in its place.
func someNames(top *os.Root, name string) ([]string, error) {
	if err := unlock(top.Chmod, name); err != nil {
		return nil, err
	}
	f, err := top.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
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
