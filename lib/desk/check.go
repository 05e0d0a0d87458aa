package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/pause"
	"distribute/lib/proc"
)

// Check compares the node's directory r.Dir with dspool(5), whether a dnoded
// has it or not, and mends it if r.Mend says so. With r.Sums it reads the cache
// and compares it with its names. Boot is the id of this boot; held says
// whether a supervisor holds the order in a directory. The errors are
// [ErrNoDesk], [ErrInUse] when it is to mend, and what the operating system
// refuses; what is wrong with the directory is no error but told.
func Check(ctx context.Context, r *check.Run, boot string, held func(dir string) (bool, error)) (err error) {
	if r.Dir, err = filepath.Abs(r.Dir); err != nil {
		return err
	}
	if err := identify(r.Dir); err != nil {
		return err
	}
	lock := filepath.Join(r.Dir, "lock")
	r.Live = func() (bool, error) { return check.Locked(lock) }
	if r.Mend {
		l, err := hold(lock)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
	}
	info, err := os.Stat(r.Dir)
	if err != nil {
		return err
	}
	c := &checker{dir: r.Dir, run: r, boot: boot, held: held}
	c.setTree(int(info.Sys().(*syscall.Stat_t).Uid), info.Mode().Perm() == passable)
	if err := r.Unit(ctx, "the directory", func(u *check.Unit) error {
		c.names, c.cached = c.names[:0], c.cached[:0]
		return c.tree.CheckDir(ctx, u, ".", ".")
	}); err != nil {
		return err
	}
	for _, name := range c.names {
		if err := r.Unit(ctx, name, func(u *check.Unit) error { return c.order(u, name) }); err != nil {
			return err
		}
	}
	for _, name := range c.cached {
		if err := r.Unit(ctx, name, func(u *check.Unit) error { return c.tree.CheckSeen(ctx, u, "cache/<xx>", name) }); err != nil {
			return err
		}
	}
	return nil
}

// identify reads node.json.
func identify(dir string) error {
	name := filepath.Join(dir, "node.json")
	f, err := check.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, check.ErrKind) {
		return fmt.Errorf("%q is %w: it has no node.json (name the directory that dnoded -D uses)", dir, ErrNoDesk)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return err
	}
	var a about
	if err := line.Unmarshal(b, &a); err != nil {
		return fmt.Errorf("%w: %q is damaged: %w", ErrNoDesk, name, err)
	}
	if a.Format != Format {
		return fmt.Errorf("%w: %q has format %d, and this version reads %d", ErrNoDesk, dir, a.Format, Format)
	}
	if err := job.Token(a.State).Check(); err != nil {
		return fmt.Errorf("%w: %q is damaged: %w", ErrNoDesk, name, err)
	}
	return nil
}

// A checker is one check of one directory.
type checker struct {
	dir  string
	run  *check.Run
	tree *check.Tree
	boot string
	held func(dir string) (bool, error)

	names  []string // of the directories of attempts and builds
	cached []string // of the directories below cache/
}

// starts is the cure of what is left to the next dnoded.
const starts = "nothing: dnoded removes it when it starts"

// setTree sets every place of a node's directory, as dspool(5) has them, but for what is
// in the directories of attempts and builds. Those may be passable.
func (c *checker) setTree(uid int, isPassable bool) {
	const dir = fs.ModeDir
	most := dir | 0o700
	if isPassable {
		most = dir | passable
	}
	t := &check.Tree{UID: uid, Starts: starts}
	c.tree = t
	t.Places = []check.Place{
		{Path: ".", Mode: dir | passable, Odd: "nothing of that name belongs into a node's directory", Temps: true},
		{Path: "node.json|lock|ballast", Mode: 0o600},
		{Path: "key", Mode: 0o600, Check: check.Key(c.run.Key, "nothing: put it back from a copy, or remove it and run dnoded -init, and let the head accept the new key")},
		{Path: "ssh_key", Mode: 0o600, Check: check.Key(check.PEM, "nothing: put it back from a copy, or remove it and run dnoded -init")},
		{Path: "pause-ended|pause-made|pause-owners|pause-seen|pause-offer", Mode: 0o644},
		{Path: "node.yaml<any>|#node.yaml#|ssh_key.pub|known_hosts<any>|lost+found|.<any>|" + check.Found, Mode: check.Anything},
		{Path: "head|ssh", Mode: fs.ModeSocket | check.Anything, Only: true},
		{Path: "pause", Mode: dir | 0o777},
		{Path: pause.Parts, Mode: dir | 0o711}, // directories of nodes, to be looked at one by one
		{Path: "attempts", Mode: most, Odd: "it is not the directory of an attempt", Check: t.Within("attempts")},
		{Path: "attempts/<token>", Mode: dir | check.Anything, Only: true, Check: check.Collect(&c.names)},
		{Path: "builds", Mode: most, Odd: "it is not the directory of a build", Check: t.Within("builds")},
		{Path: "builds/<sum>", Mode: dir | check.Anything, Only: true, Check: check.Collect(&c.names)},
		{Path: "cache", Mode: dir | 0o700, Odd: "it is not the beginning of a sum", Check: t.Within("cache")},
		{Path: "cache/boot", Mode: check.Anything, Only: true},
		{Path: "cache/<xx>", Mode: dir | check.Anything, Only: true, Odd: "it is not an input named by its sum", Check: check.Collect(&c.cached)},
		{Path: "cache/<xx>/" + partPrefix + "<blob>", Mode: check.Anything, Only: true}, // the rest will be asked for
		{Path: "cache/<xx>/<blob>|" + freshPrefix + "<blob>", Mode: check.Anything, Only: true, Check: c.checkInput},
		{Path: "cache/<xx>/.<any>", Mode: check.Anything, Check: check.LeftBehind("a file that was being written", starts)},
		{Path: "trash", Mode: dir | 0o700, Check: t.Within("trash")},
		{Path: "trash/<any>", Mode: check.Anything, Check: check.LeftBehind("a removal that was cut short", starts)},
		{Path: "spare", Mode: dir | 0o700, Odd: "it should be an empty file", Check: t.Within("spare")},
		{Path: "spare/<any>", Mode: check.Anything, Only: true},
	}
}

// inAttempt and inBuild are the names that the directories of an attempt and of
// a build have.
var (
	inAttempt = []string{proc.RecordFile, outputFile, "work", "tmp", beforeFile, manifestFile, "extra", savedDir, imageDir, imageFile}
	inBuild   = []string{proc.RecordFile, outputFile, "tree", "tmp", beforeFile, builtFile, staleFile}
)

// order looks at the directory of an attempt or of a build.
func (c *checker) order(u *check.Unit, name string) error {
	dir := filepath.Join(c.dir, name)
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is over meanwhile
	}
	if err != nil {
		return err
	}
	alive, err := c.held(dir)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	known := inAttempt
	if build := strings.HasPrefix(name, "builds/"); build {
		known = inBuild
		u.Builds++
	} else {
		u.Attempts++
	}
	for _, e := range list {
		switch {
		case slices.Contains(known, e.Name()), u.Attempts > 0 && ofRank(e.Name()):
		case durable.IsTemp(e.Name()) || strings.HasSuffix(e.Name(), ".new"):
			u.Find(check.Finding{Kind: check.Left, Path: name + "/" + e.Name(), What: "a file that was being written",
				Cure: "nothing: it goes with its directory"})
		default:
			u.Odd(name+"/"+e.Name(), "nothing of that name belongs there")
		}
	}
	o := &orderLook{checker: c, u: u, name: name, alive: alive, strangers: len(u.Found())}
	if strings.HasPrefix(name, "builds/") {
		return o.build()
	}
	return o.attempt()
}

// An orderLook is one look at the directory of one attempt or build.
type orderLook struct {
	*checker
	u         *check.Unit
	name      string
	alive     bool // its supervisor lives
	strangers int  // findings of names that do not belong there, which say nothing of its state
	old       bool // what it has but the first line may be of before a power cut, and was not all synced
}

// record reads the record, which is nil if there is none that can be read. What is wrong
// with its lines is found; missing is what a directory without a whole line is.
func (o *orderLook) record(missing, cure string) (t *told, run *proc.Run, err error) {
	f, err := check.Open(filepath.Join(o.dir, o.name, proc.RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		o.left("", missing, starts)
		return nil, nil, nil
	}
	var text []byte
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, proc.MaxRecord))
		o.u.Count(int64(len(text)))
	}
	if err != nil && check.Unreadable(err, filepath.Join(o.dir, o.name, proc.RecordFile)) {
		o.damaged(proc.RecordFile, "it cannot be read: "+err.Error(), cure)
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if bytes.IndexByte(text, '\n') < 0 {
		o.left("", missing, starts)
		return nil, nil, nil
	}
	t, run = &told{}, &proc.Run{}
	var bad []string
	foldLines(text, func(r *record) {
		if t.fold(r); t.given != nil {
			o.old = t.given.Boot != o.boot
			run.Fold(string(t.given.Token), &r.Line)
		}
	}, func(number int, err error) {
		bad = append(bad, fmt.Sprintf("line %d is not what was written: %v", number, err))
	})
	for _, what := range bad {
		o.damaged(proc.RecordFile, what, cure)
	}
	return t, run, nil
}

func (o *orderLook) damaged(file, what, cure string) {
	if o.old {
		o.left(file, what+"; it is of an earlier boot, and was not synced", "nothing: dnoded does not go by it")
		return
	}
	o.u.Find(check.Finding{Kind: check.Damaged, Path: o.name + "/" + file, What: what, Cure: cure})
}

func (o *orderLook) left(file, what, cure string) {
	o.u.Find(check.Finding{Kind: check.Left, Path: strings.TrimSuffix(o.name+"/"+file, "/"), What: what, Cure: cure})
}

// attempt looks at the directory of an attempt, which has one of the states
// that dspool(5) lists.
func (o *orderLook) attempt() error {
	const alone = "nothing: dnoded tells the head that it is lost, and then moves it to found/"
	const cure = "nothing: dnoded counts it as lost when it starts, and the head goes on with the job"
	t, run, err := o.record("a start that was not completed", cure)
	switch {
	case err != nil || t == nil:
		return err
	case t.given == nil:
		if len(o.u.Found()) == o.strangers {
			o.damaged(proc.RecordFile, "its first line does not say what was given", alone)
		}
		return nil
	}
	if err := t.given.Check(); err != nil {
		o.damaged(proc.RecordFile, err.Error(), alone)
		return nil
	}
	if "attempts/"+string(t.given.Token) != o.name {
		o.damaged(proc.RecordFile, "it is that of another attempt", alone)
		return nil
	}
	switch r := t.result; {
	case r != nil && r.Manifest != "":
		return o.manifest(t, cure)
	case r != nil || o.alive || len(o.u.Found()) > o.strangers:
	case o.old:
		o.left("", "an attempt of an earlier boot, which is lost", "nothing: dnoded tells the head")
	case run.Ended == nil && t.started != nil:
		o.left("", "an attempt whose supervisor died", "nothing: dnoded ends what is left of it, and tells the head")
	}
	return nil
}

func exists(name string) bool { _, err := os.Lstat(name); return err == nil }

// manifest compares the manifest of an attempt that is over with its result.
func (o *orderLook) manifest(t *told, cure string) error {
	var m pack.Manifest
	name := proc.RecordFile
	var err error
	if t.list != nil {
		m, err = parseList(t.list)
	} else {
		name = manifestFile
		f, fault := check.Open(filepath.Join(o.dir, o.name, manifestFile))
		switch {
		case errors.Is(fault, fs.ErrNotExist):
			if exists(filepath.Join(o.dir, o.name)) { // else it has gone home meanwhile
				o.damaged(name, "it is missing, and the result names it", cure)
			}
			return nil
		case fault != nil && check.Unreadable(fault, filepath.Join(o.dir, o.name, manifestFile)):
			o.damaged(name, "it cannot be read: "+fault.Error(), cure)
			return nil
		case fault != nil:
			return fault
		}
		defer f.Close()
		m, err = pack.DecodeManifest(f, pack.Limits{})
	}
	if err != nil {
		o.damaged(name, "it has no manifest: "+err.Error(), cure)
	} else if m.Sum() != t.result.Manifest {
		o.damaged(name, "its manifest is not the one that the result names", cure)
	}
	return nil
}

// build looks at the directory of a build. What is wrong with it costs another
// build.
func (o *orderLook) build() error {
	const cure = "nothing: dnoded fetches and builds it again"
	o.old = true // it does not say of which boot it is, and is cheap to build again
	t, _, err := o.record("a build that was not noted", cure)
	switch {
	case err != nil || t == nil:
		return err
	case t.build == nil:
		o.old = false
		o.damaged(proc.RecordFile, "its first line does not say what is built", cure)
		return nil
	}
	o.old = false
	var spec job.Spec
	if n := t.build; o.name != "builds/"+n.dir() && o.name != "builds/"+n.In {
		o.damaged(proc.RecordFile, "it is that of another build", cure)
	} else if err := json.Unmarshal(n.Spec, &spec); err != nil {
		o.damaged(proc.RecordFile, "it is not what was written: "+err.Error(), cure)
	}
	return nil
}

// checkInput compares an input in the cache with its name. What was not synced in an
// earlier boot is removed before it is used.
func (c *checker) checkInput(ctx context.Context, u *check.Unit, name string) error {
	info, err := os.Lstat(filepath.Join(c.dir, name))
	if err != nil || !c.run.Sums {
		return nil // it has gone meanwhile
	}
	sum, fresh := strings.CutPrefix(filepath.Base(name), freshPrefix)
	was, _ := durable.ReadFile(filepath.Join(c.dir, "cache", "boot"), maxBoot)
	if string(was) != c.boot && (fresh || info.Size() < syncedFrom) {
		return nil
	}
	u.Files++
	return u.Named(ctx, name, sum)
}
