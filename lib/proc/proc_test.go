package proc

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/suite"
)

func TestMain(m *testing.M) {
	if IsSupervisor() {
		if err := Supervise(func(string, error) bool { return false }); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "guard" {
		guard("-" + os.Args[2])
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "daemon" {
		daemon(os.Args[2], os.Args[3])
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "no-forks" {
		if err := noForks(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "cgroup-parent" {
		fmt.Println(CgroupParent(os.Args[2], "/"))
		return
	}
	os.Exit(m.Run())
}

// daemon is a daemon that gives one order and is killed.
func daemon(dir, script string) {
	s, err := NewSlot()
	o := order(dir, script)
	if place := os.Getenv("TEST_PLACE"); place != "" {
		o.Cgroup, o.Pause = os.Getenv("TEST_CGROUP"), &Pausing{Places: []string{place}}
	}
	if err == nil {
		err = s.Run(o)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(<-s.Reports())
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func order(dir, script string) *Order {
	return &Order{Dir: dir, Token: filepath.Base(dir), Argv: []string{"sh", "-c", script},
		Path: os.Getenv("PATH"), Env: []string{"PATH=" + os.Getenv("PATH"), "DIR=" + dir},
		Cwd: dir, Output: filepath.Join(dir, "output"), Grace: 200 * time.Millisecond}
}

// startGuard starts a process that kills the jobs of this one when this one ends, however it
// does: supervisors and what they run survive a test that is killed or takes too long.
var startGuard = sync.OnceValue(func() (err error) {
	cmd := exec.Command("/proc/self/exe", "guard", strconv.Itoa(os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if guarded, err = cmd.StdinPipe(); err != nil {
		return err
	}
	return cmd.Start()
})

// guarded is the input of the guard, which is open as long as this process lives.
var guarded io.Closer

// guard waits for the end of its input and kills the processes of orders of which the token
// ends so, until two scans on end have found none.
func guard(suffix string) {
	io.Copy(io.Discard, os.Stdin)
	for clean := 0; clean < 2; clean++ {
		ps, _ := processes()
		for _, p := range below(ps, func(p process) bool { return strings.HasSuffix(variable(p.pid, Marker), suffix) }) {
			signalSame(p.pid, p.start, unix.SIGKILL)
			clean = -1
		}
		time.Sleep(time.Millisecond)
	}
}

// variable returns the value of a variable in the environment that pid was started with.
func variable(pid int, name string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	for v := range strings.SplitSeq(string(b), "\x00") {
		if value, is := strings.CutPrefix(v, name+"="); is {
			return value
		}
	}
	return ""
}

func newDir(t *testing.T) string {
	t.Helper()
	if err := startGuard(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newSlot(t *testing.T) *Slot {
	t.Helper()
	s, err := NewSlot()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if t.Failed() { // what it runs may go on for ever
			for _, p := range descendants(s.Pid()) {
				signalSame(p.pid, p.start, unix.SIGKILL)
			}
		}
		for range s.Reports() {
		}
	})
	return s
}

// ended waits for the end of the order that s has.
func ended(t *testing.T, s *Slot) *Status {
	t.Helper()
	for r := range s.Reports() {
		switch {
		case r.Ended != nil:
			return r.Ended
		case r.Refused != "":
			t.Fatalf("refused: %s", r.Refused)
		}
	}
	t.Fatal("the supervisor is gone")
	return nil
}

func started(t *testing.T, s *Slot) int {
	t.Helper()
	r := <-s.Reports()
	if r.Started == 0 {
		t.Fatalf("not started: %+v", r)
	}
	return r.Started
}

// groupsMade counts the groups that groups has made: tests run beside each other.
var groupsMade atomic.Int32

// groups is the ways of containment that can be tried here.
func groups(t *testing.T, f func(t *testing.T, cgroup string)) {
	t.Run("best-effort", func(t *testing.T) { f(t, "") })
	t.Run("cgroup", func(t *testing.T) {
		parent, err := CgroupParent(fmt.Sprintf("test-%d-%d", os.Getpid(), groupsMade.Add(1)), "/")
		if err != nil {
			suite.Missing(t, "no cgroup: "+err.Error())
		}
		t.Cleanup(func() { removeGroup(parent) })
		Bound(parent, 1<<20, 1<<50)
		f(t, parent)
	})
}

// fifo makes a pipe by which a job says that it has come to a point.
func fifo(t *testing.T, dir string) (await func() string) {
	t.Helper()
	name := filepath.Join(dir, "said")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return func() string {
		b := make([]byte, 4096)
		n, err := f.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b[:n]))
	}
}

// newGate makes a pipe on which a job waits until open is called.
func newGate(t *testing.T, dir string) (open func()) {
	t.Helper()
	name := filepath.Join(dir, "go")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return func() { fmt.Fprintln(f, "go") }
}

// dead fails unless the process has ended.
func dead(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("not a pid: %q", pid)
	}
	if p, err := stat(n); err == nil && !p.gone() {
		t.Errorf("process %d lives", n)
	}
}

func TestOrder(t *testing.T) {
	s := newSlot(t)
	tests := []struct {
		name, script string
		exit, signal int
	}{
		{"true", "exit 0", 0, 0},
		{"status", "exit 7", 7, 0},
		{"signal", "kill -9 $$", -1, 9},
		{"both streams", "echo a; echo b >&2", 0, 0},
	}
	for _, tt := range tests { // one slot, used again
		t.Run(tt.name, func(t *testing.T) {
			dir := newDir(t)
			if err := s.Run(order(dir, tt.script)); err != nil {
				t.Fatal(err)
			}
			st := ended(t, s)
			if tt.exit >= 0 && (st.Exit == nil || *st.Exit != tt.exit) || st.Signal != tt.signal || st.Error != "" {
				t.Errorf("status %+v", st)
			}
			disk, err := ReadStatus(dir, filepath.Base(dir))
			if err != nil || disk.Token != filepath.Base(dir) || !disk.Started.Equal(st.Started) {
				t.Errorf("on disk: %+v, %v", disk, err)
			}
		})
	}
}

func TestWhatAJobSees(t *testing.T) {
	s, dir := newSlot(t), newDir(t)
	o := order(dir, "env | sort; cat; pwd; ls /proc/self/fd; trap '' PIPE; kill -PIPE $$; sh -c 'kill -PIPE $$'; echo $?")
	o.Env = []string{"PATH=" + o.Path, "A=b c"}
	o.Argv[2] = "env | grep -v -e ^PWD -e ^_ -e ^SHLVL -e ^PATH | sort; cat; ls /proc/self/fd | tr '\\n' ' '; sh -c 'kill -PIPE $$'; echo $?"
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	ended(t, s)
	b, err := os.ReadFile(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	// Descriptor 3 is the directory that ls reads.
	want := "A=b c\n" + Marker + "=" + o.Token + "\n0 1 2 3 141\n"
	if string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
}

// loadedBy is a program of this machine that does nothing, and wants that loader.
func loadedBy(loader string) string {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer self.Close()
	var b bytes.Buffer
	text := loader + "\x00"
	head := elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}, Type: uint16(elf.ET_EXEC), Machine: uint16(self.Machine),
		Version: uint32(elf.EV_CURRENT), Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64}
	binary.Write(&b, binary.LittleEndian, head)
	binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(len(text)), Memsz: uint64(len(text)), Align: 1})
	b.WriteString(text)
	return b.String()
}

func TestCannotStart(t *testing.T) {
	s := newSlot(t)
	for argv0, want := range map[string]string{
		"no-such-program": `cannot start "no-such-program": not found in PATH; a program of the job itself is named with a slash, as ./no-such-program (PATH is `,
		"./no-such":       `cannot start "./no-such": no such file or directory`,
		"":                "no command given",
		"./crlf.sh":       `cannot start "./crlf.sh": its interpreter "/bin/sh\r" is not on this machine: lines of the script end with a carriage return`,
		"./env":           `cannot start "./env": its interpreter "python3\r" is not on this machine: lines of the script end with a carriage return`,
		"./none.sh":       `cannot start "./none.sh": its interpreter "/no/such/python", which its first line names, is not on this machine`,
		"./plain.sh":      `cannot start "./plain.sh": permission denied: it is not executable`,
		"./text":          `cannot start "./text": exec format error: it is no program for this machine`,
		"./elsewhere":     `cannot start "./elsewhere": its loader "/no/such/loader" is not on this machine`,
		"./pipe":          `cannot start "./pipe": permission denied`,
	} {
		o := order(newDir(t), "")
		for name, text := range map[string]string{"crlf.sh": "#!/bin/sh\r\necho hi\r\n", "env": "#!/usr/bin/env python3\r\nprint(1)\r\n", "none.sh": "#! /no/such/python -u\n", "text": "echo hi\n", "elsewhere": loadedBy("/no/such/loader")} {
			if err := os.WriteFile(filepath.Join(o.Cwd, name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.WriteFile(filepath.Join(o.Cwd, "plain.sh"), []byte("#!/bin/sh\n"), 0o644), unix.Mkfifo(filepath.Join(o.Cwd, "pipe"), 0o755)); err != nil {
			t.Fatal(err)
		}
		o.Argv = []string{argv0}
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); !strings.Contains(st.Error, want) || st.Exit != nil {
			t.Errorf("%q: status %+v, want error %q", argv0, st, want)
		}
	}
}

// TestNothingIsLeft is N56 and N64: whatever a job leaves behind is dead when
// its end is reported.
func TestNothingIsLeft(t *testing.T) {
	scripts := map[string]string{
		"child holds output": `sleep 1000 & echo $! > said; exit 3`,
		"double fork":        `(sh -c 'echo $$ > said; exec sleep 1000' &) ; read x < go; exit 3`,
		"setsid":             `setsid sh -c 'echo $$ > said; exec sleep 1000' & read x < go; exit 3`,
		"setsid twice":       `(setsid sh -c 'setsid sh -c "echo \$\$ > said; exec sleep 1000" & exit' &) ; read x < go; exit 3`,
		"ignores signals":    `setsid sh -c 'trap "" TERM HUP INT; echo $$ > said; while :; do sleep 1000; done' & read x < go; exit 3`,
		"no environment":     `setsid env -i sh -c 'echo $$ > said; exec sleep 1000' & read x < go; exit 3`,
		"stopped":            `setsid sh -c 'echo $$ > said; kill -STOP $$' & read x < go; exit 3`,
	}
	groups(t, func(t *testing.T, cgroup string) {
		s := newSlot(t)
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				dir := newDir(t)
				said := fifo(t, dir)
				gate := newGate(t, dir)
				o := order(dir, script)
				o.Cgroup = cgroup
				if err := s.Run(o); err != nil {
					t.Fatal(err)
				}
				pid := said()
				gate()
				st := ended(t, s)
				if st.Exit == nil || *st.Exit != 3 || st.Swept == 0 {
					t.Errorf("status %+v", st)
				}
				if want := map[bool]string{true: ByCgroup, false: BestEffort}[cgroup != ""]; st.Contained != want {
					t.Errorf("contained by %s, want %s", st.Contained, want)
				}
				dead(t, pid)
			})
		}
	})
}

// TestChain ends a chain of processes each of which forks the next, in a new
// session, and exits.
func TestChain(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		s, dir := newSlot(t), newDir(t)
		said := fifo(t, dir)
		o := order(dir, "")
		o.Argv = []string{"python3", "-c", `
import os
open("said", "w").write("x")
n = 0
while True:
    if os.fork(): os._exit(0)
    os.setsid()
    n += 1
    if n == 50: open("said", "w").write("x")
`}
		o.Cgroup = cgroup
		if _, err := exec.LookPath("python3"); err != nil {
			suite.Missing(t, "no python3")
		}
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		said()
		if st := ended(t, s); st.Exit == nil || *st.Exit != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestStop(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, script string
		exit, signal int
	}{
		{"dies of it", `echo ready > said; exec sleep 1000`, -1, 15},
		{"ends itself", `trap 'exit 4' TERM; echo ready > said; while :; do sleep 0.01; done`, 4, 0},
		{"ignores it", `trap '' TERM; echo ready > said; while :; do sleep 1000; done`, -1, 9},
		{"is stopped", `echo ready > said; kill -STOP $$`, -1, 15},
	}
	groups(t, func(t *testing.T, cgroup string) {
		s := newSlot(t)
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				dir := newDir(t)
				said := fifo(t, dir)
				o := order(dir, tt.script)
				if o.Cgroup = cgroup; tt.signal != 9 {
					o.Grace = time.Minute
				}
				if err := s.Run(o); err != nil {
					t.Fatal(err)
				}
				said()
				if err := s.Stop(o.Token); err != nil {
					t.Fatal(err)
				}
				st := ended(t, s)
				if tt.exit >= 0 && (st.Exit == nil || *st.Exit != tt.exit) || st.Signal != tt.signal || st.Stopped != StoppedOrder {
					t.Errorf("status %+v", st)
				}
			})
		}
	})
}

// TestStopAtOnce stops an order in the same breath as it is given.
func TestStopAtOnce(t *testing.T) {
	s := newSlot(t)
	for range 20 {
		o := order(newDir(t), "exec sleep 1000")
		if err := errors.Join(s.Run(o), s.Stop("another"), s.Stop(o.Token)); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); st.Stopped != StoppedOrder || st.Exit != nil {
			t.Errorf("status %+v", st)
		}
	}
}

func TestOrderTwice(t *testing.T) {
	a, b, dir := newSlot(t), newSlot(t), newDir(t)
	said := fifo(t, dir)
	o := order(dir, "echo ran >> ran; echo x > said; exec sleep 1000")
	if err := a.Run(o); err != nil {
		t.Fatal(err)
	}
	said()
	if err := b.Run(o); err != nil {
		t.Fatal(err)
	}
	if r := <-b.Reports(); !strings.Contains(r.Refused, "held") {
		t.Errorf("while it runs: %+v", r)
	}
	a.Stop(o.Token)
	first := ended(t, a)
	if err := b.Run(o); err != nil {
		t.Fatal(err)
	}
	if again := ended(t, b); !again.Ended.Equal(first.Ended) {
		t.Errorf("after its end: %+v, want %+v", again, first)
	}
	if ran, err := os.ReadFile(filepath.Join(dir, "ran")); err != nil || string(ran) != "ran\n" {
		t.Errorf("it ran %q, %v", ran, err)
	}
}

// TestVoid is a supervisor that comes late to an order that was given up.
func TestVoid(t *testing.T) {
	s, dir := newSlot(t), newDir(t)
	writeRecord(t, dir, "{}")
	if err := Void(dir, filepath.Base(dir)); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(order(dir, "touch ran")); err != nil {
		t.Fatal(err)
	}
	if r := <-s.Reports(); !strings.Contains(r.Refused, "given up") {
		t.Errorf("%+v", r)
	}
}

// TestDaemonKilled is N53: the order goes on, its status is found, and the
// supervisor exits.
func TestDaemonKilled(t *testing.T) {
	dir := newDir(t)
	said, gate := fifo(t, dir), newGate(t, dir)
	cmd := exec.Command(os.Args[0], "daemon", dir, `echo $PPID > said; read x < go; echo went on; exit 5`)
	out, err := cmd.CombinedOutput()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("daemon: %v, %s", err, out)
	}
	pid, _ := strconv.Atoi(said())
	if alive, err := Alive(dir); err != nil || !alive {
		t.Fatalf("alive: %v, %v", alive, err)
	}
	if _, _, err := Reclaim(t.Context(), dir, filepath.Base(dir), ""); !errors.Is(err, ErrHeld) {
		t.Fatalf("reclaimed a living order: %v", err)
	}
	gate()
	if err := AwaitFree(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	st, err := ReadStatus(dir, filepath.Base(dir))
	if err != nil || st.Exit == nil || *st.Exit != 5 {
		t.Errorf("status %+v, %v", st, err)
	}
	for p, err := stat(pid); err == nil && !p.gone(); p, err = stat(pid) {
		unix.Poll(nil, 1)
	}
}

// N66: of an order whose directory is gone, as its own job may have removed it, the next daemon
// knows nothing: it ends with the one that gave it.
func TestDaemonKilledAndDirectoryGone(t *testing.T) {
	dir := newDir(t)
	said := fifo(t, dir)
	out, err := exec.Command(os.Args[0], "daemon", dir, `echo $PPID $$ > said; rm -rf "$PWD"; while :; do sleep 1000; done`).CombinedOutput()
	if err == nil {
		t.Fatalf("the daemon lives: %s", out)
	}
	for text := range strings.FieldsSeq(said()) {
		pid, _ := strconv.Atoi(text)
		for p, err := stat(pid); err == nil && !p.gone(); p, err = stat(pid) {
			unix.Poll(nil, 1)
		}
	}
}

func TestStopHeld(t *testing.T) {
	dir := newDir(t)
	said := fifo(t, dir)
	if out, err := exec.Command(os.Args[0], "daemon", dir, `echo x > said; exec sleep 1000`).CombinedOutput(); err == nil {
		t.Fatalf("the daemon lives: %s", out)
	}
	said()
	if err := StopHeld(dir); err != nil {
		t.Fatal(err)
	}
	if err := AwaitFree(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if st, err := ReadStatus(dir, filepath.Base(dir)); err != nil || st.Signal != 15 || st.Stopped != StoppedOrder {
		t.Errorf("status %+v, %v", st, err)
	}
	if err := StopHeld(dir); err == nil {
		t.Error("stopped an order that is over")
	}
}

func TestAwaitFreeIsCancelled(t *testing.T) {
	s, dir := newSlot(t), newDir(t)
	if err := s.Run(order(dir, "exec sleep 1000")); err != nil {
		t.Fatal(err)
	}
	started(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- AwaitFree(ctx, dir) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.Stop(filepath.Base(dir))
	ended(t, s)
}

// TestSupervisorKilled is N55: an order is lost only after its tree is dead.
func TestSupervisorKilled(t *testing.T) {
	scripts := map[string]string{
		"alone":       `echo $$ $$ > said; exec sleep 1000`,
		"double fork": `(setsid sh -c 'setsid sleep 1000 & echo $! $$ > said; wait' &); exec sleep 1000`,
		"env cleared": `env -i sleep 1000 & echo $! $$ > said; wait`,
	}
	groups(t, func(t *testing.T, cgroup string) {
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				s, dir := newSlot(t), newDir(t)
				said := fifo(t, dir)
				o := order(dir, script)
				o.Cgroup = cgroup
				if err := s.Run(o); err != nil {
					t.Fatal(err)
				}
				pids := strings.Fields(said())
				syscall.Kill(s.Pid(), syscall.SIGKILL)
				for range s.Reports() {
				}
				if _, err := ReadStatus(dir, filepath.Base(dir)); !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("there is a status: %v", err)
				}
				lock, _, err := Reclaim(t.Context(), dir, o.Token, cgroup)
				if err != nil {
					t.Fatal(err)
				}
				lock.Release()
				for _, pid := range pids {
					dead(t, pid)
				}
			})
		}
	})
}

// TestHolder is N57 and N58: what is written in a lock is believed only of a
// living process of this boot that is the one that was written down.
func TestHolder(t *testing.T) {
	boot, err := Boot()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	p, err := stat(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "\x00\x00\x00", "0", "-1", "{}", "null", "[]", `"1"`,
		`{"pid":0,"boot":"` + boot + `"}`, `{"pid":-1,"boot":"` + boot + `"}`, `{"pid":1,"boot":"` + boot + `"}`,
		`{"pid":99999999999999999999,"boot":"` + boot + `"}`,
		fmt.Sprintf(`{"pid":%d,"start":%d,"boot":"another"}`, p.pid, p.start),
		fmt.Sprintf(`{"pid":%d,"start":%d,"boot":%q}`, p.pid, p.start+1, boot),
		fmt.Sprintf(`{"pid":%d,"start":%d,"boot":%q}`, p.pid, p.start, boot), // right, but the lock is free
	} {
		dir := newDir(t)
		writeRecord(t, dir, `{"supervised":`+text+"}")
		if err := StopHeld(dir); err == nil {
			t.Errorf("%q: was signalled", text)
		}
	}
	if p, err := stat(child.Process.Pid); err != nil || p.gone() {
		t.Error("a process that holds nothing was killed")
	}
}

func TestNeverSignalsLowPids(t *testing.T) {
	for _, pid := range []int{-5, -1, 0, 1} {
		if err := signalSame(pid, 0, 0); !errors.Is(err, errNotSame) {
			t.Errorf("pid %d: %v", pid, err)
		}
	}
}

func TestParseStat(t *testing.T) {
	rest := " S 7 8 9 " + strings.Repeat("0 ", 15) + "4711 0 0\n"
	for _, name := range []string{"sh", "a b", ") S 1 1 1 (", "\n)"} {
		p, err := parseStat(5, []byte("5 ("+name+")"+rest))
		if err != nil || p != (process{pid: 5, parent: 7, state: 'S', start: 4711}) {
			t.Errorf("%q: %+v, %v", name, p, err)
		}
	}
	for _, bad := range []string{"", "5 (x)", "5 (x) S 1", "x" + strings.Repeat(" x", 30)} {
		if p, err := parseStat(5, []byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, p)
		}
	}
}

func TestParseMounts(t *testing.T) {
	tests := map[string]string{
		"35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n":                    "/sys/fs/cgroup",
		"1 2 0:1 / / rw - ext4 /dev/vda rw\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 c rw": "/sys/fs/cgroup/unified",
		"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n32 31 0:29 / /x rw - cgroup cgroup rw\n": "",
		"35 25 0:30 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n":                            "",
		`35 25 0:30 / /sys/a\040b rw - cgroup2 cgroup2 rw`:                                         "",
		"garbage\n\n - cgroup2": "",
	}
	for in, want := range tests {
		if got := parseMounts([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestBelow(t *testing.T) {
	ps := []process{
		{pid: 10, parent: 1, state: 'S'}, // is named
		{pid: 12, parent: 11, state: 'S'},
		{pid: 11, parent: 10, state: 'S'},
		{pid: 13, parent: 10, state: 'Z'},
		{pid: 16, parent: 1, state: 'S'},
	}
	var got []int
	for _, p := range below(ps, func(p process) bool { return p.pid == 10 }) {
		got = append(got, p.pid)
	}
	if want := []int{10, 12, 11}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
