package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"distribute/lib/suite"
)

// TestRetest runs .ci/retest on small packages. A flaky test is named with the output of its
// failure; a test that always fails, a package that fails outside its tests, and more than five
// failures end the run with an error.
func TestRetest(t *testing.T) {
	if !suite.Parts() {
		t.Skip("needs gotestsum and jq, which .ci/run installs")
	}
	t.Parallel()
	const once = `
		runs, _ := os.ReadFile(t.Name() + ".runs")
		os.MkdirAll(filepath.Dir(t.Name()), 0o755)
		os.WriteFile(t.Name()+".runs", append(runs, 'x'), 0o644)
		if len(runs) == 0 {
			t.Error("the first run fails")
		}`
	for _, tt := range []struct {
		name, test string
		fails      bool
		flaky      []string
	}{
		{name: "all pass", test: `func TestA(t *testing.T) {}`},
		{name: "one fails once", test: `func TestA(t *testing.T) { t.Run("good", func(t *testing.T) {}); t.Run("v1.2", func(t *testing.T) {` + once + `}) }`, flaky: []string{"distribute.TestA/v1.2"}},
		{name: "one fails always", test: `func TestA(t *testing.T) {` + once + `}; func TestB(t *testing.T) { t.Error("every run fails") }`, fails: true, flaky: []string{"distribute.TestA"}},
		{name: "its package fails once", test: `func TestA(t *testing.T) {}; func TestMain(m *testing.M) { m.Run(); if os.Mkdir("once", 0o755) == nil { os.Exit(1) } }`, fails: true},
		{name: "a test ends its program once", test: `func TestA(t *testing.T) { if os.Mkdir("once", 0o755) == nil { os.Exit(1) } }; func TestB(t *testing.T) {}`, fails: true},
		{name: "a test fails and its program ends once", test: `func TestA(t *testing.T) {` + once + `}; func TestB(t *testing.T) { if os.Mkdir("once", 0o755) == nil { os.Exit(1) } }`, fails: true},
		{name: "it panics", test: `func TestA(t *testing.T) {` + once + `; if len(runs) == 0 { panic("it panics") } }`, fails: true},
		{name: "six fail once", test: `func TestA(t *testing.T) { for _, n := range "abcdef" { t.Run(string(n), func(t *testing.T) {` + once + `}) } }`, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, flaky := t.TempDir(), filepath.Join(t.TempDir(), "flaky")
			for name, text := range map[string]string{
				"go.mod":    "module distribute\n",
				"a_test.go": "package a\nimport (\"os\"; \"path/filepath\"; \"testing\")\nvar _, _ = os.Args, filepath.Dir\n" + tt.test + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.Command(filepath.Join(os.Getenv("TOP"), ".ci/retest"), "-vet=off", "-count=1", "./...")
			c.Dir, c.Env = dir, append(os.Environ(), "FLAKY="+flaky)
			out, err := c.CombinedOutput()
			if (err != nil) != tt.fails {
				t.Errorf("it ends with %v:\n%s", err, out)
			}
			text, _ := os.ReadFile(flaky)
			var names []string
			for _, m := range regexp.MustCompile(`(?m)^flaky: (.*)`).FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
			if !slices.Equal(names, tt.flaky) || strings.Count(string(text), "the first run fails") != len(tt.flaky) {
				t.Errorf("flaky are %q, expected %q:\n%s", names, tt.flaky, text)
			}
		})
	}
}
