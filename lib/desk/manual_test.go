package desk

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"distribute/lib/proc"
	"distribute/lib/suite"
)

// dspool(5) has every line of the record of an attempt, and what is in its directory.
func TestManual(t *testing.T) {
	const page = "../../man/dspool.5"
	lines := append(suite.Column(t, page, "is an object with one member", 0), "list") // which stands beside result
	suite.SameWords(t, "attempt.jsonl", lines, suite.Members(record{}))
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	for _, limit := range []string{fmt.Sprintf("if of more than %d entries", manyEntries-1), fmt.Sprintf("of at most %d entries", manyEntries-1),
		fmt.Sprintf("below %d MiB not synced", syncedFrom>>20), "the supervisor: " + strings.NewReplacer("start", "start (ticks after boot)", "began", "began (nanoseconds after boot, later by its pauses)").Replace(strings.Join(suite.Members(proc.Holder{}), ", "))} {
		if !strings.Contains(words, limit) {
			t.Errorf("the manual does not say %q", limit)
		}
	}
}
