package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/unit"
)

// TestMain lets the test binary be a small command, so that what Main does to a
// process is seen from outside.
func TestMain(m *testing.M) {
	acts := map[string]func(context.Context, *Cmd) error{
		"wait": func(ctx context.Context, c *Cmd) error {
			fmt.Fprintln(c.Stdout, "ready")
			<-ctx.Done()
			return ctx.Err()
		},
		"cause": func(ctx context.Context, c *Cmd) error {
			fmt.Fprintln(c.Stdout, "ready")
			<-ctx.Done()
			return context.Cause(ctx)
		},
		"clean": func(ctx context.Context, c *Cmd) error { fmt.Fprintln(c.Stdout, "ready"); <-ctx.Done(); return nil },
		"stay": func(ctx context.Context, c *Cmd) error {
			fmt.Fprintln(c.Stdout, "ready")
			<-ctx.Done()
			fmt.Fprintln(c.Stdout, "asked")
			select {}
		},
		"doubled": func(ctx context.Context, c *Cmd) error {
			fmt.Fprintln(c.Stdout, "ready")
			<-ctx.Done()
			for {
				fmt.Fprintln(c.Stdout, "asked")
				if n, _ := os.Stdin.Read(make([]byte, 1)); n == 0 {
					return nil
				}
			}
		},
		"ids": func(ctx context.Context, c *Cmd) error {
			ids, err := c.IDs()
			fmt.Fprintf(c.Stdout, "%q\n", ids)
			return err
		},
		"read": func(ctx context.Context, c *Cmd) error {
			fmt.Fprintln(c.Stdout, "ready")
			_, err := c.IDs()
			return err
		},
		"yes": func(ctx context.Context, c *Cmd) error {
			for ctx.Err() == nil {
				fmt.Fprintln(c.Stdout, "y")
			}
			return errors.New("nobody should see this")
		},
		"panic": func(ctx context.Context, c *Cmd) error { panic("lost my mind") },
		"deaf": func(ctx context.Context, c *Cmd) error {
			c.Talk("this goes nowhere")
			return Quiet(No)
		},
	}
	name := os.Getenv("CLI_TEST_ACT")
	if run := acts[name]; run != nil {
		if name == "doubled" {
			doubled = time.Hour
		}
		Main("usage: act", run)
	}
	os.Exit(m.Run())
}

func act(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Args[0] = "/bin/act"
	cmd.Env = append(os.Environ(), "CLI_TEST_ACT="+name)
	return cmd
}

func newCmd(args ...string) (*Cmd, *strings.Builder, *strings.Builder) {
	out, talk := new(strings.Builder), new(strings.Builder)
	return &Cmd{Name: "dtry", Stdin: strings.NewReader(""), Stdout: out, Stderr: talk, Args: args}, out, talk
}

const tryUsage = `usage: dtry [-jnqv] [-o dir] [-i expression]... [-L lines] [operand ...]
       dtry -attach name [-- command ...]`

func TestParse(t *testing.T) {
	type got struct {
		J, N    bool
		O       string
		I       []string
		L       int
		Attach  string
		Args    []string
		Command []string
		Dashed  bool
	}
	for _, c := range []struct {
		args string
		want got
		err  string
	}{
		{args: "", want: got{L: 7}},
		{args: "a b", want: got{L: 7, Args: []string{"a", "b"}}},
		{args: "a -nj b", want: got{J: true, N: true, L: 7, Args: []string{"a", "b"}}},
		{args: "-j -j", want: got{J: true, L: 7}},
		{args: "-njo out", want: got{J: true, N: true, O: "out", L: 7}},
		{args: "-jout", want: got{J: true, O: "ut", L: 7}},
		{args: "-juO", err: `unknown option "-u"`},
		{args: "-oout -ia -i b -i=c", want: got{O: "out", I: []string{"a", "b", "c"}, L: 7}},
		{args: "-o=out", want: got{O: "out", L: 7}},
		{args: "-ia=b", want: got{I: []string{"a=b"}, L: 7}},
		{args: "-o -", want: got{O: "-", L: 7}},
		{args: "-o -j", want: got{O: "-j", L: 7}},
		{args: "- -L 3", want: got{L: 3, Args: []string{"-"}}},
		{args: "-L -3", want: got{L: -3}},
		{args: "-attach ws1", want: got{L: 7, Attach: "ws1"}},
		{args: "a -- -j b --", want: got{L: 7, Args: []string{"a"}, Command: []string{"-j", "b", "--"}, Dashed: true}},
		{args: "--", want: got{L: 7, Command: []string{}, Dashed: true}},
		{args: "-o", err: "option -o needs a value"},
		{args: "-o=", err: "the value of option -o is empty"},
		{args: "-i a -i=", err: "the value of option -i is empty"},
		{args: "-o a -o b", err: "option -o is given twice"},
		{args: "-L x", err: `-L "x" is not a whole number`},
		{args: "-z", err: `unknown option "-z"`},
		{args: "-é", err: `unknown option "-é"`},
		{args: "--jobs", err: `unknown option "--jobs"`},
		{args: "-n=false", err: "option -n takes no value"},
		{args: "-\x1b[31m", err: `unknown option "-\x1b"`},
	} {
		cmd, _, talk := newCmd(strings.Fields(c.args)...)
		var g got
		status := cmd.Run(t.Context(), tryUsage, func(ctx context.Context, c *Cmd) error {
			j, n, o, i, l := c.Bool("j"), c.Bool("n"), c.String("o", ""), c.Strings("i"), c.Int("L", 7)
			at := c.String("attach", "")
			c.Bool("q")
			c.Bool("v")
			if err := c.Parse(); err != nil {
				return err
			}
			g = got{*j, *n, *o, *i, *l, *at, c.Args, c.Command, c.Dashed}
			return nil
		})
		if c.err != "" {
			if want := "dtry: " + c.err + "\n" + tryUsage + "\n"; status != Usage || talk.String() != want {
				t.Errorf("%q: status %d, stderr %q; want 64 and %q", c.args, status, talk, want)
			}
		} else if status != OK || !reflect.DeepEqual(g, c.want) {
			t.Errorf("%q: status %d, %+v; want 0, %+v (%s)", c.args, status, g, c.want, talk)
		}
	}
}

// Without "-- " in its usage a command takes what follows as operands.
func TestParseDashes(t *testing.T) {
	c, _, _ := newCmd("-j", "a", "--", "-x.yaml")
	status := c.Run(t.Context(), "usage: dtry [-j] [operand ...]", func(ctx context.Context, c *Cmd) error {
		c.Bool("j")
		return c.Parse()
	})
	if want := []string{"a", "-x.yaml"}; status != OK || !reflect.DeepEqual(c.Args, want) || c.Command != nil || !c.Dashed {
		t.Errorf("status %d, operands %q, command %q, dashed %v", status, c.Args, c.Command, c.Dashed)
	}
}

func TestParseHelp(t *testing.T) {
	run := func(ctx context.Context, c *Cmd) error {
		c.Bool("j")
		if err := c.Parse(); err != nil {
			return err
		}
		return errors.New("went on")
	}
	const usage = "usage: dtry [-j]"
	for _, arg := range []string{"-h", "--help"} {
		c, out, talk := newCmd("-j", arg, "-unknown")
		if status := c.Run(t.Context(), usage, run); status != OK || out.String() != usage+"\n" || talk.Len() != 0 {
			t.Errorf("%s: status %d, stdout %q, stderr %q", arg, status, out, talk)
		}
	}
	for _, arg := range []string{"-V", "--version"} {
		c, out, talk := newCmd(arg)
		if status := c.Run(t.Context(), usage, run); status != OK || !strings.HasPrefix(out.String(), "dtry ") || talk.Len() != 0 {
			t.Errorf("%s: status %d, stdout %q, stderr %q", arg, status, out, talk)
		}
	}
}

func TestUsageAndOptionsDiffer(t *testing.T) {
	for _, c := range []struct{ usage, want string }{
		{"usage: dtry [-jk]", "the usage shows -k, which is not defined"},
		{"usage: dtry [-j] -attach name", "the usage shows -"},
		{"usage: dtry", "-j is defined, but the usage does not show it"},
		{"usage: dtry -- [-j]", "-j is defined, but the usage does not show it"},
	} {
		cmd, _, talk := newCmd()
		status := cmd.Run(t.Context(), c.usage, func(ctx context.Context, c *Cmd) error {
			c.Bool("j")
			return c.Parse()
		})
		if status != Fault || !strings.Contains(talk.String(), c.want) {
			t.Errorf("%q: status %d, stderr %q; want 70 and %q", c.usage, status, talk, c.want)
		}
	}
}

// Whatever the words are, Parse ends, keeps every operand in order, and has no
// other statuses than these.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a\n-nj\nb", "-o=x", "-o", "-attach\nx", "--", "-h", "-\xff", "-jo\n-\n-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		words := strings.Split(s, "\n")
		c, _, _ := newCmd(words...)
		status := c.Run(t.Context(), tryUsage, func(ctx context.Context, c *Cmd) error {
			for _, name := range []string{"j", "n", "q", "v"} {
				c.Bool(name)
			}
			c.String("o", "")
			c.Strings("i")
			c.Int("L", 0)
			c.String("attach", "")
			return c.Parse()
		})
		if status != OK && status != Usage {
			t.Fatalf("%q: status %d", words, status)
		}
		if len(c.Args)+len(c.Command) > len(words) {
			t.Fatalf("%q: operands %q and command %q", words, c.Args, c.Command)
		}
	})
}

func TestStatus(t *testing.T) {
	_, path := os.Open("/nowhere/at/all")
	_, dial := net.Dial("unix", "/nowhere/at/all")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{Errorf(NoSuch, "no batch %q", "x"), 66},
		{fmt.Errorf("more: %w", Errorf(NoSuch, "no batch")), 66},
		{Errorf(Input, "input: %w", path), 65},
		{Usagef("no"), 64},
		{Quiet(No), 1},
		{Quiet(OK), 0},
		{path, 74},
		{fmt.Errorf("more: %w", path), 74},
		{syscall.ENOSPC, 74},
		{io.ErrUnexpectedEOF, 74},
		{dial, 69},
		{context.DeadlineExceeded, 75},
		{errors.New("what"), 70},
		{errors.Join(Quiet(No), Errorf(NoSuch, "x"), Errorf(Input, "y")), 66},
		{errors.Join(Quiet(No), path), 74},
		{fmt.Errorf("%w: %w", errors.New("what"), Errorf(Later, "x")), 75},
		{errors.Join(errors.New("a"), errors.New("b")), 70},
		{fmt.Errorf("head: %w", refusal{}), 77},
		{&fs.PathError{Op: "read", Path: "x", Err: Errorf(Input, "y")}, 74},
	} {
		if got := Status(c.err); got != c.want {
			t.Errorf("Status(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}

// refusal is another package's error that knows its status.
type refusal struct{}

func (refusal) Error() string   { return "not yours" }
func (refusal) ExitStatus() int { return NotAllowed }

func TestErrorsAreLines(t *testing.T) {
	c, out, talk := newCmd()
	status := c.Run(t.Context(), "usage: dtry", func(context.Context, *Cmd) error {
		return errors.Join(Errorf(Input, "one"), Quiet(No), Errorf(Input, "two\x1b[2J\u009b and\ttab"))
	})
	want := "dtry: one\ndtry: two\\x1b[2J\\x9b and\ttab\n"
	if status != Input || talk.String() != want || out.Len() != 0 {
		t.Errorf("status %d, stdout %q, stderr %q; want 65, %q", status, out, talk, want)
	}
}

func TestTalk(t *testing.T) {
	for args, want := range map[string]string{
		"": "dtry: said\n", "-q": "", "-v": "dtry: said\ndtry: more\n", "-vq": "dtry: more\n",
	} {
		c, _, talk := newCmd(strings.Fields(args)...)
		c.Run(t.Context(), "usage: dtry [-qv]", func(ctx context.Context, c *Cmd) error {
			c.Bool("q")
			c.Bool("v")
			if err := c.Parse(); err != nil {
				return err
			}
			c.Talk("%s", "said")
			c.Verbose("%s", "more")
			return nil
		})
		if talk.String() != want {
			t.Errorf("%q: stderr %q, want %q", args, talk, want)
		}
	}
}

func TestIDs(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
		err  string
	}{
		{"", nil, ""},
		{"\n\n", nil, ""},
		{"m/c/a\tdone\t-\nm/c/b\n", []string{"m/c/a", "m/c/b"}, ""},
		{"\ufeffm/c/a\r\nm/c/b", []string{"m/c/a", "m/c/b"}, ""},
		{"m/c/a\n\tdone\n", nil, "stdin:2: the first field is empty, where an id should be"},
		{"x\n" + strings.Repeat("y", maxID+1), nil, "stdin:2: a line of more than 1048576 bytes is no id"},
	} {
		cmd, _, _ := newCmd()
		cmd.Stdin = strings.NewReader(c.in)
		got, err := cmd.IDs()
		if c.err != "" {
			if err == nil || err.Error() != c.err || Status(err) != Input {
				t.Errorf("%.20q: error %v, want %q", c.in, err, c.err)
			}
		} else if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%.20q: %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// An id is there before the writer has closed its end.
func TestEachIDStreams(t *testing.T) {
	r, w := io.Pipe()
	c, _, _ := newCmd()
	c.Stdin = r
	go io.WriteString(w, "m/c/a\n")
	for id, err := range c.EachID() {
		if id != "m/c/a" || err != nil {
			t.Fatalf("%q, %v", id, err)
		}
		break
	}
}

func launch(t *testing.T, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return bufio.NewReader(out)
}

func expect(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	if got, err := r.ReadString('\n'); got != want+"\n" {
		t.Fatalf("stdout %q, %v; want %q", got, err, want)
	}
}

func TestSignals(t *testing.T) {
	for _, c := range []struct {
		act    string
		signal syscall.Signal
		want   string
	}{
		{"wait", syscall.SIGINT, "signal: interrupt"},
		{"wait", syscall.SIGTERM, "signal: terminated"},
		{"clean", syscall.SIGTERM, "exit status 0"},
		{"read", syscall.SIGINT, "signal: interrupt"},
		{"cause", syscall.SIGINT, "signal: interrupt"},
		{"cause", syscall.SIGTERM, "signal: terminated"},
	} {
		if signal.Ignored(c.signal) {
			t.Logf("%v is ignored here, and so it is by what this test starts", c.signal)
			continue
		}
		cmd := act(t, c.act)
		talk := new(strings.Builder)
		cmd.Stderr = talk
		if c.act == "read" {
			if _, err := cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
		}
		out := launch(t, cmd)
		expect(t, out, "ready")
		cmd.Process.Signal(c.signal)
		cmd.Wait()
		if got := cmd.ProcessState.String(); got != c.want || talk.Len() != 0 {
			t.Errorf("%s, %v: %s, stderr %q; want %s", c.act, c.signal, got, talk, c.want)
		}
	}
}

// The second signal need not be the same.
func TestSecondSignalKills(t *testing.T) {
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		if signal.Ignored(second) {
			continue
		}
		cmd := act(t, "stay")
		out := launch(t, cmd)
		expect(t, out, "ready")
		cmd.Process.Signal(syscall.SIGTERM)
		expect(t, out, "asked")
		ended := make(chan error)
		go func() { ended <- cmd.Wait() }()
		for over := false; !over; { // the first of them may still belong to the one before
			cmd.Process.Signal(second)
			select {
			case <-ended:
				over = true
			case <-time.After(10 * time.Millisecond):
			}
		}
		if got, want := cmd.ProcessState.String(), "signal: "+second.String(); got != want {
			t.Errorf("ended by %s, not by %s", got, want)
		}
	}
}

// One that comes with the first, as those of timeout(1), does not.
func TestDoubledSignal(t *testing.T) {
	cmd := act(t, "doubled")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := launch(t, cmd)
	expect(t, out, "ready")
	for range 50 {
		cmd.Process.Signal(syscall.SIGTERM)
		expect(t, out, "asked")
		io.WriteString(stdin, "x")
	}
	expect(t, out, "asked")
	stdin.Close()
	cmd.Wait()
	if got := cmd.ProcessState.String(); got != "exit status 0" {
		t.Errorf("ended by %s", got)
	}
}

func TestIgnoredInterruptStaysIgnored(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `trap "" INT; exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), "CLI_TEST_ACT=clean")
	out := launch(t, cmd)
	expect(t, out, "ready")
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if got := cmd.ProcessState.String(); got != "exit status 0" {
		t.Errorf("ended by %s", got)
	}
}

func TestBrokenStdoutEndsInSilence(t *testing.T) {
	cmd := act(t, "yes")
	talk := new(strings.Builder)
	cmd.Stderr = talk
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	expect(t, bufio.NewReader(r), "y")
	r.Close()
	cmd.Wait()
	if got := cmd.ProcessState.String(); got != "signal: broken pipe" || talk.Len() != 0 {
		t.Errorf("ended by %s, stderr %q", got, talk)
	}
}

func TestBrokenStderrIsNotTheEnd(t *testing.T) {
	cmd := act(t, "deaf")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd.Stderr = w
	cmd.Run()
	w.Close()
	if got := cmd.ProcessState.String(); got != "exit status 1" {
		t.Errorf("ended by %s", got)
	}
}

func TestPanicIsAFault(t *testing.T) {
	cmd := act(t, "panic")
	talk, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != Fault || !strings.HasPrefix(string(talk), "act: a fault of act: lost my mind\nact: goroutine ") {
		t.Errorf("%s, stderr %q", cmd.ProcessState, talk)
	}
}

// openPTY gives the two ends of a pseudo-terminal of 60 columns.
func openPTY(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here:", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60}); err != nil {
		t.Fatal(err)
	}
	return master, tty
}

func TestTerminalOnStdinIsMisuse(t *testing.T) {
	_, tty := openPTY(t)
	cmd := act(t, "ids")
	cmd.Stdin = tty
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != Usage || !strings.Contains(string(out), "act: nothing to do: give an id") {
		t.Errorf("%s, %q", cmd.ProcessState, out)
	}
}

func TestWidth(t *testing.T) {
	_, tty := openPTY(t)
	c, _, _ := newCmd()
	vars := map[string]string{}
	c.Getenv = func(name string) string { return vars[name] }
	if c.StdinTTY() || c.StdoutTTY() || c.StderrTTY() || c.Width() != 80 {
		t.Errorf("no terminal: %v %v %v, width %d", c.StdinTTY(), c.StdoutTTY(), c.StderrTTY(), c.Width())
	}
	vars["COLUMNS"] = "132"
	if c.Width() != 132 {
		t.Errorf("COLUMNS=132: width %d", c.Width())
	}
	c.Stdin, c.Stdout, c.Stderr = newInput(t.Context(), tty), &output{File: tty, screen: &screen{}}, tty
	if !c.StdinTTY() || !c.StdoutTTY() || !c.StderrTTY() || c.Width() != 60 {
		t.Errorf("terminal: %v %v %v, width %d", c.StdinTTY(), c.StdoutTTY(), c.StderrTTY(), c.Width())
	}
}

func TestProgress(t *testing.T) {
	_, tty := openPTY(t)
	var shown strings.Builder
	c := &Cmd{Name: "dpull", Stdin: strings.NewReader(""), Stderr: tty, screen: &screen{}}
	p := c.Progress("pulling", 8<<20, unit.FormatBytes)
	clock := p.began
	p.now = func() time.Time { return clock }
	c.Stderr = fdWriter{&shown, tty}
	step := func(after time.Duration, n int64) string {
		shown.Reset()
		clock = clock.Add(after)
		p.Add(n)
		return shown.String()
	}
	for _, s := range []struct {
		after time.Duration
		n     int64
		want  string
	}{
		{400 * time.Millisecond, 0, ""},
		{100 * time.Millisecond, 1 << 20, "\r\x1b[Kdpull: pulling 1M of 8M, 2M/s, 3s left"},
		{100 * time.Millisecond, 1 << 20, ""},
		{1400 * time.Millisecond, 2 << 20, "\r\x1b[Kdpull: pulling 4M of 8M, 2M/s, 2s left"},
	} {
		if got := step(s.after, s.n); got != s.want {
			t.Errorf("after %v more: %q, want %q", s.after, got, s.want)
		}
	}
	shown.Reset()
	c.Talk("ws1 is back")
	p.Done()
	if want := "\r\x1b[Kdpull: ws1 is back\ndpull: pulling 4M of 8M, 2M/s, 2s left\r\x1b[K"; shown.String() != want {
		t.Errorf("talk within progress: %q, want %q", shown.String(), want)
	}
	p.what = strings.Repeat("a long thing ", 9)
	p.Grow(1 << 40)
	if got := p.text(clock); len(got) != 59 {
		t.Errorf("%d columns of 60: %q", len(got), got)
	}
}

// fdWriter writes to one place and is the terminal of another.
type fdWriter struct {
	io.Writer
	tty *os.File
}

func (w fdWriter) Fd() uintptr { return w.tty.Fd() }

func TestNoProgressIntoAPipe(t *testing.T) {
	c, _, talk := newCmd()
	p := c.Progress("pulling", 10, nil)
	p.now = func() time.Time { return time.Now().Add(time.Hour) }
	p.Grow(1)
	p.Add(5)
	p.Done()
	if talk.Len() != 0 {
		t.Errorf("stderr %q", talk)
	}
}
