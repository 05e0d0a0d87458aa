package proc

import (
	"errors"
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
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/pause"
	"distribute/lib/suite"
)

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
// ran for a while. Each that the kernel calls stopped may have some instructions of the
// kernel before it, which it runs once, when it gets a processor.
func nothingRuns(t *testing.T, top int) map[name]int64 {
	t.Helper()
	runs := func(p process) bool { return !p.all(func(state byte) bool { return state != 'R' }) }
	for tries := 0; slices.ContainsFunc(descendants(top), runs) && tries < 1000; tries++ {
		unix.Poll(nil, 1)
	}
	before := worked(t, top)
	for once := len(before); ; once-- {
		spend(t)
		after := worked(t, top)
		if maps.Equal(before, after) {
			return after
		}
		if once == 0 {
			t.Errorf("the tree runs: %v, then %v", before, after)
			return after
		}
		before = after
	}
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

// restless is jobs whose trees are hard to hold; each says something when it is up. The
// kernel holds all of them in a group.
var restless = map[string]string{
	"alone":           `echo up > said; while :; do :; done`,
	"children":        `for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; echo up > said; wait`,
	"double fork":     `(sh -c 'while :; do :; done' &) ; (sh -c 'echo up > said; while :; do :; done' &) ; sleep 1000`,
	"setsid":          `setsid sh -c 'setsid sh -c "echo up > said; while :; do :; done"' & sleep 1000`,
	"ignores signals": `trap "" TERM HUP INT TSTP CONT USR1; (while :; do :; done) & echo up > said; while :; do :; done`,
	"holds stdout":    `(while :; do echo x; sleep 0.001; done) & echo up > said; while :; do echo y; sleep 0.001; done`,
	"forks":           `echo up > said; while :; do (true); done`,
	"threads": `exec python3 -c 'import threading
for i in range(4): threading.Thread(target=lambda: any(x for x in iter(int, 1))).start()
open("said", "w").write("up")'`,
	"no first thread": `exec python3 -c 'import threading, ctypes
def go():
  open("said", "w").write("up")
  while True: pass
threading.Thread(target=go).start()
ctypes.CDLL(None).syscall(60, 0)'`,
}

// slippery is jobs that nothing but a group holds: they start others faster than one can
// look.
var slippery = map[string]string{
	"many":           `for i in 1 2 3 4 5; do (while :; do /bin/true; done) & (while :; do (true); done) & done; echo up > said; wait`,
	"no environment": `setsid env -i sh -c 'echo up > said; while :; do /bin/true; done' & sleep 1000`,
	"chain": `exec python3 -c 'import os
n = 0
while True:
  if os.fork(): os._exit(0)
  os.setsid()
  n += 1
  if n == 20: open("said", "w").write("up")' & exec sleep 1000`,
}

// run gives a slot a job and waits until that has said that it is up.
func run(t *testing.T, s *Slot, cgroup, script string, also func(*Order)) *Order {
	t.Helper()
	dir := newDir(t)
	said := fifo(t, dir)
	o := order(dir, script)
	o.Cgroup = cgroup
	if also != nil {
		also(o)
	}
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	said()
	return o
}

// TestP72P76I10Held holds trees that fork all the time, leave their session, run in many
// threads: nothing of them runs until they are let go, and then they go on.
func TestP72P76I10Held(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		suite.Missing(t, "no python3")
	}
	groups(t, func(t *testing.T, cgroup string) {
		jobs := maps.Clone(restless)
		if cgroup != "" {
			maps.Copy(jobs, slippery)
		}
		for _, what := range slices.Sorted(maps.Keys(jobs)) {
			t.Run(what, func(t *testing.T) {
				d := newDesk(t, cgroup, jobs[what], nil)
				for range suite.Size(1, 3) {
					p := d.put(pause.Pause{})
					d.frozen()
					before := d.still()
					d.remove(p)
					d.thawed()
					d.goesOn(before)
				}
				d.slot.Stop(d.order.Token)
				d.slot.Stop(d.order.Token)
				ended(t, d.slot)
			})
		}
	})
}

// TestP72Busy holds a tree that gets hardly any processor to stop on, for the machine is
// busy with something else.
func TestP72Busy(t *testing.T) {
	for range suite.Size(1, 4) * runtime.NumCPU() {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { busy.Process.Kill(); busy.Wait() })
	}
	groups(t, func(t *testing.T, cgroup string) {
		d := newDesk(t, cgroup, restless["children"], nil)
		d.put(pause.Pause{})
		d.frozen()
		d.still()
		d.slot.Stop(d.order.Token)
		ended(t, d.slot)
	})
}

// TestP72StandingOf tells how a group stands, from its begin to its end.
func TestP72StandingOf(t *testing.T) {
	parent, err := CgroupParent(fmt.Sprintf("test-standing-%d", os.Getpid()), "/")
	if err != nil {
		suite.Missing(t, "no cgroup: "+err.Error())
	}
	t.Cleanup(func() { removeGroup(parent) })
	g, err := newGroup(parent, "empty")
	if err != nil {
		t.Fatal(err)
	}
	if is := StandingOf(g.dir); is != Empty {
		t.Errorf("one that is empty: %v", is)
	}
	if g.remove(); StandingOf(g.dir) != Gone {
		t.Error("one that was removed is there")
	}
	d := newDesk(t, parent, restless["children"], nil)
	dir := filepath.Join(parent, d.order.Token)
	if is := StandingOf(dir); is != Runs {
		t.Errorf("one that runs: %v", is)
	}
	p := d.put(pause.Pause{})
	d.frozen()
	if is := StandingOf(dir); is != Frozen {
		t.Errorf("one that is paused: %v", is)
	}
	d.remove(p)
	d.thawed()
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
	if is := StandingOf(dir); is != Gone {
		t.Errorf("one that is over: %v", is)
	}
	// What a stranger names is no group, whatever is in it, and is not waited for.
	other := t.TempDir()
	events := filepath.Join(other, "cgroup.events")
	if err := unix.Mkfifo(events, 0o600); err != nil {
		t.Fatal(err)
	}
	if StandingOf(other) != Gone {
		t.Error("a FIFO is a group")
	}
	if err := errors.Join(os.Remove(events), os.WriteFile(events, []byte("populated 1\nfrozen 1\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if StandingOf(other) != Gone {
		t.Error("a file is a group")
	}
}

// TestHoldsTree is what a supervisor without a group says of itself.
func TestHoldsTree(t *testing.T) {
	d := newDesk(t, "", restless["children"], nil)
	start, err := StartOf(d.slot.Pid())
	if err != nil || HoldsTree(d.slot.Pid(), start) || !Lives(d.slot.Pid(), start) || Lives(d.slot.Pid(), start+1) {
		t.Errorf("it runs: %v", err)
	}
	p := d.put(pause.Pause{})
	d.frozen()
	if !HoldsTree(d.slot.Pid(), start) {
		t.Error("it is held, and does not say so")
	}
	d.remove(p)
	d.thawed()
	if HoldsTree(d.slot.Pid(), start) {
		t.Error("it was let go, and says that it is held")
	}
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
}

// TestHeldBesideItsGroup holds what a job has moved to another group, which the freezing of its
// own does not reach.
func TestHeldBesideItsGroup(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		if cgroup == "" {
			return
		}
		other, err := newGroup(cgroup+"-other", "scope")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.remove(); removeGroup(cgroup + "-other") })
		d := newDesk(t, cgroup, `sh -c 'echo $$ >$OTHER/cgroup.procs; setsid sh -c "while :; do (true); done" & echo up > said; while :; do (true); done' & while :; do (true); done`,
			func(o *Order) { o.Env = append(o.Env, "OTHER="+other.dir) })
		start, err := StartOf(d.slot.Pid())
		if err != nil {
			t.Fatal(err)
		}
		loose := func(want bool) {
			t.Helper()
			all := LooseOf(d.slot.Pid(), start, filepath.Join(cgroup, d.order.Token))
			if len(all) < 2 {
				t.Fatalf("beside its group are %+v", all)
			}
			for _, l := range all {
				if l.Name == "" || want && !l.Stopped {
					t.Errorf("beside its group is %+v", l)
				}
			}
		}
		loose(false)
		for range 2 {
			p := d.put(pause.Pause{})
			d.frozen()
			before := d.still()
			loose(true)
			d.remove(p)
			d.thawed()
			d.goesOn(before)
			for len(d.stopped()) > 0 {
				unix.Poll(nil, 1)
			}
		}
		d.slot.Stop(d.order.Token)
		d.slot.Stop(d.order.Token)
		ended(t, d.slot)
	})
}

// TestEndedBesideItsGroup kills the supervisor of a job that has processes in another group, one
// of them without its environment: they run, are stopped by a pause, or that group is frozen.
func TestEndedBesideItsGroup(t *testing.T) {
	for _, how := range []string{"runs", "paused", "frozen"} {
		t.Run(how, func(t *testing.T) {
			groups(t, func(t *testing.T, cgroup string) {
				if cgroup == "" {
					return
				}
				other, err := newGroup(cgroup+"-other", "scope")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					emptyGroup(other.dir, func(d time.Duration) error { time.Sleep(d); return nil })
					removeGroup(cgroup + "-other")
				})
				d := newDesk(t, cgroup, `env -i sh -c 'echo $$ >'$OTHER'/cgroup.procs; exec sleep 1000' &
sh -c 'echo $$ >$OTHER/cgroup.procs; env -i setsid sleep 1000 & wait' &
until test $(wc -l <$OTHER/cgroup.procs) = 3; do :; done; echo up >said; wait`,
					func(o *Order) { o.Env = append(o.Env, "OTHER="+other.dir) })
				beside := other.members()
				switch how {
				case "paused":
					d.put(pause.Pause{})
					d.frozen()
				case "frozen":
					if n, err := other.freeze(nil); n > 0 || err != nil {
						t.Fatal(n, err)
					}
				}
				syscall.Kill(d.slot.Pid(), syscall.SIGKILL)
				for range d.slot.Reports() {
				}
				lock, n, err := Reclaim(t.Context(), d.order.Dir, d.order.Token, cgroup)
				if err != nil || n != len(beside) {
					t.Fatalf("%d were killed of %d beside its group, %v", n, len(beside), err)
				}
				lock.Release()
				for _, pid := range beside {
					dead(t, strconv.Itoa(pid))
				}
			})
		})
	}
}

// TestEndedBesideOthers has a process of root among those of an order that this user kills: all
// others are killed.
func TestEndedBesideOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "not root")
	}
	token := fmt.Sprintf("test-%d", os.Getpid())
	start := func(script string) *exec.Cmd {
		c := exec.Command("sh", "-c", script)
		c.Env = append(os.Environ(), Marker+"="+token)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Kill(-c.Process.Pid, unix.SIGKILL) })
		// In the midst of its last exec it is the user's already, and has no environment yet.
		for comm, env := "", ""; comm != "sleep\n" || !strings.Contains(env, token); {
			dir := fmt.Sprintf("/proc/%d", c.Process.Pid)
			name, err := os.ReadFile(dir + "/comm")
			b, err2 := os.ReadFile(dir + "/environ") // after the name, which an exec sets before
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			comm, env = string(name), string(b)
		}
		return c
	}
	first := start(`env -i sleep 1000 & exec setpriv --reuid 65534 --clear-groups sleep 1000`)
	second := start(`exec setpriv --reuid 65534 --clear-groups sleep 1000`)
	killed := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread is of another user from now on
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			t.Error(e)
		}
		n, err := killMarked(token, func(int) bool { return false }, func() error { return nil }, func(time.Duration) error { return nil })
		if n != 2 {
			t.Errorf("%d were killed, want 2", n)
			unix.Kill(second.Process.Pid, unix.SIGKILL)
		}
		killed <- err
	}()
	if err := <-killed; !errors.Is(err, unix.EPERM) {
		t.Errorf("%v, want that the process of root may not be killed", err)
	}
	first.Wait()
	second.Wait()
}

// TestStopperOfOthers counts the processes of a tree that this user may not stop, and does not
// wait for these.
func TestStopperOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "not root")
	}
	top := exec.Command("sh", "-c", `setpriv --reuid 65534 --clear-groups sh -c 'while :; do :; done' & (while :; do :; done) & wait`)
	top.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := top.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(-top.Process.Pid, unix.SIGKILL)
		top.Wait()
	})
	its := func() (uids []int) {
		for _, p := range descendants(top.Process.Pid) {
			var st unix.Stat_t
			if unix.Stat(fmt.Sprintf("/proc/%d", p.pid), &st) == nil {
				uids = append(uids, int(st.Uid))
			}
		}
		slices.Sort(uids)
		return uids
	}
	for !slices.Equal(its(), []int{0, 65534}) {
		unix.Poll(nil, 1)
	}
	running := make(chan int)
	go func() {
		runtime.LockOSThread() // for good: the thread is of another user from now on
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			t.Error(e)
		}
		h := &stopper{top: top.Process.Pid, lead: func(unix.Signal) {}}
		running <- h.stop(nil)
	}()
	if n := <-running; n != 1 {
		t.Errorf("%d run on, want the one of root", n)
	}
}

// What a job had stopped before a pause stays so afterwards; what it lets go on after the
// pause has begun, as who traces or limits it does, is stopped like all else.
func TestStopperOfStopped(t *testing.T) {
	top := exec.Command("sh", "-c", "sleep 1000 & sleep 1000 & wait")
	if err := top.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, p := range descendants(top.Process.Pid) {
			unix.Kill(p.pid, unix.SIGKILL)
		}
		top.Process.Kill()
		top.Wait()
	}()
	var sleeps []process
	for len(sleeps) < 2 {
		unix.Poll(nil, 1)
		sleeps = descendants(top.Process.Pid)
	}
	await := func(stop bool) {
		for p := sleeps[0]; ; unix.Poll(nil, 1) {
			if now, err := stat(p.pid); err != nil || now.all(stopped) == stop {
				return
			}
		}
	}
	one, over := sleeps[0].pid, make(chan struct{})
	h := &stopper{top: top.Process.Pid, lead: func(unix.Signal) {}}
	for _, goes := range []bool{false, true} {
		unix.Kill(one, unix.SIGSTOP)
		await(true)
		for h.stop(over) > 0 {
		}
		if goes {
			unix.Kill(one, unix.SIGCONT)
			await(false)
			for h.stop(over) > 0 {
			}
		}
		if p, err := stat(one); err != nil || !p.all(stopped) {
			t.Errorf("it runs in the pause: %c, %v", p.state, err)
		}
		h.release()
		await(!goes)
		if p, err := stat(one); err != nil || p.all(stopped) == goes {
			t.Errorf("let go on: %v; after the pause it is %c, %v", goes, p.state, err)
		}
	}
}

// A tree that a pause has stopped is known to be still by a look at its own processes, until one
// of them is let go.
func TestCalm(t *testing.T) {
	d := newDesk(t, "", `sh -c 'sleep 1000 & wait' & echo up > said; wait`, nil)
	for len(descendants(d.slot.Pid())) < 3 {
		unix.Poll(nil, 1)
	}
	h := stopper{top: d.slot.Pid(), lead: func(unix.Signal) {}}
	if h.calm() {
		t.Error("a tree that runs is calm")
	}
	if n := h.stop(nil); n != 0 || !h.calm() {
		t.Errorf("%d processes run, or a tree that is stopped is not calm", n)
	}
	for _, p := range h.tree() {
		unix.Kill(p.pid, unix.SIGCONT)
		if h.calm() {
			t.Errorf("process %d runs, and its tree is calm", p.pid)
		}
		if n := h.stop(nil); n != 0 || !h.calm() {
			t.Errorf("stopped again, %d run", n)
		}
	}
	h.release()
	d.slot.Stop(d.order.Token)
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
}
