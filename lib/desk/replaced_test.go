package desk

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
)

// replacements are what a job of the node's user can put in the place of a file.
var replacements = map[string]func(name string) error{
	"FIFO":            func(name string) error { return syscall.Mkfifo(name, 0o600) },
	"directory":       func(name string) error { return os.MkdirAll(filepath.Join(name, "full"), 0o700) },
	"link to zeros":   func(name string) error { return os.Symlink("/dev/zero", name) },
	"link to nothing": func(name string) error { return os.Symlink("nothing", name) },
}

// eachReplacement calls f with a way to replace a file, for each of them.
func eachReplacement(t *testing.T, f func(t *testing.T, replace func(...string))) {
	for what, put := range replacements {
		t.Run(what, func(t *testing.T) {
			f(t, func(elem ...string) {
				t.Helper()
				name := filepath.Join(elem...)
				if err := errors.Join(os.RemoveAll(name), put(name)); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestAttemptIsReplaced replaces the files of an attempt: its end is kept once they were
// restored, and a record that is no file is none.
func TestAttemptIsReplaced(t *testing.T) {
	var many pack.Manifest
	for i := range manyEntries {
		many = append(many, pack.Entry{Path: strconv.Itoa(1000 + i), Type: pack.Dir, Mode: 0o755, Time: time.Unix(1e9, 0).UTC()})
	}
	eachReplacement(t, func(t *testing.T, replace func(...string)) {
		d := open(t, t.TempDir(), "b1")
		as, errs := d.Begin([]Note{note("a"), note("b")})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		a, other := as[0], as[1]
		if err := errors.Join(os.Mkdir(a.WorkDir(), 0o700), os.WriteFile(filepath.Join(a.WorkDir(), "x"), nil, 0o600), a.Record()); err != nil {
			t.Fatal(err)
		}
		replace(a.Dir, beforeFile)
		if _, err := a.Before(); !errors.Is(err, durable.ErrKind) {
			t.Errorf("what was there before: %v", err)
		}
		replace(a.Dir, manifestFile)
		if err := a.SetResult(&job.Result{}, many, false); !errors.Is(err, durable.ErrKind) {
			t.Errorf("a manifest: %v", err)
		}
		if _, err := a.Manifest(); !errors.Is(err, durable.ErrKind) {
			t.Errorf("the manifest: %v", err)
		}
		replace(a.Dir, proc.RecordFile)
		if err := a.SetResult(&job.Result{}, nil, false); !errors.Is(err, durable.ErrKind) {
			t.Errorf("a result: %v", err)
		}
		if err := errors.Join(a.Restore(), a.SetResult(&job.Result{}, many, false)); err != nil {
			t.Error(err)
		}
		replace(other.Dir, proc.RecordFile)
		left, err := d.Attempts()
		if !slices.Equal(Unreadable(err), []job.Token{other.Token}) || len(left) != 1 || left[0].Token != a.Token || left[0].Result() == nil {
			t.Errorf("attempts %+v, %v", left, err)
		}
		if m, err := a.Manifest(); err != nil || len(m) != len(many) {
			t.Errorf("%d entries, %v", len(m), err)
		}
		_, err = d.SetUnreadableAside(other.Token)
		if left, lerr := d.Attempts(); err != nil || lerr != nil || len(left) != 1 {
			t.Errorf("without the attempt that has no record: %+v, %v, %v", left, lerr, err)
		}
	})
}

// TestAttemptIsClosed closes the files of an attempt: when they are restored, they have what
// they had.
func TestAttemptIsClosed(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	as, errs := d.Begin([]Note{note("a")})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	a := as[0]
	if err := errors.Join(os.Mkdir(a.WorkDir(), 0o700), os.WriteFile(filepath.Join(a.WorkDir(), "x"), nil, 0o600), a.Record(),
		a.SetResult(&job.Result{}, nil, false)); err != nil {
		t.Fatal(err)
	}
	names := []string{filepath.Join(a.Dir, proc.RecordFile), filepath.Join(a.Dir, beforeFile)}
	had := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err := errors.Join(err, os.Chmod(name, 0)); err != nil {
			t.Fatal(err)
		}
		had[name] = text
	}
	if err := a.Restore(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if text, err := os.ReadFile(name); err != nil || !bytes.Equal(text, had[name]) {
			t.Errorf("%s has %q, had %q, %v", name, text, had[name], err)
		}
	}
}

// TestBuildIsReplaced replaces the files of a build: it is built again.
func TestBuildIsReplaced(t *testing.T) {
	spec, err := json.Marshal(job.Spec{Kind: job.Command, Build: []string{"make"}})
	if err != nil {
		t.Fatal(err)
	}
	eachReplacement(t, func(t *testing.T, replace func(...string)) {
		d := open(t, t.TempDir(), "b1")
		b, err := setBuild(d, "lab/b", "", sumOf(spec), spec)
		if err == nil {
			err = errors.Join(os.Mkdir(b.Tree(), 0o700), d.SetReady(b))
		}
		if err != nil || !d.Ready(b) {
			t.Fatalf("not ready: %v", err)
		}
		replace(b.Dir, builtFile)
		if d.Ready(b) {
			t.Error("ready without its mark")
		}
		replace(b.Dir, builtFile+".new")
		if err := d.SetReady(b); !errors.Is(err, durable.ErrKind) {
			t.Errorf("a mark: %v", err)
		}
		if err := errors.Join(b.Restore(), d.SetReady(b)); err != nil || !d.Ready(b) {
			t.Errorf("not ready: %v", err)
		}
		if replace(b.Tree()); !isDir(b.Tree()) && d.Ready(b) {
			t.Error("ready without its tree")
		}
		replace(b.Dir, proc.RecordFile)
		if bs, err := d.Builds(); err != nil || len(bs) != 0 {
			t.Errorf("builds %+v, %v", bs, err)
		}
	})
}

// isDir reports whether a path leads to a directory.
func isDir(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}

// TestInputIsReplaced replaces an input in the cache: it is fetched again.
func TestInputIsReplaced(t *testing.T) {
	eachReplacement(t, func(t *testing.T, replace func(...string)) {
		d := open(t, t.TempDir(), "b1")
		in := cache(t, d, []byte("mesh"))
		file, _ := d.Cached(in.Sum)
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		replace(file)
		if _, _, err := d.Place(t.Context(), root, []job.Input{in}, false); !errors.Is(err, durable.ErrKind) {
			t.Errorf("place: %v", err)
		}
		if _, there := d.Cached(in.Sum); there {
			t.Error("what replaced it is still there")
		}
		cache(t, d, []byte("mesh"))
		if _, _, err := d.Place(t.Context(), root, []job.Input{in}, false); err != nil {
			t.Error(err)
		}
		d.hoard.fresh[in.Sum] = true
		replace(d.cached(in.Sum))
		if err := d.keep([]string{in.Sum}); !errors.Is(err, durable.ErrKind) || d.anyFresh([]job.Input{in}) {
			t.Errorf("keep: %v", err)
		}
	})
}

// TestDirectoryIsReplaced replaces files of the node: the next dnoded starts without them or
// says what is wrong.
func TestDirectoryIsReplaced(t *testing.T) {
	eachReplacement(t, func(t *testing.T, replace func(...string)) {
		dir := t.TempDir()
		if err := open(t, dir, "b1").Close(); err != nil {
			t.Fatal(err)
		}
		replace(dir, "cache", bootFile)
		replace(dir, "ballast")
		if isDir(filepath.Join(dir, "spare")) { // not where inodes are not counted, as on btrfs
			replace(dir, "spare", "0")
		}
		if err := os.RemoveAll(filepath.Join(dir, "spare", strconv.Itoa(spares-1))); err != nil {
			t.Fatal(err)
		}
		d, err := Open(dir, "b1")
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		for _, name := range []string{"node.json", "lock"} {
			replace(dir, name)
			if d, err := Open(dir, "b1"); err == nil {
				d.Close()
				t.Errorf("%s may be anything", name)
			}
		}
	})
}
