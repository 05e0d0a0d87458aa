//go:build !race

// One goroutine does all of this, and takes ten times as long under the race
// detector, which has nothing to find in it.

package sched

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/suite"
)

// Here the machine itself is searched, as model_test.go searches the protocol:
// one job, two nodes, every order of a bounded number of things that happen,
// the head crashing after each record it writes.

// A choice is one thing that may happen; it says false when it cannot.
type choice struct {
	name  string
	fault bool
	do    func(s *sim) bool
}

func small(t testing.TB) *sim {
	s := &sim{rig: newRig(t, Config{}), runs: map[job.Token]int{}, good: map[job.Token]string{}, steps: map[job.Token]int{}, kept: map[Ref]int{}}
	s.nodes = []*fakeNode{{name: "ws1", cpus: 1}, {name: "ws2", cpus: 1}}
	s.batches = 1
	s.give(Loaded{})
	s.give(AddBatch{Batch: 1, Jobs: 1})
	return s
}

var one = Ref{1, 0}

func choices() []choice {
	all := []choice{
		{"transfer", false, func(s *sim) bool {
			if len(s.moving) == 0 {
				return false
			}
			g := s.moving[0]
			s.moving = s.moving[1:]
			s.give(Staged{Attempt: g.Attempt, Manifest: g.Manifest})
			return true
		}},
		{"lease", true, func(s *sim) bool {
			s.now += 20 * time.Minute
			for _, n := range s.nodes {
				s.give(Heard{n.session})
			}
			s.give(Tick{})
			return true
		}},
		{"cancel", true, func(s *sim) bool { s.give(Cancel{Ref: one, Request: "c"}); return true }},
		{"retry", true, func(s *sim) bool { s.give(Retry{Ref: one, Request: "r"}); return true }},
		crashing("tick", func(*sim) (Event, bool) { return Tick{}, true }, 0),
		crashing("cancel", func(*sim) (Event, bool) { return Cancel{Ref: one, Request: "c"}, true }, 1),
	}
	for i := range 2 {
		all = append(all, onNode(i)...)
	}
	for keep := 1; keep <= 2; keep++ {
		all = append(all, crashing("staged", func(s *sim) (Event, bool) {
			if len(s.moving) == 0 {
				return nil, false
			}
			return Staged{Attempt: s.moving[0].Attempt, Manifest: s.moving[0].Manifest}, true
		}, keep))
	}
	return all
}

// crashing is a head that crashes when it has written some records of what an
// event decided.
func crashing(name string, ev func(*sim) (Event, bool), keep int) choice {
	return choice{fmt.Sprintf("crash in %s after %d", name, keep), true, func(s *sim) bool {
		e, ok := ev(s)
		if ok {
			s.crash(e, func(n int) int { return min(n, keep) })
		}
		return ok
	}}
}

func onNode(i int) []choice {
	first := func(s *sim, phase string) *fakeAttempt {
		for _, a := range s.nodes[i].has {
			if a.phase == phase {
				return a
			}
		}
		return nil
	}
	name := fmt.Sprintf("node %d ", i)
	all := []choice{
		{name + "connects", false, func(s *sim) bool {
			if s.nodes[i].session != 0 {
				return false
			}
			s.connect(s.nodes[i])
			return true
		}},
		{name + "disconnects", true, func(s *sim) bool {
			if s.nodes[i].session == 0 {
				return false
			}
			s.disconnect(s.nodes[i], true)
			return true
		}},
		{name + "restarts", true, func(s *sim) bool {
			n := s.nodes[i]
			s.disconnect(n, true)
			n.boot++
			for _, a := range n.has {
				if a.phase == Running {
					n.end(a, Result{Lost: true})
				}
			}
			return true
		}},
		{name + "hears", false, func(s *sim) bool {
			ok := len(s.nodes[i].in) > 0
			s.deliver(s.nodes[i])
			return ok
		}},
		{name + "is heard", false, func(s *sim) bool {
			ok := len(s.nodes[i].out) > 0
			s.hear(s.nodes[i])
			return ok
		}},
		{name + "runs", false, func(s *sim) bool {
			a := first(s, Waiting)
			if a == nil || first(s, Running) != nil {
				return false
			}
			s.run(s.nodes[i], a)
			return true
		}},
	}
	for status := range 2 {
		all = append(all, choice{fmt.Sprint(name, "exits ", status), status > 0, func(s *sim) bool {
			a := first(s, Running)
			if a == nil {
				return false
			}
			s.nodes[i].end(a, exited(status, s.manifest(a)))
			return true
		}})
	}
	for keep := 1; keep <= 2; keep++ {
		all = append(all, crashing(name+"is heard", func(s *sim) (Event, bool) {
			if len(s.nodes[i].out) == 0 {
				return nil, false
			}
			return s.nodes[i].out[0], true
		}, keep))
	}
	return all
}

// fingerprint is all that decides what can happen next.
func (s *sim) fingerprint() string {
	var b strings.Builder
	b.WriteString(s.m.Snapshot())
	for _, p := range s.m.peers {
		fmt.Fprint(&b, p.name, p.session != 0, p.listed, p.used, p.active, p.waiting, p.rest != 0, p.boot, len(p.gone))
		for a := p.first; a != nil; a = a.after {
			fmt.Fprint(&b, " ", a.token, a.phase, a.worked, a.boot, a.result != nil, a.moving, a.stopped, a.recalled)
		}
	}
	for _, n := range s.nodes {
		fmt.Fprint(&b, "\n", n.name, n.boot, n.session != 0)
		for _, a := range n.has {
			fmt.Fprint(&b, " ", a.token, a.phase)
			if a.result != nil {
				fmt.Fprint(&b, a.result.OK(), a.result.Lost, a.result.Unstarted)
			}
		}
		for _, a := range n.in {
			fmt.Fprintf(&b, " %T", a)
		}
		for _, e := range n.out {
			fmt.Fprintf(&b, " %T", e)
		}
	}
	for _, g := range s.moving {
		fmt.Fprint(&b, " ", g.Attempt)
	}
	return b.String()
}

// TestExplore tries every order of a few steps with at most two faults. Each
// state is made by going its way again; all invariants are checked after each
// event, and that the log replays to the same.
func TestExplore(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // memory is there, time is not
	steps, faults := suite.Size(9, 16), 2
	type path struct {
		way    []int
		faults int
	}
	all := choices()
	seen := map[string]int{}
	frontier := []path{{}}
	ends, tried := 0, 0
	for range steps {
		var next []path
		for _, p := range frontier {
			for c := range all {
				f := p.faults
				if all[c].fault {
					f++
				}
				if f > faults {
					continue
				}
				s := walk(t, all, p.way)
				tried++
				if !all[c].do(s) || s.drawn > 3 {
					continue
				}
				mark := s.fingerprint()
				if least, ok := seen[mark]; ok && least <= f {
					continue
				}
				seen[mark] = f
				next = append(next, path{append(p.way[:len(p.way):len(p.way)], c), f})
				if s.m.State(one).Over() {
					ends++
				}
			}
		}
		frontier = next
	}
	t.Logf("%d states, %d of them with the job over, %d tries", len(seen), ends, tried)
	if ends == 0 {
		t.Error("the job never ends")
	}
}

func walk(t *testing.T, all []choice, way []int) *sim {
	s := small(t)
	s.again = true
	for _, c := range way {
		all[c].do(s)
	}
	s.again = false
	return s
}
