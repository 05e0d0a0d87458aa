package line

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLast(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	hundred := strings.Repeat("x", 99) + "\n"
	for _, tt := range []struct {
		text  string
		lines int
		want  string
	}{
		{"", 1, ""},
		{"one", 1, "one"},
		{"one\n", 1, "one\n"},
		{"one\ntwo\n", 1, "two\n"},
		{"one\ntwo\nthr", 2, "two\nthr"},
		{"one\ntwo\n", 3, "one\ntwo\n"},
		{"one\n\n\n", 2, "\n\n"},
		{"one\n" + long, 1, long},
		{"one\n" + long, 9, "one\n" + long},
		{"one\n" + long + "\n", 1, long + "\n"},
		{"\n" + long[1:] + "\n", 2, "\n" + long[1:] + "\n"},
		{"one\n" + long[1:] + "\n", 1, long[1:] + "\n"},
		{strings.Repeat(hundred, 3000), 1000, strings.Repeat(hundred, 1000)},
	} {
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		from, err := Last(f, tt.lines)
		f.Close()
		if err != nil || tt.text[from:] != tt.want {
			t.Errorf("the last %d of %.20q begin at %d, %v", tt.lines, tt.text, from, err)
		}
	}
}
