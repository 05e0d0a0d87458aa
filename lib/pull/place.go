package pull

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"distribute/lib/pack"
)

// A Choice says which paths of a result are wanted. The zero value takes all. Expressions are
// looked for in the path below the job, and in that with a name of the job before it, which may
// begin with a slash.
type Choice struct {
	Include []*regexp.Regexp // one of them is found in the path; none: any path
	Exclude []*regexp.Regexp // none of them is
	Jobs    []string         // names of the job: its own, and that of its directory

	Skip map[string]bool // files that are not asked for, by their paths
	Most int             // files of a plan, at most; 0: as many as one request can name
}

// All says that every path is taken.
func (c *Choice) All() bool { return len(c.Include)+len(c.Exclude) == 0 }

// Takes says whether the path of a file or link is taken.
func (c *Choice) Takes(p string) bool {
	return (len(c.Include) == 0 || c.oneFinds(c.Include, p)) && !c.oneFinds(c.Exclude, p)
}

// TakesAny says that some file or link of a result is taken, or that all is.
func (c *Choice) TakesAny(m pack.Manifest) bool {
	return c.All() || slices.ContainsFunc(m, func(e pack.Entry) bool { return e.Type != pack.Dir && c.Takes(e.Path) })
}

func (c *Choice) oneFinds(list []*regexp.Regexp, p string) bool {
	paths := []string{p}
	for _, name := range c.Jobs {
		paths = append(paths, name+"/"+p, "/"+name+"/"+p)
	}
	return slices.ContainsFunc(list, func(re *regexp.Regexp) bool { return slices.ContainsFunc(paths, re.MatchString) })
}

// ErrInTheWay is returned when something that is no directory stands where one
// has to be.
var ErrInTheWay = errors.New("something else is where a directory has to be")

// A Place is the directory of one job, which may not be there yet.
type Place struct {
	name string   // below the root, for people
	dir  *os.Root // nil: not there

	above string   // the directory below dir that was used last,
	last  *os.Root // opened, or nil
}

// parent opens the directory of a path of the place, and gives the path's last
// name. Most files have the directory of the one before.
func (p *Place) parent(name string) (dir *os.Root, base string, err error) {
	above, base := path.Split(name)
	if above == "" {
		return p.dir, base, nil
	}
	if p.last != nil && p.above == above {
		return p.last, base, nil
	}
	if dir, err = p.dir.OpenRoot(path.Clean(above)); err != nil {
		return nil, "", err
	}
	if p.last != nil {
		p.last.Close()
	}
	p.above, p.last = above, dir
	return dir, base, nil
}

// Open opens the directory of that name below root, where the name has the
// form of an id. With create it is made, and what is above it; else a place
// that is not there is empty. A link on the way is [ErrInTheWay].
func Open(root *os.Root, name string, create bool) (*Place, error) {
	at, parts := ".", strings.Split(name, "/")
	for _, part := range parts {
		at = path.Join(at, part)
		info, err := root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) && create {
			if err = root.Mkdir(at, 0o777); err == nil || errors.Is(err, fs.ErrExist) {
				info, err = root.Lstat(at)
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && !create:
			return &Place{name: name}, nil
		case err != nil:
			return nil, err
		case !info.IsDir():
			return nil, fmt.Errorf("%q: %w", at, ErrInTheWay)
		}
	}
	dir, err := root.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	return &Place{name: name, dir: dir}, nil
}

// Close closes the place.
func (p *Place) Close() error {
	if p.last != nil {
		p.last.Close()
	}
	if p.dir == nil {
		return nil
	}
	return p.dir.Close()
}

// found is what stands at a path of the place.
type found uint8

const (
	nothing found = iota
	right         // what the manifest says; of a file its size and time
	near          // a file of the right size with another time
	other         // anything else
)

// look compares what stands at the entry's path with it. The parents of the
// entry have to be directories and no links.
func (p *Place) look(e *pack.Entry) (found, error) {
	if p.dir == nil {
		return nothing, nil
	}
	info, err := p.dir.Lstat(e.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nothing, nil
	case err != nil:
		return other, err
	case e.Type == pack.Dir && info.IsDir():
		return right, nil
	case e.Type == pack.Link && info.Mode().Type() == fs.ModeSymlink:
		target, err := p.dir.Readlink(e.Path)
		if err == nil && target == e.Link {
			return right, nil
		}
		return other, err
	case e.Type != pack.File || !info.Mode().IsRegular() || info.Size() != e.Size:
		return other, nil
	case info.ModTime().Equal(e.Time):
		return right, nil
	}
	return near, nil
}
