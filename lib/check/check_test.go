package check

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// run makes a Run that keeps what it tells.
func run(t *testing.T, live bool) (r *Run, told *[]string) {
	told = new([]string)
	return &Run{Dir: t.TempDir(), Live: func() (bool, error) { return live, nil },
		Tell: func(f *Finding) error { *told = append(*told, f.Text()); return nil }}, told
}

// Beside a daemon at work, only what is found twice is told, and nothing that
// the daemon puts right.
func TestUnitLooksAgain(t *testing.T) {
	for _, live := range []bool{false, true} {
		r, told := run(t, live)
		looks := 0
		err := r.Unit(t.Context(), "part", func(u *Unit) error {
			looks++
			if u.Again != (looks == 2) {
				t.Errorf("look %d: again %v", looks, u.Again)
			}
			u.Results++
			u.Find(Finding{Kind: Left, Path: "left", What: "x", Cure: "nothing"})
			u.Find(Finding{Kind: Torn, Path: "log", Line: 2, Byte: int64(100 * looks), What: "grows", Cure: "nothing"})
			u.Find(Finding{Kind: Damaged, Path: "log", Line: 1, What: "stays", Cure: "nothing"})
			return nil
		})
		want := []string{"left\tleft\tx\tnothing", "torn\tlog\tline 2 (byte 100): grows\tnothing", "damaged\tlog\tline 1 (byte 0): stays\tnothing"}
		if live {
			want = want[2:]
		}
		if err != nil || !slices.Equal(*told, want) || r.Open != len(want) || r.Results != 1 {
			t.Errorf("live %v: told %q, %d open, %d results, %v", live, *told, r.Open, r.Results, err)
		}
	}
}

// A check that is waiting beside a daemon ends when it is told to.
func TestUnitEnds(t *testing.T) {
	r, _ := run(t, true)
	r.Wait = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	err := r.Unit(ctx, "part", func(u *Unit) error {
		u.Find(Finding{Kind: Torn, Path: "log"})
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestMendThatFails(t *testing.T) {
	r, told := run(t, true)
	r.Mend = true
	err := r.Unit(t.Context(), "part", func(u *Unit) error {
		u.Find(Finding{Kind: Torn, Path: "a", What: "x", Cure: "cut it", Mend: func() error { return syscall.EROFS }})
		u.Find(Finding{Kind: Torn, Path: "b", What: "x", Cure: "cut it", Mend: func() error { return nil }})
		return nil
	})
	want := []string{"torn\ta\tx\tnothing: it failed: read-only file system", "torn\tb\tx\tcut it"}
	if err != nil || !slices.Equal(*told, want) || r.Open != 1 {
		t.Errorf("told %q, %d open, %v", *told, r.Open, err)
	}
}

// What is moved aside twice is there twice, and a found/ that is a link is not
// followed.
func TestAside(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []string{"found/a/b", "found/a/b.2", "found/a/b.3"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a"), 0o700), os.WriteFile(filepath.Join(dir, "a/b"), []byte(want), 0o600)); err != nil {
			t.Fatal(err)
		}
		to, err := Aside(dir, "a/b")
		text, rerr := os.ReadFile(filepath.Join(dir, want))
		if err != nil || rerr != nil || to != want || string(text) != want {
			t.Errorf("moved to %q, want %q, %v, %v", to, want, err, rerr)
		}
	}
	elsewhere := t.TempDir()
	dir = t.TempDir()
	if err := errors.Join(os.Symlink(elsewhere, filepath.Join(dir, Found)), os.WriteFile(filepath.Join(dir, "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if to, err := Aside(dir, "x"); err == nil {
		t.Errorf("moved to %q through a link", to)
	}
	if _, err := os.Lstat(filepath.Join(dir, "x")); err != nil {
		t.Error(err)
	}
}

func TestOpenWaitsForNothing(t *testing.T) {
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("/etc/passwd", link)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fifo, link, dir} {
		if _, err := Open(name); !errors.Is(err, ErrKind) || !Broken(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What others put in the place of a directory leads a mend nowhere else.
func TestMendsStayInside(t *testing.T) {
	elsewhere := t.TempDir()
	r, _ := run(t, false)
	r.Mend = true
	secret := filepath.Join(elsewhere, "b")
	err := errors.Join(os.WriteFile(secret, []byte("mine"), 0o644), os.Symlink(elsewhere, filepath.Join(r.Dir, "a")))
	info, serr := os.Lstat(secret)
	if err := errors.Join(err, serr); err != nil {
		t.Fatal(err)
	}
	err = r.Unit(t.Context(), "part", func(u *Unit) error {
		u.Odd("a/b", "odd")
		u.MissingDir("a/c", 0o700)
		u.Mode("a/b", info, os.Getuid(), 0o600)
		return nil
	})
	if err != nil || r.Open != 3 {
		t.Errorf("%d of 3 left, %v", r.Open, err)
	}
	if after, err := os.Lstat(secret); err != nil || after.Mode() != info.Mode() {
		t.Errorf("what is elsewhere has changed: %v, %v", after, err)
	}
	if list, _ := os.ReadDir(elsewhere); len(list) != 1 {
		t.Errorf("elsewhere: %v", list)
	}
}
