package batchfile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"distribute/lib/job"
)

// Whatever lines hold, they are jobs whose record reads as what they are, or mistakes.
func FuzzObjects(f *testing.F) {
	f.Add(`{"name":"a","run":["x","\"\u00e9\t"],"param":{"n":64,"nu":"0.1"}}`+"\n"+`{"run":["y"],"needs":["a"]}`, "")
	f.Add(`{"param":{"n":1e3}}`+"\n\n"+`{"param":{"n":true},"resources":{"cpus":2}}`, "x {n} {#} {}")
	f.Fuzz(func(t *testing.T, text, command string) {
		lines, err := ReadLines(strings.NewReader(text))
		if err != nil {
			return
		}
		tm := template(strings.Fields(command)...)
		tm.Objects = true
		b, err := tm.File(lines)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, j := range b.Jobs {
			if job.CheckName(j.Name) != nil || seen[j.Name] || len(j.Run) == 0 || job.CheckParams(j.Param) != nil {
				t.Errorf("%q: job %+v", text, j)
			}
			seen[j.Name] = true
		}
		if again, err := ParseFile("f", b.Data); err != nil || len(b.Jobs) > 0 && !reflect.DeepEqual(again.Jobs, b.Jobs) {
			t.Errorf("%q: the record %q reads as %v: %v", text, b.Data, again, err)
		}
	})
}

// Files that a line has filled are as those of a batch file, and of a command with -T.
func TestFillOfObject(t *testing.T) {
	tm := template()
	tm.Objects, tm.Dir = true, t.TempDir()
	if err := os.WriteFile(filepath.Join(tm.Dir, "case.in"), []byte("{#}: {n} {{1}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const line = `{"run": ["cat", "case"], "param": {%q: 7}, "required_files": [{"path": "case.in", "fill": true}, {"path": "case.in", "fill": true, "alias": "d/e"}]}`
	f, err := tm.File([]string{fmt.Sprintf(line, "n")})
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Collect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := list(t, b, b.Jobs[0].Inputs), "input/case:644=1: 7 {1}\n case:644=1: 7 {1}\n input/d/e:644=1: 7 {1}\n"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	_, err = tm.File([]string{fmt.Sprintf(line, "m"), `{"run": ["x"], "required_files": [{"path": "none.in", "fill": true}]}`})
	if want := `standard input:1: case.in:1:6: {n} is wanted, and the line has no such parameter (write {{n}} if that is meant as text)`; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `standard input:2: "none.in" does not exist`) {
		t.Error(err)
	}
}

func TestParams(t *testing.T) {
	long := "e=" + strings.Repeat("x", job.MaxParamValue+1)
	if got := fmt.Sprint(kept([]string{"a=1", "b", "a=2", "2c=3", "d=", long, "f=x=y"}, true)); got != "[f=x=y] the parameter \"a\" is there twice" {
		t.Errorf("of a text kept %s", got)
	}
	many := make([]string, job.MaxParams+1)
	for i := range many {
		many[i] = fmt.Sprintf("p%d=1", i)
	}
	if got, err := kept(many, true); len(got) != job.MaxParams || err == nil || err.Error() != "a job has 101 parameters, and 100 is the limit" {
		t.Errorf("of a text kept %d, %v", len(got), err)
	}
	if got := fmt.Sprint(kept([]string{"a=1", long}, true)); got != "[a=1] e: its value has 1001 bytes, and 1000 is the limit: put it into a file" {
		t.Errorf("of a text kept %s", got)
	}
	for want, fields := range map[string][]string{`the parameter "a" is there twice`: {"a=1", "a=1"}, "e: its value has 1001 bytes": {"a=1", long},
		"a job has 101 parameters": many, "b: the value \"\\x1b\" has a control character": {"a=1", "b=\x1b"}} {
		if _, err := kept(fields, false); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("of %.60q: %v, want %s", fields, err, want)
		}
	}
	for _, bad := range [][]string{{"a"}, {"a=1", "a=2"}, {"=1"}, {"a=\t"}, make([]string, job.MaxParams+1)} {
		if job.CheckParams(bad) == nil {
			t.Errorf("%q are parameters", bad)
		}
	}
}
