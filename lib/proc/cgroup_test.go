package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"distribute/lib/suite"
)

// TestGroupsForEverybody has a daemon with a narrow umask make groups, also again: every user may
// look into them.
func TestGroupsForEverybody(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	name := fmt.Sprintf("test-umask-%d", os.Getpid())
	for range 2 {
		parent, err := CgroupParent(name, "/")
		if err != nil {
			suite.Missing(t, "no cgroup: "+err.Error())
		}
		t.Cleanup(func() { removeGroup(parent) })
		g, err := newGroup(parent, "order")
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(g.fd)
		for _, dir := range []string{filepath.Dir(parent), parent, g.dir} {
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%s: %v, %v", dir, info.Mode(), err)
			}
		}
		if err := os.Chmod(parent, 0o700); err != nil { // as a daemon of before has made it
			t.Fatal(err)
		}
	}
}

// TestP74GroupTakenAway is of a job that runs as the user of its supervisor and
// takes from him the right to freeze and to kill its group: he has it all the same.
func TestP74GroupTakenAway(t *testing.T) {
	as := somebody(t)
	parent, err := CgroupParent(fmt.Sprintf("test-taken-%d", os.Getpid()), "/")
	if err != nil {
		suite.Missing(t, "no cgroup: "+err.Error())
	}
	dir := filepath.Join(parent, "taken")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeGroup(parent) })
	for _, c := range []struct{ file, text, then string }{
		{"cgroup.freeze", "1", "1"}, {"cgroup.freeze", "0", "0"}, {"cgroup.kill", "1", ""},
	} {
		name := filepath.Join(dir, c.file)
		if err := os.Chown(name, as.UID, as.GID); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0); err != nil {
			t.Fatal(err)
		}
		if err := as.Do(func() error { return command(dir, c.file, c.text) }); err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
		if b, err := os.ReadFile(name); c.then != "" && strings.TrimSpace(string(b)) != c.then {
			t.Errorf("%s: %q, %v", c.file, b, err)
		}
	}
}
