package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// What fits is shown whole; of what does not, the first lines, and how many more there are.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		table, talk string
		height      int
		want        string
	}{
		{"a\nb\n", "x: 12:00:00", 3, "a|b|x: 12:00:00"},
		{"a\nb\nc\n", "x: 12:00:00", 3, "a|and 2 lines more|x: 12:00:00"},
		{"a\nb\nc\nd\n", "x: 4 jobs\nx: 12:00:00", 5, "a|b|and 2 lines more|x: 4 jobs|x: 12:00:00"},
		{"a\nb\nc\n", "x: 12:00:00", 1, "a|and 2 lines more|x: 12:00:00"},
		{"", "x: 12:00:00", 9, "x: 12:00:00"},
	} {
		want := "\x1b[?7l\x1b[H" + strings.ReplaceAll(c.want, "|", "\x1b[K\n") + "\x1b[K\x1b[J"
		if got := fit(c.table, c.talk, c.height); got != want {
			t.Errorf("%q, %q on %d lines: %q, want %q", c.table, c.talk, c.height, got, want)
		}
	}
}

// The first error ends it, before anything is shown; the end of ctx leaves the last picture,
// on the screen that was there before.
func TestRefresh(t *testing.T) {
	master, tty := openPTY(t)
	c, _, talk := newCmd()
	c.Name, c.Stdout = "dquery", tty
	wrong := errors.New("no head")
	err := c.Refresh(t.Context(), func(_ context.Context, c *Cmd) error { c.Talk("why"); return wrong })
	if !errors.Is(err, wrong) || talk.String() != "dquery: why\n" {
		t.Errorf("first error: %v, %q", err, talk)
	}
	ctx, stop := context.WithCancel(t.Context())
	err = c.Refresh(ctx, func(_ context.Context, c *Cmd) error {
		defer stop()
		if !c.StdoutTTY() || c.Width() != 60 {
			t.Errorf("drawn for a terminal: %v, of %d columns", c.StdoutTTY(), c.Width())
		}
		c.Talk("one job")
		_, err := io.WriteString(c.Stdout, "a runs\n")
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	tty.Close()
	shown, _ := io.ReadAll(master)
	if want := "\x1b[?1049h\x1b[?7h\x1b[?1049la runs\ndquery: one job\n"; strings.ReplaceAll(string(shown), "\r", "") != want {
		t.Errorf("shown %q, want %q", shown, want)
	}
}
