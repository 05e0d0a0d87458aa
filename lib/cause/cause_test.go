package cause

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestSaid(t *testing.T) {
	long := strings.Repeat("ä", 160)
	for _, c := range []struct{ tail, want string }{
		{"", ""},
		{"\n \n", ""},
		{"one\ntwo\n", "two"},
		{"Traceback:\n  File \"a.py\", line 3\nValueError: CFL 1.7 > 1\n\n", "ValueError: CFL 1.7 > 1"},
		{"error: no mesh\n-----------\n 12 \n", "error: no mesh"},
		{"\n-----\n***\n", "***"},
		{"10%\r20%\rstep 3\r", "step 3"},
		{"\x1b[31merror:\x1b[0m\tno  mesh\x07\n", "error: no mesh"},
		{"a\xffb\n", "a\ufffdb"},
		{"x\x1b[", "x"},
		{long, long[:158]},
		{long[:158] + "ab", long[:158] + "a"},
	} {
		if got := Said([]byte(c.tail)); got != c.want {
			t.Errorf("the last line of %q is %q, want %q", c.tail, got, c.want)
		}
	}
}

// What is of one cause is alike, and what is not is not.
func TestLike(t *testing.T) {
	for _, c := range []struct {
		want  string
		texts []string
	}{
		{"ValueError: CFL # > #", []string{"ValueError: CFL 1.7 > 1", "ValueError: CFL -2.25e-3 > 10"}},
		{"case *: diverged at step #.", []string{"case re=100: diverged at step 12.", "case re=100: diverged at step 9."}},
		{"no such file: '/'", []string{"no such file: '/scratch/17/mesh.h5'", "no such file: './mesh.h5'"}},
		{"#:#:# failed", []string{"10:11:12 failed", "1:2:3.5 failed"}},
		{"## failed", []string{"2026-11 failed"}},
		{"bad pointer #", []string{"bad pointer 0x7ffe12ab", "bad pointer 0xdead", "bad pointer deadbe01"}},
		{"job # of run#", []string{"job 550e8400-e29b-41d4-a716-446655440000 of run7"}},
		{"deadbeef cafe", []string{"deadbeef cafe"}},
	} {
		for _, text := range c.texts {
			if got := Like(text, "re=100"); got != c.want {
				t.Errorf("%q is like %q, want %q", text, got, c.want)
			}
		}
	}
}

// FuzzSaid takes the end of an output as any program may leave it.
func FuzzSaid(f *testing.F) {
	f.Add([]byte("one\n\x1b[31mtwo 0x1f\r\n"), "two")
	f.Add([]byte("2026-11-20T10:00:00 /tmp/x.1: 1e5 \xff"), "")
	f.Fuzz(func(t *testing.T, tail []byte, own string) {
		said := Said(tail)
		if len(said) > MaxSaid || !utf8.ValidString(said) || strings.ContainsFunc(said, unicode.IsControl) || strings.TrimSpace(said) != said {
			t.Fatalf("the last line of %q is %q", tail, said)
		}
		if like := Like(said, own); len(like) > len(said) || strings.ContainsAny(like, "0123456789") {
			t.Fatalf("%q is like %q", said, like)
		}
	})
}
