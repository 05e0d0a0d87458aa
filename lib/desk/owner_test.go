package desk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"distribute/lib/job"
	"distribute/lib/suite"
)

// whose is who owns a file, and its mode.
func whose(t *testing.T, path string) (uid int, mode os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), info.Mode().Perm()
}

// A tree that is handed over is its owner's, but for what it shares with the
// cache, and he gets to it through directories that stay the daemon's.
func TestHandOver(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can give files away")
	}
	d, err := OpenPassable(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	as, errs := d.Begin([]Note{{Order: 1, Token: job.NewToken(), Job: "u/b/j", Try: 1, CPUs: 1, User: "maria", Spec: sumOf([]byte("x"))}})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	a := as[0]
	cached := filepath.Join(d.dir, "cache", "x")
	for _, err := range []error{os.Mkdir(a.WorkDir(), 0o700), os.Mkdir(a.Tmp(), 0o700), os.MkdirAll(filepath.Join(a.WorkDir(), "in", "closed"), 0o755),
		os.WriteFile(filepath.Join(a.WorkDir(), "in", "x"), nil, 0o644), os.WriteFile(cached, []byte("x"), 0o444),
		os.Link(cached, filepath.Join(a.WorkDir(), "shared")), os.Symlink("/etc/passwd", filepath.Join(a.WorkDir(), "link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.PlaceImage(t.Context(), a, cache(t, d, []byte("an image"))); err != nil {
		t.Fatal(err)
	}
	o := &Owner{UID: 4711, GID: 4712}
	if err := o.Give(a.WorkDir()); err != nil {
		t.Fatal(err)
	}
	if uid, mode := whose(t, a.WorkDir()); uid != 0 || mode != 0o700 {
		t.Errorf("before it is opened it is that of %d, mode %o", uid, mode)
	}
	if err := o.Open(a.Dir, "work", "tmp", "image"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		uid  int
		mode os.FileMode
	}{"work": {4711, 0o700}, "tmp": {4711, 0o700}, "work/in": {4711, 0o755}, "work/in/closed": {4711, 0o755}, "work/in/x": {4711, 0o644}, "work/link": {4711, 0o777},
		"work/shared": {0, 0o444}, "image": {4711, 0o700}, "image/image.sif": {0, 0o444}, ".": {0, 0o711}, "..": {0, 0o711}, "../../cache": {0, 0o700}, "../../trash": {0, 0o700}, "../..": {0, 0o711}, "attempt.jsonl": {0, 0o600}} {
		if uid, mode := whose(t, filepath.Join(a.Dir, path)); uid != want.uid || mode != want.mode {
			t.Errorf("%s is that of %d with mode %o, not of %d with %o", path, uid, mode, want.uid, want.mode)
		}
	}
	if uid, _ := whose(t, "/etc/passwd"); uid != 0 {
		t.Error("what a link leads to was given away")
	}
	// The next daemon knows whose it is; one that runs all as itself shuts the door.
	again, err := d.Attempts()
	if err != nil || len(again) != 1 || again[0].User != "maria" {
		t.Errorf("%+v, %v", again, err)
	}
	d.Close()
	if d, err = Open(d.dir, "boot"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"": 0o711, "attempts": 0o700, "builds": 0o700, "pause": 0o777} {
		if _, mode := whose(t, filepath.Join(d.dir, name)); mode != want {
			t.Errorf("%q: mode %o", name, mode)
		}
	}
	if err := (*Owner)(nil).Give("/nowhere"); err != nil {
		t.Error(err)
	}
	if err := (*Owner)(nil).Open("/nowhere", "work"); err != nil {
		t.Error(err)
	}
}

// Others go through the directory to the place of pauses and find nothing
// else open, whatever the modes were before.
func TestOthersGoThrough(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"node.yaml", "known_hosts", "key"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "trash"), 0o755), os.Mkdir(filepath.Join(dir, "pause"), 0o700), os.Symlink("/etc", filepath.Join(dir, ".link"))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d, err := Open(dir, "boot")
		if err != nil {
			t.Fatal(err)
		}
		d.Stock()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) < 8 {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		for _, e := range entries {
			info, err := e.Info()
			want := os.FileMode(0)
			if e.Name() == "pause" {
				want = os.ModeSticky | 0o077
			}
			if err != nil || e.Type() != os.ModeSymlink && info.Mode()&(os.ModeSticky|0o077) != want {
				t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
			}
		}
	}
	info, err := os.Stat("/etc")
	if err != nil || info.Mode().Perm()&0o055 == 0 {
		t.Errorf("what a link leads to: %v, %v", info, err)
	}
	os.Remove(filepath.Join(dir, "pause"))
	if err := os.Symlink("/tmp", filepath.Join(dir, "pause")); err != nil {
		t.Fatal(err)
	}
	if d, err := Open(dir, "boot"); err == nil {
		d.Close()
		t.Error("a place that is a link is taken")
	}
}

// What one user builds is no other's, also of a batch of the same name and text.
func TestBuildsOfUsers(t *testing.T) {
	d, err := Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	spec := []byte(`{"kind":"command","build":["make"]}`)
	ana, err := setBuild(d, "lab/b", "ana", sumOf(spec), spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"", "ben"} {
		if b, err := d.Build("lab/b", other, sumOf(spec)); err == nil {
			t.Errorf("%q finds %+v", other, b)
		}
	}
	bs, err := d.Builds()
	if err != nil || len(bs) != 1 || bs[0].User != "ana" || bs[0].Dir != ana.Dir {
		t.Errorf("%+v, %v", bs, err)
	}
}

// N66: what a user puts in the place of a directory that is being removed is not
// waited for, and leads nowhere else.
func TestN66FIFOInPlaceOfADirectory(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600), os.Mkdir(filepath.Join(dir, "real"), 0o700),
		os.WriteFile(filepath.Join(dir, "real", "x"), nil, 0o600), os.Symlink("/etc", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	moved := 0
	for _, name := range []string{"fifo", "link"} {
		if err := raiseAll(root, name, &moved); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := raiseAll(root, "real", &moved); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "real")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A job of the node's own user can put links and FIFOs into the directory of attempts. They
// are removed, and what a link leads to stays.
func TestLinkInPlaceOfAnAttempt(t *testing.T) {
	d, others := open(t, t.TempDir(), "b1"), t.TempDir()
	precious := filepath.Join(others, "precious")
	if err := errors.Join(os.WriteFile(precious, nil, 0o600), os.Symlink(others, filepath.Join(d.Dir(), "attempts", "link")),
		syscall.Mkfifo(filepath.Join(d.Dir(), "attempts", "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	d.Attempts()
	if _, err := os.Lstat(precious); err != nil {
		t.Error(err)
	}
	for _, place := range []string{"attempts", "trash"} {
		if left, err := os.ReadDir(filepath.Join(d.Dir(), place)); err != nil || len(left) != 0 {
			t.Errorf("left in %s: %v, %v", place, left, err)
		}
	}
}

// A build may leave a path that is as long as the kernel takes one, which is too long with
// that of the job's directory before it: it is recorded and given to the job's user.
func TestLongestPath(t *testing.T) {
	dir := t.TempDir()
	a := &Attempt{Dir: dir}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in := strings.TrimSuffix(strings.Repeat(strings.Repeat("l", 200)+"/", 20), "/")
	far := in + "/" + strings.Repeat("f", 4095-len(in)-1)
	for _, err := range []error{root.Mkdir("work", 0o700), root.MkdirAll("work/"+in, 0o700), root.WriteFile("work/"+far, nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Record(); err != nil {
		t.Fatal(err)
	}
	before, err := a.Before()
	if _, is := before[far]; err != nil || !is || len(before) != 21 {
		t.Errorf("%d entries are recorded: %v", len(before), err)
	}
	// A directory in the place of a file is new, also if nothing is in it.
	if !before.WasDir(in) || before.WasDir(far) {
		t.Errorf("directories that were there: %q %v, the file %v", in, before.WasDir(in), before.WasDir(far))
	}
	if err := (&Owner{UID: os.Getuid(), GID: os.Getgid()}).Give(a.WorkDir()); err != nil {
		t.Error(err)
	}
}
