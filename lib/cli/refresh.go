package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// refreshEvery is how often Refresh draws, as watch(1) does.
const refreshEvery = 2 * time.Second

// A picture keeps what is drawn for a terminal, and has the size of that.
type picture struct {
	bytes.Buffer
	fd uintptr
}

func (p *picture) Fd() uintptr { return p.fd }

// Refresh shows on stdout, which is a terminal, what draw writes, every two seconds in place of
// what it wrote before, until ctx ends; less often where drawing takes long. What does not fit
// on the screen is counted. The last picture stays. An error of the first draw is returned;
// later ones stand below the picture that was drawn last.
func (c *Cmd) Refresh(ctx context.Context, draw func(context.Context, *Cmd) error) error {
	terminal := c.Stdout.(interface{ Fd() uintptr })
	var table, talk string
	for first := true; ; first = false {
		began, p, said := time.Now(), picture{fd: terminal.Fd()}, bytes.Buffer{}
		inner := *c
		inner.Stdout, inner.Stderr, inner.screen = &p, &said, &screen{}
		err := draw(ctx, &inner)
		switch {
		case first && err != nil:
			io.WriteString(c.Stderr, said.String())
			return err
		case first:
			io.WriteString(c.Stdout, "\x1b[?1049h") // a screen of its own, without lines that wrap
			defer func() { io.WriteString(c.Stdout, "\x1b[?7h\x1b[?1049l"+table+talk) }()
		}
		if err == nil {
			table, talk = p.String(), said.String()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		status := c.Name + ": " + time.Now().Format(time.TimeOnly)
		if err != nil {
			status = wrap(c.Name+": "+harmless(err.Error()), c.Width()) + status
		}
		if _, err := io.WriteString(c.Stdout, fit(table, talk+status, height(terminal.Fd()))); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(refreshEvery, 4*time.Since(began))):
		}
	}
}

// height is how many lines a terminal has.
func height(fd uintptr) int {
	size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
	if err != nil || size.Row == 0 {
		return 24
	}
	return int(size.Row)
}

// wrap is a text in lines of so many characters.
func wrap(text string, width int) string {
	var b strings.Builder
	for chunk := range slices.Chunk([]rune(text), width) {
		b.WriteString(string(chunk) + "\n")
	}
	return b.String()
}

// fit is what shows a table and the talk below it on a screen of so many lines.
func fit(table, talk string, height int) string {
	rows := strings.SplitAfter(table, "\n")
	rows = rows[:len(rows)-1] // behind the last newline
	if most := max(2, height-strings.Count(talk, "\n")-1); len(rows) > most {
		more := fmt.Sprintf("and %d lines more\n", len(rows)-most+1)
		rows = append(rows[:most-1:most-1], more)
	}
	text := strings.Join(rows, "") + strings.TrimSuffix(talk, "\n")
	return "\x1b[?7l\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[K\x1b[J"
}
