package job

import (
	"strings"
	"testing"
)

func TestOutputs(t *testing.T) {
	outputs := []string{"results", "*.csv", "a/*/b", "x[12]"}
	for p, want := range map[string]bool{"results": true, "results/deep/x": true, "result": false, "t.csv": true, "sub/t.csv": false,
		"a/b": false, "a/c/b": true, "a/c/b/d": true, "a/c/d/b": false, "x1/y": true, "x3": false} {
		if ComesHome(outputs, p) != want {
			t.Errorf("%s comes home: %v", p, !want)
		}
	}
	if got := Outputs(&Spec{Outputs: outputs}, &Job{Outputs: []string{"y"}}); len(got) != 1 || len(Outputs(&Spec{Outputs: outputs}, &Job{})) != 4 {
		t.Errorf("a job has %q", got)
	}
	for _, bad := range []string{"", ".", "/x", "../x", "a//b", "a/", "[a", `a\*`, "a\nb", strings.Repeat("a", 300)} {
		if CheckOutputs(Command, []string{bad}) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if CheckOutputs(Command, outputs) != nil || CheckOutputs(Python, outputs) == nil || CheckOutputs(Python, nil) != nil || CheckOutputs(Command, make([]string, MaxOutputs+1)) == nil {
		t.Error("outputs are not checked by kind and number")
	}
}
