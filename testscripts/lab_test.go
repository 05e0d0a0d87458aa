package testscripts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A lab is a head and nodes on this machine, in directories of its own.
type lab struct {
	tb   testing.TB
	dir  string
	head *exec.Cmd
	all  []*exec.Cmd
}

// newLab starts a head with one node of so many cpus; none with 0.
func newLab(tb testing.TB, cpus int) *lab {
	l := &lab{tb: tb, dir: tb.TempDir()}
	tb.Cleanup(l.stop)
	l.run("dadm", "init", l.spool())
	l.startHead()
	if cpus > 0 {
		file := filepath.Join(l.dir, "node.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, "name: ws1\ncpus: %d\n", cpus), 0o600); err != nil {
			tb.Fatal(err)
		}
		l.start("dnoded", "-D", filepath.Join(l.dir, "node"), "-H", l.spool(), file)
		l.until(func() bool {
			out, _ := l.command("dquery", "-N").Output() // 1: no node yet
			return strings.Contains(string(out), "ws1\tidle")
		})
	}
	return l
}

func (l *lab) spool() string { return filepath.Join(l.dir, "spool") }

func (l *lab) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = l.dir
	c.Env = append(os.Environ(), "DHEAD="+l.spool(), "HOME="+l.dir)
	return c
}

func (l *lab) run(name string, args ...string) string {
	l.tb.Helper()
	c := l.command(name, args...)
	var talk strings.Builder
	c.Stderr = &talk
	out, err := c.Output()
	if err != nil {
		l.tb.Fatalf("%s %q: %v\n%s", name, args, err, talk.String())
	}
	return string(out)
}

// feed is run with a standard input.
func (l *lab) feed(input, name string, args ...string) {
	l.tb.Helper()
	c := l.command(name, args...)
	c.Stdin = strings.NewReader(input)
	if out, err := c.CombinedOutput(); err != nil {
		l.tb.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

func (l *lab) start(name string, args ...string) *exec.Cmd {
	c := l.command(name, args...)
	log, err := os.OpenFile(filepath.Join(l.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.tb.Fatal(err)
	}
	c.Stderr = log
	if err := c.Start(); err != nil {
		l.tb.Fatal(err)
	}
	l.all = append(l.all, c)
	return c
}

func (l *lab) startHead() {
	l.head = l.start("dsched", "-S", l.spool())
	l.until(func() bool {
		err := l.command("dquery", "-N").Run()
		var exit *exec.ExitError // 1: it answers, and has no node
		return err == nil || errors.As(err, &exit) && exit.ExitCode() == 1
	})
}

func (l *lab) until(ready func() bool) { l.tb.Helper(); l.within(time.Minute, ready) }

func (l *lab) within(limit time.Duration, ready func() bool) {
	l.tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !ready(); <-tick.C {
		if time.Now().After(end) {
			l.tb.Fatalf("%v have passed", limit)
		}
	}
}

func (l *lab) stop() {
	for _, c := range l.all {
		c.Process.Signal(syscall.SIGTERM) // an interrupt may be ignored, where tests run in the background
		c.Wait()
	}
}

// resident reads a line of /proc/PID/status in bytes: VmRSS, VmHWM.
func resident(tb testing.TB, pid int, which string) float64 {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, which+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				tb.Fatal(err)
			}
			return float64(n) * 1024
		}
	}
	tb.Fatalf("no %s of process %d", which, pid)
	return 0
}
