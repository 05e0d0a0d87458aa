// Package check is what the checks of a spool and of a node's directory have in
// common: what a finding is, how a finding of a directory that is in use is told
// from a moment's state, and how what does not belong is moved aside. dfsck(8)
// has the words.
package check

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"distribute/lib/durable"
)

// A Kind says what sort of a finding it is.
type Kind string

// The kinds, in dfsck(8).
const (
	Torn    Kind = "torn"    // the end of a file that a crash cut short
	Left    Kind = "left"    // what a crash left, and the daemon puts right
	Damaged Kind = "damaged" // not what it was made as: a bit, a line, a file is missing or wrong
	Strange Kind = "strange" // what does not belong there, or others may write
)

// A Finding is one thing that is not whole.
type Finding struct {
	Kind  Kind   `json:"kind"`
	Path  string `json:"path"`            // below the directory that is checked
	Line  int    `json:"line,omitempty"`  // of that file, from 1; 0: it is no line
	Byte  int64  `json:"byte,omitempty"`  // where that line starts
	After uint64 `json:"after,omitempty"` // seq of the last good record before that line
	What  string `json:"what"`
	Cure  string `json:"cure"`            // what is done when it is mended, or "nothing" and advice
	Cured bool   `json:"cured,omitempty"` // it was done

	// Mend does what Cure says; nil: nothing can be done here.
	Mend func() error `json:"-"`

	tried bool
}

// Text is the finding as a line of four fields, without its newline.
func (f *Finding) Text() string {
	what := f.What
	if f.Line > 0 {
		what = fmt.Sprintf("line %d (byte %d): %s", f.Line, f.Byte, what)
	}
	return strings.Join([]string{string(f.Kind), plain(f.Path), plain(what), plain(f.Cure)}, "\t")
}

// plain is s, quoted if it could break a line, a field or a terminal.
func plain(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}

// A Tally counts what was looked at.
type Tally struct {
	Batches, Results, Attempts, Builds, Files int
	Read                                      int64 // bytes
}

func (t *Tally) add(u Tally) {
	t.Batches += u.Batches
	t.Results += u.Results
	t.Attempts += u.Attempts
	t.Builds += u.Builds
	t.Files += u.Files
	t.Read += u.Read
}

// A Run is one check of one directory. Its exported fields are set before.
type Run struct {
	Dir  string               // absolute
	Sums bool                 // read contents, too, and compare them with their sums
	Mend bool                 // do what the cures say; the caller has the directory's lock
	Live func() (bool, error) // whether a daemon has the directory
	Wait time.Duration        // between two looks at what is in use
	Tell func(*Finding) error // takes each finding
	Key  func([]byte) error   // why the content of a file is not a key; nil: keys are not read
	Seen func(bytes int64)    // hears of each amount that was read; may be nil
	Part func(name string)    // hears of each part that is looked at; may be nil

	Tally
	Open int // findings that were not mended
}

// A Unit is one look at a part of the directory.
type Unit struct {
	Tally
	Again bool // what is there was looked at a moment ago, and something found

	run   *Run
	found []*Finding
}

// Find adds a finding, and returns it.
func (u *Unit) Find(f Finding) *Finding {
	u.found = append(u.found, &f)
	return &f
}

// Report adds a finding of a path that is in no line and has no Mend, and returns it.
func (u *Unit) Report(kind Kind, path, what, cure string) *Finding {
	return u.Find(Finding{Kind: kind, Path: path, What: what, Cure: cure})
}

// Found is what was found so far.
func (u *Unit) Found() []*Finding { return u.found }

// Hash is the SHA-256 of size bytes of f from a byte on, or of all that follows
// if size is negative. It counts what it reads.
func (u *Unit) Hash(ctx context.Context, f io.ReaderAt, at, size int64) (string, error) {
	if size < 0 {
		size = math.MaxInt64 - at
	}
	sum := sha256.New()
	r := io.NewSectionReader(f, at, size)
	for {
		n, err := io.CopyN(sum, r, 8<<20)
		u.Count(n)
		if err == io.EOF {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return "", err
		}
	}
}

// Named compares the content of the file at path, below the directory that is
// checked, with the SHA-256 that it is named by. One that is wrong is moved
// aside when mended: whoever needs it brings it again. One that is gone is none.
func (u *Unit) Named(ctx context.Context, path, sum string) error {
	f, err := Open(filepath.Join(u.run.Dir, path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var got string
	if err == nil {
		defer f.Close()
		got, err = u.Hash(ctx, f, 0, -1)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && !Unreadable(err, filepath.Join(u.run.Dir, path)):
		return err
	case err != nil:
		u.Odd(path, "it cannot be read: "+Reason(err)).Kind = Damaged
	case got != sum:
		u.Odd(path, "its content has another sum than its name: it has rotted").Kind = Damaged
	}
	return nil
}

// Reason is an error without the path, which stands beside it.
func Reason(err error) string {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

// Count says that n bytes were read.
func (u *Unit) Count(n int64) {
	u.Read += n
	if u.run.Seen != nil {
		u.run.Seen(n)
	}
}

// Unit looks at the named part of the directory, tells what is found there, and mends
// it if that is asked for. Where a daemon is at work, what is found is looked at
// again after a while; only what is there both times is told, and nothing that
// the daemon itself puts right. An error of look ends the check.
func (r *Run) Unit(ctx context.Context, part string, look func(*Unit) error) error {
	if r.Part != nil {
		r.Part(part)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	before, err := r.live()
	if err != nil {
		return err
	}
	u := &Unit{run: r}
	if err := look(u); err != nil {
		return err
	}
	r.add(u.Tally)
	if len(u.found) == 0 {
		return nil
	}
	after, err := r.live()
	if err != nil {
		return err
	}
	if before || after {
		if u.found, err = r.again(ctx, u.found, look); err != nil {
			return err
		}
	}
	return r.tell(u.found)
}

func (r *Run) live() (bool, error) {
	if r.Mend || r.Live == nil {
		return false, nil
	}
	return r.Live()
}

// again looks a second time, and keeps what was found both times.
func (r *Run) again(ctx context.Context, first []*Finding, look func(*Unit) error) ([]*Finding, error) {
	timer := time.NewTimer(r.Wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	u := &Unit{run: r, Again: true}
	if err := look(u); err != nil {
		return nil, err
	}
	type key struct {
		kind Kind
		path string
		at   int64
		line int
	}
	was := make(map[key]bool, len(first))
	for _, f := range first {
		was[key{f.Kind, f.Path, f.Byte, f.Line}] = true
	}
	var both []*Finding
	for _, f := range u.found {
		if f.Kind != Left && was[key{f.Kind, f.Path, f.Byte, f.Line}] {
			both = append(both, f)
		}
	}
	return both, nil
}

func (r *Run) tell(found []*Finding) error {
	for _, f := range found {
		r.mend(f)
		if !f.Cured {
			r.Open++
		}
		if err := r.Tell(f); err != nil {
			return err
		}
	}
	return nil
}

// mend does what the cure of a finding says, if that is asked for and was not done.
func (r *Run) mend(f *Finding) {
	if !r.Mend || f.Mend == nil || f.Cured || f.tried {
		return
	}
	f.tried = true
	if err := f.Mend(); err != nil {
		f.Cure = fmt.Sprintf("nothing: it failed: %v", err)
	} else {
		f.Cured = true
	}
}

// mendNow mends a finding before more is looked at: what is behind it is found then.
func (u *Unit) mendNow(f *Finding) { u.run.mend(f) }

// inside calls f with the directory that is checked. A path below that root leads
// nowhere else, also where others can put a link into it.
func (r *Run) inside(f func(*os.Root) error) error {
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return f(root)
}

// syncIn makes the names in a directory below root durable.
func syncIn(root *os.Root, dir string) error {
	d, err := openIn(root, dir)
	if err != nil {
		return err
	}
	return errors.Join(durable.Sync(d), d.Close())
}

// openIn opens a directory below root. It waits for no FIFO.
func openIn(root *os.Root, dir string) (*os.File, error) {
	return root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}

// Found is the directory, below the one that is checked, into which what does
// not belong is moved. Only a person removes what is in it.
const Found = "found"

// Aside moves path, below dir, to the same path below dir/found; where that is
// there, a number is added. Nothing is deleted, and the move is durable. Nothing outside
// of dir is touched, whatever others put there meanwhile.
func Aside(dir, path string) (to string, err error) {
	err = (&Run{Dir: dir}).inside(func(root *os.Root) error {
		to, err = aside(root, path)
		return err
	})
	return to, err
}

func aside(root *os.Root, path string) (to string, err error) {
	if err := root.Mkdir(Found, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if info, err := root.Lstat(Found); err != nil || !info.IsDir() {
		return "", errors.Join(err, fmt.Errorf("%q is not a directory (move it away)", filepath.Join(root.Name(), Found)))
	}
	parent := filepath.Dir(path)
	if err := root.MkdirAll(filepath.Join(Found, parent), 0o700); err != nil {
		return "", err
	}
	from, err := openIn(root, parent)
	if err != nil {
		return "", err
	}
	defer from.Close()
	into, err := openIn(root, filepath.Join(Found, parent))
	if err != nil {
		return "", err
	}
	defer into.Close()
	name := filepath.Base(path)
	for n := 1; ; n++ {
		as := name
		if n > 1 {
			as += "." + strconv.Itoa(n)
		}
		err := durable.PublishIn(from, name, into, as)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return filepath.Join(Found, parent, as), syncAside(root, parent)
	}
}

// syncAside makes the names durable that Aside has changed.
func syncAside(root *os.Root, parent string) error {
	errs := []error{syncIn(root, parent), syncIn(root, ".")}
	for p := parent; ; p = filepath.Dir(p) {
		errs = append(errs, syncIn(root, filepath.Join(Found, p)))
		if p == "." {
			return errors.Join(errs...)
		}
	}
}

// ErrKind says that something is no regular file.
var ErrKind = durable.ErrKind

// Open opens a regular file for reading. It follows no link, and waits for no
// FIFO: that is ErrKind.
func Open(name string) (*os.File, error) {
	f, err := durable.Open(name, os.O_RDONLY, 0)
	if errors.Is(err, ErrKind) {
		return nil, ErrKind
	}
	return f, err
}

// Locked says whether a process holds the lock of a file (flock(2)). It holds the lock
// itself for a moment, which who takes the lock waits out. A missing file is not locked.
func Locked(name string) (bool, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return true, nil
	}
	return false, err
}

// Broken says whether err is of one file and not of the machine: it cannot be
// read off the disk, or is not a file at all. That is a finding.
func Broken(err error) bool {
	for _, e := range []error{syscall.EIO, syscall.EUCLEAN, syscall.EBADMSG, syscall.ENOTDIR, syscall.EISDIR, ErrKind} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// chmod sets the mode of the file of which info is.
func (r *Run) chmod(path string, info fs.FileInfo, mode fs.FileMode) error {
	return r.inside(func(root *os.Root) error {
		if now, err := root.Lstat(path); err != nil || !os.SameFile(now, info) {
			return errors.Join(err, errors.New("it was replaced meanwhile"))
		}
		return root.Chmod(path, mode)
	})
}

// Mode finds what is wrong with the owner and the mode of path: that it has
// another owner than uid, a permission bit beyond those of most, or lacks what its
// owner needs of these.
func (u *Unit) Mode(path string, info fs.FileInfo, uid int, most fs.FileMode) {
	least := most & 0o700
	if !info.IsDir() && most&0o077 == 0 {
		least = 0o400 // a key need not be written
	}
	st := info.Sys().(*syscall.Stat_t)
	if int(st.Uid) != uid {
		u.Find(Finding{Kind: Strange, Path: path, What: fmt.Sprintf("it belongs to user %d and not to %d", st.Uid, uid),
			Cure: fmt.Sprintf("nothing: chown %d, or find out who put it there", uid)})
		return
	}
	perm := info.Mode().Perm()
	right := perm&most | least
	if right == perm {
		return
	}
	mode := st.Mode & 0o7777
	what := fmt.Sprintf("its mode is %04o, more than %04o", mode, most)
	if perm&^most == 0 {
		what = fmt.Sprintf("its mode is %04o, less than %04o", mode, least)
	}
	u.mendNow(u.Find(Finding{Kind: Strange, Path: path, What: what, Cure: fmt.Sprintf("set its mode to %04o", mode&^0o777|uint32(right)),
		Mend: func() error { return u.run.chmod(path, info, info.Mode()&^0o777|right) }}))
}

// Own reports whether a file belongs to the user of this process.
func Own(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && ownedBy(info, os.Geteuid())
}

// Unreadable reports whether err, of opening a file by that name, is of that file alone:
// it is Broken, or its owner may not read it.
func Unreadable(err error, name string) bool {
	return Broken(err) || errors.Is(err, fs.ErrPermission) && Own(name)
}

func ownedBy(info fs.FileInfo, uid int) bool { return int(info.Sys().(*syscall.Stat_t).Uid) == uid }

// Usable finds a file or directory of uid that uid cannot use. It reports whether that can
// be looked into now.
func (u *Unit) Usable(path string, info fs.FileInfo, uid int) bool {
	need := fs.FileMode(0o400)
	if info.IsDir() {
		need = 0o700
	}
	perm := info.Mode().Perm()
	if !info.IsDir() && !info.Mode().IsRegular() || !ownedBy(info, uid) || perm&need == need {
		return true
	}
	f := u.Find(Finding{Kind: Strange, Path: path, What: fmt.Sprintf("its mode is %04o, less than %04o", perm, need), Cure: fmt.Sprintf("set its mode to %04o", perm|need),
		Mend: func() error { return u.run.chmod(path, info, info.Mode()|need) }})
	u.mendNow(f)
	return f.Cured
}

// Odd finds something that does not belong, which is moved aside when mended.
func (u *Unit) Odd(path, what string) *Finding {
	return u.Find(Finding{Kind: Strange, Path: path, What: what, Cure: "move it to " + filepath.Join(Found, path),
		Mend: func() error { _, err := Aside(u.run.Dir, path); return err }})
}
