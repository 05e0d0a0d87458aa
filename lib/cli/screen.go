package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"distribute/lib/unit"

	"golang.org/x/sys/unix"
)

// StdinTTY says whether stdin is a terminal.
func (c *Cmd) StdinTTY() bool { return isTTY(c.Stdin) }

// StdinComes says that a pipe or a file on stdin has something to be read now, for a
// command that does not read it. It waits a tenth of a second for it at most.
func (c *Cmd) StdinComes() bool {
	in, ok := c.Stdin.(*input)
	return ok && in.comes()
}

// StdoutTTY says whether stdout is a terminal: then a person reads the records.
func (c *Cmd) StdoutTTY() bool { return isTTY(c.Stdout) }

// StderrTTY says whether stderr is a terminal.
func (c *Cmd) StderrTTY() bool { return isTTY(c.Stderr) }

func isTTY(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Width is the number of columns to write to stdout: those of the terminal, or
// $COLUMNS, or 80.
func (c *Cmd) Width() int {
	if n := columns(c.Stdout); n > 0 {
		return n
	}
	if n, err := strconv.Atoi(c.Getenv("COLUMNS")); err == nil && n > 0 && n <= 1000 {
		return n
	}
	return 80
}

func columns(stream any) int {
	f, ok := stream.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// output is stdout. It keeps its lines and a line of progress apart and notices
// when its reader has gone.
type output struct {
	*os.File
	screen *screen
	broken func()
}

func (o *output) Write(p []byte) (n int, err error) {
	o.screen.around(func() { n, err = o.File.Write(p) })
	if errors.Is(err, syscall.EPIPE) {
		o.broken()
	}
	return n, err
}

// EndWithReader ends the command when nobody reads its standard output any more, and not only
// when it writes there: for one that may write nothing for hours.
func (c *Cmd) EndWithReader() {
	o, ok := c.Stdout.(*output)
	if !ok {
		return
	}
	// What waits in the background goes on when its terminal is closed.
	if info, err := o.Stat(); err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		go o.await()
	}
}

// await waits until the other end of a pipe or socket is closed.
func (o *output) await() {
	fds := []unix.PollFd{{Fd: int32(o.Fd())}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case err == nil && fds[0].Revents&unix.POLLNVAL == 0:
			o.broken()
			return
		case err != unix.EINTR:
			return
		}
	}
}

// WriteString is Write: the one of os.File would go past it.
func (o *output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

// ReadFrom hides that of os.File, which would go past Write.
func (o *output) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{o}, r)
}

// screen is the last line of a terminal, on which progress is shown.
type screen struct {
	mu   sync.Mutex
	w    io.Writer // nil: nothing is shown
	line string    // what stands there now
}

// around runs write with the line of progress out of its way.
func (s *screen) around(write func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		io.WriteString(s.w, "\r\x1b[K")
		defer func() { io.WriteString(s.w, s.line) }()
	}
	write()
}

func (s *screen) show(w io.Writer, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w, s.line = w, line
	io.WriteString(w, "\r\x1b[K"+line)
}

func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		io.WriteString(s.w, "\r\x1b[K")
		s.line = ""
	}
}

// Progress is one line on a terminal that says how far long work is, how fast
// it goes and how long it will take. It shows nothing when stderr is no terminal
// or -q was given, and nothing in the first half second. Its methods may be
// called from several goroutines and cost a lock and a look at the clock.
type Progress struct {
	cmd    *Cmd
	what   string
	format func(int64) string
	now    func() time.Time

	mu           sync.Mutex
	done, total  int64
	began, drawn time.Time
}

const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 200 * time.Millisecond
)

// Progress starts a line of progress: what is done ("pulling"), and how much of
// it there is; a total of 0 is not known. The format writes an amount, such as
// unit.FormatBytes; nil writes plain numbers. There is one such line at a time.
func (c *Cmd) Progress(what string, total int64, format func(int64) string) *Progress {
	if !c.StderrTTY() || c.Given("q") {
		return &Progress{}
	}
	if format == nil {
		format = func(n int64) string { return strconv.FormatInt(n, 10) }
	}
	now := time.Now()
	return &Progress{cmd: c, what: what, format: format, now: time.Now, total: total, began: now, drawn: now.Add(progressAfter - progressEvery)}
}

// Grow adds n to the total.
func (p *Progress) Grow(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += n
}

// Add says that n more are done.
func (p *Progress) Add(n int64) {
	if p.cmd == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if now := p.now(); now.Sub(p.drawn) >= progressEvery {
		p.drawn = now
		p.cmd.screen.show(p.cmd.Stderr, p.text(now))
	}
}

// Done takes the line away.
func (p *Progress) Done() {
	if p.cmd != nil {
		p.cmd.screen.clear()
	}
}

func (p *Progress) text(now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s", p.cmd.Name, p.what, p.format(p.done))
	if p.total > 0 {
		fmt.Fprintf(&b, " of %s", p.format(p.total))
	}
	rate := float64(p.done) / max(now.Sub(p.began).Seconds(), 1e-3)
	if rate >= 1 {
		fmt.Fprintf(&b, ", %s/s", p.format(int64(rate)))
	}
	if left := p.total - p.done; left > 0 && rate > 0 {
		seconds := min(float64(left)/rate, 1e9)
		fmt.Fprintf(&b, ", %s left", unit.FormatDuration(time.Duration(seconds*float64(time.Second))))
	}
	line := []rune(harmless(b.String()))
	if width := columns(p.cmd.Stderr); width > 0 && len(line) >= width {
		line = line[:width-1]
	}
	return string(line)
}
