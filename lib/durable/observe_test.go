package durable

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// An observer sees every step and every sync, of a file before that of the
// directory with its name, and what it says of them is what the caller gets.
func TestObserve(t *testing.T) {
	dir := t.TempDir()
	var seen []string
	fail := map[string]error{}
	end := Observe(&Observer{
		Step: func(name string) error { seen = append(seen, "step "+name); return fail[name] },
		Sync: func(f *os.File, all bool) error {
			name := filepath.Base(f.Name())
			if f.Name() == dir {
				name = "dir"
			} else if name != "log" {
				name = "temp"
			}
			if all {
				name = "all"
			}
			seen = append(seen, name)
			return fail[name]
		},
	})
	defer end()
	path := filepath.Join(dir, "f")
	if err := WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"step file.write", "step file.sync", "temp", "step file.rename", "step file.syncdir", "dir"}
	if !slices.Equal(seen, want) {
		t.Errorf("saw %q", seen)
	}
	fail["temp"] = errors.New("no")
	if err := WriteFile(path, []byte("y"), 0o600); !errors.Is(err, fail["temp"]) {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(path); string(b) != "x" {
		t.Errorf("the file has %q, %v", b, err)
	}
	l, err := OpenLog(filepath.Join(dir, "log"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Append([]byte("a"))
	fail["log"] = errors.New("no")
	if err := errors.Join(l.Flush(), l.Sync()); !errors.Is(err, ErrBroken) {
		t.Errorf("got %v", err)
	}
	seen = nil
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := errors.Join(Syncfs(d), SyncDir(dir)); err != nil || !slices.Equal(seen, []string{"all", "dir"}) {
		t.Errorf("saw %q, %v", seen, err)
	}
	end()
	seen = nil
	if err := errors.Join(SyncDir(dir), Step("any")); err != nil || len(seen) > 0 {
		t.Errorf("after the end: %q, %v", seen, err)
	}
}
