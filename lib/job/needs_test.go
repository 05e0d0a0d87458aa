package job

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

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
