package pack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/suite"
)

// openRoot opens a directory for the length of a test.
func openRoot(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func scan(t testing.TB, dir string) Manifest {
	t.Helper()
	m, skipped, err := Scan(context.Background(), openRoot(t, dir), nil, Limits{})
	must(t, err)
	if len(skipped) > 0 {
		t.Fatalf("skipped %v", skipped)
	}
	return m
}

// opener opens the files of a manifest below root.
func opener(root *os.Root) func(int, Entry) (io.ReadCloser, error) {
	return func(_ int, e Entry) (io.ReadCloser, error) { return root.Open(e.Path) }
}

// stream is what Send writes for the tree dir.
func stream(t testing.TB, dir string, m Manifest, want Want) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, Send(&b, m, want, opener(openRoot(t, dir))))
	return b.Bytes()
}

// unpack receives into dir and closes the Tree.
func unpack(t testing.TB, dir string, stream []byte, m Manifest, want Want) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	tree := NewTree(root, Perm{})
	err = Receive(bytes.NewReader(stream), m, want, tree)
	return errors.Join(err, tree.Close())
}

// look describes everything below dir, a line each, for comparing.
func look(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v", path[len(dir):], info.Mode())
		switch info.Mode().Type() {
		case 0:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %v %d %x", info.ModTime().UTC(), len(content), sha256.Sum256(content))
		case fs.ModeDir:
			fmt.Fprintf(&b, " %v", info.ModTime().UTC())
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			b.WriteString(" -> " + target)
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}

// oddTree makes a tree with one of everything that a manifest can have.
func oddTree(t testing.TB, dir string) {
	t.Helper()
	for _, d := range []string{"a", "a/b", "a b", "a!", "empty", strings.Repeat("d", 255), "ünïcode"} {
		must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	deep := dir
	for i := range 100 {
		deep = filepath.Join(deep, fmt.Sprintf("deep%d", i))
		must(t, os.Mkdir(deep, 0o750))
	}
	for name, size := range map[string]int{
		"a/zero": 0, "a/one": 1, "a/block": 512, "a/b/odd": 1000, "a b/big": 3*bufferSize + 7,
		"a!/x": 3, `q"uo\te`: 4, strings.Repeat("n", 255): 5, "ünïcode/größe": 6, "-rf": 7,
		strings.Repeat("d", 255) + "/" + strings.Repeat("f", 255): 8, "z.shut": 9, "a.x": 1, "a-": 2,
	} {
		writeFile(t, filepath.Join(dir, name), size, 0o640)
	}
	writeFile(t, filepath.Join(deep, "bottom"), 11, 0o600)
	must(t, os.Chmod(filepath.Join(dir, "z.shut"), readable(0)))
	for link, target := range map[string]string{
		"a/up": "../a b/big", "self": ".", "a/dangling": "nothing/here", "loop": "loop", "l100": strings.Repeat("x/", 60) + "ü",
	} {
		must(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	at := time.Date(2024, 2, 29, 1, 2, 3, 123456789, time.UTC)
	for _, name := range []string{"a/one", "a/b", "empty", "a"} {
		must(t, os.Chtimes(filepath.Join(dir, name), at, at))
		at = at.Add(time.Hour)
	}
}

func writeFile(t testing.TB, path string, size int, mode fs.FileMode) {
	t.Helper()
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(size), uint64(len(path))))
	for i := range b {
		b[i] = "0123456789.,\n"[r.IntN(13)]
	}
	must(t, os.WriteFile(path, b, mode))
	must(t, os.Chmod(path, readable(mode)))
}

// readable is a mode with which those who run the test can read the file.
func readable(mode fs.FileMode) fs.FileMode {
	if os.Getuid() != 0 {
		mode |= 0o400
	}
	return mode
}

func TestRoundTrip(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	oddTree(t, from)
	m := scan(t, from)
	must(t, m.Check(Limits{}))
	must(t, unpack(t, to, stream(t, from, m, Want{}), m, Want{}))
	if a, b := look(t, from), look(t, to); a != b {
		t.Errorf("sent\n%s\nreceived\n%s", a, b)
	}
	if again := scan(t, to); again.Sum() != m.Sum() {
		t.Error("the manifest of what was received is another")
	}
	want, bad, err := Verify(context.Background(), openRoot(t, to), m)
	must(t, err)
	if !want.Empty(m) || len(bad) > 0 {
		t.Errorf("still wanted %v, bad %v", want, bad)
	}
}

func TestEmptyTree(t *testing.T) {
	dir := t.TempDir()
	m := scan(t, dir)
	if len(m) != 0 {
		t.Fatalf("manifest %v", m)
	}
	must(t, unpack(t, t.TempDir(), stream(t, dir, m, Want{}), m, Want{}))
}

func TestPartsOfATree(t *testing.T) {
	from := t.TempDir()
	oddTree(t, from)
	m := scan(t, from)
	for _, pick := range [][]int{{}, {0}, {len(m) - 1}, {1, 2, 5}, {len(m) - 1, 0, 3, 3}} {
		to := t.TempDir()
		want := WantOf(pick...)
		must(t, want.Check(m))
		must(t, unpack(t, to, stream(t, from, m, want), m, want))
		for i, e := range m {
			_, err := os.Lstat(filepath.Join(to, e.Path))
			implied := slices.ContainsFunc(pick, func(p int) bool { return under(m[p].Path, e.Path) })
			if wanted := slices.Contains(pick, i) || implied; wanted != (err == nil) {
				t.Errorf("pick %v: %q: %v", pick, e.Path, err)
			}
		}
	}
}

// A random tree, sent in pieces cut at random bytes, gets equal in the end.
func TestD88CutAnywhereAndResumed(t *testing.T) {
	for seed := range suite.Size[uint64](4, 12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			from, to := t.TempDir(), t.TempDir()
			t.Cleanup(func() { open(from); open(to) })
			randomTree(t, r, from)
			m := scan(t, from)
			root := openRoot(t, to)
			cuts := 0
			for want := (Want{}); !want.Empty(m); {
				sent := stream(t, from, m, want)
				if cuts < 20 {
					cuts++
					sent = sent[:r.IntN(len(sent))]
					if err := unpack(t, to, sent, m, want); !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Fatalf("cut: %v", err)
					}
				} else {
					must(t, unpack(t, to, sent, m, want))
				}
				var bad []int
				var err error
				want, bad, err = Verify(context.Background(), root, m)
				if err != nil || len(bad) > 0 {
					t.Fatalf("bad %v, %v", bad, err)
				}
				must(t, want.Check(m))
			}
			must(t, Settle(root, m, Perm{}))
			if a, b := look(t, from), look(t, to); a != b {
				t.Errorf("sent\n%s\nreceived\n%s", a, b)
			}
		})
	}
}

// open makes the directories below dir writable, so that they can be removed.
func open(dir string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
}

func randomTree(t *testing.T, r *rand.Rand, dir string) {
	t.Helper()
	dirs := []string{dir}
	for i := range 20 + r.IntN(30) {
		path := filepath.Join(dirs[r.IntN(len(dirs))], fmt.Sprintf("%c%d", 'a'+rune(r.IntN(26)), i))
		switch r.IntN(5) {
		case 0:
			must(t, os.Mkdir(path, 0o700|fs.FileMode(r.IntN(0o100))))
			dirs = append(dirs, path)
		case 1:
			must(t, os.Symlink(fmt.Sprintf("x%d", i), path))
		default:
			size := r.IntN(1 << r.IntN(21))
			writeFile(t, path, size, 0o600)
			if size > bufferSize && r.IntN(2) == 0 {
				must(t, os.Truncate(path, int64(4*size)))
			}
			must(t, os.Chmod(path, readable(fs.FileMode(r.IntN(0o1000)))))
		}
	}
	at := time.Unix(1_700_000_000, r.Int64N(1e9))
	for _, d := range dirs[1:] {
		must(t, os.Chmod(d, 0o500|fs.FileMode(r.IntN(0o400))))
		must(t, os.Chtimes(d, at, at))
	}
}

func TestD89ContentThatIsNotWhatWasDeclared(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(from, "f"), 1000, 0o600)
	writeFile(t, filepath.Join(from, "g"), 1000, 0o600)
	m := scan(t, from)
	lied := slices.Clone(m)
	lied[0].Sum = strings.Repeat("0", 64)
	sent := stream(t, from, m, Want{})
	if err := unpack(t, to, sent, lied, Want{}); !errors.Is(err, ErrSum) || !strings.Contains(err.Error(), `"f"`) {
		t.Errorf("error %v, want ErrSum of f", err)
	}
	if left := look(t, to); left != "" {
		t.Errorf("left\n%s", left)
	}
	// A prefix that was spoilt on the disk is found out in the end.
	must(t, os.WriteFile(filepath.Join(to, "f"), bytes.Repeat([]byte("x"), 500), 0o600))
	want := Want{From: 500}
	if err := unpack(t, to, stream(t, from, m, want), m, want); !errors.Is(err, ErrSum) {
		t.Errorf("spoilt prefix: %v, want ErrSum", err)
	}
	if left := look(t, to); left != "" {
		t.Errorf("left\n%s", left)
	}
}

func TestVerify(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, d := range []string{"d", "e", "k"} {
		must(t, os.Mkdir(filepath.Join(from, d), 0o755))
	}
	for _, f := range []string{"d/1", "d/2", "d/3", "d/4", "d/5", "e/1", "e/2"} {
		writeFile(t, filepath.Join(from, f), 100, 0o644)
	}
	must(t, os.Symlink("d/1", filepath.Join(from, "l")))
	m := scan(t, from)
	at := func(path string) int {
		i, ok := m.Find(path)
		if !ok {
			t.Fatalf("no %q", path)
		}
		return i
	}
	must(t, unpack(t, to, stream(t, from, m, Want{}), m, Want{}))
	root := openRoot(t, to)
	check := func(what string, wanted []int, from int64, bad []int) Want {
		t.Helper()
		w, b, err := Verify(context.Background(), root, m)
		must(t, err)
		must(t, w.Check(m))
		full := WantOf(wanted...)
		full.From = from
		if fmt.Sprint(w) != fmt.Sprint(full) || !slices.Equal(b, bad) {
			t.Errorf("%s: want %v, bad %v; should be %v, %v", what, w, b, full, bad)
		}
		return w
	}
	check("whole", nil, 0, nil)
	must(t, root.Remove("d/2"))
	must(t, root.RemoveAll("k"))
	check("missing", []int{at("d/2"), at("k")}, 0, nil)
	must(t, os.Truncate(filepath.Join(to, "e/1"), 40))
	check("short, not the first missing", []int{at("d/2"), at("k")}, 0, []int{at("e/1")})
	must(t, os.Truncate(filepath.Join(to, "d/1"), 30))
	check("short, the first", []int{at("d/1"), at("d/2"), at("k")}, 30, []int{at("e/1")})
	must(t, os.WriteFile(filepath.Join(to, "d/3"), bytes.Repeat([]byte("x"), 100), 0o600))
	must(t, root.Remove("l"))
	must(t, root.Symlink("d/2", "l"))
	must(t, root.RemoveAll("e"))
	must(t, os.WriteFile(filepath.Join(to, "e"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(to, "d/5"), 0))
	must(t, root.Remove("d/4"))
	must(t, root.Mkdir("d/4", 0o700))
	bad := []int{at("d/3"), at("d/4"), at("e"), at("e/1"), at("e/2"), at("l")}
	want := check("other content, type, target", []int{at("d/1"), at("d/2"), at("d/5"), at("k")}, 30, bad)

	must(t, Clear(root, m, bad))
	want = want.With(m, bad...)
	must(t, want.Check(m))
	if want.From != 30 {
		t.Errorf("from %d after With", want.From)
	}
	must(t, unpack(t, to, stream(t, from, m, want), m, want))
	must(t, Settle(root, m, Perm{}))
	if a, b := look(t, from), look(t, to); a != b {
		t.Errorf("sent\n%s\nreceived\n%s", a, b)
	}
	must(t, os.WriteFile(filepath.Join(to, "d/1"), bytes.Repeat([]byte("x"), 100), 0o600))
	must(t, os.Truncate(filepath.Join(to, "e/1"), 40))
	check("short after something bad", nil, 0, []int{at("d/1"), at("e/1")})
}

// Nothing that is there is replaced, and nothing followed.
func TestTreeReplacesNothing(t *testing.T) {
	from := t.TempDir()
	writeFile(t, filepath.Join(from, "f"), 10, 0o600)
	m := scan(t, from)
	sent := stream(t, from, m, Want{})
	outside := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(outside, []byte("precious"), 0o600))
	for name, put := range map[string]func(path string) error{
		"file":     func(p string) error { return os.WriteFile(p, []byte("mine"), 0o600) },
		"dir":      func(p string) error { return os.Mkdir(p, 0o700) },
		"link":     func(p string) error { return os.Symlink(outside, p) },
		"hardlink": func(p string) error { return os.Link(outside, p) },
		"fifo":     func(p string) error { return syscall.Mkfifo(p, 0o600) },
	} {
		for _, want := range []Want{{}, {From: 4}} {
			to := t.TempDir()
			must(t, put(filepath.Join(to, "f")))
			if name == "file" && want.From == 4 {
				continue // that one may go on
			}
			before := listing(t, to)
			sent := sent
			if want.From > 0 {
				sent = stream(t, from, m, want)
			}
			if err := unpack(t, to, sent, m, want); !errors.Is(err, fs.ErrExist) {
				t.Errorf("%s, from %d: %v, want fs.ErrExist", name, want.From, err)
			}
			if after := listing(t, to); after != before {
				t.Errorf("%s: was %s, is %s", name, before, after)
			}
		}
	}
	if b, _ := os.ReadFile(outside); string(b) != "precious" {
		t.Errorf("outside: %q", b)
	}
}

// listing is what look says, without opening anything.
func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		fmt.Fprintln(&b, e.Name(), info.Mode(), info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}

// A directory in the way that is a link is not gone through, even to a place
// inside the root.
func TestTreeFollowsNoLink(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	must(t, os.Mkdir(filepath.Join(from, "a"), 0o755))
	writeFile(t, filepath.Join(from, "a/b"), 10, 0o600)
	m := scan(t, from)
	must(t, os.Mkdir(filepath.Join(to, "real"), 0o755))
	must(t, os.Symlink("real", filepath.Join(to, "a")))
	for _, want := range []Want{{}, WantOf(1)} {
		if err := unpack(t, to, stream(t, from, m, want), m, want); err == nil {
			t.Errorf("want %v: no error", want)
		}
	}
	if left := listing(t, filepath.Join(to, "real")); left != "" {
		t.Errorf("written through the link: %s", left)
	}
	if bad := func() []int {
		_, bad, err := Verify(context.Background(), openRoot(t, to), m)
		must(t, err)
		return bad
	}(); !slices.Equal(bad, []int{0, 1}) {
		t.Errorf("verify: bad %v", bad)
	}
}

// A link that is inside by the manifest and outside by what was there before is
// not made.
func TestTreeLinkThroughForeignLink(t *testing.T) {
	to := t.TempDir()
	must(t, os.Symlink("/etc", filepath.Join(to, "x")))
	m := Manifest{{Path: "l", Type: Link, Link: "x/passwd"}}
	tree := NewTree(openRoot(t, to), Perm{})
	if err := tree.Put(0, m[0], 0, nil); !errors.Is(err, ErrFormat) {
		t.Errorf("error %v", err)
	}
	must(t, tree.Close())
	if _, err := os.Lstat(filepath.Join(to, "l")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link is there: %v", err)
	}
}

func TestPerm(t *testing.T) {
	if os.Getuid() != 0 {
		suite.Missing(t, "only root reads what nobody may")
	}
	from, to := t.TempDir(), t.TempDir()
	must(t, os.Mkdir(filepath.Join(from, "d"), 0o300))
	must(t, os.Mkdir(filepath.Join(from, "s"), 0o755|fs.ModeSetgid))
	must(t, os.Chmod(filepath.Join(from, "s"), 0o755|fs.ModeSetgid))
	writeFile(t, filepath.Join(from, "f"), 1, 0o022)
	writeFile(t, filepath.Join(from, "x"), 1, 0o777|fs.ModeSetuid)
	m := scan(t, from)
	sent := stream(t, from, m, Want{})
	tree := NewTree(openRoot(t, to), Perm{Set: 0o440, Clear: 0o022})
	must(t, Receive(bytes.NewReader(sent), m, Want{}, tree))
	must(t, tree.Close())
	for name, want := range map[string]fs.FileMode{
		"d": 0o750 | fs.ModeDir, "s": 0o755 | fs.ModeDir, "f": 0o440, "x": 0o755,
	} {
		if info, err := os.Lstat(filepath.Join(to, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v", name, info.Mode(), want)
		}
	}
}

// A hole does not become blocks.
func TestSparseFileStaysSparse(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	f, err := os.Create(filepath.Join(from, "f"))
	must(t, err)
	_, err = f.WriteAt([]byte("middle"), 5<<20)
	must(t, err)
	must(t, f.Truncate(10<<20))
	must(t, f.Close())
	m := scan(t, from)
	must(t, unpack(t, to, stream(t, from, m, Want{}), m, Want{}))
	if a, b := look(t, from), look(t, to); a != b {
		t.Errorf("sent\n%s\nreceived\n%s", a, b)
	}
	info, err := os.Stat(filepath.Join(to, "f"))
	must(t, err)
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 2<<20 {
		t.Errorf("a file of %d bytes with 6 that are not 0 uses %d", info.Size(), used)
	}
}

func TestCopy(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	oddTree(t, from)
	must(t, os.Symlink("/usr/bin/python3", filepath.Join(from, "python")))
	before := look(t, from)
	must(t, syscall.Mkfifo(filepath.Join(from, "fifo"), 0o600))
	skipped, err := Copy(context.Background(), openRoot(t, to), openRoot(t, from), nil)
	must(t, err)
	if after := look(t, to); after != before {
		t.Errorf("copied\n%s\nto\n%s", before, after)
	}
	if len(skipped) != 1 || skipped[0] != (Skipped{"fifo", "a FIFO"}) {
		t.Errorf("skipped %v", skipped)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Copy(ctx, openRoot(t, t.TempDir()), openRoot(t, from), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func sumHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
