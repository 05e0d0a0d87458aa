package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// How much of the disk is left to others is a size, nothing at all included;
// unless the site says it, the size of the disk decides.
func TestReserveSetting(t *testing.T) {
	for text, want := range map[string]int64{"": -1, "lease: 1h\n": -1, "reserve: 0\n": 0, "reserve: 2G\n": 2 << 30} {
		name := filepath.Join(t.TempDir(), "head.yaml")
		write(t, name, text)
		if s, err := readSettings(name); err != nil || s.Reserve != want {
			t.Errorf("%q: %d, %v", text, s.Reserve, err)
		}
	}
	name := filepath.Join(t.TempDir(), "head.yaml")
	write(t, name, "reserve: 5%\n")
	if _, err := readSettings(name); err == nil || !strings.Contains(err.Error(), `head.yaml:1:10: "5%" is not a size`) {
		t.Errorf("a share of the disk: %v", err)
	}
}
