package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestRereadChangesNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(name, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Reread(name); err != nil {
		t.Error(err)
	}
	if got := content(t, name); got != "one\n" {
		t.Errorf("content %q", got)
	}
	if err := Reread(name + ".missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
}
