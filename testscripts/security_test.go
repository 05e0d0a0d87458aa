package testscripts

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestSecurityRows holds that each statement of distribute-security(7) has a row in SECURITY.md with
// tests that are there.
func TestSecurityRows(t *testing.T) {
	page, err := os.ReadFile("../man/distribute-security.7")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var said, rows []string
	for _, m := range regexp.MustCompile(`(?m)^\.It ([0-9]+)$`).FindAllSubmatch(page, -1) {
		said = append(said, string(m[1]))
	}
	_, there := carriedRows(t)
	for _, m := range regexp.MustCompile(`(?m)^\| ([0-9]+) \|[^|]*\|(.*)\|$`).FindAllSubmatch(table, -1) {
		id := string(m[1])
		rows = append(rows, id)
		tests := rowTests.FindAllSubmatch(m[2], -1)
		if len(tests) == 0 {
			t.Errorf("%s names no test", id)
		}
		for _, test := range tests {
			if !there[string(test[1])] {
				t.Errorf("%s names %q, which is not there", id, test[1])
			}
		}
	}
	if len(said) == 0 || !slices.Equal(said, rows) {
		t.Errorf("the page states %v, and SECURITY.md has %v", said, rows)
	}
}
