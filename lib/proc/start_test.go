package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// standing is the policy of a thread for the processor, its niceness, and its
// class and level for disks.
func standing(t *testing.T, tid int) string {
	t.Helper()
	a, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		t.Fatal(err)
	}
	nice, _ := unix.Getpriority(unix.PRIO_PROCESS, tid) // 20 less than it, so that none is an error
	io, _, _ := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioOf, uintptr(tid), 0)
	return fmt.Sprintf("policy %d nice %d io %d", a.Policy, 20-nice, io>>13)
}

// TestLowest is the priority of a job, of what it starts before anybody can have
// looked at it, and of its supervisor.
func TestLowest(t *testing.T) {
	t.Parallel()
	const lowest = "policy 5 nice 19 io 3"
	groups(t, func(t *testing.T, cgroup string) {
		s, dir := newSlot(t), newDir(t)
		said := fifo(t, dir)
		o := order(dir, `for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'sleep 1000 & sleep 1000' &) & done; wait; echo ready > said; exec sleep 1000`)
		o.Cgroup = cgroup
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		pid := started(t, s)
		said()
		if got := standing(t, pid); got != lowest {
			t.Errorf("the job has %s", got)
		}
		seen := 0
		for _, p := range descendants(s.Pid()) {
			if got := standing(t, p.pid); got != lowest {
				t.Errorf("a process of it has %s", got)
			}
			seen++
		}
		if seen < 9 {
			t.Errorf("%d processes", seen)
		}
		lightSession(t, pid)
		if got, want := standing(t, s.Pid()), standing(t, os.Getpid()); got != want {
			t.Errorf("the supervisor has %s, this %s", got, want)
		}
		if err := s.Stop(o.Token); err != nil {
			t.Fatal(err)
		}
		ended(t, s)
	})
}

// TestHumble is the group of all orders, which has the lowest weight.
func TestHumble(t *testing.T) {
	g := standIn(t, map[string]string{"cpu.weight": "", "io.weight": "", "io.prio.class": ""})
	humble(g.dir)
	if b, _ := os.ReadFile(filepath.Join(g.dir, "cpu.weight")); string(b) != "1" {
		t.Errorf("cpu.weight %q", b)
	}
	newer := standIn(t, map[string]string{"cpu.weight": "", "cpu.idle": ""})
	humble(newer.dir)
	all := ""
	for _, name := range []string{"cpu.weight", "cpu.idle"} {
		b, _ := os.ReadFile(filepath.Join(newer.dir, name))
		all += name + "=" + string(b) + " "
	}
	if strings.TrimSpace(all) != "cpu.weight= cpu.idle=1" {
		t.Error(all)
	}
}

// lightSession waits until the session of a process, if the kernel makes a group
// of it, has the lowest weight.
func lightSession(t *testing.T, pid int) {
	t.Helper()
	if !autogroups() {
		return
	}
	for tries := 0; ; tries++ {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", pid))
		if err != nil || len(b) == 0 || strings.HasSuffix(string(b), " nice 19\n") {
			return
		}
		if tries == 3000 {
			t.Fatalf("the session of process %d is %q", pid, b)
		}
		unix.Poll(nil, 10)
	}
}
