package proc

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"distribute/lib/suite"
)

// chain is a process that starts another and ends, which does the same, for ever:
// raw system calls, with nothing between them. Every so many links one says that
// it goes on.
func chain(said string) {
	fd, err := unix.Open(said, unix.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		os.Exit(1)
	}
	for n := 0; ; n++ {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && pid != 0 {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
		syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
		if n%50 == 49 {
			b := [1]byte{'x'}
			unix.Write(fd, b[:])
		}
	}
}

// worked is how long each process of the tree below top ran, all threads together, in
// nanoseconds.
func worked(t *testing.T, top int) map[name]int64 {
	t.Helper()
	all := map[name]int64{}
	for _, p := range descendants(top) {
		dirs, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.pid))
		for _, d := range dirs {
			b, err := os.ReadFile(d)
			if err != nil {
				continue
			}
			n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			all[p.name()] += n
		}
		all[p.name()] += int64(p.cpu) // what the kernel counts in ticks must stand too
	}
	return all
}

// nothingRuns fails if a process below top ran, was started or ended while this one
// ran for a while. What stopped last may have some instructions of the kernel
// before it when that says so.
func nothingRuns(t *testing.T, top int) map[name]int64 {
	t.Helper()
	runs := func(p process) bool { return !p.all(func(state byte) bool { return state != 'R' }) }
	for tries := 0; slices.ContainsFunc(descendants(top), runs) && tries < 1000; tries++ {
		unix.Poll(nil, 1)
	}
	before := worked(t, top)
	spend(t)
	if after := worked(t, top); !maps.Equal(before, after) {
		t.Errorf("the tree runs: %v, then %v", before, after)
	}
	return before
}

// goesOn waits until the tree below top has run since, and some more: what stops
// again at once would have run a little too.
func goesOn(t *testing.T, top int, since map[name]int64) {
	t.Helper()
	for times := 0; times < 5; {
		unix.Poll(nil, 1)
		now := worked(t, top)
		if !maps.Equal(since, now) {
			times, since = times+1, now
		}
	}
}

// spend returns when this process has used some clock ticks.
func spend(t *testing.T) {
	t.Helper()
	own := func() uint64 {
		p, err := stat(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return p.cpu
	}
	for until := own() + suite.Size[uint64](2, 5); own() < until; {
	}
}

// restless is jobs whose trees are hard to hold; each says something when it is up.
var restless = map[string]string{
	"alone":           `echo up > said; while :; do :; done`,
	"children":        `for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; echo up > said; wait`,
	"double fork":     `(sh -c 'while :; do :; done' &) ; (sh -c 'echo up > said; while :; do :; done' &) ; sleep 1000`,
	"setsid":          `setsid sh -c 'setsid sh -c "echo up > said; while :; do :; done"' & sleep 1000`,
	"ignores signals": `trap "" TERM HUP INT TSTP CONT USR1; (while :; do :; done) & echo up > said; while :; do :; done`,
	"holds stdout":    `(while :; do echo x; sleep 0.001; done) & echo up > said; while :; do echo y; sleep 0.001; done`,
	"forks":           `echo up > said; while :; do (true); done`,
	"forks and execs": `echo up > said; while :; do /bin/true; done`,
	"many":            `for i in 1 2 3 4 5; do (while :; do /bin/true; done) & (while :; do (true); done) & done; echo up > said; wait`,
	"chain":           `"$TEST" chain said & exec sleep 1000`,
	"chains":          `"$TEST" chain said & "$TEST" chain said & "$TEST" chain said & "$TEST" chain said & exec sleep 1000`,
	"reaper": `exec python3 -c 'import ctypes, os, signal, subprocess, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([os.environ["TEST"], "chain", "said"])
time.sleep(1000)'`,
	"no environment": `setsid env -i sh -c 'echo up > said; while :; do /bin/true; done' & sleep 1000`,
	"spawns": `echo up > said; exec python3 -c 'import os
while True: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)'`,
	"threads": `exec python3 -c 'import threading
for i in range(4): threading.Thread(target=lambda: [0 for x in iter(int, 1)]).start()
open("said", "w").write("up")'`,
	"no first thread": `exec python3 -c 'import threading, ctypes
def go():
  open("said", "w").write("up")
  while True: pass
threading.Thread(target=go).start()
ctypes.CDLL(None).syscall(60, 0)'`,
}

// run gives a slot a job and waits until that has said that it is up.
func run(t *testing.T, s *Slot, cgroup, script string, also func(*Order)) *Order {
	t.Helper()
	dir := newDir(t)
	said := fifo(t, dir)
	o := order(dir, script)
	o.Cgroup = cgroup
	o.Env = append(o.Env, "TEST="+testBinary(t))
	if also != nil {
		also(o)
	}
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	said()
	return o
}

func testBinary(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		suite.Missing(t, "no python3")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// holdAll holds a tree. On a machine that is busy with something else a process may get no
// processor to stop on for as long as one hold waits.
func holdAll(t *testing.T, held *tree) {
	t.Helper()
	for range 20 {
		switch n, err := held.hold(nil); {
		case err != nil:
			t.Fatal(err)
		case n == 0:
			return
		}
	}
	t.Fatal("it runs on")
}

// TestP72P76Hold holds trees that fork all the time, leave their session, run in
// many threads: nothing of them runs until they are let go, and then they go on.
func TestP72P76Hold(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		for i, what := range slices.Sorted(maps.Keys(restless)) {
			if cgroup != "" && i%suite.Size(3, 1) > 0 {
				continue // the kernel holds all of a group, whatever it does
			}
			script := restless[what]
			t.Run(what, func(t *testing.T) {
				s := newSlot(t)
				o := run(t, s, cgroup, script, nil)
				held := &tree{halt: newHalt(s.Pid())}
				if cgroup != "" {
					held.group = &group{dir: filepath.Join(cgroup, o.Token)}
				}
				for range suite.Size(1, 3) {
					holdAll(t, held)
					if len(nothingRuns(t, s.Pid())) == 0 {
						t.Fatal("there is no tree")
					}
					holdAll(t, held)
					before := worked(t, s.Pid())
					if err := held.release(); err != nil {
						t.Fatal(err)
					}
					goesOn(t, s.Pid(), before)
				}
				s.Stop(o.Token)
				s.Stop(o.Token)
				ended(t, s)
			})
		}
	})
}

// TestP72Busy holds a tree that gets no processor to stop on, for the machine is
// busy with something else: with the right to raise it, and without.
func TestP72Busy(t *testing.T) {
	for range suite.Size(1, 4) * runtime.NumCPU() {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { busy.Process.Kill(); busy.Wait() })
	}
	groups(t, func(t *testing.T, cgroup string) {
		for _, vain := range []bool{false, true} {
			of := t.TempDir()
			s, err := NewSlot(of)
			if err != nil {
				t.Fatal(err)
			}
			o := run(t, s, cgroup, restless["children"], nil)
			held := &tree{halt: newHalt(s.Pid())}
			held.halt.boost.vain = vain
			if cgroup != "" {
				held.group = &group{dir: filepath.Join(cgroup, o.Token)}
			}
			if n, err := held.hold(nil); n != 0 || err != nil {
				t.Fatalf("%d run on, %v", n, err)
			}
			if trees, still, err := AwaitStill(t.Context(), of); !still || err != nil || len(trees) != 1 || trees[0].Processes == 0 {
				t.Errorf("not seen to stand still: %+v, %v", trees, err)
			}
			for _, p := range descendants(s.Pid()) {
				if cgroup == "" && !p.all(stopped) && !p.bound() {
					t.Errorf("%+v runs", p)
				}
				if a, err := unix.SchedGetAttr(p.pid, 0); err != nil || a.Policy == unix.SCHED_FIFO {
					t.Errorf("%d: policy %+v, %v", p.pid, a, err)
				}
			}
			if err := held.release(); err != nil {
				t.Fatal(err)
			}
			s.Stop(o.Token)
			s.Stop(o.Token)
			ended(t, s)
			s.Close()
		}
	})
}
