package desk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/durable"
	"distribute/lib/pack"
	"distribute/lib/suite"
)

// mounted is a directory in which a directory and a file of another one are mounted, as a job
// of root's node can do.
func mounted(t *testing.T) (dir, other string) {
	t.Helper()
	dir, other = filepath.Join(t.TempDir(), "a b"), t.TempDir() // a blank is written as a number
	for _, d := range []string{dir + "/work/data/in", other + "/sub"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{dir + "/work/out", dir + "/work/file", other + "/precious", other + "/sub/precious"} {
		if err := os.WriteFile(f, []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{other: dir + "/work/data", other + "/precious": dir + "/work/file"} {
		if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
			suite.Missing(t, fmt.Sprintf("nothing can be mounted here: %v", err))
		}
		t.Cleanup(func() { syscall.Unmount(to, syscall.MNT_DETACH) })
	}
	return dir, other
}

func untouched(t *testing.T, other string) {
	t.Helper()
	for _, f := range []string{other + "/precious", other + "/sub/precious"} {
		if _, err := os.Stat(f); err != nil {
			t.Errorf("of what was mounted: %v", err)
		}
	}
}

// A directory in which something is mounted is not removed, nor is what is mounted; when it
// is unmounted, the directory goes.
func TestRemoveAllLeavesMounts(t *testing.T) {
	dir, other := mounted(t)
	if err := RemoveAll(dir); err == nil || !strings.Contains(err.Error(), "work/data: it is mounted") {
		t.Errorf("%v", err)
	}
	untouched(t, other)
	if _, err := os.Stat(dir + "/work/out"); err != nil {
		t.Errorf("what is beside it: %v", err)
	}
	if err := errors.Join(syscall.Unmount(dir+"/work/data", 0), syscall.Unmount(dir+"/work/file", 0), RemoveAll(dir)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	untouched(t, other)
}

// What is mounted elsewhere is not in the way of a link to there.
func TestRemoveAllOfALink(t *testing.T) {
	dir, other := mounted(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(dir, link), RemoveAll(link)); err != nil {
		t.Error(err)
	}
	untouched(t, other)
}

// What is mounted is neither a part of what comes home nor of what the job takes of the disk.
func TestMountedIsForeign(t *testing.T) {
	dir, _ := mounted(t)
	paths, err := Mounts(dir)
	if err != nil || !slices.Equal(paths, []string{"work/data", "work/file"}) {
		t.Errorf("mounted are %q, %v", paths, err)
	}
	d, err := os.Open(dir + "/work/data")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !durable.Mounted(d) {
		t.Skip("the kernel does not tell of a file whether it is mounted") // before 5.8
	}
	if _, files := Use(t.Context(), dir); files != 3 { // dir itself, work and out
		t.Errorf("%d files", files)
	}
	root, err := os.OpenRoot(dir + "/work")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	m, skipped, err := pack.Scan(t.Context(), root, nil, pack.Limits{})
	if err != nil || len(m) != 1 || m[0].Path != "out" || len(skipped) != 2 || skipped[0].Path != "data/" || skipped[1].Path != "file" {
		t.Errorf("found %v, skipped %v, %v", m, skipped, err)
	}
}

// A file system that never answers, as that of a paused job, is not waited for.
func TestUseAsksNothingOfMounted(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "work")
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		suite.Missing(t, fmt.Sprintf("no FUSE here: %v", err))
	}
	defer server.Close()
	how := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())
	if err := errors.Join(os.Mkdir(at, 0o755), syscall.Mount("test", at, "fuse", 0, how)); err != nil {
		suite.Missing(t, fmt.Sprintf("nothing can be mounted here: %v", err))
	}
	defer syscall.Unmount(at, syscall.MNT_DETACH)
	late := time.AfterFunc(10*time.Second, func() {
		t.Error("it waits for an answer")
		server.Close() // which ends the file system
	})
	defer late.Stop()
	if _, files := Use(t.Context(), dir); files != 1 {
		t.Errorf("%d files", files)
	}
}

// The list of what is mounted writes a few letters as numbers, and others, which look like
// blanks, as they are.
func TestMountsOfOddNames(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"a\rb", "a\u00a0b", "a\vb", "a b\n", "a\\040", " x", "#"} {
		dir := filepath.Join(top, "dir", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			suite.Missing(t, fmt.Sprintf("nothing can be mounted here: %v", err))
		}
		paths, err := Mounts(filepath.Dir(dir))
		if err := errors.Join(err, syscall.Unmount(dir, 0)); err != nil || !slices.Equal(paths, []string{name}) {
			t.Errorf("%q: %q, %v", name, paths, err)
		}
	}
}

// What a process of a job mounts after the look at what is mounted, such as a network file
// system that answers late, is not removed either.
func TestRemovalLeavesLateMounts(t *testing.T) {
	in := func(do func(*os.Root, string) error) func(string) error {
		return func(p string) error {
			parent, err := durable.OpenRoot(filepath.Dir(p))
			if err != nil {
				return err
			}
			defer parent.Close()
			return do(parent, filepath.Base(p))
		}
	}
	for name, remove := range map[string]func(string) error{"removeAll": in(removeAll), "flatten": in(flatten), "RemoveIn": in(RemoveIn)} {
		t.Run(name, func(t *testing.T) {
			dir, other := mounted(t)
			if err := remove(dir); err == nil {
				t.Error("no error")
			}
			untouched(t, other)
			if err := remove(filepath.Join(dir, "work/data")); err == nil {
				t.Error("no error for what is mounted")
			}
			untouched(t, other)
			if err := errors.Join(syscall.Unmount(dir+"/work/data", 0), syscall.Unmount(dir+"/work/file", 0), RemoveAll(dir)); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is mounted at the path of an input when that is to be placed, or below it, is not emptied.
func TestPlacingLeavesLateMounts(t *testing.T) {
	dir, other := mounted(t)
	root, err := durable.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"work/data", "work/file", "work"} {
		var placed *PlaceError
		if free, err := clearFor(root, name, false); free || !errors.As(err, &placed) {
			t.Errorf("%s: free is %v, %v", name, free, err)
		}
		untouched(t, other)
	}
}

// Of the file systems in user space in a directory that is removed, only what no other place has,
// and what holds no other mount, is unmounted. One that never answers is not waited for.
func TestUnmountFUSE(t *testing.T) {
	top := t.TempDir()
	dir, elsewhere := filepath.Join(top, "trash", "1"), filepath.Join(top, "elsewhere")
	names := []string{"hangs", "dead", "shared", "bound"}
	for _, name := range append(names, "../../elsewhere") {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount := func(from, to, kind string, flags uintptr, how string) {
		t.Helper()
		if err := syscall.Mount(from, to, kind, flags, how); err != nil {
			suite.Missing(t, fmt.Sprintf("nothing can be mounted here: %v", err))
		}
		t.Cleanup(func() { syscall.Unmount(to, syscall.MNT_DETACH) })
	}
	for _, name := range names[:3] {
		server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
		if err != nil {
			suite.Missing(t, fmt.Sprintf("no FUSE here: %v", err))
		}
		defer server.Close()
		mount("test", filepath.Join(dir, name), "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd()))
		if name == "dead" {
			server.Close()
		}
	}
	mount(filepath.Join(dir, "shared"), elsewhere, "", syscall.MS_BIND, "")
	mount(top, filepath.Join(dir, "bound"), "", syscall.MS_BIND, "")
	unmountFUSE(dir)
	if left, err := Mounts(dir); err != nil || !slices.Equal(left, []string{"bound", "shared"}) {
		t.Errorf("left are %q, %v", left, err)
	}
	if left, err := Mounts(elsewhere); err != nil || !slices.Equal(left, []string{"."}) {
		t.Errorf("elsewhere: %q, %v", left, err)
	}
}

// Root has no fusermount3(1) unmount what a link in the tree leads to, which has come after the look
// at what is mounted: that may be anything on the machine.
func TestDetachFollowsNoLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "needs root")
	}
	top := t.TempDir()
	dir, helpers, used := filepath.Join(top, "trash"), filepath.Join(top, "bin"), filepath.Join(top, "used")
	if err := errors.Join(os.MkdirAll(filepath.Join(top, "other", "data"), 0o755), os.Mkdir(dir, 0o755), os.Mkdir(helpers, 0o755),
		os.Symlink("../other", filepath.Join(dir, "work")), os.Mkdir(filepath.Join(dir, "own"), 0o755)); err != nil {
		t.Fatal(err)
	}
	helper := "#!/bin/sh\necho \"$@\" >" + used + "\n"
	if err := os.WriteFile(filepath.Join(helpers, "fusermount3"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", helpers+":"+os.Getenv("PATH"))
	for _, at := range []string{"own", "work/data"} {
		detach(dir, at)
		if b, err := os.ReadFile(used); err == nil {
			os.Remove(used)
			t.Errorf("%s: fusermount3 %s", at, b)
		}
	}
}

func TestMountBelow(t *testing.T) {
	for _, c := range []struct{ path, dir, want string }{
		{"/a/b/c", "/a/b", "c"},
		{"/a/b/c/d", "/a/b", "c/d"},
		{"/a/b", "/a/b", "."},
		{"/a/b", "/", "a/b"},
		{"/", "/", "."},
		{"/a/bc", "/a/b", ""},
		{"/a", "/a/b", ""},
		{"/", "/a", ""},
		{"/a/b//deleted", "/a/c", ""},
	} {
		got, ok := mount{path: c.path}.below(c.dir)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s below %s: %q, %v", c.path, c.dir, got, ok)
		}
	}
}
