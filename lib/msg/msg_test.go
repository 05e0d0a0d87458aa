package msg

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"capabilities", "cpus", "cpus_per_task", "name", "namespace"}
	for in, want := range map[string]string{"capabilites": "capabilities", "CPUs": "cpus", "cpus-per-task": "cpus_per_task",
		"nmae": "name", "namspace": "namespace", "zzz": "", "": "", strings.Repeat("name", 1000): ""} {
		if got := Nearest(in, known); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", in, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"a": `"a"`, "\x1b[0m\n": `"\x1b[0m\n"`, strings.Repeat("é", 100): `"` + strings.Repeat("é", 80) + `"…`} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}
