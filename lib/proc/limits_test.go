package proc

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/pause"
	"distribute/lib/suite"
)

func TestCPUList(t *testing.T) {
	for _, c := range []struct {
		cpus []int
		want string
	}{{nil, ""}, {[]int{3}, "3"}, {[]int{0, 1, 2, 3}, "0-3"}, {[]int{0, 2, 3, 8, 10, 11}, "0,2-3,8,10-11"}} {
		if got := cpuList(c.cpus); got != c.want {
			t.Errorf("%v: %q, want %q", c.cpus, got, c.want)
		}
	}
}

func TestWrittenIn(t *testing.T) {
	for in, want := range map[string]int64{
		"": 0, "8:0 rbytes=1 wbytes=20 rios=3 wios=4 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=300 rios=1 wios=1\n": 320,
		"8:0 wbytes=x\n": 0, "wbytes=": 0,
	} {
		if got := writtenIn([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

// standIn is a directory with files in the place of a group with controllers.
func standIn(t *testing.T, files map[string]string) *group {
	t.Helper()
	g := &group{dir: t.TempDir()}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// TestN60GroupLimits is what the kernel is asked to enforce; what it does not have
// is not made.
func TestN60GroupLimits(t *testing.T) {
	g := standIn(t, map[string]string{"cpuset.cpus": "", "memory.max": "", "memory.swap.max": "", "memory.oom.group": "", "pids.max": ""})
	g.limit(&Limits{CPUs: []int{0, 1, 4}, Memory: 1 << 30, Pids: 99, Time: time.Hour})
	for name, want := range map[string]string{"cpuset.cpus": "0-1,4", "memory.max": "1073741824", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "99"} {
		if b, err := os.ReadFile(filepath.Join(g.dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	bare := standIn(t, nil)
	bare.limit(&Limits{CPUs: []int{0}, Memory: 1, Pids: 1})
	if left, err := os.ReadDir(bare.dir); err != nil || len(left) > 0 {
		t.Errorf("made %v, %v", left, err)
	}
}

// given is the keeper of an order with these limits, on a node of 16 GiB, in groups with files in
// their place, and what it writes there for a demand.
func given(t *testing.T, l Limits, ranks ...Rank) (k *keeper, writes func(demand) map[string]string) {
	t.Helper()
	parent := standIn(t, map[string]string{"memory.high": "max\n"})
	k = &keeper{s: &supervisor{}, o: &Order{Limits: l, Ranks: ranks, Checkpoint: &Checkpoint{}}, out: &lookout{of: []Pausing{{Memory: 16 << 30}}}, group: &group{dir: filepath.Join(parent.dir, "t")}}
	k.stopper = stopper{top: os.Getpid(), held: func(int) bool { return true }}
	k.lent = returnedCPUs{group: k.group, parent: parent.dir}
	dirs := []string{"t"}
	for i := range ranks {
		dirs = append(dirs, filepath.Join("t", rankGroup(i)))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(filepath.Join(parent.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return k, func(d demand) map[string]string {
		t.Helper()
		for _, dir := range dirs {
			if err := os.WriteFile(filepath.Join(parent.dir, dir, "memory.swap.max"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		k.meet(d)
		says := map[string]string{}
		for _, dir := range dirs {
			b, _ := os.ReadFile(filepath.Join(parent.dir, dir, "memory.swap.max"))
			says[dir] = string(b)
		}
		b, err := os.ReadFile(filepath.Join(parent.dir, "memory.high"))
		if err != nil {
			t.Fatal(err)
		}
		says["high"] = strings.TrimSpace(string(b))
		if err := os.Truncate(filepath.Join(parent.dir, "memory.high"), 0); err != nil {
			t.Fatal(err)
		}
		return says
	}
}

// TestMemoryOfLimited gives memory back of an order that has a limit of it: what it has can go
// to swap space meanwhile, which else is not for it.
func TestMemoryOfLimited(t *testing.T) {
	for _, c := range []struct {
		name        string
		l           Limits
		ranks       []Rank
		wants, back map[string]string
	}{
		{"one", Limits{Memory: 4 << 30}, nil, map[string]string{"t": "4294967296"}, map[string]string{"t": "0"}},
		{"ranks", Limits{Memory: 4 << 30}, []Rank{{Memory: 1 << 30}, {}},
			map[string]string{"t": "4294967296", "t/rank0": "1073741824", "t/rank1": ""}, map[string]string{"t": "0", "t/rank0": "0", "t/rank1": ""}},
		{"without a limit", Limits{}, nil, map[string]string{"t": ""}, map[string]string{"t": ""}},
	} {
		_, writes := given(t, c.l, c.ranks...)
		c.wants["high"], c.back["high"] = "8589934592", "max"
		if got := writes(demand{memory: 8 << 30}); !maps.Equal(got, c.wants) {
			t.Errorf("%s: %q is written, want %q", c.name, got, c.wants)
		}
		if got := writes(demand{}); !maps.Equal(got, c.back) {
			t.Errorf("%s: afterwards %q is written, want %q", c.name, got, c.back)
		}
	}
}

// TestMemoryOfOthers gives memory back of an order that stands still, that alone leaves, and
// that leaves with all others: these have all of it for saving themselves.
func TestMemoryOfOthers(t *testing.T) {
	full, give := pause.Pause{}, pause.Pause{Give: &pause.Give{Memory: 8 << 30}}
	all := pause.Pause{Give: &pause.Give{Memory: 16 << 30}}
	leaves, out := pause.Pause{Out: true, Attempt: "t"}, pause.Pause{Out: true}
	for _, c := range []struct {
		name string
		live []pause.Pause
		want string
	}{
		{"frozen", []pause.Pause{full, give}, "8589934592"},
		{"all of it", []pause.Pause{all}, "1"},
		{"leaves alone", []pause.Pause{give, leaves}, "8589934592"},
		{"leaves alone and is frozen", []pause.Pause{full, give, leaves}, "8589934592"},
		{"all leave", []pause.Pause{give, out}, "max"},
	} {
		k, writes := given(t, Limits{})
		k.out.states = []pause.State{{Live: c.live}}
		d := k.out.demand()
		writes(demand{memory: 1 << 30})
		if got := writes(d)["high"]; got != c.want {
			t.Errorf("%s: %q is written, want %q", c.name, got, c.want)
		}
		if got := writes(demand{})["high"]; got != "max" {
			t.Errorf("%s: afterwards %q is written", c.name, got)
		}
	}
}

// TestN60WhichLimit tells the limit of an order from the want of the machine, and
// both from another end.
func TestN60WhichLimit(t *testing.T) {
	one := 1
	o := &Order{Limits: Limits{Memory: 4 << 30, Pids: 7}}
	for _, c := range []struct {
		name   string
		events string
		pids   string
		st     Status
		want   Status // NoMemory, Had and Crowded of it
	}{
		{"its limit, between two looks", "oom 0\noom_kill 1\n", "", Status{Signal: 9, Memory: 5 << 30}, Status{NoMemory: true, Had: 4 << 30}},
		{"its limit", "oom 2\noom_kill 1\n", "max 0\n", Status{Signal: 9}, Status{NoMemory: true, Had: 4 << 30}},
		{"a part of it", "oom 2\noom_kill 1\n", "max 0\n", Status{Exit: &one}, Status{NoMemory: true, Had: 4 << 30}},
		{"the machine", "oom 0\noom_kill 1\n", "max 0\n", Status{Signal: 9}, Status{NoMemory: true}},
		{"a crash", "oom 0\noom_kill 0\n", "max 0\n", Status{Signal: 11}, Status{}},
		{"stopped", "oom 2\noom_kill 1\n", "max 0\n", Status{Signal: 9, Stopped: StoppedOrder}, Status{}},
		{"by the watch", "", "", Status{Signal: 9, Stopped: StoppedMemory}, Status{NoMemory: true, Had: 4 << 30}},
		{"processes", "oom 0\noom_kill 0\n", "max 12\n", Status{Exit: &one}, Status{Crowded: 7}},
		{"and did well", "oom 1\noom_kill 1\n", "max 12\n", Status{Exit: new(int)}, Status{}},
	} {
		g := standIn(t, map[string]string{"memory.events": c.events, "pids.events": c.pids})
		got := c.st
		got.judge(o, g, &watch{})
		if got.NoMemory != c.want.NoMemory || got.Had != c.want.Had || got.Crowded != c.want.Crowded {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestMeasure prefers what the kernel counted for all.
func TestMeasure(t *testing.T) {
	st := Status{User: time.Second, System: time.Second, Memory: 5, Written: 100}
	st.measure(&Order{}, nil, &watch{peak: 7})
	if st.Memory != 7 {
		t.Errorf("memory %d", st.Memory)
	}
	st.measure(&Order{}, standIn(t, map[string]string{"memory.peak": "3\n", "cpu.stat": "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\n",
		"io.stat": "8:0 rbytes=1 wbytes=4096\n"}), &watch{peak: 7})
	if st.Memory != 3 || st.Cache != 0 || st.User != 4*time.Second || st.System != time.Second || st.Written != 4096 {
		t.Errorf("%+v", st)
	}
	st.measure(&Order{}, standIn(t, map[string]string{"memory.peak": "9\n", "memory.stat": "anon 5\nfile 6\nshmem 2\ninactive_file 3\nactive_file 1\n"}), &watch{})
	if st.Memory != 9 || st.Cache != 4 {
		t.Errorf("%d bytes of which %d are of files", st.Memory, st.Cache)
	}
	st.measure(&Order{}, standIn(t, map[string]string{"cpu.stat": "user_usec 1\nsystem_usec 1\n"}), &watch{})
	if st.User != 4*time.Second {
		t.Errorf("%+v", st)
	}
}

// TestOwnCPUs is a program that counts the cpus, which finds those of its order.
func TestOwnCPUs(t *testing.T) {
	all := CPUs()
	if len(all) < 2 {
		suite.Missing(t, "one cpu")
	}
	groups(t, func(t *testing.T, cgroup string) {
		s := newSlot(t)
		for _, want := range [][]int{all[len(all)-1:], all[:1], all} {
			dir := newDir(t)
			o := order(dir, "nproc; grep Cpus_allowed_list /proc/self/status | cut -f 2")
			o.Cgroup, o.CPUs = cgroup, want
			if err := s.Run(o); err != nil {
				t.Fatal(err)
			}
			ended(t, s)
			if b, _ := os.ReadFile(o.Output); string(b) != fmt.Sprintf("%d\n%s\n", len(want), cpuList(want)) {
				t.Errorf("of %v it has found %q", want, b)
			}
		}
		// The supervisor has all that it had.
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(s.Pid(), &set); err != nil || set.Count() != len(all) {
			t.Errorf("the supervisor has %d: %v", set.Count(), err)
		}
	})
}

// TestN60KeptOnCPUs is a job that would like to have more cpus than its own.
func TestN60KeptOnCPUs(t *testing.T) {
	all := CPUs()
	if len(all) < 2 {
		suite.Missing(t, "one cpu")
	}
	groups(t, func(t *testing.T, cgroup string) {
		if cgroup == "" {
			return // nobody keeps it there
		}
		b, _ := os.ReadFile(filepath.Join(cgroup, "cgroup.subtree_control"))
		if !strings.Contains(string(b), "cpuset") {
			t.Skip("the kernel has no cpusets in groups of version 2 here; the machine with systemd has")
		}
		s, o := newSlot(t), order(newDir(t), "taskset -p -c "+cpuList(all)+" $$ >taskset; grep Cpus_allowed_list /proc/self/status | cut -f 2")
		o.Cgroup, o.CPUs = cgroup, all[:1]
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		ended(t, s)
		if b, _ := os.ReadFile(o.Output); string(b) != cpuList(o.CPUs)+"\n" {
			t.Errorf("it runs on %q", b)
		}
	})
}

// TestN60MemoryLimit is jobs whose processes have more together than they asked
// for, and one that has not.
func TestN60MemoryLimit(t *testing.T) {
	const hog = "{ head -c 60000000 /dev/zero; exec sleep 1000; } | tail"
	for _, c := range []struct {
		name, script string
		over         bool
	}{
		{"one", "{ head -c 200000000 /dev/zero; exec sleep 1000; } | tail", true},
		{"together", hog + " & " + hog + " & wait", true},
		{"less", "head -c 30000000 /dev/zero | tail | wc -c", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			groups(t, func(t *testing.T, cgroup string) {
				s, o := newSlot(t), order(newDir(t), c.script)
				o.Cgroup, o.Memory = cgroup, 100<<20
				if err := s.Run(o); err != nil {
					t.Fatal(err)
				}
				st := ended(t, s)
				if st.NoMemory != c.over || c.over && (st.Had != o.Memory || st.Memory < o.Memory/2) || !c.over && (st.Exit == nil || *st.Exit != 0) {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// TestTimeLimit is a job that ends when it is asked to, and one that does not.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		exit, signal int
	}{
		{"heeds", "trap 'exit 0' TERM; : > ready; while :; do sleep 0.01; done", 0, 0},
		{"ignores", "trap '' TERM; : > ready; while :; do sleep 1000; done", -1, 9},
	} {
		groups(t, func(t *testing.T, cgroup string) {
			s := newSlot(t)
			var o *Order
			var st *Status
			for limit := 100 * time.Millisecond; ; limit *= 2 {
				o = order(newDir(t), c.script)
				if o.Cgroup, o.Time = cgroup, limit; c.exit == 0 {
					o.Grace = time.Minute
				}
				if err := s.Run(o); err != nil {
					t.Fatal(err)
				}
				st = ended(t, s)
				if _, err := os.Stat(filepath.Join(o.Dir, "ready")); err == nil || limit > time.Minute {
					break // else it was stopped before it could set its trap
				}
			}
			if st.Stopped != StoppedTime || st.Signal != c.signal || c.exit == 0 && (st.Exit == nil || *st.Exit != 0) || st.Wall < o.Time {
				t.Errorf("%s: status %+v", c.name, st)
			}
			// The supervisor does not stop the next one for it.
			o = order(newDir(t), fmt.Sprint("sleep ", 2*o.Time.Seconds()))
			o.Cgroup = cgroup
			if err := s.Run(o); err != nil {
				t.Fatal(err)
			}
			if st := ended(t, s); st.Stopped != "" || st.Exit == nil || *st.Exit != 0 {
				t.Errorf("the next one: %+v", st)
			}
		})
	}
}

// TestN56CPUTime counts what processes used for which nobody waited.
func TestN56CPUTime(t *testing.T) {
	const burn = `i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done`
	groups(t, func(t *testing.T, cgroup string) {
		if cgroup == "" {
			return // nobody counts it there
		}
		s, o := newSlot(t), order(newDir(t), `trap "" CHLD; sh -c '`+burn+`; echo over > said' & read x < said`)
		said := filepath.Join(o.Dir, "said")
		if err := unix.Mkfifo(said, 0o600); err != nil {
			t.Fatal(err)
		}
		o.Cgroup = cgroup
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); st.User+st.System < 20*time.Millisecond {
			t.Errorf("%v of CPU time", st.User+st.System)
		}
	})
}

// TestN60Pids is a fork bomb that the kernel holds to its limit.
func TestN60Pids(t *testing.T) {
	parent, err := CgroupParent(fmt.Sprintf("test-pids-%d", os.Getpid()), "/")
	if err != nil {
		suite.Missing(t, "no cgroup: "+err.Error())
	}
	t.Cleanup(func() { removeGroup(parent) })
	Bound(parent, 10000, 1<<40)
	if b, _ := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control")); !strings.Contains(string(b), "pids") {
		t.Skip("the kernel does not count processes in groups of version 2 here; that of the machine with systemd does")
	}
	s, o := newSlot(t), order(newDir(t), "bomb() { bomb & bomb & wait; }; bomb; exit 3")
	o.Cgroup, o.Pids, o.Time = parent, 50, 2*time.Second
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	if st := ended(t, s); st.Crowded != 50 {
		t.Errorf("status %+v", st)
	}
}
