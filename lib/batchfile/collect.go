package batchfile

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// A collector finds and hashes the inputs of a File.
type collector struct {
	f    *File
	errs conf.Mistakes

	sources []source
	index   map[string]int32  // sources by path
	found   map[string]*found // wants by what they say
	kernel  map[uint64]string // file systems of the kernel by their devices; "": another one
	dirs    int               // directories that were read
	words   map[string]int32  // words of commands: a source, or -1

	batch  *claims
	lists  [][]placed       // different lists of inputs of jobs
	listOf map[string]int32 // lists by what is in them
	bases  map[string]*base // by what is wanted
	jobs   []int32          // the list of each job

	now int64 // the time of the files that are made of templates, in nanoseconds since 1970
}

// placed is a source at its place in the job's directory.
type placed struct {
	place string
	src   int32
}

// base is what the required files of a job came to.
type base struct {
	number int
	list   []placed
	claims *claims
}

// found is what a want came to.
type found struct {
	list []placed
	errs []error
}

// Collect finds the files that the batch names, below the directory of the
// batch file, and hashes each different one once, two at a time. A file, a
// directory or a glob that cannot be had is a mistake at its place in the batch
// file, and so are two files at one place in a job's directory, a file that
// changes while it is read, and a batch without jobs; the error holds all of
// them, as that of [ReadFile] does. If ctx ends its cause is returned.
// progress, if not nil, is told of each n bytes that have been hashed, of how
// many in all, one call at a time. The cost is that of reading the files, and about a second for each
// 100,000 jobs.
func (f *File) Collect(ctx context.Context, progress func(n, total int64)) (*job.Batch, error) {
	if len(f.Jobs) == 0 {
		return nil, &conf.Mistake{Place: f.jobsAt, Text: "there are no jobs: nothing to run"}
	}
	c := &collector{f: f, index: map[string]int32{}, found: map[string]*found{}, kernel: map[uint64]string{}, words: map[string]int32{},
		listOf: map[string]int32{}, bases: map[string]*base{}, batch: newClaims(nil), now: time.Now().UnixNano()}
	image := c.image()
	shared := c.shared()
	for i := range f.Jobs {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.job(i)
	}
	c.programs()
	if err := c.tooMuch(); err != nil {
		return nil, err
	}
	if err := c.hash(ctx, progress); err != nil {
		return nil, err
	}
	if err := c.errs.Err(); err != nil {
		return nil, err
	}
	return c.result(image, shared), nil
}

// tooMuch is the mistake of a batch with so much to read that nobody need begin.
func (c *collector) tooMuch() error {
	var bytes int64
	for i := range c.sources {
		s := &c.sources[i]
		if s.Size > job.MaxBytes-bytes {
			c.errs.Errorf(s.at, "with %s the batch has more than %d bytes of inputs, which is the limit", msg.Quote(s.Path), int64(job.MaxBytes))
			return c.errs.Err()
		}
		bytes += s.Size
	}
	return nil
}

// image finds the image of an apptainer batch, nil for other kinds.
func (c *collector) image() []placed {
	if c.f.Spec.Kind != job.Apptainer {
		return nil
	}
	return c.find(&c.f.image)
}

// shared finds the inputs of the batch, and claims their places.
func (c *collector) shared() []placed {
	var all []placed
	for i := range c.f.wants {
		all = append(all, c.claim(c.batch, c.f.wants[i].at, c.find(&c.f.wants[i]))...)
	}
	for _, w := range c.f.words {
		if p, ok := c.word(c.batch, w, c.f.buildAt); ok {
			all = append(all, p)
		}
	}
	return all
}

// job finds the inputs of one job. Jobs that want the same files share what is
// found of them.
func (c *collector) job(i int) {
	base := c.base(c.f.jobWants[i])
	own := newClaims(base.claims)
	var more []placed
	if c.f.Spec.Kind == job.Command {
		for _, w := range c.f.Jobs[i].Run {
			if c.f.fills(i, path.Clean(w)) {
				continue // that, and not what lies beside the batch file
			}
			if p, ok := c.word(own, w, c.f.jobAt[i]); ok {
				more = append(more, p)
			}
		}
	}
	c.jobs = append(c.jobs, c.list(base, append(more, c.made(i, own)...)))
}

// base is what the files that a job requires come to.
func (c *collector) base(wants []want) *base {
	var key strings.Builder
	for i := range wants {
		key.WriteString(wants[i].key())
	}
	b, ok := c.bases[key.String()]
	if ok {
		for i := range wants {
			c.find(&wants[i]) // to be told of what is wrong
		}
		return b
	}
	b = &base{number: len(c.bases), claims: newClaims(c.batch)}
	for i := range wants {
		b.list = append(b.list, c.claim(b.claims, wants[i].at, c.find(&wants[i]))...)
	}
	c.bases[key.String()] = b
	return b
}

// list keeps one of lists that are the same.
func (c *collector) list(b *base, more []placed) int32 {
	if len(b.list)+len(more) == 0 {
		return -1
	}
	key := binary.AppendUvarint(nil, uint64(b.number))
	for _, p := range more {
		key = append(append(binary.AppendUvarint(key, uint64(p.src)), p.place...), 0)
	}
	n, ok := c.listOf[string(key)]
	if !ok {
		n = int32(len(c.lists))
		c.lists, c.listOf[string(key)] = append(c.lists, slices.Concat(b.list, more)), n
	}
	return n
}

// claim takes places, leaves out files that lie there already, and notes where
// different files would lie at one place.
func (c *collector) claim(to *claims, at conf.Place, list []placed) []placed {
	out := list[:0:0]
	for _, p := range list {
		src, taken := to.find(p.place)
		switch {
		case taken && src == p.src:
		case taken && src >= 0:
			c.errs.Errorf(at, "%s and %s would both lie at %s: give one of them another alias",
				msg.Quote(c.sources[src].Path), msg.Quote(c.sources[p.src].Path), msg.Quote(p.place))
		case taken || !to.free(p.place):
			c.errs.Errorf(at, "%s would lie at %s, where another file needs a directory, or is one: give one of them another alias",
				msg.Quote(c.sources[p.src].Path), msg.Quote(p.place))
		default:
			to.take(p)
			out = append(out, p)
		}
	}
	return out
}

// word takes the place of a file that goes along, since a word of a command is its relative
// path. One that cannot be is just a word. Where the place is not free the file is not looked
// at: it would be a source that no job has.
func (c *collector) word(to *claims, w string, at conf.Place) (placed, bool) {
	place := path.Clean(w)
	src, known := c.words[w]
	if known && src < 0 || !to.free(place) {
		return placed{}, false
	}
	if !known {
		src = -1
		if w != "" && w[0] != '-' && job.CheckPath(place) == nil && !c.f.makes(place) {
			name := locate(c.f.dir, w)
			if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
				src = c.source(name, at, st)
			}
		}
		c.words[w] = src
	}
	p := placed{place, src}
	if src >= 0 {
		to.take(p)
	}
	return p, src >= 0
}

// source is the number of the file of that path, which has been seen.
func (c *collector) source(name string, at conf.Place, st fs.FileInfo) int32 {
	n, ok := c.index[name]
	if !ok {
		n = int32(len(c.sources))
		mode := uint32(0o644)
		if st.Mode()&0o111 != 0 {
			mode = 0o755
		}
		c.sources = append(c.sources, source{Source: job.Source{Path: name, Size: st.Size()}, at: at, mode: mode})
		c.index[name] = n
		if n == job.MaxFiles {
			c.errs.Errorf(at, "the batch names more than %d files, which is the limit: put them into archives", job.MaxFiles)
		}
	}
	return n
}

// find is what a want comes to. Equal wants are looked at once, and each is
// told of what is wrong.
func (c *collector) find(w *want) []placed {
	key := w.key()
	r := c.found[key]
	if r == nil {
		r = new(found)
		c.found[key] = r
		c.look(r, w)
	}
	for _, err := range r.errs {
		c.errs.Errorf(w.at, "%w", err)
	}
	return r.list
}

// look finds the file, or the files of a directory or a glob.
func (c *collector) look(r *found, w *want) {
	name := locate(c.f.dir, w.path)
	st, err := os.Stat(name)
	switch {
	case err == nil:
		c.path(r, w, name, w.place(), st)
	case w.glob() && errors.Is(err, fs.ErrNotExist):
		c.glob(r, w)
	default:
		r.errs = append(r.errs, cannot(w.path, name, err))
	}
}

// locate returns the path of the file that a batch file in dir names so. Where the name goes up
// from a link to a directory, it goes up from the directory itself, as in other programs.
func locate(dir, name string) string {
	if !filepath.IsAbs(name) {
		name = cmp.Or(dir, ".") + "/" + name
	}
	short := filepath.Clean(name)
	i := strings.LastIndex(name+"/", "/../")
	if i < 0 {
		return short
	}
	above, err := filepath.EvalSymlinks(name[:i+len("/..")])
	if err != nil && strings.ContainsAny(name[:i], "*?[") {
		return short
	} else if err != nil {
		return name
	}
	here, err1 := os.Stat(filepath.Clean(name[:i+len("/..")]))
	there, err2 := os.Stat(above)
	if err1 == nil && err2 == nil && os.SameFile(here, there) {
		return short
	}
	return filepath.Join(above, name[i+len("/.."):])
}

// cannot says why a file cannot be had, and where it was sought if that is not
// what is written.
func cannot(written, name string, err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist) && filepath.Clean(written) != name:
		return says(err, "%s does not exist (sought at %s)", msg.Quote(written), msg.Quote(name))
	case errors.Is(err, fs.ErrNotExist):
		return says(err, "%s does not exist", msg.Quote(written))
	case errors.As(err, &errno):
		return says(err, "%s cannot be read: %s", msg.Quote(written), errno.Error())
	}
	return says(err, "%s cannot be read: %v", msg.Quote(written), err)
}

// A cause is an error of the system in our words.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.err }

func says(err error, format string, a ...any) error { return &cause{fmt.Sprintf(format, a...), err} }

// path takes a file, or with many the tree below a directory.
func (c *collector) path(r *found, w *want, name, place string, st fs.FileInfo) {
	if err := c.ofKernel(name, st); err != nil {
		r.errs = append(r.errs, err)
		return
	}
	switch {
	case st.Mode().IsRegular():
		if err := job.CheckPath(place); err != nil {
			r.errs = append(r.errs, fmt.Errorf("%s cannot lie at %s, which %w", msg.Quote(name), msg.Quote(place), err))
			return
		}
		r.list = append(r.list, placed{place, c.source(name, w.at, st)})
	case st.IsDir() && w.many:
		before := len(r.list) + len(r.errs)
		c.tree(r, w, name, place)
		if len(r.list)+len(r.errs) == before {
			r.errs = append(r.errs, fmt.Errorf("directory %s has no files", msg.Quote(name)))
		}
	default:
		r.errs = append(r.errs, fmt.Errorf("%s is %s, and a file is wanted", msg.Quote(name), msg.FileKind(st.Mode())))
	}
}

// isPassing reports whether a file is a batch file that the Python package makes for the
// time of a submission.
func isPassing(name string) bool {
	ok, _ := path.Match(".distribute-*.yaml", name)
	return ok
}

// tree takes every file below a directory, except those that are passing. Links to files are taken as what
// they name; links to directories are refused, because they may lead back.
func (c *collector) tree(r *found, w *want, dir, place string) {
	if c.dirs++; c.dirs > job.MaxFiles {
		if c.dirs == job.MaxFiles+1 {
			r.errs = append(r.errs, fmt.Errorf("%s: the batch names more than %d directories, which is the limit: put them into archives", msg.Quote(dir), job.MaxFiles))
		}
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.errs = append(r.errs, cannot(dir, dir, err))
		return
	}
	for _, e := range entries {
		if isPassing(e.Name()) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		st, err := os.Stat(name)
		switch {
		case len(r.errs) > conf.MaxMistakes || len(c.sources) > job.MaxFiles:
			return
		case err != nil && e.Type()&fs.ModeSymlink != 0:
			r.errs = append(r.errs, says(err, "%s is a symbolic link to nothing that can be read", msg.Quote(name)))
		case err != nil:
			r.errs = append(r.errs, cannot(name, name, err))
		case st.IsDir() && e.Type()&fs.ModeSymlink != 0:
			r.errs = append(r.errs, fmt.Errorf("%s is a symbolic link to a directory, which is not followed: name that directory", msg.Quote(name)))
		case st.IsDir():
			if err := job.CheckPath(path.Join(place, e.Name())); err != nil {
				r.errs = append(r.errs, fmt.Errorf("%s %w", msg.Quote(name), err))
				continue
			}
			if err := c.ofKernel(name, st); err != nil {
				r.errs = append(r.errs, err)
				continue
			}
			c.tree(r, w, name, path.Join(place, e.Name()))
		default:
			c.path(r, w, name, path.Join(place, e.Name()), st)
		}
	}
}

// glob takes what a pattern fits, sorted, each below input under its own name,
// or below the alias. The directory of the batch file is no pattern, whatever its name.
func (c *collector) glob(r *found, w *want) {
	before := c.f.globDir(w.path)
	dir, pattern := locate(c.f.dir, before), path.Clean(w.path[len(before):])
	if _, err := os.Stat(dir); err != nil {
		r.errs = append(r.errs, cannot(w.path, dir, err))
		return
	}
	if err := job.CheckNegation(pattern); err != nil {
		r.errs = append(r.errs, err)
		return
	}
	names, err := fs.Glob(below(dir), pattern)
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s is no pattern: check its brackets", msg.Quote(w.path)))
		return
	}
	names = slices.DeleteFunc(names, func(n string) bool { return hidden(pattern, n) || isPassing(filepath.Base(n)) })
	slices.Sort(names)
	if len(names) == 0 {
		r.errs = append(r.errs, fmt.Errorf("%s fits no file", msg.Quote(w.path)))
	}
	for _, name := range names {
		name = filepath.Join(dir, name)
		st, err := os.Stat(name)
		if err != nil {
			r.errs = append(r.errs, cannot(name, name, err))
			continue
		}
		place := path.Join(w.into, w.alias, filepath.Base(name))
		if w.keep {
			place = keepPlace(name)
			if rel, err := filepath.Rel(c.f.dir, name); err == nil && !filepath.IsAbs(w.path) {
				place = keepPlace(rel)
			}
		}
		c.path(r, w, name, place, st)
	}
}

// below is the tree below a directory. Unlike that of [os.DirFS] it has files whose names are not UTF-8.
type below string

func (b below) Open(name string) (fs.File, error) { return os.Open(filepath.Join(string(b), name)) }

func (b below) ReadDir(name string) ([]fs.DirEntry, error) {
	return os.ReadDir(filepath.Join(string(b), name))
}

// globDir is the longest directory at the beginning of a pattern that is none itself: it is there, or
// has no character of a pattern.
func (f *File) globDir(pattern string) string {
	i := strings.IndexAny(pattern, "*?[")
	end := strings.LastIndexByte(pattern[:i], '/') + 1
	for {
		next := strings.IndexByte(pattern[end:], '/') + 1
		if next == 0 {
			return pattern[:end]
		}
		if st, err := os.Stat(locate(f.dir, pattern[:end+next])); err != nil || !st.IsDir() {
			return pattern[:end]
		}
		end += next
	}
}

// hidden says that name has a part that starts with a dot, where the pattern
// does not ask for one: as in a shell.
func hidden(pattern, name string) bool {
	p, n := strings.Split(pattern, "/"), strings.Split(name, "/")
	for i := range min(len(p), len(n)) {
		if strings.HasPrefix(n[i], ".") && !strings.HasPrefix(p[i], ".") {
			return true
		}
	}
	return false
}

// programs notes commands whose program is a path at which no program can
// lie: the file cannot be run, or there is none, nor a build to make it. A
// program that many jobs run is told of once.
func (c *collector) programs() {
	if c.f.Spec.Kind != job.Command {
		return
	}
	if build := c.f.Spec.Build; len(build) > 0 {
		c.program(build[0], -1, c.f.buildAt, false)
	}
	told := map[string]bool{}
	for i := range c.f.Jobs {
		if prog := c.f.Jobs[i].Run[0]; !told[prog] {
			told[prog] = c.program(prog, c.jobs[i], c.f.jobAt[i], len(c.f.Spec.Build) > 0)
		}
	}
}

// program says whether it told of a mistake.
func (c *collector) program(prog string, list int32, at conf.Place, built bool) bool {
	place := path.Clean(prog)
	switch {
	case !strings.Contains(prog, "/"):
		return false
	case strings.HasPrefix(place, "../"):
		c.errs.Errorf(at, "program %s is not sent, as it is not below this directory: among the required files (-i) it is input/%s", msg.Quote(prog), path.Base(place))
		return true
	case job.CheckPath(place) != nil:
		return false
	}
	src, ok := c.batch.find(place)
	if list >= 0 {
		for _, p := range c.lists[list] {
			if p.place == place {
				src, ok = p.src, true
			}
		}
	}
	switch {
	case ok && src >= 0 && c.sources[src].mode&0o111 == 0 && !built:
		c.errs.Errorf(at, "program %s cannot be run: chmod +x %s", msg.Quote(prog), msg.Quote(c.sources[src].Path))
	case !ok && !built:
		c.errs.Errorf(at, "program %s is not there: there is no such file, and no build to make it", msg.Quote(prog))
	default:
		return false
	}
	return true
}

// result makes the batch, with one slice for lists of inputs that are equal.
func (c *collector) result(image, shared []placed) *job.Batch {
	b := &job.Batch{Namespace: c.f.Namespace, Name: c.f.Name, Data: c.f.Data, Spec: c.f.Spec,
		Jobs: slices.Clone(c.f.Jobs), Sources: make(map[string]job.Source, len(c.sources))}
	if len(image) == 1 {
		b.Spec.Image = &c.inputs(image)[0]
		b.Spec.Image.MTime = nil // no job sees it
	}
	b.Spec.Inputs = c.inputs(shared)
	b.Spec.StopAfter = b.Spec.StopsAfter(len(b.Jobs))
	lists := make([][]job.Input, len(c.lists))
	for i, l := range c.lists {
		lists[i] = c.inputs(l)
	}
	for i, l := range c.jobs {
		if l >= 0 {
			b.Jobs[i].Inputs = lists[l]
		}
	}
	for i := range c.sources {
		s := &c.sources[i]
		if _, ok := b.Sources[s.Sum]; !ok {
			b.Sources[s.Sum] = s.Source
		}
	}
	return b
}

func (c *collector) inputs(list []placed) []job.Input {
	if len(list) == 0 {
		return nil
	}
	out := make([]job.Input, len(list))
	for i, p := range list {
		s := &c.sources[p.src]
		mtime := s.MTime()
		if s.Data != nil {
			mtime = c.now
		}
		out[i] = job.Input{Path: p.place, Size: s.Size, Mode: s.mode, Sum: s.Sum, MTime: &mtime}
	}
	return out
}
