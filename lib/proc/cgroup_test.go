package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/suite"
)

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
