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

// A content is replaced by a shorter one and a longer one, and stays if nothing can be
// written.
func TestOverwrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("pid 100000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flag       int
		text, want string
	}{{os.O_RDONLY, "", "pid 100000\n"}, {os.O_RDONLY, "pid 1\n", "pid 100000\n"}, {os.O_WRONLY, "pid 1\n", "pid 1\n"}, {os.O_RDWR, "pid 20\n", "pid 20\n"}} {
		f, err := os.OpenFile(name, c.flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := Overwrite(f, []byte(c.text)); (err != nil) != (c.flag == os.O_RDONLY) {
			t.Errorf("%q: %v", c.text, err)
		}
		f.Close()
		if b, err := os.ReadFile(name); err != nil || string(b) != c.want {
			t.Errorf("%q, %v, want %q", b, err, c.want)
		}
	}
}
