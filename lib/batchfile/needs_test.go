package batchfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// jobsNeeding is a batch file with jobs that need what stands behind their names:
// "a: b c*".
func jobsNeeding(lines ...string) string {
	var w strings.Builder
	w.WriteString(meta + "command:\n  jobs:\n")
	for _, l := range lines {
		name, needs, _ := strings.Cut(l, ":")
		fmt.Fprintf(&w, "    - {name: %s, run: [a]", name)
		if words := strings.Fields(needs); words != nil {
			fmt.Fprintf(&w, ", needs: %s", flow(words))
		}
		w.WriteString("}\n")
	}
	return w.String()
}

// What is wrong with the needs of jobs is told at their places.
func TestNeedsMistakes(t *testing.T) {
	var chain []string
	for i := range 30 {
		chain = append(chain, fmt.Sprintf("j%02d: j%02d", i, (i+1)%30))
	}
	for _, c := range []struct {
		jobs []string
		want string
	}{
		{[]string{"mesh", "run: mehs"}, `f:5:37: job "run" needs "mehs", and there is no such job (did you mean "mesh"?)`},
		{[]string{"mesh", "run: mesh xyz*"}, `f:5:45: job "run" needs "xyz*", which fits no other job of the batch`},
		{[]string{"mesh: m*"}, `f:4:38: job "mesh" needs "m*", which fits no other job of the batch`},
		{[]string{"mesh: mesh"}, `f:4:38: job "mesh" needs itself: remove that`},
		{[]string{"a: [!b]", "b:", "c:"}, `f:4:35: "[!b]": what is [! elsewhere is [^ here`},
		{[]string{"a: [b"}, `f:4:35: "[b" is no pattern: check its brackets`},
		{[]string{"a: b/c"}, `f:4:35: bad name "b/c": '/' is not allowed (letters, digits and . _ - + = @ % are)`},
		{[]string{"a: b", "b: a"}, `f:4:35: jobs wait for one another, so none of them could start: a -> b -> a (remove one of these needs)`},
		{[]string{"x: c", "a: c", "c: b*", "b1", "b2: a"}, `f:5:35: jobs wait for one another, so none of them could start: a -> c -> b2 -> a (remove one of these needs)`},
		{[]string{"a: *", "b: *"}, `f:4:35: jobs wait for one another, so none of them could start: a -> b -> a (remove one of these needs)`},
		{chain, `f:4:37: jobs wait for one another, so none of them could start: j00 -> j01 -> j02 -> j03 -> j04 -> j05 -> j06 -> j07 -> j08 -> j09 -> (20 more) -> j00 (remove one of these needs)`},
	} {
		_, err := ParseFile("f", []byte(jobsNeeding(c.jobs...)))
		if err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.jobs, err, c.want)
		}
	}
}

// Jobs that are left out of a batch are not waited for.
func TestNeedsOfSome(t *testing.T) {
	f, err := ParseFile("f", []byte(jobsNeeding("mesh", "run-1: mesh", "run-2: mesh", "table: run-* mesh", "print: table")))
	if err != nil {
		t.Fatal(err)
	}
	f.Only(func(name string) bool { return name != "mesh" && name != "run-1" && name != "print" })
	var got []string
	for _, j := range f.Jobs {
		got = append(got, fmt.Sprint(j.Name, j.Needs))
	}
	if want := []string{"run-2[]", "table[run-*]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStopAfter(t *testing.T) {
	for in, want := range map[string]int{"2": 2, "40%": 2, "1%": 1, "100%": 3} {
		f, err := ParseFile("f", []byte(jobsNeeding("a", "b", "c")+"canary: 2\nstop_after: "+in))
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.Collect(t.Context(), nil)
		if err != nil || b.Spec.StopAfter != want || b.Spec.Canary != 2 || (b.Spec.StopShare > 0) != strings.HasSuffix(in, "%") {
			t.Errorf("%s: %+v, %v", in, b.Spec, err)
		}
	}
}
