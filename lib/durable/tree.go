package durable

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// An Entry is a file or a directory to which Walk has come.
type Entry struct {
	Path string      // relative to the root, which is "." itself
	Name string      // in Dir
	Dir  *os.Root    // the directory that it is in, of the root the root; open until the function returns
	Info fs.FileInfo // as from lstat(2)
}

// Walk calls enter for root and for all that lies below it, a directory before what is in
// it, and the names of a directory in their order; after the content of a directory it calls
// leave, unless leave is nil or the directory is root.
//
// Whoever owns the tree may change it meanwhile: no link is followed, nothing is waited for,
// what was a directory and is another thing now is not opened, and what vanishes before it is
// looked at is passed over. The content of a directory on which something is mounted is left
// out, but for the root itself.
//
// If an entry cannot be looked at, or a directory not be listed, enter is called for it,
// with the error, and without a Dir. An error of enter or leave ends the walk; after
// fs.SkipDir the walk goes on without the content of the directory.
//
// A walk takes a few system calls for each entry, however deep it lies. Some 64
// directories are open at a time, and one more for each 64 levels.
func Walk(root *os.Root, enter func(Entry, error) error, leave func(Entry) error) error {
	return WalkExcept(root, nil, enter, leave)
}

// WalkExcept is [Walk] that leaves out the paths except, and what is below them: it does not ask
// for their metadata, which a mounted file system may never tell.
func WalkExcept(root *os.Root, except []string, enter func(Entry, error) error, leave func(Entry) error) error {
	if slices.Contains(except, ".") {
		return nil
	}
	e := Entry{Path: ".", Name: ".", Dir: root}
	var err error
	if e.Info, err = root.Lstat("."); err != nil {
		return enter(e, err)
	}
	w := &walk{except, enter, leave, []level{{dir: root}}}
	err = enter(e, nil)
	if err == nil {
		err = w.below(e)
	}
	if err == fs.SkipDir {
		return nil
	}
	return err
}

// openLevels is how many directories above the deepest one stay open. Of those further up,
// one of so many does.
const openLevels = 64

type walk struct {
	except []string
	enter  func(Entry, error) error
	leave  func(Entry) error
	levels []level // from the root to the directory that is walked
}

// A level is a directory on the way from the root of a walk.
type level struct {
	name string
	info fs.FileInfo
	dir  *os.Root // nil while it is closed
}

// below walks what is in the directory e, the last of the levels.
func (w *walk) below(e Entry) error {
	at := len(w.levels) - 1
	names, err := w.names(at)
	for _, name := range names {
		if err = w.one(at, e, name); err != nil {
			break
		}
	}
	var lost *lostError
	if errors.As(err, &lost) && lost.at == at {
		e.Dir = nil
		return w.enter(e, named(lost.err, e))
	}
	return err
}

// A lostError is returned if the directory of a level cannot be opened, or listed.
type lostError struct {
	at  int
	err error
}

func (e *lostError) Error() string { return e.err.Error() }

// one walks what has that name in the directory up, the last of the levels.
func (w *walk) one(at int, up Entry, name string) error {
	dir, err := w.dir(at)
	if err != nil {
		return &lostError{at, err}
	}
	e := Entry{Path: name, Name: name, Dir: dir}
	if at > 0 {
		e.Path = up.Path + "/" + name
	}
	if slices.Contains(w.except, e.Path) {
		return nil
	}
	if e.Info, err = dir.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		e.Dir = nil
		return w.enter(e, named(err, e))
	}
	if err = w.enter(e, nil); err != nil || !e.Info.IsDir() {
		if err == fs.SkipDir {
			return nil
		}
		return named(err, e)
	}
	w.levels = append(w.levels, level{name: name, info: e.Info})
	err = w.below(e)
	w.close(at + 1)
	w.levels = w.levels[:at+1]
	if err == fs.SkipDir { // enter was called again, with an error
		return nil
	}
	if err != nil || w.leave == nil {
		return err
	}
	if e.Dir, err = w.dir(at); err != nil {
		return &lostError{at, err}
	}
	return named(w.leave(e), e)
}

// names returns the names in the directory of a level, and closes one that is far above it.
func (w *walk) names(at int) ([]string, error) {
	if far := at - openLevels; far > 0 && far%openLevels > 0 {
		w.close(far)
	}
	dir, err := w.dir(at)
	if err != nil {
		return nil, &lostError{at, err}
	}
	f, err := dir.OpenFile(".", readPlain|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &lostError{at, err}
	}
	defer f.Close()
	if at > 0 && Mounted(f) {
		return nil, nil
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, &lostError{at, err}
	}
	slices.Sort(names)
	return names, nil
}

// dir returns the directory of a level. One that was closed is opened again, with those that
// were closed above it, if they are still where they were.
func (w *walk) dir(at int) (*os.Root, error) {
	l := &w.levels[at]
	if l.dir != nil {
		return l.dir, nil
	}
	up, err := w.dir(at - 1)
	if err != nil {
		return nil, err
	}
	dir, err := up.OpenRoot(l.name + "/.") // so that a FIFO in its place is not waited for
	if err != nil {
		return nil, err
	}
	now, err := dir.Stat(".")
	if err == nil && !os.SameFile(now, l.info) {
		err = &fs.PathError{Op: "open", Path: l.name, Err: unix.ENOENT}
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	l.dir = dir
	return dir, nil
}

func (w *walk) close(at int) {
	if l := &w.levels[at]; l.dir != nil {
		l.dir.Close()
		l.dir = nil
	}
}

// named sets the path in an error that has the name of the entry only.
func named(err error, e Entry) error {
	var p *fs.PathError
	if errors.As(err, &p) && (p.Path == e.Name || p.Path == e.Name+"/." || p.Path == ".") {
		p.Path = e.Path
	}
	return err
}

// openEntry opens a file or a directory for reading.
func openEntry(e Entry) (*os.File, error) {
	f, err := e.Dir.OpenFile(e.Name, readPlain, 0)
	return f, named(err, e)
}

// Mounted says that f is where a file system, or a part of one, is mounted, also of the same
// file system. Linux before 5.8 does not tell.
func Mounted(f *os.File) bool {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
