package job

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"distribute/lib/line"
)

// Counts are what a map of numbers would be.
func TestCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "a.b", "b", "comsol", "matlab"}
	random := func() map[string]int {
		of := map[string]int{}
		for _, name := range names {
			if n := r.IntN(4); n > 0 {
				of[name] = n
			}
		}
		return of
	}
	for range 2000 {
		x, y := random(), random()
		a, err := CountsOf(x)
		b, err2 := CountsOf(y)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		plus, minus := map[string]int{}, map[string]int{}
		for _, name := range names {
			if n := x[name] + y[name]; n > 0 {
				plus[name] = n
			}
			if n := x[name] - y[name]; n > 0 {
				minus[name] = n
			}
			if a.Of(name) != x[name] {
				t.Fatalf("%q of %s: %d", a, name, a.Of(name))
			}
		}
		sum, _ := CountsOf(plus)
		rest, _ := CountsOf(minus)
		if a.Plus(b) != sum || a.Minus(b) != rest || a.Plus(b).Minus(b) != a {
			t.Fatalf("%q and %q: together %q, the one less the other %q", a, b, a.Plus(b), a.Minus(b))
		}
		k := r.IntN(3)
		if with := a.With("b", k); with.Of("b") != k || with.With("b", x["b"]) != a {
			t.Fatalf("%q with %d of b: %q", a, k, with)
		}
		text, err := json.Marshal(a)
		want, _ := json.Marshal(x)
		var back Counts
		if err != nil || string(text) != string(want) || json.Unmarshal(text, &back) != nil || back != a {
			t.Fatalf("%q is %s, read as %q, %v", a, text, back, err)
		}
		if len(a.Words()) != len(x) {
			t.Fatalf("words of %q: %q", a, a.Words())
		}
	}
}

func TestCountNames(t *testing.T) {
	for _, good := range []string{"matlab", "x", "ansys-2", "lic.comsol", "tape_1", "mri", "mps", "api", "spi"} {
		if err := CheckCount(good); err != nil {
			t.Error(err)
		}
	}
	for bad, want := range map[string]string{
		"": "no name", "1x": "no name", "-x": "no name", "_x": "no name", "a b": "no name", "a=b": "no name", "ä": "no name", strings.Repeat("n", 101): "no name",
		"cpus": `"cpus" is a resource`, "mpi": `"mpi" is a resource`, "cpu": `"cpus"?`, "MPI": `"mpi"?`, "Threads": `"cpus"?`, "ram": `"memory"?`, "tim": `"time"?`, "node": "key of capabilities", "gpu.model": "key of capabilities",
	} {
		if err := CheckCount(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, text := range []string{`{"a":0}`, `{"a":-1}`, `{"a":1000001}`, `{"cpus":1}`, `{"a":1.5}`, `["a"]`, `{"a b":1}`} {
		var c Counts
		if err := json.Unmarshal([]byte(text), &c); err == nil {
			t.Errorf("%s is read as %q", text, c)
		}
	}
}

// No key of a line of JSON has a capital, nor has a name that is one.
func TestCountCapitals(t *testing.T) {
	if err := CheckCount("MATLAB"); err == nil || err.Error() != `"MATLAB" has capitals, and names of what is counted have none: write "matlab"` {
		t.Error(err)
	}
	for _, bad := range []string{"", "_a", "2x", "é", "A B", "RAM", "Gpu.Model", strings.Repeat("a", MaxName+1)} {
		if CheckCount(bad) == nil {
			t.Errorf("%q is a name", bad)
		}
	}
	b, err := json.Marshal(Resources{Counted: "a.b-c_9=1 matlab=2"})
	if err != nil || line.Check(b) != nil {
		t.Errorf("%s: %v, %v", b, err, line.Check(b))
	}
}
