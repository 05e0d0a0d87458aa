package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"distribute/lib/suite"
)

// TestN60OutOfMemory is a job that takes more memory than all jobs may have together: the
// kernel kills it and not its supervisor, and it is said what it died of.
func TestN60OutOfMemory(t *testing.T) {
	parent, err := CgroupParent(fmt.Sprintf("test-memory-%d", os.Getpid()), "/")
	if err != nil {
		suite.Missing(t, "no cgroup: "+err.Error())
	}
	t.Cleanup(func() { removeGroup(parent) })
	if slices.Contains(Bound(parent, 10000, 64<<20), "memory") {
		t.Skip("the kernel does not count memory in groups of version 2 here; that of the machine with systemd does")
	}
	s, o := newSlot(t), order(newDir(t), "")
	o.Argv, o.Cgroup = []string{"tail", "/dev/zero"}, parent
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	if st := ended(t, s); !st.NoMemory || st.Signal != 9 {
		t.Errorf("status %+v", st)
	}
	o = order(newDir(t), "kill -9 $$")
	o.Cgroup = parent
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	if st := ended(t, s); st.NoMemory || st.Signal != 9 {
		t.Errorf("another end: status %+v", st)
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
