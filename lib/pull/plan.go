package pull

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"distribute/lib/job"
	"distribute/lib/pack"

	"golang.org/x/sys/unix"
)

// A Plan says what has to be brought to a place. It is for one goroutine.
type Plan struct {
	Want    pack.Want // files to be asked for; see None
	None    bool      // no file has to be
	Files   int       // how many of them
	Bytes   int64     // in them, less what is here already
	Whole   bool      // nothing is left when they have come
	Right   int       // files that are here
	Changed []string  // paths of what was changed here, and is left
	Damaged []string  // paths of files that came with another content, and were removed
	Refused []Refusal // what the file system here does not take, without what is below

	refused  map[string]bool // the paths of Refused
	m        pack.Manifest
	place    *Place
	lacking  []int // files that are not here, in order, from the first of this request on
	came     int   // of this request: those that are done with
	make     []int // directories and links that are not there
	put      func(pack.Entry)
	progress func(int64)
	partial  *part // what is here of the first wanted file
}

// Plan compares the place with the manifest. Files whose time differs are read
// and hashed. If write is set, a file of which a part came earlier goes on
// where that ends, and files that turn out to be right get their time back;
// else nothing is changed. Close must be called.
func (p *Place) Plan(ctx context.Context, m pack.Manifest, c *Choice, write bool) (*Plan, error) {
	n := &Plan{m: m, place: p, Whole: true, put: func(pack.Entry) {}, progress: func(int64) {}}
	needed := c.directories(m)
	blocked := "" // a directory's place that something else has taken
	for i := range m {
		e := &m[i]
		if blocked != "" && strings.HasPrefix(e.Path, blocked) || !needed(i) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		what, err := p.compare(e, write)
		if err != nil && !n.refuses(e.Path, err) {
			return nil, err
		}
		switch {
		case err != nil && e.Type == pack.Dir:
			blocked = e.Path + "/"
		case err != nil:
		case what == other:
			n.Changed = append(n.Changed, e.Path)
			if e.Type == pack.Dir {
				blocked = e.Path + "/"
			}
		case what == nothing && c.Skip[e.Path]:
			if e.Type == pack.Dir {
				blocked = e.Path + "/"
			}
		case what == nothing && e.Type != pack.File:
			n.make = append(n.make, i)
		case what == nothing:
			n.lacking = append(n.lacking, i)
		case e.Type == pack.File:
			n.Right++
		}
	}
	return n, n.ask(c.Most, write)
}

// ask makes the request for the first files that are not here: at most so many, if most is not 0.
func (n *Plan) ask(most int, resume bool) error {
	var ranges [][2]int
	n.Files, n.Bytes, n.Whole, n.came = 0, 0, true, 0
	for _, i := range n.lacking {
		if len(ranges) == pack.MaxRanges && ranges[pack.MaxRanges-1][1] != i || most > 0 && n.Files == most {
			n.Whole = false
			break
		}
		ranges = grow(ranges, i)
		n.Files, n.Bytes = n.Files+1, n.Bytes+n.m[i].Size
	}
	n.Want, n.None = pack.Want{Ranges: ranges}, ranges == nil
	if resume && !n.None {
		return n.resume(&n.m[ranges[0][0]])
	}
	return nil
}

// Each calls f for each file that is lacking.
func (n *Plan) Each(f func(pack.Entry)) {
	for _, i := range n.lacking {
		f(n.m[i])
	}
}

// First returns the path of the first file of the request that is not done with.
func (n *Plan) First() string { return n.m[n.lacking[n.came]].Path }

// Came returns how many files of the request are done with: the first ones of it.
func (n *Plan) Came() int { return n.came }

// Next makes the request for what is still lacking: at most so many files, if most is not 0.
// With skip the first of these files is left out from then on. The place is not looked at again.
func (n *Plan) Next(most int, skip bool) error {
	n.Close()
	n.lacking = n.lacking[n.came:]
	if skip {
		n.lacking = n.lacking[1:]
	}
	return n.ask(most, true)
}

// directories says which entries are needed: the files and links that are
// taken and the directories that lead to them, or every directory if all are.
func (c *Choice) directories(m pack.Manifest) func(int) bool {
	if c.All() {
		return func(int) bool { return true }
	}
	need := make([]bool, len(m))
	above := "/" // of the entry looked at last that is needed, or below it
	for i, e := range slices.Backward(m) {
		if e.Type == pack.Dir {
			need[i] = strings.HasPrefix(above, e.Path+"/")
		} else {
			need[i] = c.Takes(e.Path)
		}
		if need[i] {
			above = e.Path
		}
	}
	return func(i int) bool { return need[i] }
}

func grow(ranges [][2]int, i int) [][2]int {
	if n := len(ranges); n > 0 && ranges[n-1][1] == i {
		ranges[n-1][1]++
		return ranges
	}
	return append(ranges, [2]int{i, i + 1})
}

// compare is look with the content of a file taken into account. It reads what has the right
// size, unless dpull has noted of what content it is, and nobody has changed its time since.
func (p *Place) compare(e *pack.Entry, write bool) (found, error) {
	what, err := p.look(e)
	if e.Type != pack.File || what != near && what != right || err != nil {
		return what, err
	}
	f, err := p.dir.OpenFile(e.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return other, nil
	}
	if err != nil {
		return other, err
	}
	defer f.Close()
	if what == right && noted(f) == e.Sum {
		return right, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return other, err
	}
	if hex.EncodeToString(h.Sum(nil)) != e.Sum {
		return other, nil
	}
	if write {
		// Only the next pull is slower if these cannot be set.
		_ = p.dir.Chtimes(e.Path, e.Time, e.Time)
		note(f, e.Sum)
	}
	return right, nil
}

// sumAttribute is the extended attribute of a pulled file that has the SHA-256 of its content.
// A later result may have another content with the same size and time.
const sumAttribute = "user.distribute.sha256"

// note notes the sum of a file. A file system may have no attributes: then each pull reads it.
func note(f *os.File, sum string) {
	_ = unix.Fsetxattr(int(f.Fd()), sumAttribute, []byte(sum), 0)
}

// noted returns the noted sum of a file, or "".
func noted(f *os.File) string {
	sum := make([]byte, hex.EncodedLen(sha256.Size))
	n, _ := unix.Fgetxattr(int(f.Fd()), sumAttribute, sum)
	return string(sum[:max(n, 0)])
}

// part is a file on its way: the hidden one beside its place.
type part struct {
	f    *os.File
	name string // its path in the place
	size int64
	fill *pack.Filler // that hashes what is in it
}

// close closes the file.
func (t *part) close() error {
	t.fill.Release()
	return t.f.Close()
}

// partPrefix begins the names of hidden files, before 32 hexadecimal digits.
const partPrefix = ".dpull-"

// hidden is the name of the hidden file of e. Files with the same content may
// share it; they are written one after another.
func hidden(e *pack.Entry) string { return path.Join(path.Dir(e.Path), partPrefix+e.Sum[:32]) }

// open opens a hidden file of that name, alone; with O_EXCL in how a new one. It
// is nil if another process has it, or something else is there.
func (p *Place) open(name string, e *pack.Entry, how int) (*part, error) {
	dir, base, err := p.parent(name)
	if err != nil {
		return nil, err
	}
	f, err := dir.OpenFile(base, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|how, e.Mode|0o600)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENXIO) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	size, ok := alone(f, dir, base, how&os.O_EXCL != 0)
	if !ok {
		return nil, f.Close()
	}
	t := &part{f: f, name: name, size: size, fill: pack.NewFiller(f)}
	t.fill.Lazy = true
	return t, nil
}

// begin opens an empty hidden file: under its name, or under another if that
// is taken.
func (p *Place) begin(e *pack.Entry) (*part, error) {
	t, err := p.open(hidden(e), e, os.O_EXCL)
	if errors.Is(err, fs.ErrExist) {
		t, err = p.open(hidden(e), e, 0)
	}
	if t == nil && err == nil {
		t, err = p.open(path.Join(path.Dir(e.Path), partPrefix+string(job.NewToken())), e, os.O_EXCL)
	}
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("%q: %w", path.Join(p.name, e.Path), fs.ErrPermission)
	}
	if t.size > 0 {
		if err := t.f.Truncate(0); err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.size = 0
	}
	return t, nil
}

// alone locks f, and says whether it is a regular file with one name, that
// one, and how large it is. Where the file system has no locks, as some of a
// network, a new file is alone: no other process uses one that it has not made.
func alone(f *os.File, dir *os.Root, name string, isNew bool) (size int64, ok bool) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil && !(isNew && err != syscall.EWOULDBLOCK) {
		return 0, false
	}
	here, err := f.Stat()
	if err != nil || !here.Mode().IsRegular() || here.Sys().(*syscall.Stat_t).Nlink != 1 {
		return 0, false
	}
	there, err := dir.Lstat(name)
	return here.Size(), err == nil && os.SameFile(here, there)
}

// resume looks for a part of the first wanted file.
func (n *Plan) resume(e *pack.Entry) error {
	if _, err := n.place.dir.Lstat(hidden(e)); err != nil {
		return nil
	}
	t, err := n.place.open(hidden(e), e, 0)
	if t == nil || err != nil {
		return err
	}
	if t.size == 0 || t.size >= e.Size {
		// Empty, whole, or not a part of it: it is as quick to begin again.
		return t.close()
	}
	if err = t.fill.Prefix(t.size); err != nil {
		return errors.Join(err, t.close())
	}
	n.partial, n.Want.From = t, t.size
	n.Bytes -= t.size
	return nil
}

// Close gives up what Plan holds.
func (n *Plan) Close() {
	if n.partial != nil {
		n.partial.close()
		n.partial = nil
	}
}
