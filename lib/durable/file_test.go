package durable

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain lets a test run this program again as one that writes a file and is
// stopped on the way.
func TestMain(m *testing.M) {
	if path := os.Getenv("DURABLE_TEST_WRITE"); path != "" {
		write := WriteFile
		if os.Getenv("DURABLE_TEST_NEW") != "" {
			write = CreateNew
		}
		if err := write(path, []byte("new"), 0o640); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "(nothing)"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	defer syscall.Umask(syscall.Umask(0o077))
	for _, want := range []string{"one", "two", ""} {
		if err := WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != want {
			t.Errorf("content %q, want %q", got, want)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v; want 0644 whatever the umask", info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left beside the file: %v", left)
	}
	if err := WriteFile(filepath.Join(dir, "no", "f"), nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	long := filepath.Join(dir, strings.Repeat("n", 255))
	if err := WriteFile(long, []byte("x"), 0o600); err != nil {
		t.Errorf("name of 255 bytes: %v", err)
	}
}

func TestCreateNewReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(string) error{
		"file": func(p string) error { return os.WriteFile(p, []byte("old"), 0o600) },
		"dir":  func(p string) error { return os.Mkdir(p, 0o700) },
		"link": func(p string) error { return os.Symlink("nowhere", p) },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(path)
		if err := CreateNew(path, []byte("new"), 0o600); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: error %v, want fs.ErrExist", name, err)
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was replaced", name)
		}
	}
	if err := CreateNew(filepath.Join(dir, "fresh"), []byte("new"), 0o600); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 4 {
		t.Errorf("left: %v", left)
	}
}

func TestS08PublishReplacesNothing(t *testing.T) {
	for name, publish := range map[string]func(from, to string) error{
		"at once": Publish,
		"in steps": func(from, to string) error {
			return publishInSteps(unix.AT_FDCWD, from, unix.AT_FDCWD, to)
		},
		"in directories": func(from, to string) error {
			a, err := os.Open(filepath.Dir(from))
			if err != nil {
				return err
			}
			defer a.Close()
			b, err := os.Open(filepath.Dir(to))
			if err != nil {
				return err
			}
			defer b.Close()
			return PublishIn(a, filepath.Base(from), b, filepath.Base(to))
		},
	} {
		for kind, make := range map[string]func(string) error{
			"directory": func(p string) error { return os.Mkdir(p, 0o750) },
			"file":      func(p string) error { return os.WriteFile(p, []byte("new"), 0o640) },
			"link":      func(p string) error { return os.Symlink("nowhere", p) },
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
				if err := errors.Join(make(from), os.Mkdir(to, 0o700)); err != nil {
					t.Fatal(err)
				}
				before, _ := os.Lstat(from)
				if err := publish(from, to); !errors.Is(err, fs.ErrExist) {
					t.Errorf("onto an empty directory: %v, want fs.ErrExist", err)
				}
				if err := os.Remove(to); err != nil {
					t.Fatal(err)
				}
				if err := publish(from, to); err != nil {
					t.Error(err)
				}
				if after, err := os.Lstat(to); err != nil || !os.SameFile(before, after) {
					t.Errorf("it is not there: %v", err)
				}
				if err := publish(from, to); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a second time: %v, want fs.ErrNotExist", err)
				}
				if left, _ := os.ReadDir(dir); len(left) != 1 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

// J28: a writer killed at any step leaves the old content or the new one, and
// beside it at most a file that IsTemp knows.
func TestWriteFileKilledAtEachStep(t *testing.T) {
	for _, fresh := range []string{"", "yes"} {
		for _, step := range []string{"file.write", "file.sync", "file.rename", "file.syncdir"} {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			old := "(nothing)"
			if fresh == "" {
				old = "old"
				if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "DURABLE_TEST_WRITE="+path, "DURABLE_TEST_NEW="+fresh, FailVar+"="+step+":kill")
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%s: the writer was not killed: %v", step, err)
			}
			want := old
			if step == "file.syncdir" {
				want = "new"
			}
			if got := content(t, path); got != want {
				t.Errorf("%s: content %q, want %q", step, got, want)
			}
			left, _ := os.ReadDir(dir)
			for _, d := range left {
				if d.Name() != "f" && !IsTemp(d.Name()) {
					t.Errorf("%s: left %q", step, d.Name())
				}
			}
		}
	}
}

func TestWriteFileThatFailsLeavesNothing(t *testing.T) {
	for _, step := range []string{"file.write", "file.sync", "file.rename"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "DURABLE_TEST_WRITE="+path, FailVar+"="+step+":full")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "no space left") {
			t.Errorf("%s: %v, %s", step, err, out)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: left %v", step, left)
		}
	}
}

func TestSyncTree(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"a/b/c", "empty", "shut"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		path := filepath.Join(root, "a/b", "f"+string(rune('A'+i)))
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "shut"), 0); err != nil {
		t.Fatal(err)
	}
	if err := SyncTree(root); err != nil {
		t.Error(err)
	}
	if err := SyncTree(filepath.Join(root, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing root: %v", err)
	}
}

func TestSyncAllNamesWhatFailed(t *testing.T) {
	var files []*os.File
	for range 40 {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	if errs := SyncAll(files); errs != nil {
		t.Errorf("errors %v", errs)
	}
	files[7].Close()
	errs := SyncAll(files)
	if len(errs) != len(files) {
		t.Fatalf("%d errors for %d files", len(errs), len(files))
	}
	for i, err := range errs {
		if (err != nil) != (i == 7) {
			t.Errorf("file %d: %v", i, err)
		}
	}
	if err := Syncfs(files[0]); err != nil {
		t.Error(err)
	}
}
