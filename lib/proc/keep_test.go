package proc

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/pause"
	"distribute/lib/suite"

	"golang.org/x/sys/unix"
)

// A desk is a place for pauses and a supervisor whose order goes by it.
type desk struct {
	*testing.T
	place string
	slot  *Slot
	order *Order
	first int // pid of its first process
}

// newDesk runs a job on a machine that can be paused, and returns when it is up.
func newDesk(t *testing.T, cgroup, script string, also func(*Order)) *desk {
	t.Helper()
	d := &desk{T: t, place: t.TempDir(), slot: newSlot(t)}
	d.order = run(t, d.slot, cgroup, script, func(o *Order) {
		o.Pause = d.pausing()
		if also != nil {
			also(o)
		}
	})
	d.first = started(t, d.slot)
	return d
}

func (d *desk) pausing() *Pausing {
	return &Pausing{Places: []string{d.place}, Ended: filepath.Join(d.place, "ended")}
}

// put pauses the machine, until it is ended.
func (d *desk) put(p pause.Pause) pause.Pause {
	d.Helper()
	c, err := pause.Here()
	if err != nil {
		d.Fatal(err)
	}
	p.Made = c.Now
	if p.Deadline > 0 {
		p.Deadline, p.Boot, p.Until = p.Deadline+c.Uptime, c.Boot, c.Now.Add(p.Deadline)
	}
	if p, err = pause.Put(d.place, p); err != nil {
		d.Fatal(err)
	}
	return p
}

func (d *desk) remove(p pause.Pause) {
	d.Helper()
	if err := pause.Remove(p); err != nil {
		d.Fatal(err)
	}
}

// holds waits until the supervisor has said that so it is with the pauses.
func (d *desk) holds(what string, so func(*Hold) bool) *Hold {
	d.Helper()
	for r := range d.slot.Reports() {
		switch {
		case r.Ended != nil || r.Refused != "":
			d.Fatalf("%s: %+v, %+v", what, r, r.Ended)
		case r.Hold != nil && so(r.Hold):
			return r.Hold
		}
	}
	d.Fatalf("%s: the supervisor is gone", what)
	return nil
}

func (d *desk) frozen() {
	d.Helper()
	d.holds("frozen", func(h *Hold) bool { return h.Frozen && h.Running == 0 })
}

func (d *desk) thawed() *Hold {
	d.Helper()
	return d.holds("thawed", func(h *Hold) bool { return !h.Frozen })
}

// still fails unless nothing of the job runs.
func (d *desk) still() map[name]int64 {
	d.Helper()
	ran := nothingRuns(d.T, d.slot.Pid())
	if len(ran) == 0 {
		d.Fatal("there is no tree")
	}
	return ran
}

// goesOn waits until the job has run since, again and again.
func (d *desk) goesOn(since map[name]int64) {
	d.Helper()
	goesOn(d.T, d.slot.Pid(), since)
}

// stopped is what of the job a signal has stopped.
func (d *desk) stopped() (all []name) {
	for _, p := range descendants(d.slot.Pid()) {
		if stopped(p.state) {
			all = append(all, p.name())
		}
	}
	return all
}

// becomesStill waits until every process of the job stands still again, told by
// the kernel.
func (d *desk) becomesStill(cgroup string) {
	d.Helper()
	for {
		busy := slices.ContainsFunc(descendants(d.slot.Pid()), func(p process) bool {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid))
			events, _ := os.ReadFile(filepath.Join(cgroup, d.order.Token, "cgroup.events"))
			in := cgroup != "" && strings.Contains(string(b), d.order.Token)
			return !p.all(stopped) && !(in && strings.Contains(string(events), "frozen 1"))
		})
		if !busy {
			return
		}
		unix.Poll(nil, 1)
	}
}

// TestP70P72Paused pauses a machine with jobs that are hard to hold, and lets them
// go on; the pause whose maker has gone ends by itself.
func TestP70P72Paused(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		for _, what := range []string{"alone", "threads"} {
			t.Run(what, func(t *testing.T) {
				d := newDesk(t, cgroup, restless[what], nil)
				p := d.put(pause.Pause{})
				d.frozen()
				before := d.still()
				d.remove(p)
				d.thawed()
				d.goesOn(before)
				// Nothing is left behind that only the pause has stopped.
				for slices.ContainsFunc(descendants(d.slot.Pid()), func(p process) bool { return stopped(p.state) }) {
					unix.Poll(nil, 1)
				}
				if what == "alone" {
					p := d.put(pause.Pause{})
					d.frozen()
					ends := d.put(pause.Pause{Deadline: 700 * time.Millisecond})
					d.remove(p)
					d.thawed()
					if c, err := pause.Here(); err != nil || c.Uptime < ends.Deadline {
						t.Errorf("it goes on at %v, and the pause ends at %v (%v)", c.Uptime, ends.Deadline, err)
					}
				}
				d.slot.Stop(d.order.Token)
				d.slot.Stop(d.order.Token)
				ended(t, d.slot)
			})
		}
	})
}

// TestClockIsNoted has the record say when an order began, and when it is paused, and
// moves its begin by the pause when that is over.
func TestClockIsNoted(t *testing.T) {
	d := newDesk(t, "", restless["alone"], nil)
	noted := func() Clock {
		t.Helper()
		boot, _ := Boot()
		h, ok := HolderOf(d.order.Dir, boot)
		if !ok || h.Token != d.order.Token || h.Pid != d.slot.Pid() {
			t.Fatalf("the record names the supervisor %+v", h)
		}
		return h.Clock
	}
	was := noted()
	for range 2 {
		p := d.put(pause.Pause{})
		d.frozen()
		held := noted()
		d.remove(p)
		d.thawed()
		now := noted()
		if was.Began == 0 || was.Since != 0 || held.Began != was.Began || held.Since <= was.Began || now.Began <= was.Began || now.Began > was.Began+Uptime()-held.Since || now.Since != 0 {
			t.Errorf("noted is %+v, in a pause %+v, and then %+v", was, held, now)
		}
		was = now
	}
	d.slot.Stop(d.order.Token)
	d.slot.Stop(d.order.Token)
	if st := ended(t, d.slot); st.Paused == 0 || st.Wall > Uptime()-was.Began {
		t.Errorf("it ran for %v and was paused for %v", st.Wall, st.Paused)
	}
}

// TestRecordStaysSmall has a record of an order that is paused very often stay small, and
// say in the end that the order goes on.
func TestRecordStaysSmall(t *testing.T) {
	dir := t.TempDir()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	lock, err := LockFile(filepath.Join(dir, RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	boot, _ := Boot()
	s := &supervisor{control: null, lock: lock, boot: boot, start: 1}
	s.clock.start(Uptime())
	k := &keeper{s: s, o: &Order{Dir: dir, Token: "t"}}
	for range 2001 {
		k.frozen = !k.frozen
		s.setFrozen(k.frozen)
		k.tell()
	}
	info, err := os.Stat(filepath.Join(dir, RecordFile))
	if err != nil || info.Size() > 200<<10 {
		t.Errorf("it is %d bytes long, %v", info.Size(), err)
	}
	if h, _ := HolderOf(dir, boot); h.Token != "t" || h.Since != 0 {
		t.Errorf("it says %+v", h)
	}
}

// TestP78OtherHolders goes on only when the last pause has ended, by whomever, and
// heeds those who may pause only.
func TestP78OtherHolders(t *testing.T) {
	d := newDesk(t, "", restless["alone"], nil)
	a, b := d.put(pause.Pause{}), d.put(pause.Pause{})
	d.frozen()
	d.remove(a)
	d.still()
	if err := pause.Cease(filepath.Join(d.place, "ended"), []string{d.place}, []string{b.ID}); err != nil {
		t.Fatal(err)
	}
	d.thawed()
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
	d = newDesk(t, "", restless["alone"], func(o *Order) {
		o.Pause.Owners = filepath.Join(t.TempDir(), "owners")
		if err := pause.PutOwners(o.Pause.Owners, []int{os.Geteuid() + 1}); err != nil {
			t.Fatal(err)
		}
	})
	d.put(pause.Pause{})
	d.goesOn(worked(t, d.slot.Pid()))
	d.slot.Stop(d.order.Token)
	if st := ended(t, d.slot); st.Paused != 0 {
		t.Errorf("paused by nobody: %+v", st)
	}
}

// TestP73NotStartedWhilePaused gives an order to a paused machine: nothing of it
// runs, and it can be given again.
func TestP73NotStartedWhilePaused(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		d := &desk{T: t, place: t.TempDir(), slot: newSlot(t)}
		for _, p := range []pause.Pause{{}, {Out: true}, {Give: &pause.Give{CPUs: 2}}} {
			held := d.put(p)
			dir := newDir(t)
			o := order(dir, "touch ran")
			o.Cgroup, o.Pause = cgroup, d.pausing()
			o.Pause.CPUs = []int{0, 1}
			if err := d.slot.Run(o); err != nil {
				t.Fatal(err)
			}
			if r := <-d.slot.Reports(); !r.Paused || !r.Passing || r.Refused == "" {
				t.Fatalf("%+v: got %+v", p, r)
			}
			if _, n, err := Reclaim(t.Context(), dir, o.Token, cgroup); n != NotBegun || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("it ran")
			}
			d.remove(held)
		}
		dir := newDir(t)
		o := order(dir, "cat /proc/$PPID/comm")
		o.Cgroup, o.Pause = cgroup, d.pausing()
		if err := d.slot.Run(o); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, d.slot); st.Exit == nil || *st.Exit != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// TestP71DaemonDies pauses when no daemon lives, ends the pause, and ends the job.
func TestP71DaemonDies(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		dir, place := newDir(t), t.TempDir()
		said := fifo(t, dir)
		cmd := exec.Command(os.Args[0], "daemon", dir, `echo $PPID > said; while :; do (true); done`)
		cmd.Env = append(os.Environ(), "TEST_PLACE="+place, "TEST_CGROUP="+cgroup)
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("the daemon lives: %s", out)
		}
		pid, err := strconv.Atoi(said())
		if err != nil {
			t.Fatal(err)
		}
		proc, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { proc.Kill() })
		d := &desk{T: t, place: place, slot: &Slot{cmd: &exec.Cmd{Process: proc}}, order: &Order{Token: filepath.Base(dir)}}
		p := d.put(pause.Pause{})
		d.becomesStill(cgroup)
		before := d.still()
		if err := LookHeld(dir); err != nil {
			t.Fatal(err)
		}
		d.still()
		d.remove(p)
		d.goesOn(before)
		d.put(pause.Pause{})
		d.becomesStill(cgroup)
		if err := StopHeld(dir); err != nil {
			t.Fatal(err)
		}
		if err := AwaitFree(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		if st, err := ReadStatus(dir, filepath.Base(dir)); err != nil || st.Stopped != StoppedOrder || st.Signal != 9 || st.Paused == 0 {
			t.Errorf("status %+v, %v", st, err)
		}
	})
}

// TestP74EndOfPaused ends jobs that are paused: nothing of them runs again.
func TestP74EndOfPaused(t *testing.T) {
	const script = `trap 'echo again >> again; exit 3' TERM
setsid sh -c 'trap "echo again >> again" TERM; while :; do (true); done' & echo up > said; while :; do (true); done`
	tests := map[string]func(*testing.T, *desk){
		"stopped":                 func(t *testing.T, d *desk) { d.slot.Stop(d.order.Token) },
		"killed":                  func(t *testing.T, d *desk) { d.slot.Stop(d.order.Token); d.slot.Stop(d.order.Token) },
		"told of a shutdown":      func(t *testing.T, d *desk) { syscall.Kill(d.slot.Pid(), syscall.SIGTERM) },
		"its first process dies":  func(t *testing.T, d *desk) { killAll(t, []int{d.first}) },
		"its other processes die": func(t *testing.T, d *desk) { killTree(t, d); d.slot.Stop(d.order.Token) },
	}
	groups(t, func(t *testing.T, cgroup string) {
		for what, end := range tests {
			t.Run(what, func(t *testing.T) {
				d := newDesk(t, cgroup, script, nil)
				d.put(pause.Pause{})
				d.frozen()
				tree := d.still()
				end(t, d)
				st := ended(t, d.slot)
				if st.Signal != 9 || st.Paused == 0 || st.Evicted {
					t.Errorf("status %+v", st)
				}
				for p := range tree {
					dead(t, strconv.Itoa(p.pid))
				}
				if _, err := os.Stat(filepath.Join(d.order.Dir, "again")); err == nil {
					t.Error("it ran again")
				}
			})
		}
	})
}

func killAll(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// killTree kills all of a job but its first process.
func killTree(t *testing.T, d *desk) {
	t.Helper()
	for _, p := range descendants(d.slot.Pid()) {
		if p.pid != d.first {
			killAll(t, []int{p.pid})
		}
	}
}

// TestN55P74SupervisorDies kills the supervisor of a paused job: what is left is
// found and killed as it stands.
func TestN55P74SupervisorDies(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		d := newDesk(t, cgroup, restless["children"], nil)
		d.put(pause.Pause{})
		d.frozen()
		tree := d.still()
		syscall.Kill(d.slot.Pid(), syscall.SIGKILL)
		for range d.slot.Reports() {
		}
		lock, n, err := Reclaim(t.Context(), d.order.Dir, d.order.Token, cgroup)
		if err != nil || cgroup == "" && n == 0 {
			t.Fatal(n, err)
		}
		lock.Release()
		for p := range tree {
			dead(t, strconv.Itoa(p.pid))
		}
	})
}

// TestP75PausedTime pauses one job many times: what it ran and what it was paused
// is all the time, and the pauses are what the supervisor said of them.
func TestP75PausedTime(t *testing.T) {
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		d := newDesk(t, cgroup, `echo up > said; while :; do (true); done`, nil)
		from := Uptime()
		var last *Hold
		for range 10 {
			p := d.put(pause.Pause{})
			d.frozen()
			unix.Poll(nil, 50)
			d.remove(p)
			last = d.thawed()
		}
		if last.Paused > Uptime()-from {
			t.Errorf("paused for %v in %v", last.Paused, Uptime()-from)
		}
		d.slot.Stop(d.order.Token)
		st := ended(t, d.slot)
		if st.Paused != last.Paused {
			t.Errorf("paused for %v, and %v was told", st.Paused, last.Paused)
		}
		if all := st.Ended.Sub(st.Started); (all-st.Wall-st.Paused).Abs() > all/10 || st.Wall <= 0 {
			t.Errorf("ran for %v and was paused for %v of %v", st.Wall, st.Paused, all)
		}
	})
}

// TestP76StoppedBefore lets a process that was stopped before the pause stand still
// after it.
func TestP76StoppedBefore(t *testing.T) {
	d := newDesk(t, "", `sh -c 'kill -STOP $$' & stopped=$!
until grep -q '^State:.T' /proc/$stopped/status; do :; done
echo up > said; while :; do (true); done`, nil)
	at := slices.IndexFunc(descendants(d.slot.Pid()), func(p process) bool { return stopped(p.state) })
	if at < 0 {
		t.Fatal("nothing is stopped")
	}
	before := descendants(d.slot.Pid())[at]
	d.pauseOnce()
	if now, err := stat(before.pid); err != nil || !stopped(now.state) || now.start != before.start {
		t.Errorf("it goes on: %+v, %v", now, err)
	}
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
}

// TestP76StoppedAmongOthers pauses a tree of which some were stopped before, in the
// first group and out of it: after each pause these stand still, and all others go
// on. One that is let go afterwards is like the others.
func TestP76StoppedAmongOthers(t *testing.T) {
	d := newDesk(t, "", `sh -c 'kill -STOP $$; while :; do :; done' & one=$!
setsid sh -c 'echo $$ > two; kill -STOP $$; while :; do :; done' &
until [ -s two ]; do :; done
for p in $one $(cat two); do until grep -q '^State:.T' /proc/$p/status; do :; done; done
(while :; do :; done) & setsid sh -c 'while :; do :; done' &
echo up > said; while :; do :; done`, nil)
	before := d.stopped()
	if len(before) != 2 {
		t.Fatalf("%v are stopped", before)
	}
	pauseAndGoOn := func(left []name) {
		t.Helper()
		p := d.put(pause.Pause{})
		d.frozen()
		since := d.still()
		d.remove(p)
		d.thawed()
		for {
			now := worked(t, d.slot.Pid())
			maps.DeleteFunc(now, func(who name, ran int64) bool { return ran != since[who] })
			if len(now) == len(left) {
				break
			}
			unix.Poll(nil, 1)
		}
		if now := d.stopped(); !slices.Equal(now, left) {
			t.Errorf("after the pause %v are stopped, want %v", now, left)
		}
	}
	for range 3 {
		pauseAndGoOn(before)
	}
	for _, who := range before {
		if err := signalSame(who.pid, who.start, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		pauseAndGoOn(nil)
	}
	d.slot.Stop(d.order.Token)
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
}

// TestKilledWhilePaused kills a job that stands still, and one that has gone on.
func TestKilledWhilePaused(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		for _, paused := range []bool{true, false} {
			d := newDesk(t, cgroup, restless["alone"], nil)
			p := d.put(pause.Pause{})
			d.frozen()
			if !paused {
				d.remove(p)
				d.thawed()
			}
			if err := unix.Kill(d.first, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if st := ended(t, d.slot); st.Signal != int(unix.SIGKILL) || st.Frozen != paused || st.Stopped != "" {
				t.Errorf("paused %v: %+v", paused, st)
			}
		}
	})
}

// pauseOnce pauses the machine, sees that the order stands still, and that it goes on behind
// the pause.
func (d *desk) pauseOnce() {
	p := d.put(pause.Pause{})
	d.frozen()
	since := d.still()
	d.remove(p)
	d.thawed()
	d.goesOn(since)
}

// TestP76JobControl pauses a shell that minds whether its children are stopped: it
// finds none that is.
func TestP76JobControl(t *testing.T) {
	d := newDesk(t, "", `set -m; trap 'echo changed >> changed' CHLD; sleep 1000 & echo up > said; while :; do jobs -l > jobs; done`, nil)
	for range 5 {
		d.pauseOnce()
		if b, err := os.ReadFile(filepath.Join(d.order.Dir, "jobs")); err != nil || strings.Contains(string(b), "top") {
			t.Errorf("%q, %v", b, err)
		}
	}
	d.slot.Stop(d.order.Token)
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
}

// TestP72Loosened lets a process of a held tree go on, as its user can: it is held
// again.
func TestP72Loosened(t *testing.T) {
	const script = `(while :; do (true); done) & echo up > said; while :; do (true); done`
	for what, loosen := range map[string]func(t *testing.T, d *desk, cgroup string){
		"continued": func(t *testing.T, d *desk, cgroup string) {
			for _, p := range descendants(d.slot.Pid()) {
				syscall.Kill(p.pid, syscall.SIGCONT)
			}
		},
		"thawed": func(t *testing.T, d *desk, cgroup string) {
			if err := (&group{dir: filepath.Join(cgroup, d.order.Token)}).thaw(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			groups(t, func(t *testing.T, cgroup string) {
				if cgroup == "" && what != "continued" {
					return
				}
				d := newDesk(t, cgroup, script, nil)
				p := d.put(pause.Pause{})
				d.frozen()
				d.still()
				loosen(t, d, cgroup)
				if err := d.slot.Look(); err != nil {
					t.Fatal(err)
				}
				d.becomesStill(cgroup)
				since := d.still()
				d.remove(p)
				d.thawed()
				d.goesOn(since)
				d.slot.Stop(d.order.Token)
				d.slot.Stop(d.order.Token)
				ended(t, d.slot)
			})
		})
	}
}

// TestP72NestedGroups holds what a job has put into groups of its own.
func TestP72NestedGroups(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		if cgroup == "" {
			return
		}
		d := newDesk(t, cgroup, `mkdir -p $GROUP/$DISTRIBUTE_ATTEMPT/a/b
sh -c 'echo $$ > $GROUP/$DISTRIBUTE_ATTEMPT/a/b/cgroup.procs; echo up > said; while :; do (true); done' & while :; do (true); done`,
			func(o *Order) { o.Env = append(o.Env, "GROUP="+cgroup) })
		p := d.put(pause.Pause{})
		d.frozen()
		since := d.still()
		for p := range since {
			if now, err := stat(p.pid); err != nil || stopped(now.state) {
				t.Errorf("%+v, %v: stopped by a signal", now, err)
			}
		}
		d.remove(p)
		d.thawed()
		d.goesOn(since)
		d.slot.Stop(d.order.Token)
		ended(t, d.slot)
	})
}

// evictions is how jobs leave a machine, and what of them ran.
var evictions = map[string]struct {
	script       string
	exit, signal int
	said         string
	save, grace  time.Duration // what it has for saving and for ending
}{
	"saves itself": {`trap 'echo saved; exit 85' USR1; echo up > said; while :; do (true); done`,
		85, 0, "saved\n", time.Hour, time.Hour},
	"a part of it saves": {`sh -c 'trap "echo saved; exit 85" USR1; echo up > said; while :; do (true); done'; exit $?`,
		85, 0, "saved\n", time.Hour, time.Hour},
	"is done meanwhile": {`trap 'echo done; exit 0' USR1; echo up > said; while :; do (true); done`,
		0, 0, "done\n", time.Hour, time.Hour},
	"does not save": {`trap 'echo ends; exit 4' TERM; echo up > said; while :; do (true); done`,
		4, 0, "ends\n", time.Hour, time.Hour},
	"catches nothing": {`echo up > said; while :; do (true); done`,
		-1, 15, "", time.Hour, time.Hour},
	"mpirun catches": {`export DISTRIBUTE_MPIRUN=1; exec sh -c "trap 'echo asked' USR1; trap 'exit 6' TERM; echo up > said; while :; do (true); done"`,
		6, 0, "", time.Hour, time.Hour},
	"takes too long": {`trap 'echo asked' USR1; trap 'echo told; exit 5' TERM; echo up > said; while :; do (true); done`,
		5, 0, "asked\ntold\n", 200 * time.Millisecond, time.Hour}, // a shell that is about to do the first may do the second before it
	"does not care": {`trap '' USR1 TERM; echo up > said; while :; do (true); done`,
		-1, 9, "", time.Hour, time.Millisecond},
	"catches and ignores": {`trap ':' USR1; trap '' TERM; echo up > said; while :; do (true); done`,
		-1, 9, "", time.Millisecond, time.Millisecond},
}

// TestP71Evicted has jobs leave that run, and such that stand still.
func TestP71Evicted(t *testing.T) {
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		for what, e := range evictions {
			for _, held := range []bool{false, true} {
				t.Run(fmt.Sprint(what, map[bool]string{true: " after a pause"}[held]), func(t *testing.T) {
					// A shell says of a child that a signal ended it, if there was one just then.
					d := newDesk(t, cgroup, "exec 2>/dev/null; "+e.script, func(o *Order) {
						// On a machine that is busy, jobs may get no processor for long.
						o.Checkpoint, o.Grace = &Checkpoint{Signal: int(unix.SIGUSR1), Grace: e.save}, e.grace
					})
					if held {
						d.put(pause.Pause{})
						d.frozen()
						d.still()
					}
					d.put(pause.Pause{Out: true})
					st := ended(t, d.slot)
					if e.exit >= 0 && (st.Exit == nil || *st.Exit != e.exit) || st.Signal != e.signal || !st.Evicted || st.Stopped != "" {
						t.Errorf("status %+v", st)
					}
					if out, err := os.ReadFile(d.order.Output); err != nil || string(out) != e.said {
						t.Errorf("it said %q, %v", out, err)
					}
					if held != (st.Paused > 0) {
						t.Errorf("paused for %v", st.Paused)
					}
					if disk, err := ReadStatus(d.order.Dir, d.order.Token); err != nil || !disk.Evicted || disk.Paused != st.Paused {
						t.Errorf("on disk: %+v, %v", disk, err)
					}
				})
			}
		}
	})
}

// TestP71StopOfEvicted stops a job that is just saving itself.
func TestP71StopOfEvicted(t *testing.T) {
	d := newDesk(t, "", `trap 'echo asked > said' USR1; trap 'exit 4' TERM; echo up > said; while :; do (true); done`, func(o *Order) {
		o.Checkpoint, o.Grace = &Checkpoint{Signal: int(unix.SIGUSR1), Grace: time.Hour}, time.Hour
	})
	d.put(pause.Pause{Out: true})
	d.holds("evicted", func(h *Hold) bool { return h.Evicted && !h.Frozen })
	d.slot.Stop(d.order.Token)
	if st := ended(t, d.slot); st.Exit == nil || *st.Exit != 4 || st.Stopped != StoppedOrder || !st.Evicted {
		t.Errorf("status %+v", st)
	}
}

// TestPauseOfLeaving pauses the machine while a job saves itself that is asked to by a
// pause of its own: it stands still, and has the rest of its time afterwards.
func TestPauseOfLeaving(t *testing.T) {
	groups(t, func(t *testing.T, cgroup string) {
		const attempt = "0123456789abcdef0123456789abcdef"
		d := newDesk(t, cgroup, `trap 'echo asked' USR1; echo up > said; until test -e saved; do (:); done; exit 85`, func(o *Order) {
			o.Pause.Attempt = attempt
			o.Checkpoint, o.Grace = &Checkpoint{Signal: int(unix.SIGUSR1), Grace: time.Hour}, time.Hour
		})
		if err := pause.PutFor(d.place, pause.Pause{Made: time.Now(), Attempt: attempt, Out: true}); err != nil {
			t.Fatal(err)
		}
		d.holds("evicted", func(h *Hold) bool { return h.Evicted && !h.Frozen })
		for range 2 {
			d.pauseOnce()
		}
		if err := os.WriteFile(filepath.Join(d.order.Dir, "saved"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		st := ended(t, d.slot)
		if out, err := os.ReadFile(d.order.Output); st.Exit == nil || *st.Exit != 85 || !st.Evicted || st.Paused == 0 || string(out) != "asked\n" {
			t.Errorf("status %+v, it said %q, %v", st, out, err)
		}
	})
}

// TestPauseOfGrace pauses the machine while a job ends that has reached its limit of time: it
// stands still for longer than its grace time is, and ends by itself after the pause.
func TestPauseOfGrace(t *testing.T) {
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		for grace := time.Second; ; grace *= 2 { // a busy machine may need longer to pause, or the job to end
			st, thawed := graceInPause(t, cgroup, grace)
			if st.Stopped == StoppedTime && st.Exit != nil && *st.Exit == 7 && st.Paused >= grace {
				return
			}
			if st.Paused > 0 && !thawed || grace > time.Minute {
				t.Fatalf("with a grace time of %v, and let go: %v, status %+v", grace, thawed, st)
			}
		}
	})
}

// graceInPause returns how such a job ended, and whether it was let go before.
func graceInPause(t *testing.T, cgroup string, grace time.Duration) (st *Status, thawed bool) {
	d := newDesk(t, cgroup, `trap 'echo > told; until test -e go; do :; done; exit 7' TERM; echo up > said; while :; do :; done`, func(o *Order) {
		o.Time, o.Grace = 100*time.Millisecond, grace
	})
	told := filepath.Join(d.order.Dir, "told")
	for tries := 0; tries < 60_000; tries++ {
		if _, err := os.Stat(told); err == nil {
			break
		}
		unix.Poll(nil, 1)
	}
	p := d.put(pause.Pause{})
	for r := range d.slot.Reports() {
		switch {
		case r.Ended != nil:
			return r.Ended, thawed
		case r.Hold == nil:
		case r.Hold.Frozen && r.Hold.Running == 0:
			time.Sleep(grace + grace/4)
			if err := os.WriteFile(filepath.Join(d.order.Dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d.remove(p)
		case !r.Hold.Frozen:
			thawed = true
		}
	}
	t.Fatal("the supervisor is gone")
	return nil, false
}

// The grace time of an order goes by its clock, and is over at once in a pause if somebody
// stopped it.
func TestGraceOver(t *testing.T) {
	for stopped, want := range map[string]bool{StoppedTime: false, StoppedOrder: true, StoppedSignal: true, "": false} {
		s, now := &supervisor{stopped: stopped, killAt: 20 * time.Minute}, Uptime()
		s.clock.start(now - 50*time.Minute)
		s.clock.hold(now - 45*time.Minute)
		s.frozen = true
		if s.graceOver() != want {
			t.Errorf("%q: 5 minutes before a pause of 45: %v", stopped, !want)
		}
		s.clock.release(now - 5*time.Minute)
		s.frozen = false
		if s.graceOver() {
			t.Errorf("%q: 10 minutes without the pause", stopped)
		}
		s.killAt = 9 * time.Minute
		if !s.graceOver() {
			t.Errorf("%q: 10 minutes of 9", stopped)
		}
	}
}

// A limit of time that is reached when a pause has just begun does not end what it holds.
func TestLimitInPause(t *testing.T) {
	s := &supervisor{token: "t", firsts: []int{1 << 30}, grace: time.Hour}
	s.setFrozen(true)
	if s.stop("t", StoppedTime) || s.stopped != "" {
		t.Errorf("it is stopped: %q", s.stopped)
	}
	s.setFrozen(false)
	if !s.stop("t", StoppedTime) || s.stopped != StoppedTime {
		t.Errorf("it is not stopped after the pause: %q", s.stopped)
	}
}

// What a job has for saving itself are minutes in which it runs.
func TestTimeToSave(t *testing.T) {
	k, now := &keeper{s: &supervisor{}, saveBy: 20 * time.Minute}, Uptime()
	k.s.clock.start(now - 50*time.Minute)
	k.s.clock.hold(now - 45*time.Minute)
	k.s.clock.release(now - 5*time.Minute)
	if left := k.saves(); left > 10*time.Minute || left < 5*time.Minute {
		t.Errorf("it has %v left", left)
	}
	if k.frozen = true; k.saves() != 0 {
		t.Errorf("it has %v left while it stands still", k.saves())
	}
}

// TestP71TimeOfEvicted has the time of a job run out while it saves itself: that is
// no reason to end it before its grace time does.
func TestP71TimeOfEvicted(t *testing.T) {
	s := &supervisor{token: "t", firsts: []int{1 << 30}, grace: time.Hour}
	if begun, stopped := s.setEvicted(); !begun || stopped {
		t.Fatal("it cannot be asked to leave")
	}
	if s.stop("t", StoppedTime); s.stopped != "" {
		t.Errorf("it is stopped: %s", s.stopped)
	}
	if s.stop("t", StoppedOrder); s.stopped != StoppedOrder {
		t.Errorf("a stop comes to %q", s.stopped)
	}
}

// TestP78GivenBack gives cpus back for a while: no thread is on them, and then each
// has what it had.
func TestP78GivenBack(t *testing.T) {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for c := 0; len(cpus) < own.Count(); c++ {
		if own.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	if len(cpus) < 2 {
		suite.Missing(t, "this machine has one cpu")
	}
	groups(t, func(t *testing.T, cgroup string) {
		d := newDesk(t, cgroup, restless["threads"], func(o *Order) { o.Pause.CPUs = cpus })
		before := masks(t, d)
		p := d.put(pause.Pause{Give: &pause.Give{CPUs: 1}})
		d.holds("lent", func(h *Hold) bool { return slices.Equal(h.CPUs, cpus[:len(cpus)-1]) })
		for who, mask := range masks(t, d) {
			if mask.IsSet(cpus[len(cpus)-1]) || mask.Count() == 0 {
				t.Errorf("%v has %v", who, mask)
			}
		}
		all := d.put(pause.Pause{Give: &pause.Give{CPUs: len(cpus)}})
		d.frozen()
		d.still()
		d.remove(all)
		d.thawed()
		d.remove(p)
		d.holds("had back", func(h *Hold) bool { return h.CPUs == nil && !h.Frozen })
		if now := masks(t, d); !maps.Equal(before, now) {
			t.Errorf("it has %v, and had %v", now, before)
		}
		d.slot.Stop(d.order.Token)
		d.slot.Stop(d.order.Token)
		ended(t, d.slot)
	})
}

// TestPinsOfJob gives cpus back for a while of a job whose processes have chosen theirs: each has
// what is left of its own, and all of its own afterwards; also one that it starts meanwhile.
func TestPinsOfJob(t *testing.T) {
	cpus := CPUs()
	if len(cpus) < 2 {
		suite.Missing(t, "this machine has one cpu")
	}
	first, last, all := cpus[:1], cpus[len(cpus)-1:], len(cpus)
	groups(t, func(t *testing.T, cgroup string) {
		d := newDesk(t, cgroup, `waits='until test -e go; do :; done; sh -c "echo \$\$ >$0.new; mv $0.new $0.child; while :; do :; done" & while :; do :; done'
for p in one two three; do sh -c "echo \$\$ >$p; $waits" $p & done
until test -s one -a -s two -a -s three; do :; done; echo up > said; wait`, func(o *Order) { o.Pause.CPUs = cpus })
		pid := func(name string) int {
			t.Helper()
			b, err := os.ReadFile(filepath.Join(d.order.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		on := func(name string, want []int) {
			t.Helper()
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(pid(name), &set); err != nil {
				t.Fatal(err)
			}
			if should, _ := cpuSet(want); set != should {
				t.Errorf("%q runs on %v, want %v", name, set, want)
			}
		}
		for name, cpus := range map[string][]int{"one": first, "two": last} {
			set, _ := cpuSet(cpus)
			if err := unix.SchedSetaffinity(pid(name), &set); err != nil {
				t.Fatal(err)
			}
		}
		p := d.put(pause.Pause{Give: &pause.Give{CPUs: 1}})
		d.holds("lent", func(h *Hold) bool { return h.CPUs != nil })
		on("one", first)
		on("two", cpus[:all-1])
		on("three", cpus[:all-1])
		if err := os.WriteFile(filepath.Join(d.order.Dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		children := []string{"one.child", "two.child", "three.child"}
		for _, name := range children {
			for {
				if _, err := os.Stat(filepath.Join(d.order.Dir, name)); err == nil {
					break
				}
				unix.Poll(nil, 1)
			}
		}
		d.remove(p)
		d.holds("had back", func(h *Hold) bool { return h.CPUs == nil })
		for i, want := range [][]int{first, last, cpus} {
			on(children[i][:len(children[i])-len(".child")], want)
			on(children[i], want)
		}
		d.slot.Stop(d.order.Token)
		d.slot.Stop(d.order.Token)
		ended(t, d.slot)
	})
}

// masks is what each thread of a job may run on.
func masks(t *testing.T, d *desk) map[name]unix.CPUSet {
	t.Helper()
	all := map[name]unix.CPUSet{}
	for _, p := range descendants(d.slot.Pid()) {
		for _, tid := range threads(p.pid) {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(tid, &set); err == nil {
				all[name{tid, p.start}] = set
			}
		}
	}
	return all
}

func TestRest(t *testing.T) {
	for _, tt := range []struct{ order, jobs, want []int }{
		{nil, nil, nil},
		{[]int{2, 3}, nil, nil},
		{nil, []int{0, 1}, []int{0, 1}},
		{[]int{0, 1}, []int{0, 1, 2}, nil},
		{[]int{1, 2, 3}, []int{0, 1, 2}, []int{1, 2}},
		{[]int{2, 3}, []int{0, 1}, []int{0, 1}},
	} {
		if got := (&returnedCPUs{cpus: tt.order}).rest(tt.jobs); !slices.Equal(got, tt.want) || (got == nil) != (tt.want == nil) {
			t.Errorf("%v of %v: %v, want %v", tt.order, tt.jobs, got, tt.want)
		}
	}
}

// TestP70Unwatched has a supervisor of a user who may have no more watches, which
// learns of a pause all the same. That is so in a namespace of users of its own:
// whatever else this user runs has his watches.
func TestP70Unwatched(t *testing.T) {
	const inside = "PROC_TEST_UNWATCHED"
	if os.Getenv(inside) == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe, "-test.run=^TestP70Unwatched$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		if _, began := errors.AsType[*exec.ExitError](err); err != nil && !began {
			suite.Missing(t, fmt.Sprint("no namespace of users can be made: ", err))
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: TestP70Unwatched") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("there are watches: %d, %v", fd, err)
	}
	d := newDesk(t, "", restless["alone"], nil)
	d.pauseOnce()
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
}

// TestP70Polled has a supervisor that is to do without an inotify instance hear of a pause. It
// gives up the instance that it had for an order before.
func TestP70Polled(t *testing.T) {
	instances := func(pid int) (n int) {
		infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
		for _, name := range infos {
			if b, _ := os.ReadFile(name); strings.Contains(string(b), "\ninotify ") {
				n++
			}
		}
		return n
	}
	d := newDesk(t, "", restless["alone"], nil)
	if n := instances(d.slot.Pid()); n != 1 {
		t.Errorf("the supervisor has %d inotify instances", n)
	}
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
	d.order = run(t, d.slot, "", restless["alone"], func(o *Order) {
		o.Pause = d.pausing()
		o.Pause.Poll = true
	})
	d.first = started(t, d.slot)
	d.pauseOnce()
	for instances(d.slot.Pid()) != 0 { // it is closed beside
		time.Sleep(time.Millisecond)
	}
	d.slot.Stop(d.order.Token)
	ended(t, d.slot)
}

// TestP70PlacesChange runs orders that go by other places one after the other.
func TestP70PlacesChange(t *testing.T) {
	s := newSlot(t)
	for range 3 {
		d := &desk{T: t, place: t.TempDir(), slot: s}
		d.order = run(t, s, "", restless["alone"], func(o *Order) { o.Pause = d.pausing() })
		d.put(pause.Pause{})
		d.frozen()
		s.Stop(d.order.Token)
		ended(t, s)
		unpaused := order(newDir(t), "exit 0")
		if err := s.Run(unpaused); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); st.Exit == nil {
			t.Errorf("status %+v", st)
		}
	}
}

func TestSignals(t *testing.T) {
	for in, want := range map[string]uint64{
		"Name:\tx\nSigBlk:\t0000000000000001\nSigCgt:\t0000000000000a02\nCap": 0xa02,
		"SigCgt:\tx\n": 0, "": 0, "Name:\tSigCgt:\t1\n": 0,
	} {
		if got := signals([]byte(in), "SigCgt:"); got != want {
			t.Errorf("%q: %x", in, got)
		}
	}
}
