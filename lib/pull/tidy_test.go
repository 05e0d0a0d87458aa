package pull

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Parts that nobody goes on with are removed. What another process writes, what is no
// part, and a file of the result that has the name of one stay.
func TestTidy(t *testing.T) {
	m, contents := result(t)
	own := file(partPrefix+strings.Repeat("a", 32), "own")
	m, contents[own.Path] = slices.Insert(m, 0, own), "own"
	top := t.TempDir()
	p := at(t, top)
	if err := carry(t, plan(t, p, m, &Choice{}), contents, 0); err != nil {
		t.Fatal(err)
	}
	before := tree(t, filepath.Join(top, "n/b/j"))
	if !strings.Contains(before, own.Path) {
		t.Fatalf("it has not all come:\n%s", before)
	}
	in := func(path string) string { return filepath.Join(top, "n/b/j", path) }
	for _, name := range []string{hidden(&m[3]), partPrefix + strings.Repeat("0", 32), "fields/" + partPrefix + strings.Repeat("b", 32)} {
		if err := os.WriteFile(in(name), []byte("vtk"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.Tidy(m)
	if got := tree(t, in(".")); got != before {
		t.Errorf("got\n%swant\n%s", got, before)
	}

	stays := []string{partPrefix + "note", partPrefix + strings.Repeat("B", 32), "empty/" + partPrefix + strings.Repeat("1", 32)}
	for _, name := range stays {
		f, err := os.Create(in(name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("log.txt", in(partPrefix+strings.Repeat("2", 32))); err != nil {
		t.Fatal(err)
	}
	p.Tidy(m)
	for _, name := range append(stays, partPrefix+strings.Repeat("2", 32)) {
		if _, err := os.Lstat(in(name)); err != nil {
			t.Error(err)
		}
	}
}
