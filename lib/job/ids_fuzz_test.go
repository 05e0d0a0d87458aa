package job

import (
	"path"
	"strings"
	"testing"
	"unicode"
)

// FuzzIDs reads ids: what is one names three directories and nothing else, and
// is read as itself again.
func FuzzIDs(f *testing.F) {
	for _, s := range []string{"lab/b/j", "lab/b", "lab/b/j~2", "../b/j", "lab//j", "lab/b/j~0", "lab/b/j~99999999999999999999", "-a/b/c", "a/b/c.yaml", "a/b/\x1b[2J"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, name, try, err := ParseID(s)
		if err != nil {
			return
		}
		again := string(b)
		if name != "" {
			again = string(b.Job(name))
		}
		if try > 0 {
			again = b.Job(name).Try(try)
		}
		if again != s {
			t.Fatalf("%q is read as %q", s, again)
		}
		for _, part := range []string{b.Namespace(), b.Name(), name} {
			if part == "" && name == "" {
				continue
			}
			if part == "" || part[0] == '.' || part[0] == '-' || strings.ContainsAny(part, "/\\~ ") || strings.ContainsFunc(part, unicode.IsControl) || path.Clean(part) != part || len(part) > MaxName {
				t.Fatalf("%q has the name %q", s, part)
			}
		}
	})
}
