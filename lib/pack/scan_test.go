package pack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/suite"
)

// TestMain lets a test run this program again as a user without rights.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PACK_TEST_SCAN"); dir != "" {
		root, err := os.OpenRoot(dir)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		found, skipped, err := Scan(context.Background(), root, nil, Limits{})
		for _, e := range found {
			fmt.Println("+", e.Path)
		}
		for _, s := range skipped {
			fmt.Println("-", s.Path, s.Why)
		}
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func paths(m Manifest) []string {
	var all []string
	for _, e := range m {
		all = append(all, e.Path)
	}
	return all
}

func TestN66OutputTreeOfAllKinds(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, in("good"), 100, 0o644)
	writeFile(t, in("set"), 1, 0o755)
	must(t, os.Chmod(in("set"), 0o755|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
	must(t, os.Mkdir(in("d"), 0o755))
	must(t, os.Link(in("good"), in("d/twin")))
	must(t, syscall.Mkfifo(in("fifo"), 0o600))
	socket, err := net.Listen("unix", in("socket"))
	must(t, err)
	defer socket.Close()
	for name, target := range map[string]string{
		"inside": "d/twin", "shadow": "/etc/shadow", "up": "../x", "dot": ".", "out": "dot/..", "round": "round", "bad\nlink": "good",
	} {
		must(t, os.Symlink(target, in(name)))
	}
	must(t, os.Symlink("a\x1bb", in("l-esc")))
	for _, name := range []string{"new\nline", "esc\x1b[2J", "bad\xff", "del\x7f", "c1\u009b"} {
		writeFile(t, in(name), 1, 0o644)
	}
	huge, err := os.Create(in("huge"))
	must(t, err)
	must(t, huge.Truncate(2<<40))
	must(t, huge.Close())
	device := syscall.Mknod(in("null"), syscall.S_IFCHR|0o666, 1<<8|3) == nil

	m, skipped, err := Scan(context.Background(), openRoot(t, dir), nil, Limits{})
	must(t, err)
	must(t, m.Check(Limits{}))
	if got, want := paths(m), []string{"d", "d/twin", "dot", "good", "inside", "round", "set"}; !slices.Equal(got, want) {
		t.Errorf("entries %q, want %q", got, want)
	}
	if i, ok := m.Find("set"); !ok || m[i].Mode != 0o755 {
		t.Errorf("the set-id file: %+v", m[i])
	}
	want := map[string]string{
		"fifo": "FIFO", "socket": "socket", "shadow": "absolute", "up": "out of the tree", "out": "out of the tree",
		`"bad\nlink"`: "control", "l-esc": "control", `"new\nline"`: "control", `"esc\x1b[2J"`: "control",
		`"bad\xff"`: "its name is not UTF-8", `"del\x7f"`: "its name has a control character", `"c1\u009b"`: "its name has a control character", "huge": "bytes",
	}
	if device {
		want["null"] = "device"
	}
	for _, s := range skipped {
		if why, ok := want[s.Path]; !ok || !strings.Contains(s.Why, why) {
			t.Errorf("skipped %q: %s", s.Path, s.Why)
		}
		delete(want, s.Path)
	}
	if len(want) > 0 {
		t.Errorf("not named: %v", want)
	}
}

func TestN66NotReadable(t *testing.T) {
	if os.Getuid() != 0 {
		suite.Missing(t, "only root can become somebody else")
	}
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o755))
	writeFile(t, filepath.Join(dir, "open"), 1, 0o644)
	writeFile(t, filepath.Join(dir, "shut"), 1, 0)
	for name, mode := range map[string]fs.FileMode{"no": 0, "list": 0o744, "pass": 0o711} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		writeFile(t, filepath.Join(dir, name, "x"), 1, 0o644)
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	cmd := asNobody(t, filepath.Join(dir, "open.test"))
	cmd.Env = append(os.Environ(), "PACK_TEST_SCAN="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		suite.Missing(t, fmt.Sprintf("cannot run as nobody: %v, %s", err, out))
	}
	const want = `+ open
+ open.test
- list permission denied
- no permission denied
- pass permission denied
- shut permission denied
<nil>
`
	if string(out) != want {
		t.Errorf("as nobody:\n%s", out)
	}
	// Root reads all of it.
	if m := scan(t, dir); len(m) != 9 {
		t.Errorf("as root: %q", paths(m))
	}
}

// asNobody is a command that runs a copy of this program, put at path, without
// rights.
func asNobody(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	b, err := os.ReadFile(exe)
	must(t, err)
	must(t, os.WriteFile(path, b, 0o755))
	cmd := exec.Command(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// Without the rights of root, directories that are shut again by their modes do
// not keep a transfer from going on.
func TestTreesAsNobody(t *testing.T) {
	if os.Getuid() != 0 {
		suite.Missing(t, "only root can become somebody else")
	}
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o777))
	cmd := asNobody(t, filepath.Join(dir, "copy.test"))
	cmd.Args = append(cmd.Args, "-test.v", "-test.run=TestRoundTrip|TestD88|TestVerify|TestPartsOfATree|TestTree[RFL]|TestCopy")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) {
		suite.Missing(t, fmt.Sprintf("cannot run as nobody: %v", err))
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestD88") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

func TestScanLimits(t *testing.T) {
	dir := t.TempDir()
	deep := dir
	for i := range 20 {
		writeFile(t, filepath.Join(deep, "f"), 10, 0o644)
		deep = filepath.Join(deep, fmt.Sprint(i))
		must(t, os.Mkdir(deep, 0o755))
	}
	root := openRoot(t, dir)
	for _, tt := range []struct {
		lim     Limits
		entries int
		skipped string
		err     error
	}{
		{Limits{}, 40, "", nil},
		{Limits{Entries: 40}, 40, "", nil},
		{Limits{Entries: 39}, 0, "", ErrLimit},
		{Limits{Depth: 3}, 6, "0/1/2/ what is in it is more than 3 names deep", nil},
		{Limits{Depth: 20}, 40, "", nil},
		{Limits{Bytes: 195}, 39, "f with it the tree has more than 195 bytes", nil},
		{Limits{PathBytes: 3}, 4, "0/1/f its path is longer than 3 bytes", nil},
		{Limits{Names: 4}, 2, "0/f the names in this tree are too long together", nil},
	} {
		m, skipped, err := Scan(context.Background(), root, nil, tt.lim)
		if !errors.Is(err, tt.err) || len(m) != tt.entries {
			t.Errorf("%+v: %d entries, %v", tt.lim, len(m), err)
		}
		must(t, m.Check(tt.lim))
		found := tt.skipped == ""
		for _, s := range skipped {
			found = found || s.Path+" "+s.Why == tt.skipped
		}
		if !found || tt.skipped == "" && len(skipped) > 0 {
			t.Errorf("%+v: skipped %v", tt.lim, skipped)
		}
	}
}

func TestScanNamesNotTooMany(t *testing.T) {
	dir := t.TempDir()
	for i := range maxSkipped + 5 {
		must(t, os.Symlink("/", filepath.Join(dir, fmt.Sprint(i))))
	}
	_, skipped, err := Scan(context.Background(), openRoot(t, dir), nil, Limits{})
	must(t, err)
	if len(skipped) != maxSkipped+1 || skipped[maxSkipped] != (Skipped{"", "and 5 more"}) {
		t.Errorf("%d skipped, the last %v", len(skipped), skipped[len(skipped)-1])
	}
}

func TestScanKeep(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"vtk", "csv"} {
		must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
		writeFile(t, filepath.Join(dir, d, "a"), 1, 0o644)
		writeFile(t, filepath.Join(dir, d, "b"), 1, 0o644)
	}
	var asked []string
	m, skipped, err := Scan(context.Background(), openRoot(t, dir), func(path string, info fs.FileInfo) bool {
		asked = append(asked, path)
		return path != "vtk" && info.Name() != "b"
	}, Limits{})
	must(t, err)
	if !slices.Equal(asked, []string{"csv", "csv/a", "csv/b", "vtk"}) {
		t.Errorf("asked about %q", asked)
	}
	if !slices.Equal(paths(m), []string{"csv", "csv/a"}) || len(skipped) > 0 {
		t.Errorf("%q, skipped %v", paths(m), skipped)
	}
}

func TestScanTimes(t *testing.T) {
	dir := t.TempDir()
	for name, at := range map[string]time.Time{
		"early": time.Date(1901, 1, 1, 0, 0, 0, 0, time.UTC), "late": time.Date(2260, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		writeFile(t, filepath.Join(dir, name), 1, 0o644)
		must(t, os.Chtimes(filepath.Join(dir, name), at, at))
	}
	m := scan(t, dir)
	must(t, m.Check(Limits{}))
	if !m[0].Time.Equal(minTime) || !m[1].Time.Equal(maxTime) {
		t.Errorf("times %v and %v", m[0].Time, m[1].Time)
	}
}

// A file that changes while it is read is read once more, and then named.
func TestN66FileChangesWhileRead(t *testing.T) {
	for _, often := range []int{1, 2} {
		path := filepath.Join(t.TempDir(), "f")
		writeFile(t, path, 1000, 0o644)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		ctx := &touching{Context: context.Background(), f: f, left: often}
		sum, info, err := digest(ctx, f, new(buffer))
		if often == 2 {
			if !errors.Is(err, ErrChanged) {
				t.Errorf("changed twice: %v", err)
			}
			continue
		}
		must(t, err)
		b, err := os.ReadFile(path)
		must(t, err)
		if sum != sumHex(b) || info.Size() != int64(len(b)) {
			t.Errorf("changed once: not what it is in the end")
		}
		must(t, f.Close())
	}
}

// touching is a context that appends to a file when it is asked.
type touching struct {
	context.Context
	f    *os.File
	left int
}

func (c *touching) Err() error {
	if c.left--; c.left >= 0 {
		if _, err := c.f.WriteAt([]byte("x"), 1000+int64(c.left)); err != nil {
			return err
		}
	}
	return nil
}

func TestScanCancelled(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "f"), 1, 0o644)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if m, _, err := Scan(ctx, openRoot(t, dir), nil, Limits{}); !errors.Is(err, context.Canceled) || m != nil {
		t.Errorf("%v, %v", m, err)
	}
	if _, _, err := Verify(ctx, openRoot(t, dir), Manifest{{Path: "f", Type: File, Size: 1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("verify: %v", err)
	}
}

// Ten thousand small files and a hundred empty directories, there and back.
func TestManySmallFiles(t *testing.T) {
	dirs := suite.Size(5, 100)
	from, to := t.TempDir(), t.TempDir()
	for d := range dirs {
		sub := filepath.Join(from, fmt.Sprintf("d%02d", d))
		must(t, os.MkdirAll(filepath.Join(sub, "empty"), 0o755))
		for i := range 100 {
			must(t, os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), fmt.Append(nil, d, i), 0o644))
		}
	}
	m := scan(t, from)
	if len(m) != dirs*102 {
		t.Fatalf("%d entries", len(m))
	}
	must(t, unpack(t, to, stream(t, from, m, Want{}), m, Want{}))
	if again := scan(t, to); again.Sum() != m.Sum() {
		t.Error("what came is another tree")
	}
}
