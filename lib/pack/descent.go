package pack

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// errMoved says that what was opened is not what was looked at just before.
var errMoved = errors.New("it was replaced while it was opened")

// openDir opens the directory name of parent, and nothing that a link leads to.
func openDir(parent *os.Root, name string) (*os.Root, error) {
	info, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	dir, err := parent.OpenRoot(name + "/.") // so that nobody waits for a FIFO's other end
	if err != nil {
		return nil, err
	}
	now, err := dir.Stat(".")
	if err == nil && !os.SameFile(info, now) {
		err = &fs.PathError{Op: "open", Path: name, Err: errMoved}
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// openFile opens the regular file name of parent, which is known as info, and
// nothing that a link leads to; it does not wait for a FIFO's other end.
func openFile(parent *os.Root, name string, info fs.FileInfo, flag int) (*os.File, error) {
	f, err := parent.OpenFile(name, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && (!os.SameFile(info, now) || !now.Mode().IsRegular()) {
		err = &fs.PathError{Op: "open", Path: name, Err: errMoved}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// descent keeps open the directories that lead to the last place asked for, so
// that going through a tree in the order of a manifest opens each once, relative
// to the one above, following no link.
type descent struct {
	top  *os.Root
	open []level
}

type level struct {
	path string
	root *os.Root
}

// at returns the directory path below the top. Where one on the way cannot be
// opened, mend, if not nil, may do something about it for a second try.
func (d *descent) at(path string, mend func(parent *os.Root, name string, err error) error) (*os.Root, error) {
	for n := len(d.open); n > 0; n-- {
		if last := d.open[n-1]; last.path == path || under(path, last.path) {
			break
		}
		if err := d.pop(); err != nil {
			return nil, err
		}
	}
	here := level{root: d.top}
	if n := len(d.open); n > 0 {
		here = d.open[n-1]
	}
	for here.path != path {
		rest := path[len(here.path):]
		if here.path != "" {
			rest = rest[1:]
		}
		name, _, _ := strings.Cut(rest, "/")
		sub, err := openDir(here.root, name)
		if err != nil && mend != nil {
			if err = mend(here.root, name, err); err == nil {
				sub, err = openDir(here.root, name)
			}
		}
		if err != nil {
			return nil, err
		}
		here = level{path[:len(path)-len(rest)+len(name)], sub}
		d.open = append(d.open, here)
	}
	return here.root, nil
}

func (d *descent) pop() error {
	last := len(d.open) - 1
	err := d.open[last].root.Close()
	d.open = d.open[:last]
	return err
}

func (d *descent) close() error {
	var errs []error
	for len(d.open) > 0 {
		errs = append(errs, d.pop())
	}
	return errors.Join(errs...)
}

// baseOf is the last name of a path.
func baseOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
