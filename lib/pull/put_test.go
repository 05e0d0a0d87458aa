package pull

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"distribute/lib/pack"
)

// An entry below a directory that is refused is, too, without a word; a place in which nobody may
// write refuses nothing.
func TestRefuses(t *testing.T) {
	n := &Plan{}
	for i, c := range []struct {
		path string
		err  error
		want bool
	}{
		{"c:d", &fs.PathError{Op: "mkdirat", Path: "c:d", Err: syscall.EINVAL}, true},
		{"c:d/x", fs.ErrNotExist, true},
		{"c:d2", fs.ErrNotExist, false},
		{"a", syscall.EACCES, false},
		{"a", syscall.ENOSPC, false},
		{"link", fmt.Errorf("symlink: %w", syscall.EPERM), true},
	} {
		if got := n.refuses(c.path, c.err); got != c.want {
			t.Errorf("%d: %s, %v: %v", i, c.path, c.err, got)
		}
	}
	if len(n.Refused) != 2 || n.Refused[0].Path != "c:d" || n.Refused[1].Path != "link" {
		t.Errorf("refused are %v", n.Refused)
	}
	for i := range 2000 {
		if !n.refuses(fmt.Sprintf("link%d", i), syscall.EPERM) {
			t.Fatalf("with %d links none more is refused", i)
		}
	}
}

// A name that the file system does not even look up, as it is too long, keeps nothing else.
func TestRefusedName(t *testing.T) {
	m, contents := result(t)
	long := strings.Repeat("z", 300)
	m = append(m, pack.Entry{Path: long, Type: pack.Dir, Mode: 0o755}, file(long+"/x", "x"))
	top := t.TempDir()
	n := plan(t, at(t, top), m, &Choice{})
	if len(n.Refused) != 1 || n.Refused[0].Path != long || !n.Whole {
		t.Errorf("refused are %v, whole %v", n.Refused, n.Whole)
	}
	if err := carry(t, n, contents, 0); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, filepath.Join(top, "n/b/j")); got != whole {
		t.Errorf("got\n%swant\n%s", got, whole)
	}
}
