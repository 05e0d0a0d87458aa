package job

import (
	"slices"
	"strings"
	"testing"
)

func TestOutputs(t *testing.T) {
	list := []string{"results", "*.csv", "a/*/b", "x[12]", "y[1]", "z[^ab]", "none/*"}
	o := NewOutputs(list)
	for p, want := range map[string]bool{"results": true, "results/deep/x": true, "result": false, "t.csv": true, "sub/t.csv": false,
		"a/b": false, "a/c/b": true, "a/c/b/d": true, "a/c/d/b": false, "x1/z": true, "x3": false, "y[1]": true, "zc": true, "za": false, "z": false, "none": false, "/x": false} {
		if o.Have(p) != want {
			t.Errorf("%s comes home: %v", p, !want)
		}
	}
	if got := o.Missing(); !slices.Equal(got, []string{"none/*"}) {
		t.Errorf("%q are missing", got)
	}
	for dir, want := range map[string]bool{"a": true, "a/c": true, "a/c/b": true, "a/c/x": false, "none": true, "none/x/y": true, "scratch": false, "results/x": true} {
		if o.Lead(dir) != want {
			t.Errorf("outputs may lie in %s: %v", dir, !want)
		}
	}
	if all := NewOutputs(nil); !all.Have("x") || !all.Lead("x/y") || all.Missing() != nil {
		t.Error("not everything comes home where nothing is said")
	}
	if got := OutputsOf(&Spec{Outputs: list}, &Job{Outputs: []string{"y"}}); len(got) != 1 || len(OutputsOf(&Spec{Outputs: list}, &Job{})) != len(list) {
		t.Errorf("a job has %q", got)
	}
	for _, bad := range []string{"", ".", "/x", "../x", "a//b", "a/", "[a", `a\*`, "a\nb", "**", "a/**/b", "[!a]", "[[:alpha:]]", strings.Repeat("a", 300)} {
		if CheckOutputs(Command, []string{bad}) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if CheckOutputs(Command, list) != nil || CheckOutputs(Python, list) == nil || CheckOutputs(Python, nil) != nil || CheckOutputs(Command, make([]string, MaxOutputs+1)) == nil {
		t.Error("outputs are not checked by kind and number")
	}
}

func TestNegation(t *testing.T) {
	for s, good := range map[string]bool{"[!a]": false, "x[a]*[!b]": false, `[a\]][!b]`: false, `\\[!a]`: false, "[a!]": true, "[[!]x": true, `\[!a].csv`: true, "[^!a]": true} {
		if err := CheckNegation(s); err == nil != good {
			t.Errorf("%s: %v", s, err)
		}
	}
}
