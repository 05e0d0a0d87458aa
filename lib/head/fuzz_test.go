package head

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// FuzzSettings reads what may stand in a head.yaml.
func FuzzSettings(f *testing.F) {
	f.Add([]byte("lease: 20m\nlisten: [tcp://127.0.0.1:8951]\noperators: [ana]\nreserve: 2G\nkeep: 7d\n"))
	name := filepath.Join(f.TempDir(), "head.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readSettings(name)
		if err == nil && (s.Lease != 0 && s.Lease < time.Minute || s.Keep < 0 || s.Reserve < -1) {
			t.Fatalf("%q is read as %+v", text, s)
		}
	})
}
