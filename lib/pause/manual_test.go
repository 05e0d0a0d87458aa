package pause

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"distribute/lib/suite"
)

// dspool(5) has what a pause says, what a node says of itself, and the limits.
func TestManual(t *testing.T) {
	const page = "../../man/dspool.5"
	suite.SameWords(t, "a pause", suite.Column(t, page, "with no other members than", 0), suite.Members(record{}))
	suite.SameWords(t, "now.UID.NODE~SUM", suite.Column(t, page, ".Pa now.UID.NODE~SUM", 0), suite.Members(Now{}))
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	for _, limit := range []string{fmt.Sprintf("object of at most %d bytes", maxFile), fmt.Sprintf("at most %d bytes", maxWhy),
		fmt.Sprintf("%d of one owner, %d of all", maxOfOne, maxInAll)} {
		if !strings.Contains(words, limit) {
			t.Errorf("the manual does not say %q", limit)
		}
	}
}
