package pull

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/pack"
)

// Prepare makes the directories and links that are lacking. put is called for
// each file when it is in its place, progress for the bytes as they come;
// either may be nil.
func (n *Plan) Prepare(put func(pack.Entry), progress func(int64)) error {
	if put != nil {
		n.put = put
	}
	if progress != nil {
		n.progress = progress
	}
	for _, i := range n.make {
		if err := durable.Step("pull.make"); err != nil {
			return err
		}
		if err := n.place.add(&n.m[i]); errors.Is(err, fs.ErrExist) {
			// It has come into being since the plan was made.
			if what, err := n.place.look(&n.m[i]); err != nil || what != right {
				n.Changed = append(n.Changed, n.m[i].Path)
			}
		} else if err != nil && !n.refuses(n.m[i].Path, err) {
			return err
		}
	}
	return nil
}

// A Refusal is that the file system here does not take an entry, as one of FAT no link, no name
// with a colon, and no file of 4 GiB.
type Refusal struct {
	Path string
	Err  error
}

// refuses notes that an entry is refused if err says so, or it lies below one. Where a directory
// may not be written in, that is another error.
func (n *Plan) refuses(name string, err error) bool {
	for at, c := range name {
		if c == '/' && n.refused[name[:at]] {
			return true
		}
	}
	if !isRefusal(err) {
		return false
	}
	n.Refused = append(n.Refused, Refusal{name, err})
	if n.refused == nil {
		n.refused = map[string]bool{}
	}
	n.refused[name] = true
	return true
}

// isRefusal reports whether err says that a file system does not take something.
func isRefusal(err error) bool {
	return slices.ContainsFunc([]error{syscall.EPERM, syscall.EINVAL, syscall.EILSEQ, syscall.ENAMETOOLONG, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EFBIG},
		func(one error) bool { return errors.Is(err, one) })
}

// pass reads a file, or the rest of one, that is not kept.
func (n *Plan) pass(r io.Reader) error {
	_, err := io.Copy(io.Discard, counted{r, n.progress})
	return err
}

// add makes a directory, in which its owner can always write (or a second
// pull could not go on), or a link.
func (p *Place) add(e *pack.Entry) error {
	if e.Type == pack.Link {
		return p.dir.Symlink(e.Link, e.Path)
	}
	return p.dir.Mkdir(e.Path, e.Mode|0o700)
}

// Put writes one file: it is the [pack.Sink] of what was wanted.
func (n *Plan) Put(_ int, e pack.Entry, from int64, r io.Reader) error {
	if e.Type != pack.File {
		return nil
	}
	t := n.partial
	n.partial = nil
	if t == nil || t.size != from {
		if t != nil {
			t.close()
		}
		err := durable.Step("pull.begin")
		if err == nil {
			t, err = n.place.begin(&e)
		}
		if err != nil && n.refuses(e.Path, err) {
			n.came++
			return n.pass(r)
		}
		if err != nil {
			return err
		}
	}
	if err := errors.Join(n.finish(t, &e, r), t.close()); err != nil {
		return err
	}
	n.came++
	return nil
}

// finish writes the rest of a part, checks the whole and gives it its name.
// What is right so far is kept when the rest does not come.
func (n *Plan) finish(t *part, e *pack.Entry, r io.Reader) error {
	end, err := t.fill.Append(t.size, counted{r, n.progress})
	if err == nil && end < e.Size {
		err = io.ErrUnexpectedEOF
	}
	tooLarge := errors.Is(err, syscall.EFBIG) && n.refuses(e.Path, err)
	if err != nil && !tooLarge {
		return fmt.Errorf("%q: %w", path.Join(n.place.name, e.Path), err)
	}
	if err := durable.Step("pull.written"); err != nil {
		return err
	}
	dir, base, err := n.place.parent(e.Path)
	if err != nil {
		return err
	}
	part := path.Base(t.name)
	if tooLarge {
		return errors.Join(dir.Remove(part), n.pass(r))
	}
	if t.fill.Sum() != e.Sum {
		n.Damaged = append(n.Damaged, e.Path)
		return dir.Remove(part)
	}
	if err := dir.Chtimes(part, e.Time, e.Time); err != nil && !isRefusal(err) { // then each pull reads it
		return err
	}
	note(t.f, e.Sum)
	if err := durable.Step("pull.rename"); err != nil {
		return err
	}
	// What has come into being here since the plan was made is left.
	if _, err := dir.Lstat(base); err == nil {
		if what, err := n.place.compare(e, false); err != nil || what != right {
			n.Changed = append(n.Changed, e.Path)
		}
		return dir.Remove(part)
	}
	if err := dir.Rename(part, base); err != nil && n.refuses(e.Path, err) {
		return dir.Remove(part)
	} else if err != nil {
		return err
	}
	n.put(*e)
	return durable.Step("pull.put")
}

// counted is a reader that tells how much is read of it.
type counted struct {
	io.Reader
	told func(int64)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.told(int64(n))
	return n, err
}
