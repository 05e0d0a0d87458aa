package desk

import (
	"testing"

	"distribute/lib/suite"
)

// dspool(5) has every line of the record of an attempt, and what is in its directory.
func TestManual(t *testing.T) {
	const page = "../../man/dspool.5"
	lines := append(suite.Column(t, page, "is an object with one member", 0), "list") // which stands beside result
	suite.SameWords(t, "attempt.jsonl", lines, suite.Members(record{}))
}
