package testscripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stops is the command of testscript that ends a script in silence, and well. Behind
// a condition it says what is missing here.
var stops = regexp.MustCompile(`(?m)^stop( |$)`)

// No script passes without having been run to its end: to end a daemon is "signal".
func TestScriptsRunToTheirEnd(t *testing.T) {
	names, _ := filepath.Glob("*.txtar")
	long, _ := filepath.Glob("full/*.txtar")
	if names = append(names, long...); len(names) == 0 {
		t.Fatal("no scripts")
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(text), "\n-- ")
		if at := stops.FindString(script); at != "" {
			t.Errorf("%s: %q ends it: what follows is not run", name, at)
		}
	}
}
