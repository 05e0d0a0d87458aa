package desk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// removeAll is os.RemoveAll for trees as jobs leave them: directories that are
// closed to their owner, and trees deeper than there are descriptors, or than a
// path can be long.
func removeAll(path string) error {
	if os.RemoveAll(path) == nil {
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

// flatten empties a directory. What is two deep is moved one up, so that no path
// grows, and no more than two directories are open.
func flatten(dir string) error {
	moved := 0
	for {
		names, err := someNames(dir)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			below := filepath.Join(dir, name)
			for !gone(os.Remove(below)) { // not a file, and not empty
				inner, err := someNames(below)
				if err == nil && len(inner) == 0 {
					err = os.Remove(below)
				}
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				for _, name := range inner {
					if err := raise(filepath.Join(below, name), dir, &moved); err != nil {
						return err
					}
				}
			}
		}
	}
}

func gone(err error) bool { return err == nil || errors.Is(err, fs.ErrNotExist) }

// raise removes a file or an empty directory, and moves another to dir.
func raise(path, dir string, moved *int) error {
	if gone(os.Remove(path)) {
		return nil
	}
	os.Chmod(path, 0o700) // its own .. changes
	for {
		*moved++
		to := filepath.Join(dir, ".up-"+strconv.Itoa(*moved))
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(path, to)
		}
	}
}

// someNames is the first names in a directory, which is opened to its owner.
func someNames(dir string) ([]string, error) {
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
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
