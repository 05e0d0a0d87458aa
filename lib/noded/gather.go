package noded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

	"distribute/lib/desk"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
)

// saveDir is where jobs put what is to come home.
const saveDir = "distribute_save"

// gather reads what an attempt left into the manifest of what comes home, and
// says in r what speaks against it.
func (n *daemon) gather(ctx context.Context, a *attempt, r *job.Result) (pack.Manifest, error) {
	s := a.Started()
	if s == nil {
		return nil, fmt.Errorf("%s does not say how it was started", a.Dir)
	}
	if err := desk.RemoveAll(a.Extra()); err != nil {
		return nil, err
	}
	a.seen = seen{}
	m, skipped, err := saved(ctx, a, s, r.Saved)
	if errors.Is(err, pack.ErrLimit) {
		r.Saved = false
		m, skipped, err = nil, []pack.Skipped{{Path: ".", Why: err.Error()}}, nil
		r.Reason = strings.TrimPrefix(r.Reason+"; what it left is too much: "+skipped[0].Why, "; ")
	}
	if err != nil {
		return nil, err
	}
	changed, err := n.desk.CheckShared(ctx, s.Shared, s.At)
	switch {
	case errors.Is(err, syscall.EIO): // it would be the same at the next try
		if r.OK() {
			r.Reason = "it is not known whether a shared input was changed: " + err.Error()
		}
	case err != nil:
		return nil, err
	}
	if changed != "" && r.OK() {
		r.Reason = fmt.Sprintf("the shared input %q was changed while it ran", changed)
	}
	outputs, err := printed(a)
	if err != nil {
		return nil, err
	}
	m, lost := merge(m, outputs)
	skipped = append(skipped, lost...)
	if len(skipped) == 0 {
		return m, nil
	}
	if err := writeSkipped(a, skipped); err != nil {
		return nil, err
	}
	r.Skipped = pack.InWords(skipped)
	extra, err := gatherExtra(a)
	if err != nil {
		return nil, err
	}
	m, _ = merge(m, extra)
	return m, nil
}

// openPlain opens a regular file for reading; anything else does not exist for
// it. A job may have put anything in its place, and to open a FIFO would wait
// for ever.
func openPlain(name string) (*os.File, error) {
	f, err := durable.Open(name, os.O_RDONLY, 0)
	if errors.Is(err, durable.ErrKind) {
		return nil, fs.ErrNotExist
	}
	return f, err
}

// printed is the entries of what the job printed. Nothing of the job writes to it
// any more, and what another process of its user adds is not waited for. What is
// no file is replaced by an empty one.
func printed(a *attempt) (m pack.Manifest, err error) {
	for path, name := range a.printedFiles() {
		name = filepath.Join(a.Dir, name)
		if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() {
			if err := errors.Join(desk.RemoveAll(name), os.WriteFile(name, nil, 0o600)); err != nil {
				return nil, err
			}
		}
		f, err := openPlain(name)
		if err != nil {
			return nil, err
		}
		e, err := printedEntry(f, path)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		m = append(m, e)
	}
	return m, nil
}

// printedEntry is the entry of a file with what a job printed, of that path at home.
func printedEntry(f *os.File, path string) (e pack.Entry, err error) {
	info, err := f.Stat()
	if err != nil {
		return e, err
	}
	sum, size, err := hashed(f, info.Size())
	if err != nil {
		return e, err
	}
	return pack.Entry{Path: path, Type: pack.File, Size: size, Mode: 0o644,
		Time: info.ModTime().UTC(), Sum: sum}, nil
}

// hashed is the SHA-256 of the first size bytes, and how many there were.
func hashed(r io.Reader, size int64) (sum string, n int64, err error) {
	h := sha256.New()
	n, err = io.Copy(h, io.LimitReader(r, size))
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// gatherExtra is the manifest of the files that come home beside the job's own.
func gatherExtra(a *attempt) (pack.Manifest, error) {
	m, _, err := scan(context.Background(), nil, a.Extra(), nil)
	return m, err
}

// saved is what the job itself left. With asIs it is all of that, and what a command job
// has put into the directory of what is saved keeps its path: another attempt goes on
// with it.
func saved(ctx context.Context, a *attempt, s *desk.Started, asIs bool) (pack.Manifest, []pack.Skipped, error) {
	as := identity(s.As)
	mounts, err := desk.Mounts(a.WorkDir())
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(mounts, ".") {
		return nil, pack.NothingOf("something is mounted over the job's directory"), nil
	}
	if why := pack.Gone(os.Lstat(a.WorkDir())); why != "" {
		return nil, pack.NothingOf(why), nil
	}
	if err := as.Do(func() error { return unlocked(a.WorkDir()) }); err != nil && !ofOwner(err) {
		return nil, nil, err
	}
	l := &left{kind: s.Kind, outputs: s.Outputs, asIs: asIs, scan: func(dir string, keep func(string, fs.FileInfo) bool) (pack.Manifest, []pack.Skipped, error) {
		if slices.Contains(mounts, dir) { // all that is there is of elsewhere
			return nil, nil, nil
		}
		return scan(ctx, as, filepath.Join(a.WorkDir(), dir), a.look(func(p string, info fs.FileInfo) bool {
			return !slices.Contains(mounts, path.Join(dir, p)) && (keep == nil || keep(p, info))
		}))
	}}
	info, err := os.Lstat(filepath.Join(a.WorkDir(), saveDir))
	l.saves = err == nil && info.IsDir()
	if l.before, err = a.Before(); err != nil {
		return nil, nil, err
	}
	m, skipped, err := l.gather()
	outputs := job.NewOutputs(s.Outputs)
	for _, p := range mounts {
		if l.kind == job.Command && outputs.Have(p) || strings.HasPrefix(p+"/", saveDir+"/") {
			skipped = append(skipped, pack.LeftOut(p, "something is mounted there"))
		}
	}
	return m, skipped, err
}

// A left is what there is in the directory of a job when it is over.
type left struct {
	kind    string
	outputs []string // what comes home; none: everything
	asIs    bool     // all of it comes home, with its paths
	before  before
	saves   bool // there is the directory of what is saved

	// scan reads a directory below it.
	scan func(dir string, keep func(string, fs.FileInfo) bool) (pack.Manifest, []pack.Skipped, error)
}

// A before says what was there before the job began.
type before interface {
	WasDir(path string) bool
	Changed(path string, info fs.FileInfo) bool // or it is new
}

// gather reads what comes home: of a command what is new or changed, of others what
// they have saved.
func (l *left) gather() (pack.Manifest, []pack.Skipped, error) {
	if l.kind != job.Command {
		if !l.saves {
			return nil, []pack.Skipped{{Path: saveDir, Why: "it is no directory any more, so nothing of it was kept"}}, nil
		}
		return l.scan(saveDir, nil)
	}
	wants := l.outputs
	if l.asIs {
		wants = nil
	}
	outputs := job.NewOutputs(wants)
	m, skipped, err := l.scan(".", func(p string, info fs.FileInfo) bool {
		if info.IsDir() {
			return outputs.Lead(p) && (l.asIs || p != saveDir)
		}
		return l.before.Changed(p, info) && outputs.Have(p)
	})
	if err != nil {
		return nil, nil, err
	}
	m = m.Pruned(func(p string) bool { return l.before.WasDir(p) || !outputs.Have(p) })
	if l.saves && !l.asIs {
		under := func(p string) string { return path.Join(saveDir, p) }
		inner, more, err := l.scan(saveDir, func(p string, info fs.FileInfo) bool {
			if info.IsDir() {
				return outputs.Lead(p) || outputs.Lead(under(p))
			}
			return l.before.Changed(under(p), info) && (outputs.Have(p) || outputs.Have(under(p)))
		})
		if err != nil {
			return nil, nil, err
		}
		inner = inner.Pruned(func(p string) bool {
			return l.before.WasDir(under(p)) || !outputs.Have(p) && !outputs.Have(under(p))
		})
		var lost []pack.Skipped
		m, lost = merge(m, inner)
		skipped = slices.Concat(skipped, more, lost)
	}
	return m, pack.SkippedOf(outputs, skipped), nil
}

// look notes how the files are that keep lets through, or all if it is nil.
func (a *attempt) look(keep func(string, fs.FileInfo) bool) func(string, fs.FileInfo) bool {
	return func(p string, info fs.FileInfo) bool {
		if keep != nil && !keep(p, info) {
			return false
		}
		a.seen.note(info)
		return true
	}
}

// unlocked opens a directory that a job has closed to its own user.
func unlocked(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && info.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
		err = os.Chmod(dir, 0o700)
	}
	return err
}

// ofOwner says that an error comes of what a tree's owner has made of it, and
// stays.
func ofOwner(err error) bool {
	for _, kind := range []error{fs.ErrPermission, fs.ErrNotExist, syscall.ENOTDIR, syscall.ELOOP} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// scan reads a tree with the rights of as: what he cannot read is named.
func scan(ctx context.Context, as *proc.Identity, dir string, keep func(string, fs.FileInfo) bool) (m pack.Manifest, skipped []pack.Skipped, err error) {
	err = as.Do(func() (err error) {
		unlocked(dir)
		root, err := durable.OpenRoot(dir)
		m, skipped, err = scanRoot(ctx, filepath.Base(dir), root, err, keep)
		return err
	})
	return m, skipped, err
}

// scanRoot reads and closes a tree of that name, which was opened with that error.
func scanRoot(ctx context.Context, name string, root *os.Root, err error, keep func(string, fs.FileInfo) bool) (pack.Manifest, []pack.Skipped, error) {
	if err != nil && ofOwner(err) {
		return nil, []pack.Skipped{{Path: name, Why: reason(err)}}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	return pack.Scan(ctx, root, keep, pack.Limits{})
}

// merge joins two manifests. Where both have something that cannot be both, or
// below a file of over, that of over stays, and the other is named.
func merge(m, over pack.Manifest) (pack.Manifest, []pack.Skipped) {
	types := make(map[string]byte, len(over))
	for _, e := range over {
		types[e.Path] = e.Type
	}
	out := slices.Clone(over)
	var lost []pack.Skipped
	for _, e := range m {
		if t, both := types[e.Path]; both {
			if t != pack.Dir || e.Type != pack.Dir {
				lost = append(lost, pack.Skipped{Path: e.Path, Why: "something else comes home under that name"})
			}
			continue
		}
		if !below(types, e.Path) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b pack.Entry) int { return pack.ComparePaths(a.Path, b.Path) })
	return out, lost
}

// below says whether something above p is no directory.
func below(types map[string]byte, p string) bool {
	for d := path.Dir(p); d != "."; d = path.Dir(d) {
		if t, ok := types[d]; ok && t != pack.Dir {
			return true
		}
	}
	return false
}

// writeSkipped writes the list of what could not be carried home.
func writeSkipped(a *attempt, skipped []pack.Skipped) error {
	if err := os.MkdirAll(a.Extra(), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.Extra(), job.SkippedName(a.Job.Name())), skippedText(skipped), 0o600)
}

// skippedText is that list.
func skippedText(skipped []pack.Skipped) []byte {
	var b bytes.Buffer
	for _, s := range skipped {
		fmt.Fprintf(&b, "%s: %s\n", s.Path, s.Why)
	}
	return b.Bytes()
}

// openHome opens a file of the manifest of a job that has printed into those files, by their
// paths in the manifest. A file of that path can lie in several places; it is the one that is
// as the manifest has it, of several with its size and time the one with its content, which is
// checked on the way too. The job's own files are opened with the rights of as.
func openHome(root *os.Root, printed map[string]string, e pack.Entry, as *proc.Identity) (*os.File, error) {
	places := []string{path.Join("extra", e.Path), path.Join("work", saveDir, e.Path), path.Join("work", e.Path)}
	if output, is := printed[e.Path]; is {
		places = append([]string{output}, places...)
	}
	infos := map[string]fs.FileInfo{}
	places = slices.DeleteFunc(places, func(p string) bool {
		info, err := root.Lstat(p)
		infos[p] = info
		return err != nil || !info.Mode().IsRegular() || info.Size() != e.Size || !sameTime(info, e)
	})
	for i, p := range places {
		of := as
		if !strings.HasPrefix(p, "work/") {
			of = nil
		}
		var f *os.File
		err := of.Do(func() (err error) {
			f, err = openSame(root, p, infos[p])
			return err
		})
		if err == nil && i < len(places)-1 && !hasContent(f, e) {
			f.Close()
			continue
		}
		return f, err
	}
	return nil, fmt.Errorf("%w: %q", pack.ErrChanged, e.Path)
}

// hasContent reports whether a file has the content of an entry, and goes back to its begin.
func hasContent(f *os.File, e pack.Entry) bool {
	sum, _, err := hashed(f, e.Size)
	_, serr := f.Seek(0, io.SeekStart)
	return err == nil && serr == nil && sum == e.Sum
}

// openSame opens the file that was looked at, and nothing that its owner has put
// in its place since: to open a FIFO would wait for ever.
func openSame(root *os.Root, path string, info fs.FileInfo) (*os.File, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(info, now) {
		return nil, errors.Join(fmt.Errorf("%w: %q was replaced", pack.ErrChanged, path), err, f.Close())
	}
	return f, nil
}

func sameTime(info fs.FileInfo, e pack.Entry) bool {
	return info.ModTime().Equal(e.Time) || e.Time.Unix() == 0 || e.Time.Year() == 2241
}
