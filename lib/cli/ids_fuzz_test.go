package cli

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzStdinIDs reads ids as they may come on standard input.
func FuzzStdinIDs(f *testing.F) {
	f.Add([]byte("lab/b/j\tdone\r\n\n  \nx"))
	f.Add([]byte("\tx\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := &Cmd{Stdin: bytes.NewReader(text)}
		ids, err := c.IDs()
		for _, id := range ids {
			if id == "" || strings.ContainsAny(id, "\t\n") || !bytes.Contains(text, []byte(id)) {
				t.Fatalf("%q has the id %q", text, id)
			}
		}
		if err != nil && !strings.HasPrefix(err.Error(), "stdin:") {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
