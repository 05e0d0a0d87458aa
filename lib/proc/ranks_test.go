package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/pause"
	"distribute/lib/suite"
)

// inRanks makes an order one of so many ranks.
func inRanks(n int) func(*Order) {
	return func(o *Order) {
		for k := range n {
			o.Ranks = append(o.Ranks, Rank{Env: append(o.Env[:len(o.Env):len(o.Env)], fmt.Sprint("RANK=", k)), Output: filepath.Join(o.Dir, fmt.Sprint("output.", k))})
		}
	}
}

// start gives a supervisor an order that need not say that it is up.
func start(t *testing.T, s *Slot, cgroup, script string, also func(*Order)) *Order {
	t.Helper()
	o := order(newDir(t), script)
	o.Cgroup = cgroup
	also(o)
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Several first processes are one order: it ends when all of them have, with the first
// failure if there is one, which ends the others.
func TestRanks(t *testing.T) {
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		for script, want := range map[string]struct {
			exit, signal, rank int // rank -1: none
			said               string
		}{
			"echo $RANK; sleep 0.$RANK":                                {0, 0, -1, "0\n1\n2\n"},
			"test $RANK != 1 || exit 3; exec sleep 1000":               {3, 0, 1, ""},
			"test $RANK != 2 || kill -KILL $$; exec sleep 1000":        {-1, 9, 2, ""},
			"test $RANK != 0 || exit 85; exec sleep 1000":              {85, 0, 0, ""},
			"trap '' TERM; test $RANK != 2 || exit 4; exec sleep 1000": {4, 0, 2, ""},
		} {
			t.Run(script, func(t *testing.T) {
				s := newSlot(t)
				o := start(t, s, cgroup, script, inRanks(3))
				st := ended(t, s)
				rank := -1
				if st.Rank != nil {
					rank = *st.Rank
				}
				exit := -1
				if st.Exit != nil {
					exit = *st.Exit
				}
				if exit != want.exit || st.Signal != want.signal || rank != want.rank || st.Stopped != "" || st.Error != "" {
					t.Errorf("status %+v of rank %d", st, rank)
				}
				var said strings.Builder
				for _, r := range o.Ranks {
					b, err := os.ReadFile(r.Output)
					if err != nil {
						t.Error(err)
					}
					said.Write(b)
				}
				if said.String() != want.said {
					t.Errorf("they said %q", said.String())
				}
				if st.OfRank <= 0 || st.OfRank > st.Memory {
					t.Errorf("all had %d bytes, and the one with most %d", st.Memory, st.OfRank)
				}
			})
		}
	})
}

// A stop ends all ranks, a pause holds all, and one that has to go has saved itself if all
// its ranks have, or were done.
func TestRanksTogether(t *testing.T) {
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		t.Run("stopped", func(t *testing.T) {
			s := newSlot(t)
			o := start(t, s, cgroup, "exec sleep 1000", inRanks(2))
			started(t, s)
			s.Stop(o.Token)
			if st := ended(t, s); st.Stopped != StoppedOrder {
				t.Errorf("status %+v", st)
			}
		})
		t.Run("paused", func(t *testing.T) {
			d := newDesk(t, cgroup, "echo >said; while :; do :; done", inRanks(2))
			p := d.put(pause.Pause{})
			d.frozen()
			before := d.still()
			if len(before) < 2 {
				t.Errorf("%d processes", len(before))
			}
			d.remove(p)
			d.goesOn(before)
			d.slot.Stop(d.order.Token)
			ended(t, d.slot)
		})
		for what, script := range map[string]string{
			"saved":     `trap 'exit 85' USR1; echo up >>up; echo >said; while :; do sleep 0.02; done`,
			"done":      `test $RANK = 0 && exit 0; trap 'exit 85' USR1; echo up >>up; echo >said; while :; do sleep 0.02; done`,
			"not saved": `trap 'test $RANK = 0 && exit 85; exit 1' USR1; echo up >>up; echo >said; while :; do sleep 0.02; done`,
		} {
			t.Run(what, func(t *testing.T) {
				d := newDesk(t, cgroup, script, func(o *Order) {
					inRanks(2)(o)
					o.Checkpoint = &Checkpoint{Signal: int(unix.SIGUSR1), Grace: time.Hour}
				})
				up := map[bool]int{true: 3, false: 6}[what == "done"]
				for b := []byte(nil); len(b) < up; time.Sleep(time.Millisecond) {
					b, _ = os.ReadFile(filepath.Join(d.order.Dir, "up"))
				}
				d.put(pause.Pause{Out: true})
				st := ended(t, d.slot)
				want := Checkpointed
				if what == "not saved" {
					want = 1
				}
				if st.Exit == nil || *st.Exit != want || !st.Evicted {
					t.Errorf("status %+v", st)
				}
			})
		}
	})
}

// A rank that has more memory than it may is named, whatever the others leave.
func TestRankMemory(t *testing.T) {
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		s := newSlot(t)
		start(t, s, cgroup, "test $RANK = 0 && exec sleep 1000; head -c 100000000 /dev/zero | tail -n 1", func(o *Order) {
			inRanks(2)(o)
			o.Memory = 128 << 20
			for k := range o.Ranks {
				o.Ranks[k].Memory = 64 << 20
			}
		})
		if st := ended(t, s); !st.NoMemory || st.Had != 64<<20 || st.Rank == nil || *st.Rank != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

// Each rank begins on its own cpus.
func TestRankCPUs(t *testing.T) {
	t.Parallel()
	cpus := CPUs()
	if len(cpus) < 2 {
		t.Skip("there is one cpu, and two are needed")
	}
	groups(t, func(t *testing.T, cgroup string) {
		s := newSlot(t)
		o := start(t, s, cgroup, "grep Cpus_allowed_list: /proc/self/status", func(o *Order) {
			inRanks(2)(o)
			o.CPUs = cpus[:2]
			for k := range o.Ranks {
				o.Ranks[k].CPUs = cpus[k : k+1]
			}
		})
		ended(t, s)
		for k, r := range o.Ranks {
			if b, err := os.ReadFile(r.Output); err != nil || strings.TrimSpace(strings.TrimPrefix(string(b), "Cpus_allowed_list:")) != fmt.Sprint(cpus[k]) {
				t.Errorf("rank %d: %q, %v", k, b, err)
			}
		}
	})
}

// A stop that comes while ranks are being started leaves some that never were, which nobody
// looks for.
func TestRanksStoppedEarly(t *testing.T) {
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		s := newSlot(t)
		o := start(t, s, cgroup, `trap "" TERM; : >"up.$RANK"; while :; do sleep 1; done`, func(o *Order) {
			inRanks(600)(o)
			o.Grace = time.Second
			o.Memory = 1 << 50
		})
		for up := []string(nil); len(up) == 0; time.Sleep(time.Millisecond) {
			up, _ = filepath.Glob(filepath.Join(o.Dir, "up.*"))
		}
		s.Stop(o.Token)
		if st := ended(t, s); st.Stopped != StoppedOrder {
			t.Errorf("status %+v", st)
		}
	})
}

// When a rank has been waited for, another process may have its number: that has nothing of
// the memory of the order.
func TestRankOver(t *testing.T) {
	w := &watch{s: &supervisor{}, o: &Order{Ranks: []Rank{{Memory: 1}}}, pids: []int{os.Getpid()}, bound: true}
	if w.lookAtRank(0) || w.most != 0 {
		t.Errorf("a process of somebody else is taken for a rank that had %d bytes", w.most)
	}
	if w.s.firsts = w.pids; !w.lookAtRank(0) {
		t.Error("a rank with more than it may is none")
	}
}

// Who fails first tells how the order ended, whatever limit the others come up against while
// they are asked to end.
func TestRankFailedBeforeLimit(t *testing.T) {
	suite.Long(t, "") // it waits for the limit
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		s := newSlot(t)
		start(t, s, cgroup, `test $RANK = 1 && exit 3; trap "" TERM; while :; do sleep 0.05; done`, func(o *Order) {
			inRanks(2)(o)
			o.Time, o.Grace = 4*time.Second, 6*time.Second
		})
		if st := ended(t, s); st.Stopped != "" || st.Rank == nil || *st.Rank != 1 || st.Exit == nil || *st.Exit != 3 {
			t.Errorf("status %+v", st)
		}
	})
}

// When all together have more than they may, no rank is to blame.
func TestRanksMemoryTogether(t *testing.T) {
	t.Parallel()
	s := newSlot(t)
	start(t, s, "", `test $RANK = 0 && exec sleep 1000; (setsid sh -c "head -c 100000000 /dev/zero | tail -n 1" &); exec sleep 1000`, func(o *Order) {
		inRanks(2)(o)
		o.Memory = 64 << 20
		for k := range o.Ranks {
			o.Ranks[k].Memory = 32 << 20
		}
	})
	if st := ended(t, s); !st.NoMemory || st.Had != 64<<20 || st.Rank != nil {
		t.Errorf("status %+v", st)
	}
}

// What a shell is to do is the same, for all ranks.
func TestRanksShell(t *testing.T) {
	o := order(t.TempDir(), "echo $RANK >by.$RANK; while ! test -e by.0 -a -e by.1 -a -e by.2; do sleep 0.01; done")
	inRanks(3)(o)
	if out, err := exec.Command("sh", "-c", o.Shell()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if met, _ := filepath.Glob(filepath.Join(o.Cwd, "by.?")); len(met) != 3 {
		t.Errorf("there were %q", met)
	}
}

// When one cannot be started those before it are killed, and that is all that is said.
func TestRankNotStarted(t *testing.T) {
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		s := newSlot(t)
		start(t, s, cgroup, "exec sleep 1000", func(o *Order) {
			inRanks(3)(o)
			o.Ranks[1].Env = []string{"a\x00b"}
		})
		if st := ended(t, s); !strings.HasPrefix(st.Error, `cannot start "sh": `) || st.Exit != nil || st.Signal != 0 || st.Rank != nil {
			t.Errorf("status %+v", st)
		}
	})
}

// Who gives cpus back for a while has its own again, and not those of other ranks.
func TestRankCPUsBack(t *testing.T) {
	t.Parallel()
	cpus := CPUs()
	if len(cpus) < 2 {
		t.Skip("there is one cpu, and two are needed")
	}
	groups(t, func(t *testing.T, cgroup string) {
		d := newDesk(t, cgroup, "echo >said; while :; do sleep 0.05; done", func(o *Order) {
			inRanks(2)(o)
			o.Pause.CPUs, o.CPUs = cpus[:2], cpus[:2]
			for k := range o.Ranks {
				o.Ranks[k].CPUs = cpus[k : k+1]
			}
		})
		p := d.put(pause.Pause{Give: &pause.Give{CPUs: 1}})
		d.holds("lent", func(h *Hold) bool { return slices.Equal(h.CPUs, cpus[:1]) })
		d.remove(p)
		d.holds("had back", func(h *Hold) bool { return h.CPUs == nil })
		own := map[int]int{}
		for _, p := range descendants(d.slot.Pid()) {
			var set unix.CPUSet
			if p.parent != d.slot.Pid() || unix.SchedGetaffinity(p.pid, &set) != nil {
				continue
			}
			for _, c := range cpus[:2] {
				if set.IsSet(c) {
					own[c]++
				}
			}
		}
		if own[cpus[0]] != 1 || own[cpus[1]] != 1 {
			t.Errorf("so many ranks run on each: %v", own)
		}
		d.slot.Stop(d.order.Token)
		ended(t, d.slot)
	})
}
