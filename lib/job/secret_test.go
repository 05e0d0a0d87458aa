package job

import (
	"fmt"
	"strings"
	"testing"
)

func TestMask(t *testing.T) {
	s := Secrets{"A=abcdef-1", "B=two  \"words\"", "C=first line\nsecond line\n", "D=abcdef-1-longer"}
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"nothing of it", "nothing of it"},
		{"key abcdef-1.", "key ***."},
		{"abcdef-1abcdef-1", "***"},
		{"abcdef-1-longer", "***"},
		{`two  "words"`, "***"},
		{`said "two  \"words\""`, `said "***"`},
		{`said two "words"`, `said ***`},
		{"it is second line", "it is ***"},
		{"first line second line", "***"},
		{"cut: abcde", "cut: ***"},
		{"cut: abc", "cut: abc"},
		{"def-1 was cut", "*** was cut"},
		{"onger", "***"},
	} {
		if got := s.Mask(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
	if got := (Secrets)(nil).Mask("abcdef-1"); got != "abcdef-1" {
		t.Error(got)
	}
	for _, verb := range []string{"%v", "%s", "%+v", "%#v", "%q"} {
		if got := fmt.Sprintf(verb, s); strings.Contains(got, "abc") || !strings.Contains(got, "A B C D") {
			t.Errorf("%s: %s", verb, got)
		}
	}
	r := Result{Outcome: Outcome{Reason: "said abcdef-1", Skipped: "abcdef-1: a FIFO", Machine: "n abcdef-1"}}
	if s.MaskOutcome(&r); r.Reason != "said ***" || r.Skipped != "***: a FIFO" || r.Machine != "n ***" {
		t.Errorf("%+v", r)
	}
}

// Values that overlap are hidden as a whole.
func TestMaskOverlap(t *testing.T) {
	for _, c := range []struct {
		s    Secrets
		text string
	}{
		{Secrets{"A=secretAB", "B=ABxxxxxxyy"}, "secretABxxxxxxyy"},
		{Secrets{"A=ababab"}, "abababab"},
		{Secrets{"A=dddd-which-is-longer", "B=abcdefghdddd-z"}, "abcdefghdddd"},
	} {
		if got := c.s.Mask("x " + c.text); got != "x ***" {
			t.Errorf("%q: %q", c.text, got)
		}
	}
}

// A value leaves the words by which others tell how an attempt ended.
func TestMaskReason(t *testing.T) {
	s := Secrets{"A=memory", "B=summer-time", "C=the secrets", "D=stopped", "E=no-build"}
	for reason, want := range map[string]string{
		"time limit":                 "time limit",
		"out of memory: it had 1 MB": "out of memory: it had 1 MB",
		"out of memory: its node had no more, and memory": "out of memory: its node had no more, and ***",
		"stopped: it had written 1 MB":                    "stopped: it had written 1 MB",
		"stopped: by summer-time":                         "stopped: by ***",
		"its secrets are missing":                         "its secrets are missing",
		"build failed":                                    "build failed",
		"it used summer":                                  "it used ***",
	} {
		r := Result{Outcome: Outcome{Reason: reason}}
		if s.MaskOutcome(&r); r.Reason != want {
			t.Errorf("%q: %q, want %q", reason, r.Reason, want)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add("abcdef", "x abcdef y", 4)
	f.Fuzz(func(t *testing.T, value, text string, cut int) {
		s := Secrets{"A=" + value}
		if CheckSecret("A", value) != nil {
			return
		}
		text += value + text
		text = text[:min(max(cut, 0), len(text))]
		if got := s.Mask(text); strings.Contains(got, value) && !strings.Contains(value, hidden) && !strings.Contains(hidden, value) {
			t.Errorf("%q in %q: %q", value, text, got)
		}
	})
}
