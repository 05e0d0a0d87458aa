package job

import (
	"fmt"
	"reflect"
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

// plainly is what ResolveNeeds should find, job by job.
func plainly(names []string, needs [][]string, i int) (all []uint32) {
	for o, name := range names {
		if slices.ContainsFunc(needs[i], func(need string) bool { return o != i && Fits(need, name) }) {
			all = append(all, uint32(o))
		}
	}
	return all
}

func TestNeeds(t *testing.T) {
	names := []string{"mesh", "run-2", "run-1", "run-10", "table", "[x]"[1:2], "rum"}
	needs := [][]string{nil, {"mesh"}, {"mesh"}, {"mesh", "m*"}, {"run-*", "mesh"}, {"*-1*", "r?m", "[a-m]*"}, nil}
	n, wrong := ResolveNeeds(names, needs)
	if wrong != nil {
		t.Fatal(NeedErrors(wrong))
	}
	for i := range names {
		var got []uint32
		if n.Of[i] > 0 {
			got = n.List(n.Of[i])
		}
		if want := plainly(names, needs, i); !slices.Equal(got, want) {
			t.Errorf("%s needs %v, want %v", names[i], got, want)
		}
	}
	if n.Of[1] != n.Of[2] || n.Lists() != 4 {
		t.Errorf("%d lists: %v", n.Lists(), n.Of)
	}
	if n, wrong := ResolveNeeds(names, make([][]string, len(names))); n != nil || wrong != nil {
		t.Errorf("of nothing: %v, %v", n, wrong)
	}
}

// Many jobs that need many others share one list, and what would take too much is
// refused.
func TestNeedsOfMany(t *testing.T) {
	const half = 50_000
	names, needs := make([]string, 2*half), make([][]string, 2*half)
	for i := range half {
		names[i], names[half+i] = fmt.Sprint("first-", i), fmt.Sprint("then-", i)
		needs[half+i] = []string{"first-*"}
	}
	n, wrong := ResolveNeeds(names, needs)
	if wrong != nil || n.Lists() != 1 || len(n.List(1)) != half {
		t.Fatalf("%v, %v", n.Lists(), NeedErrors(wrong))
	}
	for i := range half {
		needs[half+i] = []string{fmt.Sprint("*-", i), "first-*"}
	}
	_, wrong = ResolveNeeds(names, needs)
	const want = "the needs of the batch are to be compared with more than 4000000 names, which is the limit: write one list for jobs that need the same, or begin globs with more letters"
	if len(wrong) != 1 || wrong[0].Error() != want {
		t.Errorf("%v", NeedErrors(wrong))
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
		if err != nil || b.Spec.StopAfter != want || b.Spec.Canary != 2 {
			t.Errorf("%s: %+v, %v", in, b.Spec, err)
		}
	}
}

// FuzzNeeds finds who needs whom among jobs: what is taken has no cycle, and is what
// looking at each job and each name gives.
func FuzzNeeds(f *testing.F) {
	f.Add("mesh\nrun-1 mesh\nrun-2 mesh\ntable run-*")
	f.Add("a *\nb *")
	f.Add("a b\nb c\nc [ab]")
	f.Add("a ?\nb\nab a b")
	f.Fuzz(func(t *testing.T, text string) {
		var names []string
		var needs [][]string
		for line := range strings.SplitSeq(text, "\n") {
			words := strings.Fields(line)
			if len(words) == 0 || len(names) > 50 || CheckName(words[0]) != nil || slices.Contains(names, words[0]) {
				continue
			}
			words = slices.DeleteFunc(words, func(w string) bool { return CheckNeed(w) != nil })
			names, needs = append(names, words[0]), append(needs, words[1:])
		}
		n, wrong := ResolveNeeds(names, needs)
		if n == nil {
			for _, e := range wrong {
				if e.Need >= len(needs[e.Job]) || e.Error() == "" {
					t.Fatalf("%q: job %d, need %d: %v", text, e.Job, e.Need, e)
				}
			}
			return
		}
		over := make([]bool, len(names))
		for range names {
			for i := range names {
				want := plainly(names, needs, i)
				var got []uint32
				if n.Of[i] > 0 {
					got = n.List(n.Of[i])
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%q: %s needs %v, should need %v", text, names[i], got, want)
				}
				over[i] = over[i] || !slices.ContainsFunc(got, func(o uint32) bool { return !over[o] })
			}
		}
		if slices.Contains(over, false) {
			t.Fatalf("%q: jobs wait for one another", text)
		}
	})
}
