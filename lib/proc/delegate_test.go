package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"distribute/lib/suite"
)

// TestN54Delegated is where the trees of jobs go, for what processes find under
// systemd: the group of a unit, a group in it, notes or none, root or not.
func TestN54Delegated(t *testing.T) {
	mount, err := cgroupMount()
	if err != nil || os.Getuid() != 0 {
		suite.Missing(t, fmt.Sprint("this is not root, or there is no cgroup: ", err))
	}
	bin := filepath.Join(t.TempDir(), "proc.test")
	if out, err := exec.Command("cp", os.Args[0], bin).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	for d := filepath.Dir(bin); d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const somebody = 58731
	node := fmt.Sprintf("node-%d", os.Getpid())
	for _, c := range []struct {
		name, in string // the unit, and the group in it
		uid      int
		noted    bool
		want     string
	}{
		{"a.service", "dnoded", 0, true, "a.service"},
		{"b.service", "", 0, true, "b.service"},
		{"c.service", "dnoded", 0, false, ""},
		{"d.service", "dnoded", somebody, true, "d.service"},
		{"e.service", "dnoded", somebody, false, "e.service"},
		{"f.service", "", somebody, false, "f.service"},
		{"g.scope", "deep", somebody, false, "g.scope/deep"},
		{"own.scope", "", somebody, false, "own.scope"},
		{"own.scope", "dnoded", somebody, false, "own.scope"},
	} {
		unit := fmt.Sprintf("test-%d-%s", os.Getpid(), c.name)
		if c.name == "own.scope" {
			unit = "distribute-" + unit
		}
		dir, in := filepath.Join(mount, unit), filepath.Join(mount, unit, c.in)
		t.Cleanup(func() { removeGroup(dir) })
		if err := os.MkdirAll(in, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{dir, in} {
			for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
				if err := os.Chown(filepath.Join(d, f), c.uid, c.uid); err != nil {
					t.Fatal(err)
				}
			}
		}
		if c.noted {
			if err := unix.Setxattr(dir, "user.delegate", []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
		}
		fd, err := unix.Open(in, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(bin, "cgroup-parent", node)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd, Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid)}}
		out, err := cmd.CombinedOutput()
		unix.Close(fd)
		top := mount
		if c.want != "" {
			top = filepath.Join(mount, strings.Replace(c.want, c.name, unit, 1))
		}
		if want := filepath.Join(top, "distribute", GroupName(node, "/")) + " <nil>\n"; err != nil || string(out) != want {
			t.Errorf("%s: %v: %swant %s", c.name, err, out, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "dnoded")); c.name == "own.scope" && err != nil {
			t.Errorf("in its scope dnoded has no group of its own: %v", err)
		}
	}
	removeGroup(filepath.Join(mount, "distribute", GroupName(node, "/")))
}
