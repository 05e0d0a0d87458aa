package pull

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"
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
}
