package check

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/durable"
)

// A Place is what may be at a path of the directory that is checked.
type Place struct {
	Path  string      // of which the last element is a pattern of [Tree.fits]
	Mode  fs.FileMode // the type, and the greatest permissions
	Only  bool        // something of another type is not of this place; else it is found
	Odd   string      // of a directory: the finding for anything in it that has no place
	Temps bool        // of a directory: files that are being written may be in it

	// Check looks further at what is there and has the right type; nil: nothing more.
	Check func(ctx context.Context, u *Unit, name string) error
}

// Anything, in the Mode of a Place, is that owner, permissions and, unless Only is set,
// the type do not matter.
const Anything = fs.ModeIrregular

// A Tree is every place of a directory, but for those that something else is told of.
type Tree struct {
	Places []Place                // the first one that fits counts; "." is the directory itself
	UID    int                    // the owner of all
	Starts string                 // the cure of a file that was being written
	Name   func(string) bool      // whether something is a name, for <name>
	Made   map[string]fs.FileMode // with which a missing directory is made, if not with 0750
}

// LeftBehind is a Check that finds what a crash has left.
func LeftBehind(what, cure string) func(context.Context, *Unit, string) error {
	return func(_ context.Context, u *Unit, name string) error {
		u.Report(Left, name, what, cure)
		return nil
	}
}

// Collect is a Check that adds the path to a list.
func Collect(to *[]string) func(context.Context, *Unit, string) error {
	return func(_ context.Context, _ *Unit, name string) error {
		*to = append(*to, name)
		return nil
	}
}

// Within is a Check of what is in a directory, at the place with the path at.
func (t *Tree) Within(at string) func(context.Context, *Unit, string) error {
	return func(ctx context.Context, u *Unit, dir string) error { return t.CheckSeen(ctx, u, at, dir) }
}

// fits says that a name in dir is as the last element of a place's path has it: one of
// several, with | between them, in which <any> stands for anything, <name> for what
// [Tree.Name] takes, <number> and <uid> for digits, <xx>, <token> and <sum> for 2, 32 and
// 64 hexadecimal digits, and <blob> for a sum that begins with the name of its directory.
func (t *Tree) fits(pattern, name, dir string) bool {
	if one, others, more := strings.Cut(pattern, "|"); more {
		return t.fits(one, name, dir) || t.fits(others, name, dir)
	}
	before, rest, ok := strings.Cut(pattern, "<")
	if !ok {
		return pattern == name
	}
	name, ok = strings.CutPrefix(name, before)
	word, after, _ := strings.Cut(rest, ">")
	end := len(name) - len(after)
	if next := strings.IndexByte(after, '<'); next >= 0 {
		end = strings.Index(name, after[:next])
	}
	if !ok || end < 0 || !t.fits(after, name[end:], dir) {
		return false
	}
	s := name[:end]
	hex := strings.Trim(s, "0123456789abcdef") == ""
	switch word {
	case "any":
		return true
	case "name":
		return t.Name(s)
	case "number":
		return s != "" && strings.Trim(s, "0123456789") == ""
	case "uid":
		_, err := strconv.ParseUint(s, 10, 32)
		return err == nil
	case "xx":
		return hex && len(s) == 2
	case "token":
		return hex && len(s) == 32
	case "sum":
		return hex && len(s) == 64
	case "blob":
		return hex && len(s) == 64 && s[:2] == path.Base(dir)
	}
	panic("check: no word " + word)
}

// CheckSeen is CheckDir of a directory that was there before, and may have gone since.
func (t *Tree) CheckSeen(ctx context.Context, u *Unit, at, dir string) error {
	if _, err := os.Lstat(filepath.Join(u.run.Dir, dir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return t.CheckDir(ctx, u, at, dir)
}

// List reads a directory. One that is missing is found, and made with that mode.
func (u *Unit) List(dir string, mode fs.FileMode) ([]fs.DirEntry, error) {
	name := filepath.Join(u.run.Dir, dir)
	list, err := os.ReadDir(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		u.mendNow(u.MissingDir(dir, mode))
		return nil, nil
	case err != nil && Broken(err):
		u.Report(Damaged, dir, "it cannot be listed: "+Reason(err), "nothing: put it back from a copy")
		return list, nil
	}
	return list, err
}

// MissingDir finds that a directory is missing, which is made with that mode when mended.
func (u *Unit) MissingDir(dir string, mode fs.FileMode) *Finding {
	f := u.Report(Damaged, dir, "the directory is missing", "make it, empty")
	f.Mend = func() error {
		return u.run.inside(func(root *os.Root) error {
			if err := root.Mkdir(dir, 0o700); err != nil {
				return err
			}
			info, err := root.Lstat(dir)
			if err != nil {
				return err
			}
			// the directory above may hand its group on
			return errors.Join(root.Chmod(dir, info.Mode()&fs.ModeSetgid|mode), syncIn(root, path.Dir(dir)))
		})
	}
	return f
}

// CheckDir lists dir, which is at the place with the path at, and compares what is in it
// with the places there.
func (t *Tree) CheckDir(ctx context.Context, u *Unit, at, dir string) error {
	list, err := u.List(dir, cmp.Or(t.Made[dir], 0o750))
	return errors.Join(t.CheckList(ctx, u, at, dir, list), err)
}

// CheckList is CheckDir when the directory was listed.
func (t *Tree) CheckList(ctx context.Context, u *Unit, at, dir string, list []fs.DirEntry) error {
	var of *Place
	var in []*Place
	for i := range t.Places {
		switch p := &t.Places[i]; {
		case p.Path == at:
			of = p
		case path.Dir(p.Path) == at:
			in = append(in, p)
		}
	}
	if at == "." && of.Mode != 0 {
		info, err := os.Stat(filepath.Join(u.run.Dir, dir))
		if err != nil {
			return err
		}
		u.Mode(".", info, t.UID, of.Mode.Perm())
	}
	for _, e := range list {
		name := path.Join(dir, e.Name())
		if of.Temps && durable.IsTemp(e.Name()) && !e.IsDir() {
			u.Report(Left, name, "a file that was being written", t.Starts)
			continue
		}
		i := slices.IndexFunc(in, func(p *Place) bool {
			return t.fits(path.Base(p.Path), e.Name(), dir) && (!p.Only || p.Mode.Type()&^Anything == e.Type())
		})
		if i < 0 {
			u.Odd(name, of.Odd)
		} else if p := in[i]; t.checkMode(u, name, e, p.Mode) && p.Check != nil {
			if err := p.Check(ctx, u, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMode finds what is of another type than it should be, which is false, or may be
// read or written by more people.
func (t *Tree) checkMode(u *Unit, name string, e fs.DirEntry, want fs.FileMode) bool {
	info, err := e.Info()
	if err == nil && want&Anything != 0 {
		return u.Usable(name, info, t.UID)
	}
	switch {
	case err != nil:
		return false // it has gone meanwhile
	case info.Mode().Type() == want.Type():
		u.Mode(name, info, t.UID, want.Perm())
		return true
	case want.IsDir():
		u.mendNow(u.Odd(name, "it should be a directory"))
	default:
		u.mendNow(u.Odd(name, "it should be a regular file"))
	}
	return false
}
