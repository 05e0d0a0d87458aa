package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/suite"
)

// TestN60OutOfMemory is a job that takes more memory than there is: the kernel
// kills it and not its supervisor, and it is said what it died of.
func TestN60OutOfMemory(t *testing.T) {
	tests := []struct{ name, parent, limit string }{
		{"version 1", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"version 2", "/sys/fs/cgroup", "memory.max"},
	}
	tried := false
	for _, tt := range tests {
		group := filepath.Join(tt.parent, fmt.Sprintf("distribute-test-%d", os.Getpid()))
		if err := os.Mkdir(group, 0o755); err != nil {
			continue
		}
		defer os.Remove(group)
		if _, err := os.Stat(filepath.Join(group, tt.limit)); err != nil {
			continue
		}
		tried = true
		t.Run(tt.name, func(t *testing.T) {
			s, dir := newSlot(t), newDir(t)
			for file, text := range map[string]string{tt.limit: "67108864", "cgroup.procs": strconv.Itoa(s.Pid())} {
				if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
					t.Fatal(err)
				}
			}
			o := order(dir, "")
			o.Argv = []string{"tail", "/dev/zero"}
			if err := s.Run(o); err != nil {
				t.Fatal(err)
			}
			if st := ended(t, s); !st.NoMemory || st.Signal != 9 {
				t.Errorf("status %+v", st)
			}
			// The same supervisor goes on, and another end is no such end.
			if err := s.Run(order(newDir(t), "kill -9 $$")); err != nil {
				t.Fatal(err)
			}
			if st := ended(t, s); st.NoMemory || st.Signal != 9 {
				t.Errorf("status %+v", st)
			}
		})
	}
	if !tried {
		suite.Missing(t, "no cgroup that bounds memory can be made")
	}
}

func TestN60Score(t *testing.T) {
	s, dir := newSlot(t), newDir(t)
	if err := s.Run(order(dir, "cat /proc/$$/oom_score_adj /proc/$PPID/oom_score_adj")); err != nil {
		t.Fatal(err)
	}
	ended(t, s)
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	b, rerr := os.ReadFile(filepath.Join(dir, "output"))
	if err != nil || rerr != nil {
		t.Fatal(err, rerr)
	}
	job, supervisor, _ := strings.Cut(string(b), "\n")
	if job != "500" || supervisor != string(own) && supervisor != "500\n" {
		t.Errorf("the job has %q, its supervisor %q, this %q", job, supervisor, own)
	}
}

// TestN60ForkBomb stops a job that forks as fast as it can.
func TestN60ForkBomb(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		s, dir := newSlot(t), newDir(t)
		o := order(dir, `trap "" TERM
bomb() { n=$1; while [ $n -gt 0 ]; do n=$((n-1)); (bomb $n) & done; sleep 1000; }
bomb 7`)
		o.Cgroup = cgroup
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		for bomb(t, o.Token) < 100 {
			unix.Poll(nil, 10)
		}
		if err := s.Stop(o.Token); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); st.Stopped != StoppedOrder {
			t.Errorf("status %+v", st)
		}
		if n := bomb(t, o.Token); n != 0 {
			t.Errorf("%d processes live", n)
		}
	})
}

// bomb is how many processes of an order live.
func bomb(t *testing.T, token string) (n int) {
	t.Helper()
	ps, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		if !p.gone() && hasMarker(p.pid, token) {
			n++
		}
	}
	return n
}

func TestIsOOM(t *testing.T) {
	const text = ";Memory cgroup out of memory: Killed process 42 (tail) total-vm:1kB\n"
	for in, want := range map[string]bool{
		"3,100,2000000,-" + text: true,
		"3,100,900000,-" + text:  false, // before
		"3,100" + text:           false,
		"3,100,2000000,-;Out of memory: Killed process 42 (x)":  true,
		"3,100,2000000,-;Out of memory: Killed process 420 (x)": false,
		"3,100,2000000,-;Killed process 42 (x)":                 false,
		"":                                                      false,
	} {
		if got := isOOM(in, 42, time.Second); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}

// TestN60Bound is with directories in the place of the kernel's.
func TestN60Bound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "distribute", "ws1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if missing := Bound(dir, 10, 20); !slices.Equal(missing, []string{"processes", "memory"}) {
		t.Errorf("missing %v", missing)
	}
	for _, name := range []string{"pids.max", "memory.max"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if missing := Bound(dir, 10, 20); missing != nil {
		t.Errorf("missing %v", missing)
	}
	for name, want := range map[string]string{"pids.max": "10", "memory.max": "20"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
