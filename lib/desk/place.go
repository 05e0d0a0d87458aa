package desk

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// SharedFrom is the size in bytes from which an input is shared between jobs
// where the file system cannot clone it.
const SharedFrom = 64 << 20

// A SharedFile is a file of the cache as it was before somebody used it.
type SharedFile struct {
	Size  int64     `json:"size"`
	Time  time.Time `json:"time"`
	Inode uint64    `json:"inode,omitempty"` // by which it is known in the directory of who uses it
	Born  time.Time `json:"born,omitzero"`   // when it was made: a later file may have the same inode; absent: the file system does not say
}

// sharedFile returns how the file of a path is, of which info tells.
func sharedFile(path string, info fs.FileInfo) SharedFile {
	at := SharedFile{Size: info.Size(), Time: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		at.Inode = st.Ino
	}
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_BTIME, &st)
	if err == nil && st.Mask&unix.STATX_BTIME != 0 {
		at.Born = time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
	}
	return at
}

// is reports whether both are the same file, perhaps changed since, as far as that was noted.
func (f SharedFile) is(o SharedFile) bool {
	return (f.Inode == 0 || o.Inode == 0 || f.Inode == o.Inode) && (f.Born.IsZero() || o.Born.IsZero() || f.Born.Equal(o.Born))
}

// checkInputs reports inputs whose paths or sums are not fit for use.
func checkInputs(ins []job.Input) error {
	for _, in := range ins {
		if err := job.CheckPath(in.Path); err != nil {
			return fmt.Errorf("input %.200q %w", in.Path, err)
		}
		if err := checkSum(in.Sum); err != nil {
			return err
		}
		if in.Size < 0 {
			return fmt.Errorf("input %.200q has %d bytes", in.Path, in.Size)
		}
	}
	return nil
}

// A PlaceError is returned when the tree of a job has no place for an input or a
// directory.
type PlaceError struct {
	Path string // of the input or the directory, in the tree
	Err  error
}

func (e *PlaceError) Error() string { return fmt.Sprintf("place %q: %v", e.Path, e.Err) }

func (e *PlaceError) Unwrap() error { return e.Err }

// Place puts inputs, which must be in the cache, at their paths below root.
// What stands at such a path is replaced, or with keep left alone. A directory that is
// closed to its owner is opened meanwhile. It returns
// the inputs that are shared with others, and how those files are now.
func (d *Desk) Place(ctx context.Context, root *os.Root, ins []job.Input, keep bool) (shared []job.Input, at []SharedFile, err error) {
	if err := checkInputs(ins); err != nil {
		return nil, nil, err
	}
	for _, in := range ins {
		var is *SharedFile
		var put bool
		err := opened(root, path.Dir(in.Path), func() (err error) {
			if put, err = clearFor(root, in.Path, keep); err != nil || !put {
				return err
			}
			is, err = d.placeOne(ctx, root, in)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		if is != nil {
			shared, at = append(shared, in), append(at, *is)
		}
	}
	return shared, at, nil
}

// clearFor makes the directory of an input and removes what stands at its path. It reports
// false if something stands there and is to be kept.
func clearFor(root *os.Root, name string, keep bool) (free bool, err error) {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return false, &PlaceError{name, err}
		}
	}
	if _, err := root.Lstat(name); err != nil {
		return true, nil
	}
	if keep {
		return false, nil
	}
	if err := RemoveIn(root, name); err != nil {
		return false, &PlaceError{name, err}
	}
	return true, nil
}

// opened calls do, and where that is not permitted once more with the directories on the way
// to dir, and dir, opened to their owner. Their modes are set back then.
func opened(root *os.Root, dir string, do func() error) error {
	err := do()
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	var back []func() error
	way := strings.Split(path.Join(".", dir), "/")
	for i := range len(way) + 1 {
		at := path.Join(".", path.Join(way[:i]...))
		info, serr := root.Stat(at)
		if serr != nil || !info.IsDir() {
			break
		}
		mode := info.Mode() // with the set-group-id bit
		if mode&0o700 == 0o700 {
			continue
		}
		if root.Chmod(at, mode|0o700) != nil {
			break
		}
		back = append(back, func() error { return root.Chmod(at, mode) })
	}
	if len(back) > 0 {
		err = do()
	}
	for _, undo := range slices.Backward(back) {
		err = errors.Join(err, undo())
	}
	return err
}

// placeOne clones or copies an input, or links a large one that cannot be
// cloned; then it returns how that is.
func (d *Desk) placeOne(ctx context.Context, root *os.Root, in job.Input) (*SharedFile, error) {
	var src *os.File
	err := d.with(in.Sum, func(from string) (err error) {
		src, err = openCached(from)
		return err
	})
	if errors.Is(err, durable.ErrKind) {
		d.Uncache(in) // a job has replaced it
	}
	if err != nil {
		return nil, fmt.Errorf("input %q: %w", in.Path, err)
	}
	defer src.Close()
	mode := fs.FileMode(in.Mode).Perm() | 0o600
	dst, err := root.OpenFile(in.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &PlaceError{in.Path, err}
	}
	if in.Size >= SharedFrom && !clone(dst, src) {
		dst.Close()
		return d.share(ctx, root, in)
	}
	if _, err = src.Seek(0, io.SeekStart); err == nil && in.Size < SharedFrom {
		if err = errors.Join(durable.Step("cache.read"), durable.Step("place.write")); err == nil {
			_, err = io.Copy(dst, src)
		}
		if errors.Is(err, syscall.EIO) { // the job's directory may be on the disk that fails
			_, rerr := d.isWhole(ctx, in)
			err = errors.Join(err, d.unread(in, rerr))
		}
	}
	if err = errors.Join(err, dst.Chmod(mode), dst.Close()); err != nil {
		return nil, fmt.Errorf("input %q: %w", in.Path, err)
	}
	if mode&0o111 != 0 {
		durable.AwaitWriters(root, in.Path)
	}
	return nil, root.Chtimes(in.Path, in.ModTime(), in.ModTime())
}

// Unplace removes from what was built the inputs that are the very files that Record wrote
// down, unchanged, and the link to them: each job gets its own. What the build has written,
// replaced, renamed or made executable stays, and jobs get that. Shared inputs among these, which
// were at, become files of the build's own.
func (b *Build) Unplace(at []SharedFile) error {
	root, err := durable.OpenRoot(b.Tree())
	if err != nil {
		return err
	}
	defer root.Close()
	before, err := readBefore(b.Dir)
	if err != nil {
		return err
	}
	for _, in := range b.Spec.Inputs {
		info, err := root.Lstat(in.Path)
		if err != nil || !info.Mode().IsRegular() || before.Changed(in.Path, info) {
			continue
		}
		if err := opened(root, path.Dir(in.Path), func() error { return root.Remove(in.Path) }); err != nil {
			return err
		}
	}
	if to, err := root.Readlink("initial_files"); err == nil && to == "input" {
		if err := root.Remove("initial_files"); err != nil {
			return err
		}
	}
	if b.Spec.Kind == job.Python {
		root.Remove("distribute_save") // which the build finds empty, and has perhaps left so
	}
	return b.unshare(root, at)
}

// unshare replaces each link to a shared file in what was built by a copy: a job with another
// link could change the file later, and nothing would tell.
func (b *Build) unshare(tree *os.Root, at []SharedFile) error {
	if len(at) == 0 {
		return nil
	}
	shared := func(info fs.FileInfo) bool {
		st, ok := info.Sys().(*syscall.Stat_t)
		return ok && info.Mode().IsRegular() && st.Nlink > 1 && slices.ContainsFunc(at, func(f SharedFile) bool { return f.Inode == st.Ino })
	}
	var links []string
	err := durable.Walk(tree, func(e durable.Entry, err error) error {
		switch { // what cannot be looked at, or is very deep, no job can have
		case err == nil && shared(e.Info):
			links = append(links, e.Path)
		case len(e.Path) > maxWalked:
			return fs.SkipDir
		}
		return nil
	}, nil)
	for _, p := range links {
		err = errors.Join(err, opened(tree, path.Dir(p), func() error { return b.replaceByCopy(tree, p, shared) }))
	}
	return err
}

// copyFile is the file of a build in which a copy for its tree is made.
const copyFile = "tree.new"

// replaceByCopy replaces a shared file in what was built by a copy with the same mode and time,
// which lies beside the tree until it is whole. Other processes of the build's user can change
// the tree meanwhile: the copy gets into the directory that was opened, wherever that is then.
func (b *Build) replaceByCopy(tree *os.Root, name string, shared func(fs.FileInfo) bool) error {
	dir, err := tree.OpenFile(path.Dir(name), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	src, err := tree.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil || !shared(info) {
		return err
	}
	tmp := filepath.Join(b.Dir, copyFile)
	if err := RemoveAll(tmp); err != nil {
		return err
	}
	dst, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err = errors.Join(err, dst.Chmod(info.Mode().Perm()), dst.Close()); err == nil {
		err = os.Chtimes(tmp, info.ModTime(), info.ModTime())
	}
	if err == nil {
		err = durable.Step("build.unshare")
	}
	if err == nil {
		err = unix.Renameat(unix.AT_FDCWD, tmp, int(dir.Fd()), path.Base(name))
	}
	if err != nil {
		os.Remove(tmp)
	}
	return err
}

// clone lets dst have the content of src without copying, where the file system
// can.
func clone(dst, src *os.File) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, dst.Fd(), ficlone, src.Fd())
	return errno == 0
}

// ficlone is FICLONE of ioctl_ficlone(2).
const ficlone = 0x40049409

// openCached opens a file of the cache, also one that a job with a link to it has closed.
func openCached(path string) (*os.File, error) {
	f, err := durable.Open(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(path, 0o444) == nil {
		f, err = durable.Open(path, os.O_RDONLY, 0)
	}
	return f, err
}

// share makes the input a link to the cache's file, which can be executed then, even if it has
// come a moment ago.
func (d *Desk) share(ctx context.Context, root *os.Root, in job.Input) (*SharedFile, error) {
	if err := d.checkCached(ctx, in); err != nil {
		return nil, err
	}
	if err := root.Remove(in.Path); err != nil {
		return nil, &PlaceError{in.Path, err}
	}
	// The path was made by this process a moment ago and holds no links.
	at, err := d.linkCached(filepath.Join(root.Name(), filepath.FromSlash(in.Path)), in)
	if err != nil {
		return nil, err
	}
	if in.Mode&0o111 != 0 { // a data file may be open for writing in another job, as long as that runs
		durable.AwaitWriters(root, in.Path)
	}
	return &at, nil
}

// checkCached reads an input in the cache of which this dnoded does not know that it is whole: a
// job that has a link to it, or had one, may have changed it. One that has the time of the input
// is believed. A changed input is removed, and the error is [ErrChanged]. One that the disk does
// not read is removed, too: it can come again, to another place of the disk. One input is read
// at a time; what need not be read does not wait for that. It ends early with ctx, and removes
// nothing then.
func (d *Desk) checkCached(ctx context.Context, in job.Input) error {
	if believed, err := d.believe(in); believed || err != nil {
		return err
	}
	select {
	case d.hoard.reading <- struct{}{}:
		defer func() { <-d.hoard.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if believed, err := d.believe(in); believed || err != nil { // another job has waited for it
		return err
	}
	info, err := d.stat(in.Sum)
	if err != nil {
		return err
	}
	whole, err := d.isWhole(ctx, in)
	if err != nil {
		return d.unread(in, err)
	}
	if !whole {
		return errors.Join(errChangedInCache(in), d.Uncache(in))
	}
	d.setWhole(in.Sum, info)
	return nil
}

// unread removes an input from the cache that the disk does not read, and returns err.
func (d *Desk) unread(in job.Input, err error) error {
	if errors.Is(err, syscall.EIO) {
		err = errors.Join(err, d.Uncache(in))
	}
	return err
}

// believe reports whether an input in the cache is known to be whole, or has the time of the input.
func (d *Desk) believe(in job.Input) (bool, error) {
	if _, known := d.setTime(in.Sum); known {
		return true, nil
	}
	info, err := d.stat(in.Sum)
	if err != nil || in.MTime == nil || !info.ModTime().Equal(in.ModTime()) {
		return false, err
	}
	d.setWhole(in.Sum, info)
	return true, nil
}

// ErrChanged is returned for an input that a job has changed in the cache.
var ErrChanged = errors.New("a job has changed it in the cache")

func errChangedInCache(in job.Input) error { return fmt.Errorf("input %q: %w", in.Path, ErrChanged) }

// linkCached makes the path to a link to the cache's file of an input. All links have one time:
// that of the input, if no other link is in use. They have one mode, which is executable from the
// first input on that is. A file that was changed since is removed from the cache.
func (d *Desk) linkCached(to string, in job.Input) (at SharedFile, err error) {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	from := d.cached(in.Sum)
	info, err := os.Lstat(from)
	if err != nil {
		return at, err
	}
	if was, known := d.hoard.times[in.Sum]; known && !was.Equal(info.ModTime()) {
		return at, errors.Join(errChangedInCache(in), d.drop(from, Rounded(in.Size)))
	}
	if mode := 0o444 | (info.Mode()|fs.FileMode(in.Mode))&0o111; info.Mode() != mode {
		if err := os.Chmod(from, mode); err != nil {
			return at, err
		}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink == 1 {
		// A job that still writes to it is seen by the time, which is not set without need.
		if in.MTime != nil && !info.ModTime().Equal(in.ModTime()) {
			if err := os.Chtimes(from, time.Time{}, in.ModTime()); err != nil {
				return at, err
			}
			if info, err = os.Lstat(from); err != nil {
				return at, err
			}
		}
		d.hoard.times[in.Sum] = info.ModTime()
	}
	return sharedFile(from, info), os.Link(from, to)
}

// PlaceImage puts the image of an attempt, which must be in the cache, beside the
// directory that its job runs in, and returns how it is. It is shared with all who
// use it, as an input is; only where the file system takes no more names of it it is copied.
func (d *Desk) PlaceImage(ctx context.Context, a *Attempt, in job.Input) (at SharedFile, err error) {
	if err := os.Mkdir(filepath.Dir(a.Image()), 0o700); err != nil {
		return at, err
	}
	if err = d.checkCached(ctx, in); err == nil {
		at, err = d.linkCached(a.Image(), in)
	}
	if errors.Is(err, syscall.EMLINK) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) {
		err = d.with(in.Sum, func(from string) error { return copyPlain(a.Image(), from) })
	}
	if err != nil {
		return at, fmt.Errorf("image %q: %w", in.Path, err)
	}
	return at, nil
}

// copyPlain makes dst, which all may read, of src.
func copyPlain(dst, src string) error {
	in, err := durable.Open(src, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o444), out.Close())
}

// stat looks at an input in the cache.
func (d *Desk) stat(sum string) (fs.FileInfo, error) {
	info, _, err := d.shared(sum)
	return info, err
}

// shared looks at an input in the cache as one that is shared.
func (d *Desk) shared(sum string) (info fs.FileInfo, at SharedFile, err error) {
	err = d.with(sum, func(path string) error {
		if info, err = os.Lstat(path); err == nil {
			at = sharedFile(path, info)
		}
		return err
	})
	return info, at, err
}

// CheckShared reports the first shared input that was changed, or that the disk
// did not take, and takes it out of the cache. It waits until all of them are
// synced, or for ctx. A time that was set for another job, after this one removed its
// link, is no change; if an earlier daemon may have set it, the content is read. An input that
// was removed from the cache since, and has come again, was changed.
func (d *Desk) CheckShared(ctx context.Context, shared []job.Input, at []SharedFile) (changed string, err error) {
	if len(shared) > 0 {
		if err := d.Keep(ctx); d.anyFresh(shared) {
			return "", err
		}
	}
	for i, in := range shared {
		info, now, err := d.shared(in.Sum)
		noted := err == nil && i < len(at)
		inode := noted && at[i].Inode != 0 // an earlier release did not note it
		anew := noted && !now.is(at[i])
		if noted && !anew && info.Size() == at[i].Size {
			set, known := d.setTime(in.Sum)
			if info.ModTime().Equal(at[i].Time) || known && info.ModTime().Equal(set) {
				continue
			}
			if inode && !known {
				whole, err := d.isWhole(ctx, in)
				if err != nil {
					return "", err
				}
				if whole {
					d.setWhole(in.Sum, info)
					continue
				}
			}
		}
		if !anew {
			d.Uncache(in)
		}
		if changed == "" {
			changed = in.Path
		}
	}
	return changed, nil
}

// HaveShared reports whether the cache has the very files of shared inputs that were at.
func (d *Desk) HaveShared(shared []job.Input, at []SharedFile) bool {
	for i, in := range shared {
		_, now, err := d.shared(in.Sum)
		if err != nil || i >= len(at) || !now.is(at[i]) {
			return false
		}
	}
	return true
}

// setTime returns the time that an input in the cache had when it was whole, if this daemon knows
// it.
func (d *Desk) setTime(sum string) (set time.Time, known bool) {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	set, known = d.hoard.times[sum]
	return set, known
}

// setWhole notes the time that an input in the cache had before it was found to be whole.
func (d *Desk) setWhole(sum string, info fs.FileInfo) {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	if _, known := d.hoard.times[sum]; !known {
		d.hoard.times[sum] = info.ModTime()
	}
}

// isWhole reports whether the content of an input in the cache is what its name says. It costs
// a read of all of it, and ends early with ctx. The error is that of ctx or of the disk.
func (d *Desk) isWhole(ctx context.Context, in job.Input) (bool, error) {
	h := sha256.New()
	err := d.with(in.Sum, func(path string) error {
		f, err := openCached(path)
		if err != nil {
			return err
		}
		defer f.Close()
		defer context.AfterFunc(ctx, func() { f.Close() })()
		if err := durable.Step("cache.read"); err != nil {
			return err
		}
		_, err = io.Copy(h, f)
		return err
	})
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		return false, fmt.Errorf("input %q cannot be read in the node's cache: %w", in.Path, err)
	}
	return hex.EncodeToString(h.Sum(nil)) == in.Sum, nil
}

// anyFresh says whether one of the inputs is not synced yet.
func (d *Desk) anyFresh(ins []job.Input) bool {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	return slices.ContainsFunc(ins, func(in job.Input) bool { return d.hoard.fresh[in.Sum] })
}

// A mark is what a file was at a moment. A file that was written since, replaced
// or renamed, has another.
type mark struct {
	Path  string      `json:"path"`
	Mode  fs.FileMode `json:"mode"`
	Size  int64       `json:"size"`
	MTime int64       `json:"mtime"` // nanoseconds
	CTime int64       `json:"ctime,omitempty"`
	Inode uint64      `json:"inode"`
}

// markOf is the mark of a file. The time of the last change of an inode that
// has several names is no part of it: each new name of a shared input sets it. Nor are the
// bits of its mode, which another job can need to be others.
func markOf(path string, info fs.FileInfo) mark {
	m := mark{Path: path, Mode: info.Mode()}
	if m.Mode.IsDir() {
		return m
	}
	m.Size, m.MTime = info.Size(), info.ModTime().UnixNano()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		m.Inode = st.Ino
		if st.Nlink == 1 {
			m.CTime = st.Ctim.Nano()
		} else {
			m.Mode = m.Mode.Type()
		}
	}
	return m
}

// Record writes down what is in the attempt's directory before it starts; of an
// empty one nothing.
func (a *Attempt) Record() error { return recordTree(a.Dir, a.WorkDir()) }

// Record writes down what is in the build's directory before it starts; of an
// empty one nothing.
func (b *Build) Record() error { return recordTree(b.Dir, b.Tree()) }

// recordTree writes into dir what is in the directory work.
func recordTree(dir, work string) error {
	if d, err := os.Open(work + "/."); err == nil {
		_, err = d.Readdirnames(1)
		d.Close()
		if err == io.EOF {
			return nil
		}
	}
	f, err := durable.Open(filepath.Join(dir, beforeFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	err = eachBelow(work, func(e durable.Entry) error {
		return enc.Encode(markOf(e.Path, e.Info))
	})
	return errors.Join(err, w.Flush(), f.Close())
}

// eachBelow calls do with everything below top, a directory before what is in it.
func eachBelow(top string, do func(durable.Entry) error) error {
	root, err := durable.OpenRoot(top)
	if err != nil {
		return err
	}
	defer root.Close()
	return durable.Walk(root, func(e durable.Entry, err error) error {
		if err != nil || e.Path == "." {
			return err
		}
		return do(e)
	}, nil)
}

// Before is what Record wrote down; what is without it began empty.
type Before map[string]mark

// Before reads what Record wrote down.
func (a *Attempt) Before() (Before, error) { return readBefore(a.Dir) }

func readBefore(dir string) (Before, error) {
	f, err := durable.Open(filepath.Join(dir, beforeFile), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Before{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := Before{}
	for dec := json.NewDecoder(bufio.NewReader(f)); ; {
		var m mark
		if err := dec.Decode(&m); err == io.EOF {
			return b, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if m.CTime == 0 && !m.Mode.IsDir() { // dnoded of an earlier release noted all of the mode
			m.Mode = m.Mode.Type()
		}
		b[m.Path] = m
	}
}

// WasDir reports whether a directory was at path.
func (b Before) WasDir(path string) bool { return b[path].Mode.IsDir() }

// Changed says whether what is at path now is new or differs from what was
// there.
func (b Before) Changed(path string, info fs.FileInfo) bool {
	m, ok := b[path]
	return !ok || m != markOf(path, info)
}
