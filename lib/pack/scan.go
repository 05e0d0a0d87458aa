package pack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"distribute/lib/durable"
)

// Skipped is something in a tree that its manifest leaves out. Path is fit to
// be shown: where a name is not valid in a manifest it is quoted, as in Go.
type Skipped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// InWords tells of what was left out in one line, as far as one goes; "" of nothing. What
// is left out of the whole tree has the path ".".
func InWords(skipped []Skipped) string {
	switch {
	case len(skipped) == 0:
		return ""
	case skipped[0].Path == ".":
		return skipped[0].Why
	case len(skipped) > 1:
		return fmt.Sprintf("%d things that it left were not kept, as %s: %s", len(skipped), skipped[0].Path, skipped[0].Why)
	}
	return fmt.Sprintf("%s was not kept: %s", skipped[0].Path, skipped[0].Why)
}

// Gone is why nothing is left of the directory that a job, or a build, has had, by what
// os.Lstat says of it; "" if it is there.
func Gone(info fs.FileInfo, err error) (why string) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it has removed its own directory"
	case err == nil && !info.IsDir():
		return "it has put something else in the place of its own directory"
	}
	return ""
}

// SkippedOf is what of a tree was skipped of which those outputs come home, and of these
// what was not met there.
func SkippedOf(outputs interface {
	Have(path string) bool
	Missing() []string
}, skipped []Skipped) []Skipped {
	skipped = slices.DeleteFunc(skipped, func(s Skipped) bool { return !outputs.Have(strings.TrimSuffix(s.Path, "/")) })
	for _, o := range outputs.Missing() {
		skipped = append(skipped, Skipped{o, "it names nothing that is new or changed"})
	}
	return skipped
}

// NothingOf is what is skipped where a directory is [Gone].
func NothingOf(why string) []Skipped {
	return []Skipped{{Path: ".", Why: why + ", so nothing of that was kept"}}
}

// isMounted is why what is mounted in a tree is left out: it is not of the tree.
const isMounted = "it is mounted there from elsewhere"

// maxSkipped is how many Skipped are named; one more says how many others.
const maxSkipped = 1000

// Scan reads the tree below root into a manifest. It follows no link and opens
// regular files only, and hashes them with two goroutines, so it costs reading
// the tree once; memory depends on the number of entries, not on sizes.
//
// Left out and named in the second result are: what is mounted in the tree, if Linux tells
// (5.8); sockets, FIFOs and devices; links
// that are absolute or lead out of the tree; what may not be or cannot be read;
// names that are not UTF-8 or have control characters; what is too deep, too
// long or too large for the limits, one by one; and files that change while
// they are read, twice. Set-id and sticky bits are dropped, and times outside of
// the years 1970 to 2241 moved there. A file with several links is several files.
//
// If keep is not nil, it is asked about each file, directory and link, and what
// it refuses is left out without being named, a directory with all that is in
// it. More entries than the limit are an error, ErrLimit; so is a want of
// descriptors or memory, which says nothing of the tree.
func Scan(ctx context.Context, root *os.Root, keep func(path string, info fs.FileInfo) bool, lim Limits) (Manifest, []Skipped, error) {
	lim = lim.filled()
	if keep == nil {
		keep = func(string, fs.FileInfo) bool { return true }
	}
	s := &scanner{keep: keep, lim: lim, digests: newDigester(ctx), left: lim.Bytes, names: lim.Names}
	err := s.dir(ctx, root, "", 0)
	s.digests.wait()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, err
	}
	m := s.manifest()
	if s.passing != nil {
		return nil, nil, s.passing
	}
	return m, s.skips.named(), nil
}

// scanner is one Scan under way. Its own goroutine walks; those of the digester
// only fill in what finding points to.
type scanner struct {
	keep    func(string, fs.FileInfo) bool
	lim     Limits
	digests *digester
	found   []*finding
	left    int64 // bytes that files may still have
	names   int64 // bytes that paths may still have
	passing error // that says nothing of the file it came with
	skips
}

// fail skips what cannot be read, unless the reason is not its own.
func (s *scanner) fail(path string, err error) {
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EINTR} {
		if errors.Is(err, errno) {
			s.passing = fmt.Errorf("scan %q: %w", path, err)
			return
		}
	}
	s.skip(path, reason(err))
}

// finding is an entry, or what was one until it was hashed.
type finding struct {
	Entry
	err error
}

// skips gathers what is skipped.
type skips struct {
	list []Skipped
	more int
}

func (s *skips) skip(path, why string) {
	if len(s.list) >= maxSkipped {
		s.more++
		return
	}
	s.list = append(s.list, LeftOut(path, why))
}

// LeftOut returns a Skipped for a path, which is quoted if it is not fit to print.
func LeftOut(path, why string) Skipped {
	if badText(path) != "" {
		path = strconv.QuoteToASCII(path)
	}
	return Skipped{path, why}
}

func (s *skips) named() []Skipped {
	if s.more == 0 {
		return s.list
	}
	return append(s.list, Skipped{"", fmt.Sprintf("and %d more", s.more)})
}

// dir goes through the directory path, open as root.
func (s *scanner) dir(ctx context.Context, root *os.Root, path string, depth int) error {
	names, err := s.readNames(root)
	if errors.Is(err, ErrLimit) || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if err != nil {
		if path == "" {
			return err
		}
		s.fail(path+"/", err)
	}
	if depth >= s.lim.Depth && len(names) > 0 {
		s.skip(path+"/", fmt.Sprintf("what is in it is more than %d names deep", s.lim.Depth))
		return nil
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		full := name
		if path != "" {
			full = path + "/" + name
		}
		if why := s.unfit(full, name); why != "" {
			s.skip(full, why)
			continue
		}
		if err := s.one(ctx, root, name, full, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// readNames returns the names in a directory, sorted.
func (s *scanner) readNames(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var names []string
	for {
		some, err := d.Readdirnames(1024)
		names = append(names, some...)
		if len(names)+len(s.found) > s.lim.Entries {
			return nil, fmt.Errorf("%w: more than %d entries", ErrLimit, s.lim.Entries)
		}
		if err == io.EOF {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (s *scanner) unfit(path, name string) string {
	if !utf8.ValidString(name) {
		return "its name is not UTF-8"
	}
	if badText(name) != "" {
		return "its name has a control character"
	}
	if len(path) > s.lim.PathBytes {
		return fmt.Sprintf("its path is longer than %d bytes", s.lim.PathBytes)
	}
	if s.names < int64(len(path)) {
		return "the names in this tree are too long together"
	}
	return ""
}

// one takes up one thing in a directory.
func (s *scanner) one(ctx context.Context, parent *os.Root, name, path string, depth int) error {
	info, err := parent.Lstat(name)
	if err != nil {
		s.fail(path, err)
		return nil
	}
	switch info.Mode().Type() {
	case 0, fs.ModeDir, fs.ModeSymlink:
	default:
		s.skip(path, "a "+kind(info.Mode()))
		return nil
	}
	if !s.keep(path, info) {
		return nil
	}
	if len(s.found) >= s.lim.Entries {
		return fmt.Errorf("%w: more than %d entries", ErrLimit, s.lim.Entries)
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return s.sub(ctx, parent, name, path, info, depth)
	case fs.ModeSymlink:
		s.link(parent, name, path)
	default:
		s.file(parent, name, path, info)
	}
	return nil
}

func (s *scanner) add(e Entry) *finding {
	f := &finding{Entry: e}
	s.found = append(s.found, f)
	s.names -= int64(len(e.Path) + len(e.Link))
	return f
}

func (s *scanner) sub(ctx context.Context, parent *os.Root, name, path string, info fs.FileInfo, depth int) error {
	dir, err := openDir(parent, name)
	if err != nil {
		s.fail(path, err)
		return nil
	}
	defer dir.Close()
	if d, err := dir.Open("."); err == nil {
		mounted := durable.Mounted(d)
		if d.Close(); mounted {
			s.skip(path+"/", isMounted)
			return nil
		}
	}
	s.add(Entry{Path: path, Type: Dir, Mode: info.Mode().Perm(), Time: bounded(info.ModTime())})
	return s.dir(ctx, dir, path, depth)
}

func (s *scanner) link(parent *os.Root, name, path string) {
	target, err := parent.Readlink(name)
	if err != nil {
		s.fail(path, err)
		return
	}
	if err := checkTarget(path, target, s.lim); err != nil {
		s.skip(path, told(err))
		return
	}
	if s.names < int64(len(path)+len(target)) {
		s.skip(path, "the names in this tree are too long together")
		return
	}
	s.add(Entry{Path: path, Type: Link, Link: target})
}

func (s *scanner) file(parent *os.Root, name, path string, info fs.FileInfo) {
	if info.Size() > s.left {
		s.skip(path, fmt.Sprintf("with it the tree has more than %d bytes", s.lim.Bytes))
		return
	}
	f, err := openFile(parent, name, info, os.O_RDONLY)
	if err != nil {
		s.fail(path, err)
		return
	}
	if durable.Mounted(f) {
		f.Close()
		s.skip(path, isMounted)
		return
	}
	s.left -= info.Size()
	e := s.add(Entry{Path: path, Type: File})
	s.digests.todo <- digestion{f, func(sum string, info os.FileInfo, err error) {
		if e.err = err; err == nil {
			e.Sum, e.Size, e.Mode, e.Time = sum, info.Size(), info.Mode().Perm(), bounded(info.ModTime())
		}
	}}
}

// manifest is what was found, less what could not be hashed and the links that
// lead out of the tree by way of others.
func (s *scanner) manifest() Manifest {
	m := make(Manifest, 0, len(s.found))
	left := s.lim.Bytes
	for _, f := range s.found {
		if f.err == nil && f.Size > left { // it has grown since
			f.err = fmt.Errorf("with it the tree has more than %d bytes", s.lim.Bytes)
		}
		if f.err != nil {
			s.fail(f.Path, f.err)
			continue
		}
		left -= f.Size
		m = append(m, f.Entry)
	}
	out := escapes(m)
	if len(out) == 0 {
		return m
	}
	kept := m[:0]
	for i, e := range m {
		if out[i] {
			s.skip(e.Path, fmt.Sprintf("a link out of the tree, to %q", e.Link))
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// bounded is a time as an entry can have it.
func bounded(t time.Time) time.Time {
	t = t.UTC()
	switch {
	case t.Before(minTime):
		return minTime
	case t.After(maxTime):
		return maxTime
	}
	return t
}

// reason is an error without the names of system calls and roots.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return told(err)
}

// told is an error of this package without the words of its sentinel.
func told(err error) string {
	text := err.Error()
	for _, sentinel := range []error{ErrFormat, ErrLimit} {
		text = strings.TrimPrefix(text, sentinel.Error()+": ")
	}
	return text
}

// kind names a special file.
func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeNamedPipe != 0:
		return "FIFO"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
