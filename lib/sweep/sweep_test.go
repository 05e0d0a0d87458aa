package sweep

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func noFile(string) ([]byte, error) { return nil, os.ErrNotExist }

// lines are the cases of operands.
func lines(t *testing.T, s *Sweep) (all []string) {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	for params := range s.Cases() {
		all = append(all, string(AppendLine(nil, params)))
	}
	return all
}

func TestValues(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"0.1:0.5:0.1", "0.1 0.2 0.3 0.4 0.5"},
		{"1.0:2.0:0.5", "1.0 1.5 2.0"},
		{"3:1:-1", "3 2 1"},
		{"-0.1:0.1:.1", "-0.1 0.0 0.1"},
		{"64:200:64", "64 128 192"},
		{"5:5:1", "5"},
		{"1e-3:3e-3:1e-3", "0.001 0.002 0.003"},
		{"1e20:3e20:1e20", "1e20 2e20 3e20"},
		{"1e-9:2e-9:5e-10", "1e-9 1.5e-9 2e-9"},
		{"1e-1:1e0:0.45", "0.1 0.55 1"},
		{"0..1/4", "0 0.333333333333333 0.666666666666667 1"},
		{"0..1/5", "0 0.25 0.5 0.75 1"},
		{"0.1..0.3/3", "0.1 0.2 0.3"},
		{"1..1000/4log", "1 10 100 1000"},
		{"1..2/3log", "1 1.41421356237 2"},
		{"1e4..1e8/5log", "10000 100000 1000000 10000000 100000000"},
		{"-1..-1e16/3log", "-1 -100000000 -1e16"},
		{"1e14..1e16/3log", "100000000000000 1e+15 1e16"},
		{"1e-4..1e-1/4log", "0.0001 0.001 0.01 0.1"},
		{"-1..-100/3log", "-1 -10 -100"},
		{"1,2:4:1,x,0.50", "1 2 3 4 x 0.50"},
		{`"1:2:3","a,b",""`, "1:2:3 a,b "},
		{"10:30,nan,../mesh,a/..,1e-3", "10:30 nan ../mesh a/.. 1e-3"},
		{"08:30:10,12:00:00,9:30:10", "08:30:10 12:00:00 9 19 29"},
		{"+10:30:10,90:270:90", "10 20 30 90 180 270"},
		{`1, 2 , "a ", 0..1/2,"b" ,c d`, "1 2 a  0 1 b c d"},
	} {
		v, err := parseValues(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var got []string
		for i := range v.len() {
			got = append(got, v.value(i))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}

// What may be two things is refused.
func TestTimeOrRange(t *testing.T) {
	for _, text := range []string{"10:30:10", "08:30:10,10:30:10", "23:59:59"} {
		if v, err := parseValues(text); err == nil {
			t.Errorf("%s: %v", text, v)
		}
	}
}

// A sample is the same on every machine and with every version, has no case twice,
// and any case can be in it.
func TestDraw(t *testing.T) {
	s, _ := Parse([]string{"a=1:1000:1", "b=1:1000000:1"}, noFile)
	if err := s.Draw(3, 1); err != nil {
		t.Fatal(err)
	}
	want := []string{"a=104\tb=255266", "a=283\tb=890591", "a=824\tb=673744"}
	if got := lines(t, s); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	seen := map[string]bool{}
	for seed := range uint64(200) {
		s, _ := Parse([]string{"a=1:10:1"}, noFile)
		if err := s.Draw(4, seed); err != nil {
			t.Fatal(err)
		}
		got := lines(t, s)
		if len(slices.Compact(slices.Clone(got))) != 4 {
			t.Fatalf("seed %d: %q", seed, got)
		}
		for _, l := range got {
			seen[l] = true
		}
	}
	if len(seen) != 10 {
		t.Errorf("of ten cases only %d are drawn ever", len(seen))
	}
	s, _ = Parse([]string{"a=1,2"}, noFile)
	if s.Draw(3, 1) == nil || s.Draw(0, 1) == nil {
		t.Error("more are drawn than there are, or none")
	}
}

// Whatever is typed, there are as many cases as were counted, each of them text that
// is read back as it was, or there is a mistake.
func FuzzSweep(f *testing.F) {
	for _, op := range []string{"a=1,2 b=0.1:1:0.1", "a=0..1/5log,3 + b=1:6:1", `a="x ""y"",z" @f.csv`, "a=1e300:1e301:1e299", "a=1:1e9:1 b=1:1e9:1"} {
		f.Add(op)
	}
	f.Fuzz(func(t *testing.T, ops string) {
		s, err := Parse(strings.Split(ops, " "), func(string) ([]byte, error) { return []byte("p,q\n1,2\n"), nil })
		if err != nil || s.Check() != nil {
			return
		}
		names, n := s.Names(), int64(0)
		for params := range s.Cases() {
			if n++; n > 1000 {
				return
			}
			for i, p := range params {
				if p.Name != names[i] || CheckName(p.Name) != nil || CheckValue(p.Value) != nil {
					t.Fatalf("%q: the case %q", ops, params)
				}
			}
			again, err := Object(AppendObject(nil, params))
			if err != nil || !slices.Equal(again, params) {
				t.Fatalf("%q: %q is read as %q, %v", ops, params, again, err)
			}
		}
		if n != s.Count().Int64() {
			t.Fatalf("%q: %d cases, %v were counted", ops, n, s.Count())
		}
	})
}

// Whatever a file holds, each row has a value for each column, or there is a mistake.
func FuzzTable(f *testing.F) {
	f.Add("x.csv", []byte("a,b\n1,\"2\n3\"\n"))
	f.Add("x.tsv", []byte("\ufeffa\tb\n1\t2\n"))
	f.Add("x.jsonl", []byte("{\"a\":1,\"b\":true}\n{\"b\":\"x\",\"a\":1e9}\n"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		a, err := parseFile(name, func(string) ([]byte, error) { return data, nil })
		if err != nil {
			return
		}
		for i, v := range a.of {
			if v.len() != a.n || CheckName(a.names[i]) != nil {
				t.Fatalf("column %q has %d values of %d", a.names[i], v.len(), a.n)
			}
		}
	})
}

func TestFiles(t *testing.T) {
	_, err := Parse([]string{"@x.csv"}, func(string) ([]byte, error) { return nil, errors.New("gone") })
	if err == nil || err.Error() != "gone" {
		t.Errorf("%v", err)
	}
}
