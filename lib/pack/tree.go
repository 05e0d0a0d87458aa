package pack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"distribute/lib/durable"
)

// Perm changes the permission bits of what is unpacked: those of Set are set and
// those of Clear cleared. A directory that gets to be readable by Set gets to be
// searchable by the same people. The zero Perm leaves a manifest's modes.
type Perm struct {
	Set, Clear fs.FileMode
}

func (p Perm) of(e *Entry) fs.FileMode {
	set := p.Set.Perm()
	if e.Type == Dir {
		set |= set >> 2 & 0o111
	}
	return (e.Mode.Perm() | set) &^ p.Clear.Perm()
}

// Tree is a Sink that makes what it gets below a root. It needs Close.
type Tree struct {
	perm Perm
	d    descent
	made []Entry // directories, whose modes and times come last
	link []string
}

// NewTree returns a Tree that works below root, where nothing else may work at
// the same time. Root stays the caller's, to be closed after the Tree.
func NewTree(root *os.Root, perm Perm) *Tree {
	return &Tree{perm: perm, d: descent{top: root}}
}

// Put makes one entry. Nothing is followed and nothing replaced: where something
// stands already the error is fs.ErrExist, but for a directory that is to be one,
// an empty file, and the file that is to go on at from. Directories that are
// missing on the way are made with mode 0777 less the umask.
//
// A file is left as far as it came if r ends early, with mode 0600, for Verify
// to find; it gets its mode and time when it is whole and its SHA-256 is right.
// If that is not right, the file is removed and the error is ErrSum. Nothing is
// synced.
func (t *Tree) Put(_ int, e Entry, from int64, r io.Reader) error {
	if err := t.put(&e, from, r); err != nil {
		return fmt.Errorf("unpack %q: %w", e.Path, err)
	}
	return nil
}

func (t *Tree) put(e *Entry, from int64, r io.Reader) error {
	if err := errors.Join(checkPath(e.Path, unlimited), checkMembers(e, unlimited)); err != nil {
		return err
	}
	parent, err := t.d.at(dirOf(e.Path), mend)
	if err != nil {
		return err
	}
	switch name := baseOf(e.Path); e.Type {
	case Dir:
		return t.dir(parent, name, e)
	case Link:
		return t.symlink(parent, name, e)
	default:
		return t.file(parent, name, e, from, r)
	}
}

// mend makes a directory on the way that is missing, and one usable that has
// got its mode from an earlier Tree.
func mend(parent *os.Root, name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return parent.Mkdir(name, 0o777)
	case errors.Is(err, fs.ErrPermission):
		return parent.Chmod(name, 0o700)
	}
	return err
}

// within calls make, and once more if parent has to be made writable first.
func within(parent *os.Root, make func() error) error {
	err := make()
	if errors.Is(err, fs.ErrPermission) && parent.Chmod(".", 0o700) == nil {
		err = make()
	}
	return err
}

func (t *Tree) dir(parent *os.Root, name string, e *Entry) error {
	err := within(parent, func() error { return parent.Mkdir(name, 0o700) })
	if errors.Is(err, fs.ErrExist) {
		info, lerr := parent.Lstat(name)
		if lerr == nil && info.IsDir() {
			err = nil
		}
	}
	if err == nil {
		t.made = append(t.made, *e)
	}
	return err
}

func (t *Tree) symlink(parent *os.Root, name string, e *Entry) error {
	if err := within(parent, func() error { return parent.Symlink(e.Link, name) }); err != nil {
		return err
	}
	t.link = append(t.link, e.Path)
	return t.stays(e.Path)
}

// stays removes the link at path and fails if, with what is there now, it leads
// out of the root. The manifest's own links were checked when it was read; what
// was in the root before was not.
func (t *Tree) stays(path string) error {
	_, err := t.d.top.Stat(path)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission),
		errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		return nil
	case errors.As(err, new(syscall.Errno)): // of the machine, as that it has no descriptor
		return err
	}
	return errors.Join(fmt.Errorf("%w: a link out of the tree: %w", ErrFormat, err), t.d.top.Remove(path))
}

func (t *Tree) file(parent *os.Root, name string, e *Entry, from int64, r io.Reader) error {
	if r == nil {
		return fmt.Errorf("%w: a file without content", ErrFormat)
	}
	var f *os.File
	err := within(parent, func() (err error) {
		f, err = create(parent, name, from)
		return err
	})
	if err != nil {
		return err
	}
	w := NewFiller(f)
	defer w.Release()
	err = w.fill(e, from, r)
	if err == nil {
		err = f.Chmod(t.perm.of(e))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, ErrSum) {
		return errors.Join(err, parent.Remove(name))
	}
	if err != nil {
		return err
	}
	if e.Mode&0o111 != 0 {
		durable.AwaitWriters(parent, name)
	}
	return parent.Chtimes(name, e.Time, e.Time)
}

// create opens the file name for writing: a new one, an empty one, or one that
// has the bytes up to from.
func create(parent *os.Root, name string, from int64) (*os.File, error) {
	if from == 0 {
		f, err := parent.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	info, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	links := uint64(1)
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		links = uint64(sys.Nlink)
	}
	if !info.Mode().IsRegular() || links != 1 || info.Size() < from || from == 0 && info.Size() > 0 {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	if info.Mode().Perm()&0o600 != 0o600 {
		if err := parent.Chmod(name, 0o600); err != nil {
			return nil, err
		}
	}
	return openFile(parent, name, info, os.O_RDWR)
}

// Close gives the directories that were made their modes and times and checks
// the links once more, now that all is there. It has to be called after an
// error of Put, too.
func (t *Tree) Close() error {
	errs := []error{t.d.close()}
	for i := len(t.made) - 1; i >= 0; i-- { // what is in a directory comes before it
		errs = append(errs, t.settle(&t.made[i]))
	}
	for _, path := range t.link {
		if err := t.stays(path); err != nil {
			errs = append(errs, fmt.Errorf("unpack %q: %w", path, err))
		}
	}
	t.made, t.link = nil, nil
	return errors.Join(append(errs, t.d.close())...)
}

// Settle gives every file and directory of m that is below root its mode and
// time. It is for a tree that several Trees have made one after another, because
// a stream was cut: what a later one adds changes the directories of an earlier
// one. What is missing is passed over.
func Settle(root *os.Root, m Manifest, perm Perm) error {
	t := NewTree(root, perm)
	var errs []error
	for i := len(m) - 1; i >= 0; i-- {
		if err := t.settle(&m[i]); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, t.d.close())...)
}

func (t *Tree) settle(e *Entry) error {
	if e.Type == Link {
		return nil
	}
	parent, err := t.d.at(dirOf(e.Path), nil)
	if err != nil {
		return err
	}
	name := baseOf(e.Path)
	info, err := parent.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() != (e.Type == Dir) || !info.IsDir() && !info.Mode().IsRegular() {
		return fmt.Errorf("%q: %w", e.Path, fs.ErrExist)
	}
	if mode := t.perm.of(e); info.Mode() != info.Mode().Type()|mode {
		if err := parent.Chmod(name, mode); err != nil {
			return err
		}
	}
	if info.ModTime().Equal(e.Time) {
		return nil
	}
	return parent.Chtimes(name, e.Time, e.Time)
}
