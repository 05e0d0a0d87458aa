package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
)

func open(t *testing.T, dir, boot string) *Desk {
	t.Helper()
	d, err := Open(dir, boot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// setBuild keeps the spec of a batch that has its own directory for what it builds.
func setBuild(d *Desk, batch job.BatchID, user, sum string, spec []byte) (*Build, error) {
	b, err := d.NewBuild(batch, user, sum, spec)
	if err == nil {
		err = d.SetBuild(b, spec)
	}
	return b, err
}

func note(name string) Note {
	return Note{Token: job.NewToken(), Job: job.ID("lab/b/" + name), Try: 1, CPUs: 1, Spec: sumOf(nil),
		Work: &job.Job{Name: name, Run: []string{"true"}}}
}

// cache puts a file into the cache as a peer would.
func cache(t *testing.T, d *Desk, content []byte) job.Input {
	t.Helper()
	sum := sumOf(content)
	put(t, d, input(content), content)
	return job.Input{Path: "input/" + sum[:8], Size: int64(len(content)), Mode: 0o644, Sum: sum}
}

func put(t *testing.T, d *Desk, in job.Input, content []byte) {
	t.Helper()
	m := pack.Blobs(map[string]int64{in.Sum: in.Size})
	if err := d.Cacher().Put(0, m[0], 0, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

// A link in the place of a directory of the node is neither followed, which would remove what
// is there, nor removed.
func TestOpenLinked(t *testing.T) {
	for _, sub := range []string{"attempts", "builds", "cache", "trash", "spare"} {
		dir, elsewhere := t.TempDir(), t.TempDir()
		d, err := Open(dir, "b1")
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		link, file := filepath.Join(dir, sub), filepath.Join(elsewhere, "1")
		if err := errors.Join(os.RemoveAll(link), os.Symlink(elsewhere, link), os.WriteFile(file, nil, 0o600), os.Chmod(elsewhere, 0o750)); err != nil {
			t.Fatal(err)
		}
		for _, boot := range []string{"b1", "b2"} {
			d, err := Open(dir, boot)
			if !errors.Is(err, ErrNoDesk) || !strings.Contains(err.Error(), link) {
				t.Errorf("%s in boot %s: %v", sub, boot, err)
			}
			if err == nil {
				d.Close()
			}
		}
		_, err = os.Lstat(file)
		if to, lerr := os.Readlink(link); to != elsewhere || err != nil {
			t.Errorf("%s: it leads to %q, %v; %v", sub, to, lerr, err)
		}
		if _, mode := whose(t, elsewhere); mode != 0o750 {
			t.Errorf("%s: what it leads to has mode %o", sub, mode)
		}
	}
}

// Directories of the node that its user has closed, as with all of his, are opened again.
func TestOpenClosed(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, "b1")
	if err != nil {
		t.Fatal(err)
	}
	in := cache(t, d, []byte("an input"))
	d.Close()
	closed := []string{"attempts", "builds", "cache/" + in.Sum[:2], "cache", "trash"}
	if isDir(filepath.Join(dir, "spare")) { // not where inodes are not counted, as on btrfs
		closed = append(closed, "spare")
	}
	for _, sub := range closed {
		if err := os.Chmod(filepath.Join(dir, sub), 0o500); err != nil {
			t.Fatal(err)
		}
	}
	d = open(t, dir, "b2")
	for _, sub := range closed {
		if _, mode := whose(t, filepath.Join(dir, sub)); mode != 0o700 {
			t.Errorf("%s has mode %o", sub, mode)
		}
	}
	if has(d, in) {
		t.Error("an input of an earlier boot is there")
	}
}

// A spec that cannot be written, as on a full disk, leaves nothing in builds/.
func TestNoRoomForSpec(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	spec := []byte(`{"kind":"command"}`)
	for _, step := range []string{"file.write", "file.sync", "file.rename"} {
		end := durable.Observe(&durable.Observer{Step: func(name string) error {
			if name == step {
				return syscall.ENOSPC
			}
			return nil
		}})
		_, err := setBuild(d, "lab/b", "", sumOf(spec), spec)
		end()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", step, err)
		}
		if left, err := os.ReadDir(d.path("builds")); len(left) > 0 || err != nil {
			t.Errorf("%s: left are %v, %v", step, left, err)
		}
	}
	if _, err := setBuild(d, "lab/b", "", sumOf(spec), spec); err != nil {
		t.Errorf("with room: %v", err)
	}
}

// What runs as the user of the daemon may close the directory and the record of its attempt or
// build: the next daemon opens them, as it could not begin otherwise.
func TestClosedRecords(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	as, errs := d.Begin([]Note{note("a")})
	spec := []byte(`{"kind":"command"}`)
	b, err := setBuild(d, "lab/b", "", sumOf(spec), spec)
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	modes := map[string]fs.FileMode{}
	for _, dir := range []string{as[0].Dir, b.Dir} {
		modes[dir], modes[filepath.Join(dir, proc.RecordFile)] = 0o700, 0o600
	}
	for name := range modes {
		if filepath.Base(name) == proc.RecordFile {
			err = errors.Join(err, os.Chmod(name, 0))
		}
	}
	if err = errors.Join(err, os.Chmod(as[0].Dir, 0o111), os.Chmod(b.Dir, 0)); err != nil {
		t.Fatal(err)
	}
	found, err := d.Attempts()
	builds, berr := d.Builds()
	if len(found) != 1 || len(builds) != 1 || err != nil || berr != nil {
		t.Errorf("%v, %v, %v, %v", found, builds, err, berr)
	}
	for name, want := range modes {
		if info, err := os.Lstat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%v, %v", info, err)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "node")
	d := open(t, dir, "b1")
	if _, err := Open(dir, "b1"); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "pid ") {
		t.Errorf("a second holder: %v", err)
	}
	state := d.State()
	if err := errors.Join(d.Close(), os.Mkdir(filepath.Join(dir, "found"), 0o700)); err != nil { // as dfsck does
		t.Fatal(err)
	}
	if again := open(t, dir, "b1"); again.State() != state || len(state) != 32 {
		t.Errorf("state %q, then %q", state, again.State())
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, content := range map[string]string{"thesis.tex": "x", "node.json": "{", "node.json ": `{"format":2,"state":"x"}`} {
		dir := t.TempDir()
		file := filepath.Join(dir, strings.TrimSpace(name))
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, "b1"); err == nil {
			t.Errorf("%s with %q: was opened", name, content)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != content {
			t.Errorf("%s is %q now, %v", name, b, err)
		}
	}
}

// A job of the daemon's user may put a link in the place of the lock, and root come by.
func TestLockIsALink(t *testing.T) {
	dir, _, _, _, _ := fullDesk(t)
	lock, file := filepath.Join(dir, "lock"), filepath.Join(t.TempDir(), "shadow")
	if err := errors.Join(os.WriteFile(file, []byte("secrets"), 0o600), os.Remove(lock), os.Symlink(file, lock)); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, "b1")
	alive := func(string) (bool, error) { return false, nil }
	for _, err := range []error{err, Check(t.Context(), &check.Run{Dir: dir, Mend: true}, "b1", alive)} {
		if err == nil || !strings.Contains(err.Error(), lock+`" is a link: remove it`) {
			t.Errorf("it says %v", err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "secrets" {
		t.Errorf("what the link leads to is %q now, %v", b, err)
	}
}

func TestBegin(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	bad := note("x")
	bad.Token = "../../x"
	other := note("x")
	other.Work = &job.Job{Name: "y"}
	notes := []Note{note("a"), bad, note("b"), other}
	as, errs := d.Begin(notes)
	if errs[0] != nil || errs[1] == nil || errs[2] != nil || errs[3] == nil {
		t.Fatalf("errors %v", errs)
	}
	if _, errs := d.Begin(notes[:1]); !errors.Is(errs[0], fs.ErrExist) {
		t.Errorf("the same again: %v", errs)
	}
	d.Close()

	// What a kill left between two steps is removed, what is damaged stays.
	torn, half := filepath.Join(dir, "attempts", string(job.NewToken())), filepath.Join(dir, "attempts", string(job.NewToken()))
	damaged := filepath.Join(dir, "attempts", string(job.NewToken()))
	for _, p := range []string{torn, half, damaged} {
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for p, text := range map[string]string{half: `{"given":{"at`, damaged: "{}\n"} {
		if err := os.WriteFile(filepath.Join(p, proc.RecordFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d = open(t, dir, "b2")
	found, err := d.Attempts()
	if len(found) != 2 || err == nil || !strings.Contains(err.Error(), damaged) {
		t.Fatalf("found %d, %v", len(found), err)
	}
	for _, a := range found {
		if a.Token != as[0].Token && a.Token != as[2].Token || a.Work == nil || d.ThisBoot(a) {
			t.Errorf("found %+v", a.Note)
		}
		if err := d.Discard(a); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, "attempts"))
	if err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Only what is never to be started twice must outlive a power cut before it is begun.
func TestNeverIsDurable(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	again, never := note("a"), note("b")
	never.Never = true
	var mu sync.Mutex
	var synced []string
	defer durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		mu.Lock()
		defer mu.Unlock()
		synced = append(synced, strings.TrimPrefix(f.Name(), dir))
		return nil
	}})()
	if _, errs := d.Begin([]Note{again}); errs[0] != nil || synced != nil {
		t.Errorf("synced %q, %v", synced, errs[0])
	}
	as, errs := d.Begin([]Note{never})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	own := "/attempts/" + string(never.Token)
	if slices.Sort(synced); !slices.Equal(synced, []string{"/attempts", own, own + "/attempt.jsonl"}) {
		t.Errorf("synced %q", synced)
	}
	for what, set := range map[string]func() error{"job": func() error { return as[0].SetWork(never.Work) }, "limit": func() error { return as[0].SetLimit(7) }} {
		synced = nil
		if err := set(); err != nil || !slices.Contains(synced, own+"/attempt.jsonl") {
			t.Errorf("with a %s synced %q, %v", what, synced, err)
		}
	}
}

func TestStartedAndResult(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	as, errs := d.Begin([]Note{note("a")})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	a := as[0]
	if a.Started() != nil || a.Result() != nil {
		t.Errorf("before: %+v, %+v", a.Started(), a.Result())
	}
	if err := a.SetStarted(&Started{Kind: job.Python}); err != nil {
		t.Fatal(err)
	}
	if s := a.Started(); s == nil || s.Kind != job.Python {
		t.Errorf("started %+v", s)
	}
	if err := errors.Join(a.Unstart(), a.SetStarted(&Started{Kind: job.Command}), a.SetEnding("why"), a.SetLimit(7)); err != nil {
		t.Fatal(err)
	}
	// JSON may write the letters of this name in two ways, and a manifest has one.
	m := pack.Manifest{{Path: "a&b <c>\u2028.csv", Type: pack.File, Mode: 0o644, Time: time.Unix(1, 0).UTC(), Sum: sumOf(nil)}}
	for _, worth := range []bool{false, true} {
		if err := a.SetResult(&job.Result{Manifest: m.Sum()}, m, worth); err != nil {
			t.Fatal(err)
		}
		got, err := a.Manifest()
		if r := a.Result(); err != nil || got.Sum() != r.Manifest {
			t.Errorf("result %+v, %v", r, err)
		}
	}
	// The next daemon knows the same.
	found, err := d.Attempts()
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	got, err := found[0].Manifest()
	if s := found[0].Started(); err != nil || got.Sum() != m.Sum() || s.Kind != job.Command || found[0].Ending() != "why" || found[0].Result().Manifest != m.Sum() {
		t.Errorf("found %+v, %v, %v", s, got, err)
	}
	many := make(pack.Manifest, manyEntries)
	for i := range many {
		many[i] = pack.Entry{Path: fmt.Sprintf("%03d", i), Type: pack.Link, Link: "x"}
	}
	if err := a.SetResult(&job.Result{Manifest: many.Sum()}, many, true); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Manifest(); err != nil || got.Sum() != many.Sum() {
		t.Errorf("of many entries: %d, %v", len(got), err)
	}
}

func TestCache(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	small, large := cache(t, d, []byte("small")), cache(t, d, make([]byte, syncedFrom))
	if err := d.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := pack.Blobs(map[string]int64{small.Sum: 5})
	if err := d.Cacher().Put(0, m[0], 0, strings.NewReader("other")); !errors.Is(err, pack.ErrSum) {
		t.Errorf("wrong content: %v", err)
	}
	evil := m[0]
	evil.Path, evil.Sum = "../x", "../x"
	if err := d.Cacher().Put(0, evil, 0, strings.NewReader("")); err == nil {
		t.Error("a path outside was taken")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "cache", "*", ".new-*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	d.Close()
	d = open(t, dir, "b1")
	if _, ok := d.Cached(small.Sum); !ok {
		t.Error("an input is gone in the same boot")
	}
	d.Close()
	d = open(t, dir, "b2")
	if _, ok := d.Cached(small.Sum); ok {
		t.Error("what was never synced is believed after a boot")
	}
	if _, ok := d.Cached(large.Sum); !ok {
		t.Error("what was synced is gone")
	}
}

// A large input is used as soon as it is whole, and believed after a power cut
// when it was synced.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	names := syncs(dir)
	d := open(t, dir, "b1")
	kept, fresh := cache(t, d, make([]byte, syncedFrom)), input(bytes.Repeat([]byte("x"), syncedFrom))
	if err := d.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := "/cache/" + kept.Sum[:2] + "/"
	if seen := names(); !slices.Contains(seen, path+freshPrefix+kept.Sum) {
		t.Errorf("it was not synced, but %q", seen)
	}
	put(t, d, fresh, bytes.Repeat([]byte("x"), syncedFrom))
	for _, in := range []job.Input{kept, fresh} {
		if !has(d, in) {
			t.Errorf("%s is not in the cache", in.Sum)
		}
	}
	if _, err := os.Stat(dir + path + kept.Sum); err != nil {
		t.Error(err)
	}
	d.Close()

	// A daemon that was killed before is followed by one that does it.
	if d = open(t, dir, "b1"); !has(d, fresh) {
		t.Error("it is gone in the same boot")
	}
	d.Close()
	if d = open(t, dir, "b2"); has(d, fresh) || !has(d, kept) || d.CacheSize() != Rounded(kept.Size) {
		t.Errorf("after a power cut: %v, %v, %d bytes", has(d, fresh), has(d, kept), d.CacheSize())
	}
	put(t, d, fresh, bytes.Repeat([]byte("x"), syncedFrom))
	d.Close()
	d = open(t, dir, "b2")
	if err := d.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if d = open(t, dir, "b3"); !has(d, fresh) {
		t.Error("what was synced is gone")
	}
}

// Cut off at any step, an input is in the cache of the next daemon only if it is
// whole, and of one after a power cut only if it was synced.
func TestD88KeepCut(t *testing.T) {
	content := bytes.Repeat([]byte("x"), syncedFrom)
	in := input(content)
	for _, c := range []struct {
		step      string
		here, cut bool // in the next daemon's cache, and in that after a power cut
	}{{"cache.part", false, false}, {"cache.rename", false, false}, {"cache.keep", true, false}, {"none", true, true}} {
		dir := t.TempDir()
		d := open(t, dir, "b1")
		end := durable.Observe(&durable.Observer{Step: func(name string) error {
			if name == c.step {
				return durable.ErrStep
			}
			return nil
		}})
		e := pack.Blobs(map[string]int64{in.Sum: in.Size})[0]
		err := d.Cacher().Put(0, e, 0, bytes.NewReader(content))
		if err == nil {
			err = d.Keep(t.Context())
		}
		end()
		if (err != nil) != (c.step != "none") {
			t.Fatalf("%s: %v", c.step, err)
		}
		d.Close()
		d = open(t, dir, "b1")
		if has(d, in) != c.here {
			t.Errorf("cut at %s: it is in the cache: %v", c.step, has(d, in))
		}
		d.Close()
		if d = open(t, dir, "b2"); has(d, in) != c.cut {
			t.Errorf("cut at %s, and the power after that: it is in the cache: %v", c.step, has(d, in))
		}
		if err := d.Cacher().Put(0, e, 0, bytes.NewReader(content)); err != nil || !has(d, in) {
			t.Errorf("cut at %s: it does not come again: %v", c.step, err)
		}
		d.Close()
	}
}

// A shared input that the disk does not take is nothing that a result can rest
// on, and comes again.
func TestKeepFails(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	in := cache(t, d, make([]byte, syncedFrom))
	info, err := d.stat(in.Sum)
	if err != nil {
		t.Fatal(err)
	}
	shared, at := []job.Input{in}, []SharedFile{{Size: info.Size(), Time: info.ModTime()}}
	end := durable.Observe(&durable.Observer{Sync: func(*os.File, bool) error { return syscall.EIO }})
	defer end()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if changed, err := d.CheckShared(ended, shared, at); !errors.Is(err, context.Canceled) || changed != "" {
		t.Errorf("it was not waited for: %q, %v", changed, err)
	}
	if changed, err := d.CheckShared(t.Context(), shared, at); err != nil || changed != in.Path {
		t.Errorf("%q, %v", changed, err)
	}
	if has(d, in) || d.CacheSize() != 0 {
		t.Errorf("it is still there, of %d bytes", d.CacheSize())
	}
}

func TestPlaceAndChanged(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	as, errs := d.Begin([]Note{note("a")})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	a := as[0]
	if err := os.Mkdir(a.WorkDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(a.WorkDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	one, two, same := cache(t, d, []byte("one")), cache(t, d, []byte("two")), cache(t, d, []byte("same"))
	one.Path, two.Path, same.Path = "run.sh", "sub/two", "same"
	one.Mode = 0o755
	if _, _, err := d.Place(t.Context(), root, []job.Input{one, two, same}, false); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"../x", "/etc/x", "a/../../x", ""} {
		in := one
		in.Path = p
		if _, _, err := d.Place(t.Context(), root, []job.Input{in}, false); err == nil {
			t.Errorf("%q was placed", p)
		}
	}
	if err := a.Record(); err != nil {
		t.Fatal(err)
	}
	if info, err := root.Stat("run.sh"); err != nil || info.Mode() != 0o755 {
		t.Errorf("run.sh: %v, %v", info.Mode(), err)
	}
	// The same length, and the time set back.
	if err := errors.Join(root.WriteFile("run.sh", []byte("eno"), 0), root.Chtimes("run.sh", one.ModTime(), one.ModTime()),
		root.WriteFile("new", nil, 0o600), root.WriteFile("sub/two", []byte("twoo"), 0)); err != nil {
		t.Fatal(err)
	}
	before, err := a.Before()
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]bool{"run.sh": true, "new": true, "sub/two": true, "same": false, "sub": false} {
		info, err := root.Lstat(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := before.Changed(p, info); got != want {
			t.Errorf("%s changed: %v", p, got)
		}
	}
}

// TestShared is an input that is a link into the cache, and somebody writes to it.
func TestShared(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	in := cache(t, d, []byte("content"))
	in.Path = "big"
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.WriteFile("big", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at, err := d.share(t.Context(), root, in)
	if err != nil {
		t.Fatal(err)
	}
	shared := []job.Input{in}
	if changed, err := d.CheckShared(t.Context(), shared, []SharedFile{*at}); changed != "" || err != nil {
		t.Errorf("changed at once: %s, %v", changed, err)
	}
	if err := errors.Join(root.Chmod("big", 0o600), root.WriteFile("big", []byte("CONTENT"), 0)); err != nil {
		t.Fatal(err)
	}
	if changed, err := d.CheckShared(t.Context(), shared, []SharedFile{*at}); changed != "big" || err != nil {
		t.Errorf("changed: %q, %v", changed, err)
	}
	if _, ok := d.Cached(in.Sum); ok {
		t.Error("it is still in the cache")
	}
}

// An input has the time of the submitter's file, and 2001 if that is not known; a link has it if
// no other link of the same content is in use.
func TestTimes(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in := cache(t, d, []byte("content"))
	timed := func(path string, ns int64) job.Input {
		in.Path, in.MTime = path, &ns
		return in
	}
	least, most := time.Unix(-1<<31, 0), time.Unix(1<<31-1, 0) // on ext4 with short inodes
	for _, ns := range []int64{math.MinInt64, -1500000001, -1, 0, 1, 1764400000123456789, math.MaxInt64} {
		if _, _, err := d.Place(t.Context(), root, []job.Input{timed("in", ns)}, false); err != nil {
			t.Fatal(err)
		}
		info, err := root.Stat("in")
		if err != nil {
			t.Fatal(err)
		}
		want := time.Unix(0, ns)
		if got := info.ModTime(); !got.Equal(want) && want.After(least) && want.Before(most) {
			t.Errorf("%v became %v", want, got)
		}
	}
	in.MTime = nil
	if _, _, err := d.Place(t.Context(), root, []job.Input{in}, false); err != nil {
		t.Fatal(err)
	}
	if info, err := root.Stat(in.Path); err != nil || info.ModTime().Year() != 2001 {
		t.Errorf("without a time: %v, %v", info.ModTime(), err)
	}

	link := func(path string, ns int64) (job.Input, SharedFile) {
		if err := root.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		in := timed(path, ns)
		at, err := d.share(t.Context(), root, in)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := root.Stat(path); err != nil || !info.ModTime().Equal(at.Time) {
			t.Errorf("%s: %v, %v, want %v", path, info.ModTime(), err, at.Time)
		}
		return in, *at
	}
	check := func(in job.Input, at SharedFile) {
		t.Helper()
		if changed, err := d.CheckShared(t.Context(), []job.Input{in}, []SharedFile{at}); changed != "" || err != nil {
			t.Errorf("%q was changed, %v", changed, err)
		}
	}
	one, atOne := link("one", 1)
	two, atTwo := link("two", 2)
	if ns := atTwo.Time.UnixNano(); atOne.Time.UnixNano() != 1 || ns != 1 {
		t.Errorf("the links have %v and %v", atOne.Time, atTwo.Time)
	}
	check(one, atOne)
	if err := errors.Join(root.Remove("one"), root.Remove("two")); err != nil {
		t.Fatal(err)
	}
	three, atThree := link("three", 3)
	if atThree.Time.UnixNano() != 3 {
		t.Errorf("the link has %v", atThree.Time)
	}
	check(two, atTwo) // whose job has removed its link
	check(three, atThree)
	if err := root.Chtimes("three", time.Time{}, time.Unix(0, 4)); err != nil {
		t.Fatal(err)
	}
	if changed, _ := d.CheckShared(t.Context(), []job.Input{two}, []SharedFile{atTwo}); changed != "two" {
		t.Errorf("%q was changed", changed)
	}
}

// The next daemon does not take a time that was set for another job for a change, and sees one.
func TestSharedTimesOfEarlierDaemon(t *testing.T) {
	for _, content := range []string{"content", "changed"} {
		dir := t.TempDir()
		d := open(t, dir, "b1")
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		in := cache(t, d, []byte("content"))
		link := func(ns int64) *SharedFile {
			in.Path, in.MTime = "in", &ns
			if err := root.WriteFile(in.Path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			at, err := d.share(t.Context(), root, in)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		one := link(1)
		if err := root.Remove(in.Path); err != nil {
			t.Fatal(err)
		}
		link(2)
		if content != "content" {
			if err := errors.Join(root.Chmod(in.Path, 0o600), root.WriteFile(in.Path, []byte(content), 0)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = open(t, dir, "b1")
		changed, err := d.CheckShared(t.Context(), []job.Input{in}, []SharedFile{*one})
		if err != nil || (changed != "") != (content == "changed") {
			t.Errorf("with %s: %q was changed, %v", content, changed, err)
		}
	}
}

// A job that has changed a shared input and removed its link to it does not hide that: nobody
// gets the changed file, and its time is not set.
func TestSharedChangedAndRemoved(t *testing.T) {
	for _, ns := range []*int64{new(int64), nil} {
		d := open(t, t.TempDir(), "b1")
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		in := cache(t, d, []byte("content"))
		in.MTime = ns
		link := func(path string) (*SharedFile, error) {
			if err := root.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			in.Path = path
			return d.share(t.Context(), root, in)
		}
		at, err := link("one")
		if err == nil {
			err = root.Chmod("one", 0o600)
		}
		if err == nil {
			err = root.WriteFile("one", []byte("changed"), 0)
		}
		if err = errors.Join(err, root.Chtimes("one", time.Time{}, time.Unix(5, 0)), root.Remove("one")); err != nil {
			t.Fatal(err)
		}
		if _, err := link("two"); err == nil {
			t.Errorf("another job has got the changed file")
		}
		if path, there := d.Cached(in.Sum); there {
			t.Errorf("%s is still there", path)
		}
		if changed, err := d.CheckShared(t.Context(), []job.Input{in}, []SharedFile{*at}); changed == "" || err != nil {
			t.Errorf("the change is not told, %v", err)
		}
		for range 20 { // in one of which the new file has the inode of the first
			cache(t, d, []byte("content"))
			if _, err := link("three"); err != nil {
				t.Fatalf("after it has come again: %v", err)
			}
			if changed, err := d.CheckShared(t.Context(), []job.Input{in}, []SharedFile{*at}); changed == "" || err != nil {
				t.Fatalf("the change is not told after it has come again: %v", err)
			}
			if err := errors.Join(root.Remove("three"), d.Uncache(in)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// While a job that has changed a shared input still runs, no other gets the changed file.
func TestSharedChangedInUse(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in := cache(t, d, []byte("content"))
	link := func(path string) (*SharedFile, error) {
		if err := root.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		in.Path = path
		return d.share(t.Context(), root, in)
	}
	at, err := link("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.Chmod("one", 0o600), root.WriteFile("one", []byte("changed"), 0), root.Chtimes("one", time.Time{}, time.Unix(5, 0))); err != nil {
		t.Fatal(err)
	}
	if _, err := link("two"); err == nil {
		t.Error("another job has got the changed file")
	}
	cache(t, d, []byte("content"))
	if _, err := link("three"); err != nil {
		t.Errorf("after it has come again: %v", err)
	}
	if got, err := root.ReadFile("three"); string(got) != "content" || err != nil {
		t.Errorf("it is %q, %v", got, err)
	}
	if changed, err := d.CheckShared(t.Context(), []job.Input{in}, []SharedFile{*at}); changed == "" || err != nil {
		t.Errorf("the change is not told, %v", err)
	}
	if _, here := d.Cached(in.Sum); !here {
		t.Error("the file that has come again is removed")
	}
}

// TestSharedChangedBeforeRestart changes a shared input or an image, with and without a removal
// of the link to it: the next dnoded gives it to no other job, and reads it at most once.
func TestSharedChangedBeforeRestart(t *testing.T) {
	images := 0
	for _, c := range []struct {
		name                        string
		content                     string
		removed, kept, image, power bool // kept: the file has the time of the input
		reads                       int32
	}{
		{name: "in use", content: "content", reads: 1},
		{name: "in use, changed", content: "changed", reads: 1},
		{name: "removed", content: "content", removed: true, reads: 1},
		{name: "removed, changed", content: "changed", removed: true, reads: 1},
		{name: "in use, with its time", content: "content", kept: true},
		{name: "removed, with its time", content: "content", removed: true, kept: true},
		{name: "image", content: "content", image: true, kept: true},
		{name: "image, changed", content: "changed", image: true, reads: 1},
		{name: "power cut", content: "content", kept: true, power: true, reads: 1},
		{name: "power cut, changed, time not on the disk", content: "changed", kept: true, power: true, reads: 1},
		{name: "power cut, removed, changed, time not on the disk", content: "changed", removed: true, kept: true, power: true, reads: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			d := open(t, dir, "b1")
			root, err := os.OpenRoot(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			content := make([]byte, syncedFrom)
			copy(content, "content")
			in := cache(t, d, content)
			in.MTime = new(int64)
			link := func(path string) error {
				if c.image {
					images++
					as, errs := d.Begin([]Note{note(strconv.Itoa(images))})
					if err := errors.Join(errs...); err != nil {
						t.Fatal(err)
					}
					_, err := d.PlaceImage(t.Context(), as[0], in)
					return errors.Join(err, os.Rename(as[0].Image(), filepath.Join(root.Name(), path)))
				}
				if err := root.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				in.Path = path
				_, err := d.share(t.Context(), root, in)
				return err
			}
			var reads atomic.Int32
			defer durable.Observe(&durable.Observer{Step: func(name string) error {
				if name == "cache.read" {
					reads.Add(1)
				}
				return nil
			}})()
			if err := link("one"); err != nil {
				t.Fatal(err)
			}
			if reads.Load() != 0 {
				t.Error("an input was read that has just come")
			}
			info, err := root.Stat("one")
			if err != nil {
				t.Fatal(err)
			}
			if !c.kept {
				info = nil
			}
			copy(content, c.content)
			if err := errors.Join(root.Chmod("one", 0o600), root.WriteFile("one", content, 0)); err != nil {
				t.Fatal(err)
			}
			if c.kept {
				if err := root.Chtimes("one", time.Time{}, info.ModTime()); err != nil {
					t.Fatal(err)
				}
			}
			if c.removed {
				if err := root.Remove("one"); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(d.Keep(t.Context()), d.Close()); err != nil {
				t.Fatal(err)
			}
			boot := "b1"
			if c.power {
				boot = "b2"
				d = open(t, dir, boot)
				d.Close() // a dnoded that needed no input
			}
			d = open(t, dir, boot)
			for _, path := range []string{"two", "three"} {
				if err := link(path); (err == nil) != (c.content == "content") {
					t.Fatalf("%s: %v", path, err)
				}
				if _, here := d.Cached(in.Sum); here != (c.content == "content") {
					t.Fatalf("it is in the cache: %v", here)
				}
				if c.content != "content" {
					break
				}
			}
			if n := reads.Load(); n != c.reads {
				t.Errorf("it was read %d times, want %d", n, c.reads)
			}
		})
	}
}

// TestSharedUnreadable has the disk refuse to read a shared input: that is told, and is no change.
// It leaves the cache before another job gets it.
func TestSharedUnreadable(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in := cache(t, d, []byte("content"))
	in.MTime = new(int64)
	link := func(path string) (*SharedFile, error) {
		in.Path = path
		if err := root.WriteFile(in.Path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return d.share(t.Context(), root, in)
	}
	at, err := link("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.Chtimes(in.Path, time.Time{}, time.Unix(5, 0)), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = open(t, dir, "b1")
	end := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "cache.read" {
			return syscall.EIO
		}
		return nil
	}})
	if changed, err := d.CheckShared(t.Context(), []job.Input{in}, []SharedFile{*at}); changed != "" || !errors.Is(err, syscall.EIO) {
		t.Errorf("at the end of its job: %q was changed, %v", changed, err)
	}
	if _, err := link("two"); !errors.Is(err, syscall.EIO) || errors.Is(err, ErrChanged) {
		t.Errorf("it is shared: %v", err)
	}
	if has(d, in) {
		t.Error("it is still in the cache")
	}
	end()
	cache(t, d, []byte("content"))
	if _, err := link("three"); err != nil {
		t.Errorf("when it has come again: %v", err)
	}
}

// TestUnreadable has the disk refuse to read an input of which a job gets a copy: it leaves the
// cache, so that it comes again.
func TestUnreadable(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	defer d.Close()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in := cache(t, d, []byte("content"))
	in.Path = "input"
	end := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "cache.read" {
			return syscall.EIO
		}
		return nil
	}})
	defer end()
	if _, _, err := d.Place(t.Context(), root, []job.Input{in}, false); !errors.Is(err, syscall.EIO) {
		t.Errorf("it is placed: %v", err)
	}
	if has(d, in) {
		t.Error("it is still in the cache")
	}
}

// TestUnwritable has the disk of a job's directory refuse to write an input: that stays in the cache.
func TestUnwritable(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	defer d.Close()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in := cache(t, d, []byte("content"))
	in.Path = "input"
	end := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "place.write" {
			return syscall.EIO
		}
		return nil
	}})
	defer end()
	if _, _, err := d.Place(t.Context(), root, []job.Input{in}, false); !errors.Is(err, syscall.EIO) {
		t.Errorf("it is placed: %v", err)
	}
	if !has(d, in) {
		t.Error("it is no longer in the cache")
	}
}

// TestSharedUnreadWaitsForNoRead shares an input that has its time while another input is read.
func TestSharedUnreadWaitsForNoRead(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	in := cache(t, d, []byte("content"))
	in.Path, in.MTime = "one", new(int64)
	file, _ := d.Cached(in.Sum)
	if err := errors.Join(os.Chtimes(file, time.Time{}, in.ModTime()), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = open(t, dir, "b1")
	d.hoard.reading <- struct{}{}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.WriteFile(in.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that it does not wait for ever
	if _, err := d.share(ctx, root, in); err != nil {
		t.Errorf("it waits: %v", err)
	}
}

// A job that ends before the next daemon has read a shared input that is in use has removed
// nothing from the cache.
func TestSharedStoppedWhileRead(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in := cache(t, d, []byte("content"))
	link := func(ctx context.Context, path string) error {
		if err := root.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		in.Path = path
		_, err := d.share(ctx, root, in)
		return err
	}
	if err := link(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	d.Close()
	d = open(t, dir, "b1")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := link(ctx, "two"); !errors.Is(err, context.Canceled) {
		t.Errorf("it says %v", err)
	}
	if _, here := d.Cached(in.Sum); !here {
		t.Error("it is no longer in the cache")
	}
}

// A shared input is executable if it is to be for any of its jobs, and stays the same file for
// the others, which have it as it was. Nobody can write it.
func TestSharedExecutable(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	as, errs := d.Begin([]Note{note("a")})
	if err := errors.Join(append(errs, os.Mkdir(as[0].WorkDir(), 0o700))...); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(as[0].WorkDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in := cache(t, d, []byte("content"))
	link := func(path string, mode uint32) {
		in.Path, in.Mode = path, mode
		if err := root.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.share(t.Context(), root, in); err != nil {
			t.Fatal(err)
		}
	}
	link("data", 0o644)
	if info, err := root.Stat("data"); err != nil || info.Mode() != 0o444 {
		t.Errorf("data is %v, %v", info, err)
	}
	if err := as[0].Record(); err != nil {
		t.Fatal(err)
	}
	if err := root.Chmod("data", 0o644); err != nil { // by its job
		t.Fatal(err)
	}
	link("program", 0o755)
	if info, err := root.Stat("program"); err != nil || info.Mode() != 0o555 {
		t.Errorf("the program is %v, %v", info, err)
	}
	before, err := as[0].Before()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := root.Lstat("data"); err != nil || before.Changed("data", info) {
		t.Errorf("data counts as changed by its job, %v", err)
	}
}

// A result of which an earlier release has escaped letters in the list of its files is whole.
func TestResultOfEarlierRelease(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	as, errs := d.Begin([]Note{note("a")})
	m := pack.Manifest{{Path: "a&b <c>\u2028 \\u003c.csv", Type: pack.File, Mode: 0o644, Time: time.Unix(1, 0).UTC(), Sum: sumOf(nil)}}
	text, err := json.Marshal(record{Result: &job.Result{Manifest: m.Sum()}, List: m.List()}) // which escapes
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(as[0].Dir, proc.RecordFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(append(text, '\n')); err != nil || !bytes.Contains(text, []byte(`a\u0026b \u003cc\u003e\u2028 \\u003c.csv`)) {
		t.Fatalf("%v: %s", err, text)
	}
	f.Close()
	found, err := d.Attempts()
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	if got, err := found[0].Manifest(); err != nil || got.Sum() != m.Sum() {
		t.Errorf("it has %v, %v", got, err)
	}
}

// What an earlier release noted of a shared input and of a directory is still the same.
func TestBeforeOfEarlierRelease(t *testing.T) {
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	shared := filepath.Join(work, "sub", "shared")
	err := errors.Join(os.MkdirAll(filepath.Dir(shared), 0o700), os.WriteFile(shared, []byte("x"), 0o444), os.Link(shared, filepath.Join(dir, "cached")))
	if err == nil {
		err = recordTree(dir, work)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, beforeFile)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Replace(b, []byte(`"mode":0`), []byte(`"mode":292`), 1)
	if bytes.Equal(old, b) {
		t.Fatalf("the mode of a shared input is noted: %s", b)
	}
	if err := os.WriteFile(name, old, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := readBefore(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"sub", "sub/shared"} {
		info, err := os.Lstat(filepath.Join(work, path))
		if err != nil || before.Changed(path, info) {
			t.Errorf("%s counts as changed, %v", path, err)
		}
	}
}

// A file of the cache that a job has closed by its link to it is opened all the same.
func TestCachedClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	var as *proc.Identity
	if os.Geteuid() == 0 { // whom no mode stops
		as = &proc.Identity{UID: 4711, GID: 4711}
		if err := errors.Join(os.Chown(path, as.UID, as.GID), os.Chmod(filepath.Dir(path), 0o755), os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	err := as.Do(func() error {
		f, err := openCached(path)
		if err == nil {
			err = f.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// treeOf returns a build with these inputs, and its tree, which is empty.
func treeOf(t *testing.T, d *Desk, ins ...job.Input) (*Build, *os.Root) {
	t.Helper()
	spec, err := json.Marshal(job.Spec{Kind: job.Command, Build: []string{"make"}, Inputs: ins})
	if err != nil {
		t.Fatal(err)
	}
	b, err := setBuild(d, "lab/b", "", sumOf(spec), spec)
	if err == nil {
		err = os.Mkdir(b.Tree(), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(b.Tree())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return b, root
}

// What a build has done to inputs is what its jobs get, also where size and time are as they
// were; what it has left alone is theirs anew.
func TestBuildChangesInputs(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	var ins []job.Input
	for _, name := range []string{"a.cfg", "b.cfg", "c.cfg", "d.cfg", "run.sh"} {
		in := cache(t, d, []byte(name[:1]))
		in.Path, in.Mode = "input/"+name, 0o644
		ins = append(ins, in)
	}
	b, root := treeOf(t, d, ins...)
	if _, _, err := d.Place(t.Context(), root, ins, false); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Record(),
		root.Rename("input/b.cfg", "input/a.cfg"), root.Chmod("input/run.sh", 0o755),
		root.Remove("input/c.cfg"), root.WriteFile("input/c.cfg", []byte("x"), 0o644), root.Chtimes("input/c.cfg", ins[2].ModTime(), ins[2].ModTime()),
		b.Unplace(nil)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a.cfg": "b", "b.cfg": "", "c.cfg": "x", "d.cfg": "", "run.sh": "r"} {
		got, _ := root.ReadFile("input/" + name)
		if string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if info, err := root.Stat("input/run.sh"); err != nil || info.Mode() != 0o755 {
		t.Errorf("run.sh: %v, %v", info, err)
	}
}

// TestBuildMovesSharedInput renames a shared input in a build, and then changes it by another link:
// what was built stays as it was.
func TestBuildMovesSharedInput(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	in := cache(t, d, []byte("content"))
	in.Path, in.Mode, in.MTime = "big", 0o755, new(int64)
	b, root := treeOf(t, d, in)
	if err := root.WriteFile("big", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at, err := d.share(t.Context(), root, in)
	if err == nil {
		err = errors.Join(b.Record(), root.Mkdir("data", 0o755), root.Rename("big", "data/mesh"), root.Link("data/mesh", "also"),
			root.Chmod("data", 0o555), os.Mkdir(b.Tree()+".new", 0o700), b.Unplace([]SharedFile{*at}))
	}
	if err != nil {
		t.Fatal(err)
	}
	file, _ := d.Cached(in.Sum)
	if err := errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, []byte("changed"), 0)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data/mesh", "also"} {
		got, err := root.ReadFile(name)
		if string(got) != "content" || err != nil {
			t.Errorf("%s is %q, %v", name, got, err)
		}
		if info, err := root.Stat(name); err != nil || info.Mode() != 0o555 || !info.ModTime().Equal(in.ModTime()) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for dir, want := range map[string]int{".": 2, "data": 1} {
		if list, err := fs.ReadDir(root.FS(), dir); len(list) != want || err != nil {
			t.Errorf("%s has %v, %v", dir, list, err)
		}
	}
	if err := errors.Join(os.WriteFile(b.Tree()+".new", nil, 0o600), b.Unbuild()); err != nil { // as after a crash
		t.Fatal(err)
	}
	if list, err := os.ReadDir(b.Dir); len(list) != 1 || err != nil { // its record
		t.Errorf("when it is done again it has %v, %v", list, err)
	}
}

// TestBuildMovesSharedInputAside has a process of a build's user put a link to the directory above
// in the place of the directory with a shared input, while dnoded copies that: the record of the
// build stays.
func TestBuildMovesSharedInputAside(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	in := cache(t, d, []byte("content"))
	in.Path, in.MTime = proc.RecordFile, new(int64)
	b, root := treeOf(t, d, in)
	if err := errors.Join(root.Mkdir("data", 0o700), root.WriteFile(in.Path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	at, err := d.share(t.Context(), root, in)
	moved := "data/" + proc.RecordFile
	if err := errors.Join(err, b.Record(), root.Rename(in.Path, moved)); err != nil {
		t.Fatal(err)
	}
	was, err := proc.ReadRecord(b.Dir)
	swaps := 0
	defer durable.Observe(&durable.Observer{Step: func(name string) error {
		if name != "build.unshare" {
			return nil
		}
		swaps++
		return errors.Join(root.Rename("data", "aside"), root.Symlink("..", "data"))
	}})()
	if err := errors.Join(err, b.Unplace([]SharedFile{*at})); err != nil || swaps != 1 {
		t.Errorf("%v, %d swaps", err, swaps)
	}
	if is, err := proc.ReadRecord(b.Dir); string(is) != string(was) || err != nil {
		t.Errorf("the record is %q, %v", is, err)
	}
}

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	in := cache(t, d, []byte("mesh"))
	spec, err := json.Marshal(job.Spec{Kind: job.Command, Build: []string{"make"}, Inputs: []job.Input{in}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := setBuild(d, "lab/b", "", sumOf([]byte("x")), spec); err == nil {
		t.Error("another spec than the announced one was taken")
	}
	b, err := setBuild(d, "lab/b", "", sumOf(spec), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.Build("lab/b", "", sumOf(spec)); err != nil || got.Dir != b.Dir || got.Spec.Build[0] != "make" {
		t.Errorf("build %+v, %v", got, err)
	}
	if d.Ready(b) {
		t.Error("ready before it was built")
	}
	if err := os.Mkdir(b.Tree(), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(b.Tree())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, _, err := d.Place(t.Context(), root, b.Spec.Inputs, false); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Record(), root.WriteFile("solver", nil, 0o700), root.Symlink("input", "initial_files"), root.Mkdir("distribute_save", 0o700), b.Unplace(nil), d.SetReady(b)); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]bool{"solver": true, in.Path: false, "initial_files": false, "distribute_save": true} {
		if _, err := root.Lstat(p); (err == nil) != want {
			t.Errorf("%s: %v", p, err)
		}
	}
	if !d.Ready(b) {
		t.Error("not ready")
	}
	d.Close()
	if d = open(t, dir, "b2"); d.Ready(b) {
		t.Error("what was built before the machine went down is believed")
	}
	bs, err := d.Builds()
	if err != nil || len(bs) != 1 {
		t.Fatalf("builds %v, %v", bs, err)
	}
	rest, err := d.DiscardBuild(bs[0])
	if bs, berr := d.Builds(); err != nil || berr != nil || len(bs) != 0 {
		t.Errorf("builds %v, %v, %v", bs, err, berr)
	}
	if err := rest(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "trash")); err != nil || len(left) != 0 {
		t.Errorf("trash: %v, %v", left, err)
	}
}

// The ballast is given up for want of space only, and once; the next attempt
// finds it made anew.
func TestBallast(t *testing.T) {
	d, err := Open(filepath.Join(t.TempDir(), "node"), "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	name := filepath.Join(d.Dir(), "ballast")
	if fi, err := os.Stat(name); err != nil || fi.Size() != ballastSize {
		t.Fatalf("the ballast is %v, %v", fi, err)
	}
	if d.MakeRoom(syscall.EIO) || d.MakeRoom(nil) {
		t.Error("room is made for what wants none")
	}
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		full := &fs.PathError{Op: "write", Path: "x", Err: errno}
		if !d.MakeRoom(full) || d.MakeRoom(full) {
			t.Error("the ballast is to be given up once")
		}
		d.Begin(nil)
		if _, err := os.Stat(name); err != nil {
			t.Errorf("it is not made anew: %v", err)
		}
	}
}

// An attempt that was not started has nothing that a rank of an earlier try printed.
func TestSweep(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "node"), "b1")
	as, errs := d.Begin([]Note{note("a")})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for k := range 3 {
		if err := os.WriteFile(as[0].RankOutput(k), []byte("said"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.PlaceImage(t.Context(), as[0], cache(t, d, []byte("an image"))); err != nil {
		t.Fatal(err)
	}
	if err := as[0].Sweep(); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(as[0].Dir); err != nil || len(list) != 1 || list[0].Name() != proc.RecordFile {
		t.Errorf("it has %v, %v", list, err)
	}
}

// TestOpenedKeepsModes opens closed directories on the way to an input: they have their whole
// modes again afterwards.
func TestOpenedKeepsModes(t *testing.T) {
	top := t.TempDir()
	root, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	modes := map[string]fs.FileMode{"input": fs.ModeDir | fs.ModeSetgid | 0o555, "input/sub": fs.ModeDir | fs.ModeSticky | 0o500}
	if err := os.MkdirAll(filepath.Join(top, "input/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(top, "input"), 0o700)
	for _, at := range []string{"input/sub", "input"} {
		if err := os.Chmod(filepath.Join(top, at), modes[at]); err != nil {
			t.Fatal(err)
		}
	}
	tries := 0
	err = opened(root, "input/sub", func() error {
		if tries++; tries == 1 { // root is permitted
			return fs.ErrPermission
		}
		for at := range modes {
			if info, err := root.Stat(at); err != nil || info.Mode().Perm()&0o700 != 0o700 {
				t.Errorf("%s is not open: %v", at, err)
			}
		}
		return nil
	})
	if err != nil || tries != 2 {
		t.Errorf("%d tries: %v", tries, err)
	}
	for at, mode := range modes {
		if info, err := root.Stat(at); err != nil || info.Mode() != mode {
			t.Errorf("%s has mode %v, not %v: %v", at, info.Mode(), mode, err)
		}
	}
}

// A disk that takes long to take the number of a session keeps no job from what it needs.
func TestSetSessionTakesLong(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	syncs := 0
	defer durable.Observe(&durable.Observer{Sync: func(*os.File, bool) error {
		syncs++
		if !d.mu.TryLock() {
			t.Error("what is known of builds waits for the disk")
		} else {
			d.mu.Unlock()
		}
		return nil
	}})()
	if err := d.SetSession(1); err != nil || syncs == 0 || d.Session() != 1 {
		t.Errorf("after %d syncs the session is %d: %v", syncs, d.Session(), err)
	}
}
