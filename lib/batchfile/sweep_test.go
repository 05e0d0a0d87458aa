package batchfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// read writes the files, and reads the last of them as a batch file.
func read(t *testing.T, files ...string) (*File, error) {
	t.Helper()
	dir := t.TempDir()
	name := ""
	for _, f := range files {
		var text string
		name, text, _ = strings.Cut(f, "\n")
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return ReadFile(name)
}

func TestSweep(t *testing.T) {
	const table = "t.csv\nn,mesh\n64,\"a, b\"\n128,c/d\n"
	for _, c := range []struct{ in, want string }{
		{"sweep: {n: [1, 2], nu: 0.1..0.3/2}\ncommand: {jobs: [{run: [x, {n}, \"--nu={nu}\"]}]}",
			`n=1_nu=0.1 [n=1 nu=0.1] ["x" "1" "--nu=0.1"]; n=1_nu=0.3 [n=1 nu=0.3] ["x" "1" "--nu=0.3"]; ` +
				`n=2_nu=0.1 [n=2 nu=0.1] ["x" "2" "--nu=0.1"]; n=2_nu=0.3 [n=2 nu=0.3] ["x" "2" "--nu=0.3"]`},
		{"sweep: {n: 007:9:1}\ncommand: {jobs: [{name: all, run: [y, \"{{n}}\"]}, {name: \"c{#}\", run: [x, {n}, \"{{n}} ${{HOME}} {a b}\"], param: {m: 3}}]}",
			`all [] ["y" "{n}"]; c1 [n=7 m=3] ["x" "7" "{n} ${HOME} {a b}"]; c2 [n=8 m=3] ["x" "8" "{n} ${HOME} {a b}"]; c3 [n=9 m=3] ["x" "9" "{n} ${HOME} {a b}"]`},
		{"sweep: \"@t.csv:n,mesh\"\ncommand: {jobs: [{name: \"{mesh}\", run: [x, \"{mesh}\"]}, {name: \"then-{n}\", run: [y], needs: [\"{mesh}\"]}]}",
			`a__b [n=64 mesh=a, b] ["x" "a, b"]; c_d [n=128 mesh=c/d] ["x" "c/d"]; then-64 [n=64 mesh=a, b] ["y"] after [a__b]; then-128 [n=128 mesh=c/d] ["y"] after [c_d]`},
		{"sweep: [a=1:9:1, -k 2, -s 3, -x, 2]\ncommand: {jobs: [{run: [x, \"{}\"]}]}",
			`a=2_repeat=2 [a=2 repeat=2] ["x" "a=2\trepeat=2"]; a=3_repeat=1 [a=3 repeat=1] ["x" "a=3\trepeat=1"]`},
		{"sweep: 'a=1,2 + b=\"x y\",\"p\"\"q\"'\ncommand: {jobs: [{name: \"{#}\", run: [x, {b}], resources: {cpus: {a}}}]}",
			`1 [a=1 b=x y] ["x" "x y"]; 2 [a=2 b=p"q] ["x" "p\"q"]`},
	} {
		f, err := read(t, table, "b.yaml\n"+meta+c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		var got []string
		for _, j := range f.Jobs {
			s := fmt.Sprintf("%s %v %q", j.Name, j.Param, j.Run)
			if len(j.Needs) > 0 {
				s += fmt.Sprintf(" after %v", j.Needs)
			}
			got = append(got, s)
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.in, s, c.want)
		}
		if again, err := ParseFile(f.Path, f.YAML()); err != nil || !same(f, again) {
			t.Errorf("%s: the record reads as %v: %v", f.YAML(), again, err)
		}
	}
}

// Templates are filled with what each job has, also where nothing is swept.
func TestFill(t *testing.T) {
	f, err := read(t, "c.toml.in\nn = {n}\nm = {m}\nset = {{n}}\n", "b.yaml\n"+meta+`
sweep: {n: [1, 2]}
command:
  jobs:
    - {run: [x, {n}], param: {m: 3}, required_files: [{path: c.toml.in, fill: true}]}
    - {name: alone, run: [x], param: {n: 5, m: 6}, required_files: [{path: c.toml.in, fill: true, alias: d/e}]}
    - {name: plain, run: [x], required_files: [c.toml.in]}`)
	if err != nil {
		t.Fatal(err)
	}
	f.Only(func(name string) bool { return name != "n=1" })
	b, err := f.Collect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range b.Jobs {
		got = append(got, j.Name+" "+strings.ReplaceAll(list(t, b, j.Inputs), "\n", ","))
	}
	want := "n=2 input/c.toml:644=n = 2,m = 3,set = {n},; alone input/d/e:644=n = 5,m = 6,set = {n},; plain input/c.toml.in:644=n = {n},m = {m},set = {{n}},"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("got %s\nwant %s", s, want)
	}
}

// A batch that an older version took is still read for its name and its jobs, with places where
// nothing is filled.
func TestReadOlder(t *testing.T) {
	for _, text := range []string{
		"sweep: {n: [1, 2]}\nenv: {A: \"{#}\"}\nslurm: {job-name: \"s{n}\"}\noutputs: [\"{n}\", \"*.{csv,txt}\"]\ncommand: {jobs: [{run: [x, \"{n}\"]}]}\n",
		"sweep: {n: [1, 2]}\napptainer: {initialize: {sif: s.sif, run: [x, \"{n}\"]}, jobs: [{name: \"n={n}\"}]}\n",
		"sweep: {n: [1, 2]}\ncommand: {jobs: [{run: [x], required_files: [{path: b.yaml.in, fill: true}]}]}\n",
	} {
		name := filepath.Join(tree(t, "dir/"), "b.yaml")
		if err := errors.Join(os.WriteFile(name, []byte(meta+text), 0o644), os.WriteFile(name+".in", []byte("{}\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if f, err := ReadOlder(name); err != nil || len(f.Jobs) != 2 {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := ReadFile(name); err == nil {
			t.Errorf("%s: it can be submitted", text)
		}
	}
}

// {} in a file, as of JSON, is not filled with the whole case.
func TestFillAll(t *testing.T) {
	_, err := read(t, "options.json.in\n{\"nu\": {nu},\n \"options\": {}}\n", "b.yaml\n"+meta+`
sweep: {nu: [1, 2]}
command:
  jobs:
    - {run: [cat, options.json], required_files: [{path: options.json.in, fill: true}]}
`)
	if err == nil || !strings.Contains(err.Error(), `options.json.in:2:13: {} would be all parameters of the job: write {NAME} for one, or {{}} if that is meant as text`) {
		t.Error(err)
	}
}

// Nor is it with a line of dsweep(1), and {1} in a file is not filled with a parameter and its name,
// also where a value is empty or has blanks.
func TestFillLines(t *testing.T) {
	dir := tree(t, "dir/")
	if err := os.WriteFile(filepath.Join(dir, "f.in"), []byte("{} {1} {2}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"tag=\tn=1": "{} would be all, {1} would be tag=: write {tag}, {2} would be n=1: write {n}",
		"tag=":      "{} would be all, {1} would be tag=: write {tag}, {2} is wanted",
		"tag=a b\t": "{} would be all, {1} would be tag=a b: write {tag}, {2} is wanted",
		"a=1\tb":    "{1} would be a=1: write {a}",
		"a\t":       "",
		"a=1\t":     "{1} would be a=1: write {a}",
	} {
		_, err := (&Template{Namespace: "n", Name: "b", Command: []string{"x"}, Templates: []string{"f.in"}, Dir: dir}).File([]string{line})
		got := ""
		if err != nil {
			got = err.Error()
		}
		for _, w := range strings.Split(want, ", ") {
			if !strings.Contains(got, w) || want == "" && got != "" || strings.Count(got, "\n") != strings.Count(want, ", ") {
				t.Errorf("%q: got %s\nwant %s", line, got, want)
			}
		}
	}
}

// The only places may be in a template, where {#} is the number of the case.
func TestFillAlone(t *testing.T) {
	f, err := read(t, "case.toml.in\n# case {#}\nn = {n}\nnu = {nu}\n", "b.yaml\n"+meta+`
sweep: {n: "64,128", nu: "0.1,0.2"}
command:
  jobs:
    - {run: [cat, case.toml], required_files: [{path: case.toml.in, fill: true}]}`)
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Collect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range b.Jobs {
		got = append(got, j.Name+" "+strings.ReplaceAll(list(t, b, j.Inputs), "\n", ","))
	}
	var all []string
	for i, c := range [][2]string{{"64", "0.1"}, {"64", "0.2"}, {"128", "0.1"}, {"128", "0.2"}} {
		made := fmt.Sprintf("case.toml:644=# case %d,n = %s,nu = %s,", i+1, c[0], c[1])
		all = append(all, fmt.Sprintf("n=%s_nu=%s input/%s %s", c[0], c[1], made, made))
	}
	want := strings.Join(all, "; ")
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("got %s\nwant %s", s, want)
	}
}

// A template has a limit, and so has all that is made of templates.
func TestFillLimits(t *testing.T) {
	for size, ok := range map[int]bool{1 << 20: true, 1<<20 + 1: false} {
		_, err := read(t, "a.in\n"+strings.Repeat("x", size), "b.yaml\n"+meta+"command: {jobs: [{name: j, run: [x], required_files: [{path: a.in, fill: true}]}]}")
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "which is the limit of a template") {
			t.Errorf("a template of %d bytes: %v", size, err)
		}
	}
	s := sizes{bytes: 256<<20 - 1}
	for i, file := range []string{"x", "x", "y"} { // equal ones count once
		if ok := s.add(file); ok != (file == "x") {
			t.Errorf("file %d of 1 byte, with 256 MiB less one: %v", i, ok)
		}
	}
}

func TestSweepMistakes(t *testing.T) {
	job := "\ncommand: {jobs: [{run: [x, \"{a}\"]}]}"
	for _, c := range []struct{ in, want string }{
		{"sweep: {n: [1]}\ncommand: {jobs: [{name: j, run: [x]}]}", "2:1: no job has a place that the sweep fills: write {n} where the value is wanted"},
		{"sweep: {n: [1, 2]}\ncommand: {jobs: [{name: \"j{m}\", run: [x]}]}", "3:25: {m} is wanted, and the sweep has no such parameter, but n (write {{m}} if that is meant as text)"},
		{"sweep: {n: [1, 2]}\ncommand: {jobs: [{name: j, run: [x, {n}]}]}", `3:18: two cases give the job "j": put all that differs into its name, as in {n}, or {#}`},
		{"sweep: {n: [ä, ö]}\ncommand: {jobs: [{run: [x, \"{n}\"]}]}", `3:18: two cases give the job "n=_": put all that differs into its name, as in {n}, or {#}`},
		{"sweep: {a: []}" + job, `2:12: the parameter "a" has no value`},
		{"sweep: {a: , 2x: 1, m: a:b:c}" + job, `2:9: the parameter "a" has no value` + "\n" +
			`2:14: "2x" cannot name a parameter: a letter or _ comes first, then letters, digits, _ . and -, at most 100` + "\n" +
			`2:21: m: "a:b:c": "a" is not a number, which a range is of, without a unit (text of this form stands in double quotes)`},
		{"sweep: [~, \"a=\\\"b\"]" + job, "2:9: an entry of sweep is empty: remove it\n2:12: a double quote is not closed"},
		{"sweep: a=1 -q" + job, `2:8: sweep: "-q" is no option here, or there twice: -k, -s and -x of dsweep(1) are`},
		{"sweep: a=1 -k two" + job, `2:8: sweep: -k wants a whole number, not "two"`},
		{"sweep: a=1 -s 2" + job, `2:8: sweep: -s goes with -k: without it, nothing is drawn`},
		{"sweep: a=1:1000:1 b=1:1000:1 c=1:1000:1" + job, `2:8: sweep: these are 1000000000 cases, and 1000000 is the limit: take fewer values, or draw some of them`},
		{"sweep: a=1:1000:1 b=1:1000:1\ncommand: {jobs: [{name: one, run: [x]}, {run: [x, \"{a}\"]}]}", `3:41: with the 1000000 jobs of this entry the batch has more than 1000000, which is the limit: split it`},
		{"sweep: a=1:1000:1 b=1:1000:1\ncommand: {jobs: [{run: [x" + strings.Repeat(", x", 60) + ", \"{a}\"]}]}",
			`3:18: the 1000000 jobs of this entry have 62 texts each, and 50000000 together is the limit: put what all share into a script`},
		{"sweep: \"@none.csv\"" + job, `2:8: sweep: "none.csv" does not exist (sought at "DIR/none.csv")`},
		{"sweep: {\"@t.csv\": 1}" + job, `2:9: a mapping has names and their values: write a list, as of dsweep(1)`},
		{"sweep: {a: [1]}\ncommand: {jobs: [{run: [x, \"{a}\"], param: {a: 2}}]}", `3:44: "a" is a parameter of the sweep: give this one another name`},
		{"sweep: {n: [x/y]}\ncommand: {jobs: [{name: \"-{n}\", run: [x], resources: {cpus: {n}}}]}", `3:25: bad name "-x_y": it must not start with '-'` + "\n" +
			`3:61: "cpus" must be a whole number, or "all" for the whole machine, not "x/y"`},
		{"command: {jobs: [{name: j, run: [x], sweep: {n: [1]}}]}", `2:38: "sweep" is of the whole batch: write it at the top level, and {NAME} here`},
		{"command: {initialize: {required_files: [{path: a.in, fill: true}]}, jobs: [{name: j, run: [x]}]}", `2:48: only a file of a job can be filled: write it under "jobs"`},
		{"command: {jobs: [{name: j, run: [x], required_files: [{path: a, fill: true}]}]}", `2:62: "a" is to be filled, and its name does not end in .in: give it an alias`},
		{"command: {jobs: [{name: j, run: [x], required_files: [{path: none.in, fill: true}]}]}", `2:62: "none.in" does not exist (sought at "DIR/none.in")`},
		{"command: {jobs: [{name: j, run: [x], required_files: [{path: t.csv.in, fill: true}]}]}",
			`2:62: t.csv.in:1:1: {n} is wanted, and job "j" has no such parameter (write {{n}} if that is meant as text)`},
		{"sweep: {n: [1, 2]}\noutputs: [\"out_{n}.csv\", \"{{n}}\", \"{m}\"]\nslurm: {job-name: \"s{n}\"}\ncommand: {jobs: [{run: [x], outputs: [\"out_{n}.csv\"]}]}",
			`3:11: {n} is not filled here, where all cases have the same: write it under the job's "outputs"` + "\n" +
				`4:19: {n} is not filled here, where all cases have the same: write it under the job's "slurm"`},
		{"sweep: {n: [1, 2]}\napptainer: {initialize: {sif: s.sif, run: [x, \"{n}\", \"{#}\", \"{}\"]}, jobs: [{name: \"n={n}\"}]}",
			`3:47: {n} is not filled here, where all cases have the same: write it under the job's "run"` + "\n" +
				`3:54: {#} is not filled here, where all cases have the same: write it under the job's "run"`},
		{"command: {jobs: [{name: j, run: [x], param: {n: 5}, outputs: [\"o{n}\", \"*.{csv,txt}\", \"[{]a}\", \"a{b\"]}]}",
			`2:63: "o{n}": braces are neither a place nor alternatives here: write an entry for each name, and [{] for a brace` + "\n" +
				`2:71: "*.{csv,txt}": braces are neither a place nor alternatives here: write an entry for each name, and [{] for a brace`},
		{"python: {initialize: {build_file: {path: t.csv.in, fill: true}}, jobs: []}", `2:58: "fill" is for required_files of jobs`},
	} {
		_, err := read(t, "t.csv.in\n{n}\n", "b.yaml\n"+meta+c.in)
		if err == nil {
			t.Errorf("%.200s: nothing is said", c.in)
			continue
		}
		first, _, _ := strings.Cut(err.Error(), "b.yaml:")
		got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), first+"b.yaml:", ""), strings.TrimSuffix(first, "/"), "DIR")
		if got != c.want {
			t.Errorf("%.200s\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}
