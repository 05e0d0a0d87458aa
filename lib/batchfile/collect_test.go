package batchfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/job"
)

// tree makes files below a new directory: a path that ends in "/" is a
// directory, "path -> target" a link, "path!" executable, and the content of a
// file is its path.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		n, target, link := strings.Cut(n, " -> ")
		n, exec := strings.CutSuffix(n, "!")
		mode := fs.FileMode(0o644)
		if exec {
			mode = 0o755
		}
		name := filepath.Join(dir, n)
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, name)
		case strings.HasSuffix(n, "/"):
			err = os.MkdirAll(name, 0o755)
		default:
			err = os.WriteFile(name, []byte(n), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// collect reads a batch file that lies in dir as f.yaml.
func collect(t *testing.T, dir, text string) (*job.Batch, error) {
	t.Helper()
	f, err := ParseFile(filepath.Join(dir, "f.yaml"), []byte(meta+text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return f.Collect(t.Context(), nil)
}

// list shows inputs as path:mode, and checks their sums by what tree wrote.
func list(t *testing.T, b *job.Batch, in []job.Input) string {
	t.Helper()
	var s []string
	for _, i := range in {
		src, ok := b.Sources[i.Sum]
		if !ok || src.Size != i.Size {
			t.Errorf("%s: no source of %d bytes with sum %s", i.Path, i.Size, i.Sum)
			continue
		}
		f, err := src.Open()
		if err != nil {
			t.Error(err)
			continue
		}
		data, _ := io.ReadAll(f)
		f.Close()
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != i.Sum || job.CheckPath(i.Path) != nil {
			t.Errorf("%s: wrong sum or path", i.Path)
		}
		s = append(s, fmt.Sprintf("%s:%o=%s", i.Path, i.Mode, data))
	}
	return strings.Join(s, " ")
}

func TestCollect(t *testing.T) {
	dir := tree(t, "solve!", "-x", "b.py", "main.py", "x.sif", "a.txt", "d/one", "d/sub/two", "d/.dot", "d/.distribute-q7x.yaml", "d/empty/", "link -> a.txt", "dirlink -> d",
		"g/1.in", "g/2.in", "g/.3.in", "g/.distribute-q7x.yaml", "g/x[1]", "sub/run.sh!", "sub/par.txt")
	for _, c := range []struct{ in, batch, jobs string }{
		{"python: {initialize: {build_file: b.py, required_files: [a.txt]}, jobs: [{name: j, file: {path: main.py, alias: m.py}, required_files: [{path: link, alias: q/c.txt}]}, {name: k, file: b.py}]}",
			"b.py:644=b.py input/a.txt:644=a.txt", "m.py:644=main.py input/q/c.txt:644=a.txt; "},
		{"command: {initialize: {required_files: [d, {path: dirlink, alias: e}]}, jobs: [{name: j, run: [\"true\"]}]}",
			"input/d/.dot:644=d/.dot input/d/one:644=d/one input/d/sub/two:644=d/sub/two input/e/.dot:644=d/.dot input/e/one:644=d/one input/e/sub/two:644=d/sub/two", ""},
		{"command: {initialize: {required_files: [\"g/*.in\", {path: \"g/[12].in\", alias: h}, \"g/x[1]\", \"g/.*\"]}, jobs: [{name: j, run: [\"true\"]}]}",
			"input/1.in:644=g/1.in input/2.in:644=g/2.in input/h/1.in:644=g/1.in input/h/2.in:644=g/2.in input/x[1]:644=g/x[1] input/.3.in:644=g/.3.in", ""},
		{"command: {initialize: {build: [sh, sub/run.sh]}, jobs: [{name: j, run: [./solve, ./sub/../a.txt, a.txt, d, -x, none, /etc/hosts, \"\", sub/run.sh]}, {name: k, run: [./made, a.txt]}]}",
			"sub/run.sh:755=sub/run.sh", "solve:755=solve a.txt:644=a.txt; a.txt:644=a.txt"},
		{"command: {jobs: [{name: j, run: [./solve, sub/par.txt], required_files: [{path: a.txt, alias: par.txt}]}, {name: k, run: [./solve]}, {name: l, run: [./solve]}]}",
			"", "input/par.txt:644=a.txt solve:755=solve sub/par.txt:644=sub/par.txt; solve:755=solve; solve:755=solve"},
	} {
		b, err := collect(t, dir, c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		var jobs []string
		for _, j := range b.Jobs {
			jobs = append(jobs, list(t, b, j.Inputs))
		}
		if got := list(t, b, b.Spec.Inputs); got != c.batch || strings.Join(jobs, "; ") != c.jobs {
			t.Errorf("%s:\n got %s\n     %s\nwant %s\n     %s", c.in, got, strings.Join(jobs, "; "), c.batch, c.jobs)
		}
	}
	b, err := collect(t, dir, "apptainer: {initialize: {sif: {path: x.sif, alias: y.sif}}, jobs: [{name: j}]}")
	if err != nil || b.Spec.Image == nil || list(t, b, []job.Input{*b.Spec.Image}) != "y.sif:644=x.sif" || len(b.Spec.Inputs) != 0 {
		t.Errorf("image: %v %+v", err, b)
	}
}

// A pattern fits a directory whose name is not UTF-8, as a file in it lies at a place without it.
func TestCollectOtherNames(t *testing.T) {
	dir := tree(t, "donn\xe9es/m.csv", "ok/n.csv", "d\xe9/a/b.csv")
	for pattern, want := range map[string]string{"*/*.csv": "input/m.csv input/n.csv", "d?/*/b*": "input/b.csv"} {
		b, err := collect(t, dir, "command: {initialize: {required_files: [\""+pattern+"\"]}, jobs: [{name: j, run: [\"true\"]}]}")
		got := ""
		if err == nil {
			for _, in := range b.Spec.Inputs {
				got += " " + in.Path
			}
			got = got[1:]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q: %v", pattern, got, want, err)
		}
	}
}

// A directory is no pattern, whatever its name: that of the batch file, and one that is there.
func TestCollectInBrackets(t *testing.T) {
	top := tree(t, "data[1]/m.csv", "data1/m.csv", "runs [2024]/in/m.csv", "runs 2/in/m.csv", `a\b/m.csv`, "ab/m.csv", "*/m.csv", "x/y/m.csv")
	for in, want := range map[string]string{
		"data[1]":        "*.csv",
		"runs [2024]":    "in/*.csv",
		"runs [2024]/in": "../in/*.csv",
		`a\b`:            "*.csv",
		"*":              "*.csv",
		".":              "runs [2024]/in/*.csv",
		"x":              "../data[1]/*.csv",
	} {
		b, err := collect(t, filepath.Join(top, in), "command: {initialize: {required_files: [\""+want+"\"]}, jobs: [{name: j, run: [\"true\"]}]}")
		if err != nil || len(b.Spec.Inputs) != 1 {
			t.Errorf("in %s: %v", in, err)
			continue
		}
		dir := in
		if in == "." || in == "x" {
			dir = strings.TrimPrefix(filepath.Dir(want), "../")
		} else if in == "runs [2024]" {
			dir = "runs [2024]/in"
		}
		if got, want := list(t, b, b.Spec.Inputs), "input/m.csv:644="+dir+"/m.csv"; got != want {
			t.Errorf("in %s: got %s, want %s", in, got, want)
		}
	}
}

// A file whose place has another one is no source: the head does not know of it, and counts
// differently what it lacks.
func TestCollectSources(t *testing.T) {
	dir := tree(t, "solve!", "input/case", "data/case", "far/a/", "far/x", "up -> far/a", "x")
	for _, text := range []string{
		"command: {jobs: [{name: j, run: [./solve, input/case], required_files: [{path: data/case}]}]}",
		"command: {initialize: {build: [./solve, input/case], required_files: [data/case]}, jobs: [{name: j, run: [./solve, input/case]}]}",
		"command: {jobs: [{name: j, run: [./solve, up/../x, x]}, {name: k, run: [./solve]}]}",
	} {
		b, err := collect(t, dir, text)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]bool{}
		for _, in := range b.Spec.Inputs {
			named[in.Sum] = true
		}
		for _, j := range b.Jobs {
			for _, in := range j.Inputs {
				named[in.Sum] = true
			}
		}
		if len(b.Sources) != len(named) {
			t.Errorf("%s: %d sources for %d files", text, len(b.Sources), len(named))
		}
	}
	b, err := collect(t, dir, "command: {jobs: [{name: j, run: [./solve, up/../x]}, {name: k, run: [./solve, far/x]}]}")
	if err != nil {
		t.Fatal(err)
	}
	if got := list(t, b, b.Jobs[1].Inputs); got != "solve:755=solve far/x:644=far/x" {
		t.Errorf("the same file at another place: %s", got)
	}
}

// An input has the time of its file, each file of the same content its own; what is made of a
// template has the time at which it was made.
func TestCollectTimes(t *testing.T) {
	dir := tree(t, "a", "b", "case.in")
	content := []byte("the same")
	times := map[string]time.Time{"input/a": time.Unix(-2, 5e8), "input/b": time.Unix(1764400000, 123456789), "input/case": time.Unix(1, 0)}
	for path, at := range times {
		name := filepath.Join(dir, filepath.Base(path))
		if path == "input/case" {
			name += ".in"
		}
		if err := errors.Join(os.WriteFile(name, content, 0o644), os.Chtimes(name, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now()
	b, err := collect(t, dir, "command: {initialize: {required_files: [a]}, jobs: [{name: j, run: [\"true\"], required_files: [b, {path: case.in, fill: true}]}]}")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range append(b.Spec.Inputs, b.Jobs[0].Inputs...) {
		got := in.ModTime()
		if in.Path == "input/case" {
			if got.Before(before) || got.After(time.Now()) {
				t.Errorf("%s: %v", in.Path, got)
			}
		} else if !got.Equal(times[in.Path]) {
			t.Errorf("%s: %v, want %v", in.Path, got, times[in.Path])
		}
		delete(times, in.Path)
	}
	if len(times) > 0 {
		t.Errorf("there is no %v", times)
	}
}

// A name that goes up from a link to a directory is what it is to other programs.
func TestUpFromLink(t *testing.T) {
	dir := tree(t, "x.csv", "y.csv", "real/x.csv", "real/2.in", "real/deep/down/z", "link -> real/deep", "sub/f", "1.in", "cases.csv", "real/cases.csv")
	for name, want := range map[string]string{
		"link/../x.csv":           "input/x.csv:644=real/x.csv",
		"link/../../y.csv":        "input/y.csv:644=y.csv",
		"link/down/../../2.in":    "input/2.in:644=real/2.in",
		"link/../*.in":            "input/2.in:644=real/2.in",
		"link/../deep":            "input/deep/down/z:644=real/deep/down/z",
		"sub/../x.csv":            "input/x.csv:644=x.csv",
		dir + "/link/../x.csv":    "input/x.csv:644=real/x.csv",
		dir + "/sub/.././x.csv":   "input/x.csv:644=x.csv",
		"link/down/../../../1.in": "input/1.in:644=1.in",
	} {
		b, err := collect(t, dir, "command: {initialize: {required_files: [\""+name+"\"]}, jobs: [{name: j, run: [\"true\"]}]}")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := list(t, b, b.Spec.Inputs); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	for _, name := range []string{"link/../y.csv", "none/../x.csv"} {
		if _, err := collect(t, dir, "command: {initialize: {required_files: ["+name+"]}, jobs: [{name: j, run: [\"true\"]}]}"); err == nil || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, err := collect(t, dir, "command: {jobs: [{name: j, run: [cat, link/../x.csv]}]}")
	if err != nil || list(t, b, b.Jobs[0].Inputs) != "x.csv:644=real/x.csv" {
		t.Errorf("of a command: %v", err)
	}
}

// Many files are held apart as a few are.
func TestCollectMany(t *testing.T) {
	var names, jobs []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("d/%02d/f", i))
		jobs = append(jobs, fmt.Sprintf("{path: d/%02d/f, alias: %02d}", i, i))
	}
	dir := tree(t, append(names, "x")...)
	b, err := collect(t, dir, "command: {initialize: {required_files: [d]}, jobs: [{name: j, run: [\"true\"], required_files: ["+strings.Join(jobs, ", ")+"]}]}")
	if err != nil || len(b.Spec.Inputs) != 30 || len(b.Jobs[0].Inputs) != 30 || b.Jobs[0].Inputs[29].Path != "input/29" {
		t.Errorf("%v %+v", err, b)
	}
	for alias, ok := range map[string]bool{"d/29/f": false, "d/29": false, "d/29/f/g": false, "d/30": true} {
		_, err := collect(t, dir, "command: {initialize: {required_files: [d]}, jobs: [{name: j, run: [\"true\"], required_files: [{path: x, alias: "+alias+"}]}]}")
		if (err == nil) != ok {
			t.Errorf("x at %s: %v", alias, err)
		}
	}
}

// Equal lists of inputs are one slice, so that memory does not grow with jobs.
func TestCollectShares(t *testing.T) {
	dir := tree(t, "p.py", "b.py", "a.txt")
	b, err := collect(t, dir, "python: {initialize: {build_file: b.py}, jobs: [{name: j, file: p.py, required_files: [a.txt]}, {name: k, file: p.py, required_files: [a.txt]}]}")
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Jobs[0].Inputs) != 2 || &b.Jobs[0].Inputs[0] != &b.Jobs[1].Inputs[0] {
		t.Errorf("%v", b.Jobs)
	}
}

func TestCollectMistakes(t *testing.T) {
	dir := tree(t, "a", "b", "sub/a", "d/x", "e/", "l/dl -> ../d", "l/gone -> nowhere", "plain", "c/a", "c/b/f", "loop -> loop", "odd/a\nb", "secret")
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, want string }{
		{"{required_files: [none, {path: none, alias: m}, a]}", "2:41: \"none\" does not exist (sought at \"DIR/none\")\n2:54: \"none\" does not exist (sought at \"DIR/none\")"},
		{"{required_files: [fifo, /dev/null, e]}", "2:41: \"DIR/fifo\" is a FIFO, and a file is wanted\n2:47: \"/dev/null\" is a device, and a file is wanted\n2:58: directory \"DIR/e\" has no files"},
		{"{required_files: [/proc/self, /proc/cpuinfo, \"/proc/[s]ys\"]}", "2:41: \"/proc/self\" is on proc, a file system of the kernel, which has no files to send: copy it to a file first\n" +
			"2:53: \"/proc/cpuinfo\" is on proc, a file system of the kernel, which has no files to send: copy it to a file first\n" +
			"2:68: \"/proc/sys\" is on proc, a file system of the kernel, which has no files to send: copy it to a file first"},
		{"{required_files: [\"[!a]\"]}", "2:41: \"[!a]\": what is [! elsewhere is [^ here"},
		{"{required_files: [\"*.none\", \"nodir/*\", \"[\", a/b]}", "2:41: \"*.none\" fits no file\n2:51: \"nodir/*\" does not exist (sought at \"DIR/nodir\")\n2:62: \"[\" is no pattern: check its brackets\n2:67: \"a/b\" cannot be read: not a directory"},
		{"{required_files: [l]}", "2:41: \"DIR/l/dl\" is a symbolic link to a directory, which is not followed: name that directory\n2:41: \"DIR/l/gone\" is a symbolic link to nothing that can be read"},
		{"{required_files: [loop]}", "2:41: \"loop\" cannot be read: too many levels of symbolic links"},
		{"{required_files: [odd]}", "2:41: \"DIR/odd/a\\nb\" cannot lie at \"input/odd/a\\nb\", which has control characters"},
		{"{required_files: [a, \"sub/*\"]}", "2:44: \"DIR/a\" and \"DIR/sub/a\" would both lie at \"input/a\": give one of them another alias"},
		{"{required_files: [c, {path: plain, alias: c/a}, {path: plain, alias: c/b}, {path: b, alias: c/a/z}]}",
			"2:51: \"DIR/c/a\" and \"DIR/plain\" would both lie at \"input/c/a\": give one of them another alias\n" +
				"2:78: \"DIR/plain\" would lie at \"input/c/b\", where another file needs a directory, or is one: give one of them another alias\n" +
				"2:105: \"DIR/b\" would lie at \"input/c/a/z\", where another file needs a directory, or is one: give one of them another alias"},
		{"{build: [./plain, x]}", "2:31: program \"./plain\" cannot be run: chmod +x \"DIR/plain\""},
		{"{build: [sub/../../plain, x]}", "2:31: program \"sub/../../plain\" is not sent, as it is not below this directory: among the required files (-i) it is input/plain"},
		{"{build: [./none, x]}", "2:31: program \"./none\" is not there: there is no such file, and no build to make it"},
	} {
		_, err := collect(t, dir, "command: {initialize: "+c.in+", jobs: [{name: j, run: [\"true\"]}]}")
		want := dir + "/f.yaml:" + strings.ReplaceAll(strings.ReplaceAll(c.want, "\n", "\n"+dir+"/f.yaml:"), "DIR", dir)
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", c.in, err, want)
		}
	}
	_, err := collect(t, dir, "command: {jobs: [{name: j, run: [./plain]}, {name: k, run: [bin/none]}, {name: l, run: [/bin/sh]}, {name: m, run: [a], required_files: [no]}, {name: n, run: [../run.sh, ../a]}]}")
	want := fmt.Sprintf("%[1]s/f.yaml:2:18: program \"./plain\" cannot be run: chmod +x \"%[1]s/plain\"\n"+
		"%[1]s/f.yaml:2:45: program \"bin/none\" is not there: there is no such file, and no build to make it\n"+
		"%[1]s/f.yaml:2:137: \"no\" does not exist (sought at \"%[1]s/no\")\n"+
		"%[1]s/f.yaml:2:143: program \"../run.sh\" is not sent, as it is not below this directory: among the required files (-i) it is input/run.sh", dir)
	if err == nil || err.Error() != want || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf(" got %v\nwant %s", err, want)
	}
}

func TestCollectUnreadable(t *testing.T) {
	dir := tree(t, "secret", "d/x")
	if err := errors.Join(os.Chmod(filepath.Join(dir, "secret"), 0), os.Chmod(filepath.Join(dir, "d"), 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "secret")); err == nil {
		t.Skip("permissions do not bind this user")
	}
	_, err := collect(t, dir, "command: {initialize: {required_files: [secret, d]}, jobs: [{name: j, run: [\"true\"]}]}")
	want := fmt.Sprintf("%[1]s/f.yaml:2:41: \"%[1]s/secret\" cannot be read: permission denied\n%[1]s/f.yaml:2:49: \"%[1]s/d\" cannot be read: permission denied", dir)
	if err == nil || err.Error() != want {
		t.Errorf(" got %v\nwant %s", err, want)
	}
	os.Chmod(filepath.Join(dir, "d"), 0o755)
}

// A file that is written to while it is hashed, or after, is told.
func TestChanges(t *testing.T) {
	dir := tree(t, "b.py")
	name := filepath.Join(dir, "big")
	if err := os.WriteFile(name, make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := ParseFile(filepath.Join(dir, "f.yaml"), []byte(meta+"command: {jobs: [{name: j, run: [cat, big]}]}"))
	if err != nil {
		t.Fatal(err)
	}
	add := func() {
		w, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = w.WriteString("more")
			err = errors.Join(err, w.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	once := false
	_, err = f.Collect(t.Context(), func(n, total int64) {
		if !once {
			once = true
			add()
		}
	})
	if !errors.Is(err, job.ErrChanged) || !strings.HasPrefix(err.Error(), dir+"/f.yaml:2:18: ") {
		t.Errorf("changed while it was hashed: %v", err)
	}
	b, err := f.Collect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	add()
	for _, s := range b.Sources {
		if _, err := s.Open(); !errors.Is(err, job.ErrChanged) {
			t.Errorf("changed after it was hashed: %v", err)
		}
	}
}

func TestCollectStops(t *testing.T) {
	dir := tree(t, "a")
	f, err := ParseFile(filepath.Join(dir, "f.yaml"), []byte(meta+"command: {jobs: [{name: j, run: [cat, a]}]}"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := f.Collect(ctx, nil); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestProgressAddsUp(t *testing.T) {
	dir := tree(t, "a", "bb", "ccc")
	f, err := ParseFile(filepath.Join(dir, "f.yaml"), []byte(meta+"command: {jobs: [{name: j, run: [cat, a, bb, ccc]}]}"))
	if err != nil {
		t.Fatal(err)
	}
	sum, all := int64(0), int64(0)
	if _, err := f.Collect(t.Context(), func(n, total int64) { sum, all = sum+n, total }); err != nil || sum != 6 || all != 6 {
		t.Errorf("%d of %d bytes: %v", sum, all, err)
	}
}

func TestOnly(t *testing.T) {
	f, err := ParseFile("f", []byte(meta+"command: {jobs: [{name: a, run: [x], required_files: [none]}, {name: b, run: [y]}, {name: c, run: [z]}]}"))
	if err != nil {
		t.Fatal(err)
	}
	f.Only(func(name string) bool { return name != "a" })
	b, err := f.Collect(t.Context(), nil)
	if err != nil || len(b.Jobs) != 2 || b.Jobs[0].Run[0] != "y" || b.Jobs[1].Name != "c" {
		t.Errorf("%v %+v", err, b)
	}
}

func TestCheckPath(t *testing.T) {
	for p, ok := range map[string]bool{"a": true, "a/b.c": true, "é": true, "-x": true, "...": true, "": false, ".": false, "..": false, "../a": false,
		"/a": false, "a/../b": false, "a//b": false, "a/": false, "./a": false, "a\nb": false, "a\x00": false, "\xff": false, "a\u0085": false,
		strings.Repeat("a", 255): true, strings.Repeat("a", 256): false, strings.Repeat("a/", 600) + "b": false} {
		if err := job.CheckPath(p); (err == nil) != ok {
			t.Errorf("CheckPath(%.40q): %v", p, err)
		}
	}
}

// One hundred thousand jobs are read, found and hashed; what that costs is
// measured.
func BenchmarkManyJobs(b *testing.B) {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "solve"), []byte("x"), 0o755); err != nil {
		b.Fatal(err)
	}
	var s strings.Builder
	s.WriteString(meta + "command:\n  jobs:\n")
	for i := range 100_000 {
		fmt.Fprintf(&s, "    - name: j%d\n      run: [./solve, --n, \"%d\"]\n", i, i)
	}
	data := []byte(s.String())
	b.ReportAllocs()
	for b.Loop() {
		f, err := ParseFile(filepath.Join(dir, "f.yaml"), data)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.Collect(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// The same by lines.
func BenchmarkManyLines(b *testing.B) {
	lines := make([]string, 100_000)
	for i := range lines {
		lines[i] = fmt.Sprint(i)
	}
	t := Template{Namespace: "n", Name: "b", Command: []string{"./run", "{}"}, Dir: b.TempDir()}
	if err := os.WriteFile(filepath.Join(t.Dir, "run"), []byte("x"), 0o755); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		f, err := t.File(lines)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.Collect(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}
