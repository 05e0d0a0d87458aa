package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// A line that was cut short takes no other with it.
func TestAppendLine(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("one\ntw"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, line := range []string{"three", "four"} {
		if err := AppendLine(f, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "one\ntw\nthree\nfour\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := os.Truncate(name, 0); err != nil {
		t.Fatal(err)
	}
	if err := AppendLine(f, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "first\n" {
		t.Errorf("%q, %v", b, err)
	}
}
