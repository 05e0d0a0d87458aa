package pull

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/pack"
)

var when = time.Date(2026, 11, 20, 9, 0, 0, 123456789, time.UTC)

func file(path, content string) pack.Entry {
	sum := sha256.Sum256([]byte(content))
	return pack.Entry{Path: path, Type: pack.File, Size: int64(len(content)), Mode: 0o644, Time: when, Sum: hex.EncodeToString(sum[:])}
}

func dir(path string) pack.Entry {
	return pack.Entry{Path: path, Type: pack.Dir, Mode: 0o555, Time: when}
}

// result is what a job left: its manifest, and the contents of its files.
func result(t *testing.T) (pack.Manifest, map[string]string) {
	t.Helper()
	contents := map[string]string{"fields/a.vtk": strings.Repeat("vtk", 1000), "fields/b.csv": "x,y\n", "log.txt": "done\n", "z.csv": "1,2\n"}
	m := pack.Manifest{dir("empty"), dir("fields"), file("fields/a.vtk", contents["fields/a.vtk"]),
		file("fields/b.csv", contents["fields/b.csv"]),
		{Path: "last.csv", Type: pack.Link, Link: "z.csv"}, file("log.txt", contents["log.txt"]), file("z.csv", contents["z.csv"])}
	if err := m.Check(pack.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	return m, contents
}

// at opens the place of a job below a directory.
func at(t *testing.T, below string) *Place {
	t.Helper()
	root, err := os.OpenRoot(below)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(root, "n/b/j", true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); root.Close() })
	return p
}

func plan(t *testing.T, p *Place, m pack.Manifest, c *Choice) *Plan {
	t.Helper()
	n, err := p.Plan(t.Context(), m, c, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// carry does what the head and the wire do: it sends what the plan wants, of
// which cut bytes are lost at the end.
func carry(t *testing.T, n *Plan, contents map[string]string, cut int) error {
	t.Helper()
	var stream bytes.Buffer
	if err := n.Prepare(nil, nil); err != nil {
		t.Fatal(err)
	}
	if n.None {
		return nil
	}
	err := pack.Send(&stream, n.m, n.Want, func(i int, e pack.Entry) (io.ReadCloser, error) {
		return nopSeek{strings.NewReader(contents[e.Path])}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stream.Truncate(stream.Len() - cut)
	return pack.Receive(&stream, n.m, n.Want, n)
}

type nopSeek struct{ *strings.Reader }

func (nopSeek) Close() error { return nil }

// tree lists what is below a directory: files with their content.
func tree(t *testing.T, below string) string {
	t.Helper()
	var b strings.Builder
	err := fs.WalkDir(os.DirFS(below), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(filepath.Join(below, path))
			b.WriteString(path + " -> " + target + "\n")
			return err
		case d.IsDir():
			b.WriteString(path + "/\n")
			return nil
		}
		data, err := os.ReadFile(filepath.Join(below, path))
		b.WriteString(path + ": " + strings.TrimSpace(string(data[:min(len(data), 9)])) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const whole = `./
empty/
fields/
fields/a.vtk: vtkvtkvtk
fields/b.csv: x,y
last.csv -> z.csv
log.txt: done
z.csv: 1,2
`

func TestPull(t *testing.T) {
	m, contents := result(t)
	top := t.TempDir()
	p := at(t, top)
	n := plan(t, p, m, &Choice{})
	if n.Files != 4 || n.Bytes != m.Bytes() || !n.Whole || n.None {
		t.Errorf("the plan for an empty place: %+v", n)
	}
	if err := carry(t, n, contents, 0); err != nil {
		t.Fatal(err)
	}
	job := filepath.Join(top, "n/b/j")
	if got := tree(t, job); got != whole {
		t.Errorf("got\n%swant\n%s", got, whole)
	}
	// The second pull moves nothing, also when times differ.
	if err := os.Chtimes(filepath.Join(job, "log.txt"), time.Time{}, time.Unix(5, 0)); err != nil {
		t.Fatal(err)
	}
	n = plan(t, p, m, &Choice{})
	if !n.None || n.Right != 4 || n.Changed != nil || len(n.make) != 0 {
		t.Errorf("the plan for a whole place: %+v", n)
	}
	info, err := os.Stat(filepath.Join(job, "log.txt"))
	if err != nil || !info.ModTime().Equal(when) {
		t.Errorf("the time is %v, %v", info.ModTime(), err)
	}
}

func TestChoice(t *testing.T) {
	m, contents := result(t)
	exp := func(s string) []*regexp.Regexp { return []*regexp.Regexp{regexp.MustCompile(s)} }
	tests := []struct {
		c    Choice
		want string
	}{
		{Choice{Include: exp(`\.csv$`)}, "./\nfields/\nfields/b.csv: x,y\nlast.csv -> z.csv\nz.csv: 1,2\n"},
		{Choice{Exclude: exp(`vtk`)}, "./\nfields/\nfields/b.csv: x,y\nlast.csv -> z.csv\nlog.txt: done\nz.csv: 1,2\n"},
		{Choice{Include: exp(`\.csv$`), Exclude: exp(`fields`)}, "./\nlast.csv -> z.csv\nz.csv: 1,2\n"},
		{Choice{Include: append(exp(`log`), exp(`vtk`)...)}, "./\nfields/\nfields/a.vtk: vtkvtkvtk\nlog.txt: done\n"},
		{Choice{Include: exp(`nothing`)}, "./\n"},
		{Choice{Include: exp(`^j/fields/b`), Jobs: []string{"j"}}, "./\nfields/\nfields/b.csv: x,y\n"},
		{Choice{Include: exp(`^z`), Jobs: []string{"j"}}, "./\nz.csv: 1,2\n"},
		{Choice{Exclude: exp(`^j`), Jobs: []string{"j"}}, "./\n"},
		{Choice{Exclude: exp(`/j/`), Jobs: []string{"j"}}, "./\n"},
		{Choice{Include: exp(`/j/z|^j~2/log`), Jobs: []string{"j", "j~2"}}, "./\nlog.txt: done\nz.csv: 1,2\n"},
	}
	for _, tt := range tests {
		top := t.TempDir()
		if err := carry(t, plan(t, at(t, top), m, &tt.c), contents, 0); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, filepath.Join(top, "n/b/j")); got != tt.want {
			t.Errorf("%v: got\n%swant\n%s", tt.c, got, tt.want)
		}
	}
}

// What comes from an older result is told from what the result has now, also if size and time
// are the same.
func TestOlderResult(t *testing.T) {
	m, contents := result(t)
	p := at(t, t.TempDir())
	if err := carry(t, plan(t, p, m, &Choice{}), contents, 0); err != nil {
		t.Fatal(err)
	}
	if n := plan(t, p, m, &Choice{}); !n.None || n.Right != 4 || n.Changed != nil {
		t.Errorf("the plan for the same result: %+v", n)
	}
	m[5] = file("log.txt", "lost\n")
	for range 2 {
		if n := plan(t, p, m, &Choice{}); !n.None || n.Right != 3 || !slices.Equal(n.Changed, []string{"log.txt"}) {
			t.Errorf("the plan for a later one: %+v", n)
		}
	}
}

// What was changed here is left and named, whatever it became.
func TestChanged(t *testing.T) {
	m, contents := result(t)
	outside := t.TempDir()
	tests := []struct {
		name    string
		change  func(job string) error
		changed []string
	}{
		{"another size", func(job string) error { return os.WriteFile(job+"/log.txt", []byte("mine"), 0o644) }, []string{"log.txt"}},
		{"the same size", func(job string) error { return os.WriteFile(job+"/log.txt", []byte("mine\n"), 0o644) }, []string{"log.txt"}},
		{"a link", func(job string) error {
			return errors.Join(os.Remove(job+"/log.txt"), os.Symlink("z.csv", job+"/log.txt"))
		}, []string{"log.txt"}},
		{"a pipe", func(job string) error {
			return errors.Join(os.Remove(job+"/log.txt"), syscall.Mkfifo(job+"/log.txt", 0o600))
		}, []string{"log.txt"}},
		{"another link", func(job string) error {
			return errors.Join(os.Remove(job+"/last.csv"), os.Symlink("log.txt", job+"/last.csv"))
		}, []string{"last.csv"}},
		{"a link for a directory", func(job string) error {
			return errors.Join(os.RemoveAll(job+"/fields"), os.Symlink(outside, job+"/fields"))
		}, []string{"fields"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			p := at(t, top)
			if err := carry(t, plan(t, p, m, &Choice{}), contents, 0); err != nil {
				t.Fatal(err)
			}
			job := filepath.Join(top, "n/b/j")
			if err := tt.change(job); err != nil {
				t.Fatal(err)
			}
			n := plan(t, p, m, &Choice{})
			if !slices.Equal(n.Changed, tt.changed) || !n.None {
				t.Errorf("changed %q, wants %+v", n.Changed, n.Want)
			}
		})
	}
	if got := tree(t, outside); got != "./\n" {
		t.Errorf("something was written outside:\n%s", got)
	}
}

// A pull that is cut at any byte leaves whole files and a hidden part, and
// goes on from there.
func TestResume(t *testing.T) {
	m, contents := result(t)
	big := make([]byte, 300_000)
	noise := rand.New(rand.NewPCG(1, 2))
	for i := range big {
		big[i] = byte(noise.Uint32())
	}
	contents["fields/a.vtk"] = string(big)
	m[2] = file("fields/a.vtk", string(big))
	resumed := false
	for cut := 10; cut < 60_000; cut += 3000 {
		top := t.TempDir()
		p := at(t, top)
		if err := carry(t, plan(t, p, m, &Choice{}), contents, cut); err == nil {
			t.Fatalf("a stream without its last %d bytes was taken for a whole one", cut)
		}
		n := plan(t, p, m, &Choice{})
		resumed = resumed || n.Want.From > 0
		if want := int64(len(big)) - n.Want.From; n.Want.Ranges[0][0] == 2 && n.Bytes != want+13 {
			t.Errorf("%d bytes are to be moved, %d of the first file", n.Bytes, want)
		}
		if err := carry(t, n, contents, 0); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, filepath.Join(top, "n/b/j")); strings.Contains(got, ".dpull") || strings.Count(got, "\n") != 8 {
			t.Errorf("after the second pull:\n%s", got)
		}
		if data, err := os.ReadFile(filepath.Join(top, "n/b/j/fields/a.vtk")); err != nil || string(data) != string(big) {
			t.Errorf("the large file is wrong (%v)", err)
		}
	}
	if !resumed {
		t.Error("no pull went on within a file")
	}
}

// Two pulls of one job at once do not write into one file.
func TestTwoAtOnce(t *testing.T) {
	m, contents := result(t)
	top := t.TempDir()
	p := at(t, top)
	if err := os.MkdirAll(filepath.Join(top, "n/b/j/fields"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "n/b/j", hidden(&m[2])), []byte("vtk"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := plan(t, p, m, &Choice{}), plan(t, p, m, &Choice{})
	for _, n := range []*Plan{second, first} {
		if err := carry(t, n, contents, 0); err != nil {
			t.Fatal(err)
		}
		if n.Changed != nil {
			t.Errorf("changed: %q", n.Changed)
		}
	}
	if got := tree(t, filepath.Join(top, "n/b/j")); got != whole {
		t.Errorf("got\n%swant\n%s", got, whole)
	}
}

func TestLinkOnTheWay(t *testing.T) {
	top, elsewhere := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, target := range []string{elsewhere, "real"} {
		if err := errors.Join(os.MkdirAll(top+"/real", 0o755), os.RemoveAll(top+"/n"), os.Symlink(target, top+"/n")); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(root, "n/b/j", true); !errors.Is(err, ErrInTheWay) {
			t.Errorf("through a link to %q: %v", target, err)
		}
	}
}

// Where no directory can be made, as in one that is removed meanwhile, that is an error.
func TestPlaceRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if p, err := Open(root, "n/b/j", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the place is %v, and the error %v", p, err)
	}
}

// Many separate files are asked for in portions.
func TestManyRanges(t *testing.T) {
	var m pack.Manifest
	for i := range 2*pack.MaxRanges + 20 {
		m = append(m, file("f"+string(rune('a'+i/10000))+string(rune('0'+i/1000%10))+string(rune('0'+i/100%10))+string(rune('0'+i/10%10))+string(rune('0'+i%10)), ""))
	}
	odd := &Choice{Include: []*regexp.Regexp{regexp.MustCompile(`[13579]$`)}}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	p, err := Open(root, "n/b/j", false)
	if err != nil {
		t.Fatal(err)
	}
	n, err := p.Plan(t.Context(), m, odd, false)
	if err != nil || n.Whole || len(n.Want.Ranges) != pack.MaxRanges || n.Files != pack.MaxRanges {
		t.Errorf("the plan: %d ranges, whole %v, %v", len(n.Want.Ranges), n.Whole, err)
	}
}

// A plan leaves out the files to skip, and names no more than it may: the rest is for the next.
func TestSomeFiles(t *testing.T) {
	m, contents := result(t)
	p := at(t, t.TempDir())
	c := &Choice{Most: 2, Skip: map[string]bool{"fields/b.csv": true}}
	for _, want := range []struct {
		whole bool
		files string
	}{{false, "fields/a.vtk log.txt"}, {true, "z.csv"}} {
		n := plan(t, p, m, c)
		var got []string
		for _, r := range n.Want.Ranges {
			for _, e := range m[r[0]:r[1]] {
				got = append(got, e.Path)
			}
		}
		if files := strings.Join(got, " "); n.Whole != want.whole || files != want.files {
			t.Errorf("the plan: %q, whole %v; want %q, %v", files, n.Whole, want.files, want.whole)
		}
		if err := carry(t, n, contents, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := plan(t, p, m, c); !n.None || !n.Whole {
		t.Errorf("in the end %+v is wanted, whole %v", n.Want, n.Whole)
	}
}
