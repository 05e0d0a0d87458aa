package batchfile

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
)

func template(command ...string) *Template {
	return &Template{Namespace: "n", Name: "b", Command: command}
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		command, job string
		lines        []string
		want         string
	}{
		{"./run {}", "", []string{"1", "2"}, `1 ["./run" "1"]; 2 ["./run" "2"]`},
		{"./run {}", "", []string{"a b", " ", "", "x/../y"}, `a_b ["./run" "a b"]; x_.._y ["./run" "x/../y"]`},
		{"x {#}-{2}-{1}", "", []string{"a  b c", "d\te f\t"}, `a__b_c ["x" "1-b-a"]; d_e_f ["x" "2-e f-d"]`},
		{"x {1} {2}", "", []string{"a=1\tv", "a=2 3\t"}, `a=1_v ["x" "a=1" "v"]; a=2_3 ["x" "a=2 3" ""]`},
		{"x {n} --nu={nu}{n}", "", []string{"n=64\tnu=0.1", "nu=0.2 n=128 nn=3"}, `n=64_nu=0.1 ["x" "64" "--nu=0.164"]; nu=0.2_n=128_nn=3 ["x" "128" "--nu=0.2128"]`},
		{"x {} {{n}} {{}} {a b} ${HOME} } {", "", []string{"HOME=h"}, `HOME=h ["x" "HOME=h" "{n}" "{}" "{a" "b}" "$h" "}" "{"]`},
		{"x {}", "", []string{"-5", ".a", "-rf", "x.yaml", "é", "a", "a", "a", "a_2"}, `_-5 ["x" "-5"]; _.a ["x" ".a"]; _-rf ["x" "-rf"]; x.yaml_ ["x" "x.yaml"]; _ ["x" "é"]; a ["x" "a"]; a_2 ["x" "a"]; a_3 ["x" "a"]; a_2_2 ["x" "a_2"]`},
		{"x {}", "case-{#}", []string{"p q", "../r"}, `case-1 ["x" "p q"]; case-2 ["x" "../r"]`},
		{"x {}", "c{1}", []string{"p/q", "r s"}, `cp_q ["x" "p/q"]; cr ["x" "r s"]`},
		{"x", "j{#}", []string{"a", "b"}, `j1 ["x"]; j2 ["x"]`},
		{"/bin/true {{n}}", "", nil, `true ["/bin/true" "{n}"]`},
		{"./-x", "", nil, `_-x ["./-x"]`},
		{"x", "me", nil, `me ["x"]`},
	} {
		tm := template(strings.Fields(c.command)...)
		tm.Job = c.job
		if tm.NeedsLines() != (c.lines != nil) {
			t.Errorf("%s: NeedsLines is %v", c.command, tm.NeedsLines())
		}
		f, err := tm.File(c.lines)
		if err != nil {
			t.Errorf("%s: %v", c.command, err)
			continue
		}
		var got []string
		for _, j := range f.Jobs {
			if err := job.CheckName(j.Name); err != nil {
				t.Error(err)
			}
			got = append(got, fmt.Sprintf("%s %q", j.Name, j.Run))
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.command, s, c.want)
		}
		if again, err := ParseFile("f", f.Data); err != nil || fmt.Sprint(again.Jobs) != fmt.Sprint(f.Jobs) {
			t.Errorf("%s: the record reads as %v: %v", f.Data, again, err)
		}
	}
}

// Long lines that differ only beyond what a name can hold get different names.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 300)
	f, err := template("x", "{}").File([]string{long + "1", long + "2", long + "3"})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, j := range f.Jobs {
		if job.CheckName(j.Name) != nil || seen[j.Name] {
			t.Errorf("name %q", j.Name)
		}
		seen[j.Name] = true
	}
}

func TestLineMistakes(t *testing.T) {
	for _, c := range []struct {
		t     Template
		lines []string
		want  string
	}{
		{Template{Command: []string{"x", "{3}", "{n}"}}, []string{"a b", "n=1 b c"}, "standard input:1: {3} is wanted, and the line has fields up to {2} (write {{3}} if that is meant as text)\n" +
			"standard input:1: {n} is wanted, and the line has no field n=… (write {{n}} if that is meant as text)"},
		{Template{Command: []string{"x", "{}"}, Job: "j"}, []string{"a", "b"}, `standard input:2: -J: a second job is named "j" (the first is of line 1): add {#} or another field`},
		{Template{Command: []string{"x", "{}"}, Job: "j"}, []string{"", "a", "b", "c"}, `standard input:3: -J: a second job is named "j" (the first is of line 2): add {#} or another field` + "\n" +
			`standard input:4: -J: a second job is named "j" (the first is of line 2): add {#} or another field`},
		{Template{Command: []string{"x", "{}"}, Job: "-{}"}, []string{"a"}, `standard input:1: -J: bad name "-a": it must not start with '-'`},
		{Template{Command: []string{"x"}, Job: "a b"}, nil, `-J: bad name "a b": ' ' is not allowed (letters, digits and . _ - + = @ % are)`},
		{Template{Command: []string{"{1}"}}, []string{"\tx"}, "standard input:1: the command is empty, or longer than 131072 bytes"},
		{Template{}, nil, "the command: there is no command after --"},
		{Template{Command: []string{"x", "\xff"}}, nil, `the command: the word "\xff" is not UTF-8 text`},
		{Template{Command: []string{"x\x00"}}, nil, `the command: the word "x\x00" holds a zero byte`},
		{Template{Command: []string{"x"}, Requests: []string{"cores=2"}}, nil, `-R: request "cores=2": "cores" is nothing that is counted by its name (did you mean "cpus"?)`},
		{Template{Command: []string{"x"}, Requests: []string{"matlab=two"}}, nil, `-R: request "matlab=two": there is no "matlab" to compare: known are node, arch, cpus, memory, disk, gpus, gpu.memory, gpu.model, capability (cpus=N, memory=SIZE, gpus=N, disk=SIZE, time=LENGTH, ranks=N, and NAME=N of what is counted, are what a job gets; all else is what its node is to be)`},
		{Template{Command: []string{"x"}, Requests: []string{"matlab=1000001"}}, nil, `-R: request "matlab=1000001": a whole number from 0 to 1000000 is wanted`},
		{Template{Command: []string{"x"}, Requests: []string{"time=90"}}, nil, `-R: request "time=90": "90" has no unit: write 90s, 90m or 90h`},
		{Template{Command: []string{"x"}, Requests: []string{"memory=2"}}, nil, `-R: request "memory=2": "2" has no unit: write 2M or 2G`},
		{Template{Command: []string{"x"}, Requests: []string{"disk=20"}}, nil, `-R: request "disk=20": "20" has no unit: write 20M or 20G`},
		{Template{Command: []string{"x"}, Requests: []string{"memory>=64"}}, nil, `-R: request "memory>=64": "64" has no unit: write 64M or 64G (cpus=N, memory=SIZE, gpus=N, disk=SIZE, time=LENGTH, ranks=N, and NAME=N of what is counted, are what a job gets; all else is what its node is to be)`},
		{Template{Command: []string{"x"}, Requests: []string{"gpus="}}, nil, `-R: request "gpus=": "" is no amount of GPUs: write a whole number from 0 to 1024, or a part of one as 0.5`},
		{Template{Command: []string{"x"}, Requests: []string{"cpus=1,gpus=0.001"}}, nil, `-R: request "gpus=0.001": "0.001" is less than 0.01, the least part of a GPU`},
		{Template{Command: []string{"x"}, Requests: []string{"cpus=0"}}, nil, `-R: request "cpus=0": cpus must be a whole number from 1 to 65536, or all`},
		{Template{Command: []string{"x"}, Requests: []string{"a||b"}}, nil, `-R: request "a||b": an alternative is empty (cpus=N, memory=SIZE, gpus=N, disk=SIZE, time=LENGTH, ranks=N, and NAME=N of what is counted, are what a job gets; all else is what its node is to be)`},
		{Template{Command: []string{"x"}, Inputs: []string{"", "."}}, nil, "-i: a path is empty\n-i: \".\" is the whole directory: name what is wanted in it"},
		{Template{Command: []string{"x"}, Inputs: []string{"..", "/.", "a/../.."}}, nil, "-i: \"..\" is the whole directory: name what is wanted in it\n" +
			"-i: \"/.\" is the whole directory: name what is wanted in it\n-i: \"a/../..\" is the whole directory: name what is wanted in it"},
		{Template{Command: []string{"x"}, Inputs: []string{"/a/x", "../x"}}, nil, `-i: "../x" would lie at "input/x", where "/a/x" lies`},
	} {
		c.t.Namespace, c.t.Name = "n", "b"
		if _, err := c.t.File(c.lines); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.t.Command, err, c.want)
		}
	}
	for _, c := range []struct {
		t    Template
		line string // of each job; %d is its number
		want string // of each line that is told
	}{
		{Template{Command: []string{"x"}, Job: "-{#}"}, "", `: -J: bad name "-%d": it must not start with '-'`},
		{Template{Command: []string{"x", "{}"}, Job: "-x"}, "a", `: -J: bad name "-x": it must not start with '-'`},
		{Template{Command: []string{"x", "{n}", "{n}", "{}"}}, "a", ": {n} is wanted, and the line has no field n=… (write {{n}} if that is meant as text)"},
		{Template{Command: []string{"x"}, Env: []string{"A={n}"}}, "a", ": -e: {n} is wanted, and the line has no field n=… (write {{n}} if that is meant as text)"},
		{Template{Objects: true}, `{"run": ["x"], "need": "a"}`, `: unknown key "need" (did you mean "needs"?)`},
	} {
		c.t.Namespace, c.t.Name = "n", "b"
		var lines []string
		want := ""
		for i := range 2000 {
			lines = append(lines, cmp.Or(c.line, fmt.Sprint(i+1)))
			if i < 3 {
				want += fmt.Sprintf("standard input:%d%s\n", i+1, strings.ReplaceAll(c.want, "%d", fmt.Sprint(i+1)))
			}
		}
		if _, err := c.t.File(lines); err == nil || err.Error() != want+"standard input: and 1997 more mistakes" {
			t.Errorf("%q of 2000 lines:\n got %.600v\nwant %s", c.t.Command, err, want)
		}
		if _, err := c.t.File(lines[:4]); err == nil || err.Error() != want+"standard input: and 1 more mistake" {
			t.Errorf("%q of 4 lines:\n got %.600v\nwant %s", c.t.Command, err, want)
		}
	}
	tm := template("x")
	tm.Name = "a/b"
	if _, err := tm.File(nil); err == nil || !strings.HasPrefix(err.Error(), `-b: bad name "a/b"`) {
		t.Errorf("got %v", err)
	}
	f, err := template("x", "{}").File(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Collect(t.Context(), nil); err == nil || err.Error() != "standard input: there are no jobs: nothing to run" {
		t.Errorf("got %v", err)
	}
}

// Files that words name go along, those that all jobs share once.
func TestLineFiles(t *testing.T) {
	dir := tree(t, "run!", "common/par.txt", "cases/a.toml", "cases/b.toml", "extra/a/f", "extra/b/f", "data/x", "data/y", "glob/x.in", "1")
	tm := &Template{Namespace: "n", Name: "b", Dir: dir, Command: []string{"./run", "common/par.txt", "cases/{}.toml", "{#}"},
		Inputs: []string{"data", "extra/{}", filepath.Join(dir, "1"), "glob/*.in"}, Requests: []string{"cpus=2,gfortran", "big"}}
	f, err := tm.File([]string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Collect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := list(t, b, b.Spec.Inputs), "data/x:644=data/x data/y:644=data/y input/1:644=1 glob/x.in:644=glob/x.in run:755=run common/par.txt:644=common/par.txt"; got != want {
		t.Errorf("batch:\n got %s\nwant %s", got, want)
	}
	if got, want := list(t, b, b.Jobs[0].Inputs), "extra/a/f:644=extra/a/f cases/a.toml:644=cases/a.toml 1:644=1"; got != want {
		t.Errorf("first job:\n got %s\nwant %s", got, want)
	}
	if got, want := list(t, b, b.Jobs[1].Inputs), "extra/b/f:644=extra/b/f cases/b.toml:644=cases/b.toml"; got != want {
		t.Errorf("second job:\n got %s\nwant %s", got, want)
	}
	if b.Spec.Resources.CPUs != 2 || fmt.Sprint(b.Spec.Capabilities) != "[gfortran big]" {
		t.Errorf("%+v", b.Spec)
	}
	for _, words := range [][]string{{"./none", "{}"}, {"./common/par.txt"}} {
		tm := &Template{Namespace: "n", Name: "b", Dir: dir, Command: words}
		f, err := tm.File([]string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Collect(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "program ") {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// What compares is what a node is to be, and nothing that is counted by its name.
func TestRequestsThatCompare(t *testing.T) {
	for _, r := range []string{"cpus>=2", "cpus<=64", "cpus!=3", "gpus>=1", "gfortran|cpus>=64", "!cpus=4", "memory>=64G", "gpu.memory=1073741824..2147483648"} {
		if res, caps, err := job.ParseRequests([]string{r}); err != nil || res != job.Unsaid(job.Command) || len(caps) != 1 || caps[0] != r {
			t.Errorf("%s: %+v, %q, %v", r, res, caps, err)
		}
	}
	if res, _, err := job.ParseRequests([]string{"matlab=2,cpus=all"}); err != nil || res.CPUs != 0 || res.Counted.Of("matlab") != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	res, caps, err := job.ParseRequests([]string{"cpus=2, memory=1G , matlab = 2, gfortran, node!=ws1"})
	if err != nil || res.CPUs != 2 || res.Memory != 1<<30 || res.Counted.Of("matlab") != 2 || !slices.Equal(caps, []string{"gfortran", "node!=ws1"}) {
		t.Errorf("with blanks: %+v, %q, %v", res, caps, err)
	}
}

func TestReadLines(t *testing.T) {
	for in, want := range map[string]string{"\ufeff1\n\ufeff2\n": "[\"1\" \"\\ufeff2\"]", "": "[]", "a": `["a"]`, "a\nb\r\n\nc": `["a" "b" "" "c"]`, "a\n": `["a"]`} {
		if got, err := ReadLines(strings.NewReader(in)); err != nil || fmt.Sprintf("%q", got) != want {
			t.Errorf("ReadLines(%q) = %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"a\nb\x00":                          "standard input:2: the line holds a zero byte",
		"\xff":                              "standard input:1: the line is not UTF-8 text",
		"a\n" + strings.Repeat("x", 1<<18):  "standard input:2: the line is longer than 131072 bytes, which is the limit",
		strings.Repeat("\n", job.MaxJobs+1): "standard input:1000001: there are more than 1000000 lines, which is the limit",
	} {
		if _, err := ReadLines(strings.NewReader(in)); err == nil || err.Error() != want {
			t.Errorf("ReadLines(%.20q): %v, want %s", in, err, want)
		}
	}
	if _, err := ReadLines(os.NewFile(^uintptr(0), "bad")); err == nil {
		t.Error("an error of reading is lost")
	}
}

// Whatever the command and the lines are, the jobs have different good names
// and commands that can be run, or each mistake is told in a line.
func FuzzTemplate(f *testing.F) {
	f.Add("./run {} {1} {n} {#} {{}}", "j{#}", "n=1\tb\n\nn=2 c")
	f.Add("x", "", "")
	f.Add("x {}", "", "a\na\n-a\n.yaml\n\xff")
	f.Fuzz(func(t *testing.T, command, name, text string) {
		lines, err := ReadLines(strings.NewReader(text))
		if err != nil {
			return
		}
		tm := template(strings.Fields(command)...)
		tm.Job = name
		b, err := tm.File(lines)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, j := range b.Jobs {
			if err := job.CheckName(j.Name); err != nil || seen[j.Name] || len(j.Run) != len(tm.Command) || j.Run[0] == "" {
				t.Errorf("%q %q %q: job %+v %v", command, name, text, j, err)
			}
			seen[j.Name] = true
		}
		if again, err := ParseFile("f", b.Data); err != nil || len(b.Jobs) > 0 && !reflect.DeepEqual(again.Jobs, b.Jobs) {
			t.Errorf("%q %q %q: the record %q reads as %v: %v", command, name, text, b.Data, again, err)
		}
	})
}
