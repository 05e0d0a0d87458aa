// Package cli is what every command of distribute has in common: its options,
// its exit status, what it says and where, ids on stdin, signals. A command is
//
//	const usage = `usage: dwait [-q] [-T time] [operand ...]`
//
//	func main() { cli.Main(usage, run) }
//
//	func run(ctx context.Context, c *cli.Cmd) error {
//		quiet := c.Bool("q")
//		limit := c.String("T", "")
//		if err := c.Parse(); err != nil {
//			return err
//		}
//		…
//	}
//
// Below run nobody names os.Stdin, os.Stdout, os.Stderr, os.Args or os.Exit.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Cmd is a command's environment as a value.
type Cmd struct {
	// Name is what the command was called as, without its directory.
	Name string

	// Stdin ends with the context's error when a signal arrives.
	Stdin io.Reader
	// Stdout takes records and nothing else. It is not buffered. A write to a
	// pipe that nobody reads any more fails and cancels the context; Main then
	// ends the process in silence.
	Stdout io.Writer
	// Stderr takes talk; Talk and Verbose write it.
	Stderr io.Writer

	// Args is the whole command line before Parse, and the operands after it.
	Args []string
	// Command is what followed "--", for a command whose usage shows "-- ".
	// In any other command those words are operands.
	Command []string
	// Dashed says that there was a "--".
	Dashed bool

	// Getenv is os.Getenv, or what a test puts in its place.
	Getenv func(string) string

	usage  string
	flags  []*option
	screen *screen
}

// Main runs a command and exits with its status. The usage is what -h prints:
// "usage: " and the command's synopses, a line each, without a newline at its
// end. An error of run is printed to stderr, each of its lines after the
// command's name; a usage error is followed by the usage.
//
// The first SIGINT or SIGTERM cancels ctx, a second one kills the process, but not one that
// comes with the first: timeout(1) signals the process, and then its group. When
// run returns an error after a signal that says no more than that ctx was
// cancelled, the process dies of that signal, as a shell expects. SIGPIPE is
// caught, so a broken stderr or socket is an error and not the end.
func Main(usage string, run func(ctx context.Context, c *Cmd) error) {
	os.Exit(start(usage, run))
}

// doubled is for how long after the first signal others belong to it.
var doubled = 100 * time.Millisecond

func start(usage string, run func(ctx context.Context, c *Cmd) error) int {
	setZone()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		s := (<-signals).(syscall.Signal)
		cancel(interrupted{s})
		<-time.After(doubled)
		signal.Stop(signals)
	}()

	screen := &screen{}
	c := &Cmd{
		Name:   filepath.Base(os.Args[0]),
		Stdin:  newInput(ctx, os.Stdin),
		Stdout: &output{File: os.Stdout, screen: screen, broken: func() { cancel(interrupted{syscall.SIGPIPE}) }},
		Stderr: os.Stderr,
		Args:   os.Args[1:],
		Getenv: os.Getenv,
		screen: screen,
	}
	status := c.Run(ctx, usage, run)
	var cause interrupted
	if status == died && errors.As(context.Cause(ctx), &cause) {
		cause.die()
	}
	return status
}

// interrupted is why a context ended when a signal ended it.
type interrupted struct{ syscall.Signal }

func (s interrupted) Error() string { return "ended by signal: " + s.String() }

// die ends the process by s, if that is not blocked. Go's runtime dies of
// SIGPIPE only in a write, and there is none to lose on a broken pipe.
func (s interrupted) die() {
	signal.Reset(s.Signal)
	if s.Signal == syscall.SIGPIPE {
		os.Stdout.Write([]byte{'\n'})
		return
	}
	if err := syscall.Kill(syscall.Getpid(), s.Signal); err == nil {
		<-time.After(time.Second)
	}
}

// saysCancelled says whether err is only what follows from a cancelled context.
func saysCancelled(err error) bool {
	for _, e := range []error{context.Canceled, net.ErrClosed, os.ErrClosed, os.ErrDeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	var cause interrupted
	return errors.As(err, &cause)
}

// died is Run's status for "ended as the signal asked"; it is what a shell
// reports for SIGINT, and Main makes it true for the signal that it was.
const died = 128 + int(syscall.SIGINT)

// Run is Main without the process around it: it runs the command in the
// environment c, prints the error to c.Stderr and returns the exit status. It
// is for tests and for a command that starts another in itself.
func (c *Cmd) Run(ctx context.Context, usage string, run func(ctx context.Context, c *Cmd) error) (status int) {
	c.usage = usage
	if c.screen == nil {
		c.screen = &screen{}
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	defer func() {
		if r := recover(); r != nil {
			c.say(fmt.Sprintf("a fault of %s: %v\n%s", c.Name, r, debug.Stack()))
			status = Fault
		}
	}()
	err := run(ctx, c)
	c.screen.clear()
	if err == nil {
		return OK
	}
	var cause interrupted
	if errors.As(context.Cause(ctx), &cause) && (cause.Signal == syscall.SIGPIPE || saysCancelled(err)) {
		return died
	}
	c.say(err.Error())
	status = Status(err)
	if status == Usage {
		fmt.Fprintln(c.Stderr, usage)
	}
	return status
}

// Talk says one thing to the person at the terminal: a line on stderr after
// the command's name, or several if the text has several. It says nothing when
// the command has an option -q and it was given. What comes from elsewhere is
// quoted by the caller; a control character in the text is written as \x1b all
// the same.
func (c *Cmd) Talk(format string, a ...any) {
	if !c.Given("q") {
		c.say(fmt.Sprintf(format, a...))
	}
}

// Verbose is Talk for those who gave the option -v. It says nothing in a
// command that has no such option.
func (c *Cmd) Verbose(format string, a ...any) {
	if c.Given("v") {
		c.say(fmt.Sprintf(format, a...))
	}
}

// say writes the lines of text to stderr, each after the command's name.
func (c *Cmd) say(text string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			fmt.Fprintf(&b, "%s: %s\n", c.Name, harmless(line))
		}
	}
	c.screen.around(func() { io.WriteString(c.Stderr, b.String()) })
}

// harmless replaces by its escape what could move a terminal's cursor, or hide or
// turn around what stands beside it.
func harmless(line string) string {
	var b strings.Builder
	for _, r := range line {
		switch {
		case r == '\t' || strconv.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}
