package pack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Verify compares what is below root with m, hashing every file with two
// goroutines, and says what is missing: what has to be wanted so that the tree
// gets whole. Modes and times are not compared (Settle sets them), and what is
// there beyond m is passed over.
//
// If the first thing missing is a file that is there with fewer bytes, it is
// wanted from where it ends; those bytes are believed only when the SHA-256 of
// the whole file is right in the end, which Tree.Put sees to. In bad, ascending,
// are the entries that are not wanted because something else is in their place:
// a file with other content or cut short, another type, another target, something
// that cannot be read; and what would have to be in a directory that is none.
// They are the caller's to keep and name, or to remove with Clear and to want with
// Want.With.
func Verify(ctx context.Context, root *os.Root, m Manifest) (want Want, bad []int, err error) {
	v := &verifier{m: m, d: descent{top: root}, state: make([]state, len(m)), errs: make([]error, len(m))}
	v.digests = newDigester(ctx)
	for i := range m {
		if err = ctx.Err(); err != nil {
			break
		}
		v.state[i] = v.look(i)
	}
	v.digests.wait()
	err = errors.Join(err, v.d.close())
	for i := range m {
		switch {
		case v.errs[i] == nil:
		case errors.Is(v.errs[i], ErrChanged), errors.Is(v.errs[i], ErrSum), errors.Is(v.errs[i], fs.ErrPermission):
			v.state[i] = state{how: wrong}
		case err == nil:
			err = fmt.Errorf("verify %q: %w", m[i].Path, v.errs[i])
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Want{Ranges: [][2]int{}}, nil, err
	}
	want, bad = v.result()
	return want, bad, nil
}

// Clear removes what stands below root in the place of these entries of m, a
// directory with all that is in it. It follows no link.
func Clear(root *os.Root, m Manifest, entries []int) error {
	d := descent{top: root}
	var errs []error
	for _, i := range entries {
		parent, err := d.at(dirOf(m[i].Path), nil)
		if err == nil {
			err = within(parent, func() error { return parent.RemoveAll(baseOf(m[i].Path)) })
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, d.close())...)
}

// state is what there is of an entry.
type state struct {
	how  byte
	size int64 // of a file that is short
}

const (
	right = iota
	missing
	short
	wrong
)

type verifier struct {
	m       Manifest
	d       descent
	digests *digester
	state   []state
	errs    []error // each written by one goroutine
}

// look says what there is of entry i. If it is a file of the right size, its
// content is found out meanwhile.
func (v *verifier) look(i int) state {
	e := &v.m[i]
	parent, err := v.d.at(dirOf(e.Path), nil)
	if err != nil {
		return absent(err)
	}
	name := baseOf(e.Path)
	info, err := parent.Lstat(name)
	if err != nil {
		return absent(err)
	}
	switch mode := info.Mode(); {
	case e.Type == Dir && mode.IsDir():
		return state{how: right}
	case e.Type == Link && mode.Type() == fs.ModeSymlink:
		if target, err := parent.Readlink(name); err == nil && target == e.Link {
			return state{how: right}
		}
	case e.Type == File && mode.IsRegular() && info.Size() < e.Size:
		return state{how: short, size: info.Size()}
	case e.Type == File && mode.IsRegular() && info.Size() == e.Size:
		return v.hash(i, parent, name, info)
	}
	return state{how: wrong}
}

func absent(err error) state {
	if errors.Is(err, fs.ErrNotExist) {
		return state{how: missing}
	}
	return state{how: wrong}
}

func (v *verifier) hash(i int, parent *os.Root, name string, info fs.FileInfo) state {
	f, err := openFile(parent, name, info, os.O_RDONLY)
	if err != nil {
		return absent(err)
	}
	v.digests.todo <- digestion{f, func(sum string, _ os.FileInfo, err error) {
		if err == nil && sum != v.m[i].Sum {
			err = ErrSum
		}
		v.errs[i] = err
	}}
	return state{how: right}
}

// result makes a Want of the states. A file that is short can go on only as the
// first wanted, and with nothing bad before that may come to be wanted, too.
func (v *verifier) result() (Want, []int) {
	var wanted, bad []int
	var from int64
	for i, s := range v.state {
		switch {
		case s.how == wrong:
			bad = append(bad, i)
		case s.how == missing, s.how == short && s.size == 0:
			wanted = append(wanted, i)
		case s.how == short && len(wanted) == 0 && len(bad) == 0:
			wanted, from = append(wanted, i), s.size
		case s.how == short:
			bad = append(bad, i)
		}
	}
	want := WantOf(wanted...)
	want.From = from
	return want, bad
}
