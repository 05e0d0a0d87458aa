package noded

import (
	"testing"

	"distribute/lib/job"
)

// A node that lives long remembers the last attempts that it let go, and not
// all of them.
func TestRecent(t *testing.T) {
	var r recent
	tokens := make([]job.Token, 10*maxRecent)
	for i := range tokens {
		tokens[i] = job.NewToken()
		r.add(tokens[i])
		if n := len(r.last) + len(r.before); n > 2*maxRecent {
			t.Fatalf("%d are kept", n)
		}
	}
	for _, x := range tokens[len(tokens)-maxRecent:] {
		if !r.has(x) {
			t.Fatal("one of the last was forgotten")
		}
	}
	if r.has(tokens[0]) || r.has(job.NewToken()) {
		t.Error("one is there that should not be")
	}
}
