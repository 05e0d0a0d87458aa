package sched

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
)

// Jobs end by what the tables say: "0 ok", "0 bad", "0 cancel", "0 retry" of job 0,
// "crash" of the head. What is logged then is in the next column, without the
// starts of attempts that nothing waited for.
func TestGates(t *testing.T) {
	for _, c := range []struct {
		name  string
		needs [][]string
		spec  job.Spec
		steps [][2]string
	}{
		{"a need", [][]string{nil, {"j0"}, {"j1"}}, job.Spec{}, [][2]string{
			{"", "start 1/0"},
			{"0 ok", "done 1/0, start 1/1"},
			{"crash", ""},
			{"1 ok", "done 1/1, start 1/2"},
		}},
		{"a need that fails fails all down the chain", [][]string{nil, {"j0"}, {"j1"}, nil}, job.Spec{}, [][2]string{
			{"", "start 1/0, start 1/3"},
			{"0 bad", "failed 1/0, failed 1/1 (needs j0, which failed), failed 1/2 (needs j1, which failed)"},
			{"1 retry", ""}, // in vain
			{"0 retry", "retry 1/0, start 1/0"},
			{"2 retry", ""},
			{"1 retry", "retry 1/1"},
			{"crash", ""},
			{"2 retry", "retry 1/2"},
			{"0 ok", "done 1/0, start 1/1"},
		}},
		{"a need that is cancelled", [][]string{nil, {"j0"}, {"j1"}}, job.Spec{}, [][2]string{
			{"", "start 1/0"},
			{"0 cancel", "cancelled 1/0, cancelled 1/1 (needs j0, which was cancelled), cancelled 1/2 (needs j1, which was cancelled)"},
		}},
		{"a need of held jobs that is cancelled", [][]string{nil, nil, {"j[01]"}, {"j2"}}, job.Spec{}, [][2]string{
			{"", "start 1/0, start 1/1"},
			{"2 hold", "hold 1/2"},
			{"3 hold", "hold 1/3"},
			{"0 bad", "failed 1/0"}, // it may be tried again
			{"crash", ""},
			{"1 cancel", "cancelled 1/1, cancelled 1/2 (needs j1, which was cancelled), cancelled 1/3 (needs j2, which was cancelled)"},
			{"crash", ""},
		}},
		{"a canary of held jobs that fails", make([][]string, 2), job.Spec{Canary: 1}, [][2]string{
			{"", "start 1/0"},
			{"1 hold", "hold 1/1"},
			{"0 bad", "failed 1/0, cancelled 1/1 (canary j0 failed)"},
		}},
		{"all of a list", [][]string{{"j[12]"}, nil, nil}, job.Spec{}, [][2]string{
			{"", "start 1/1, start 1/2"},
			{"2 ok", "done 1/2"},
			{"crash", ""},
			{"1 ok", "done 1/1, start 1/0"},
		}},
		{"one that is cancelled is not failed besides", [][]string{nil, {"j0"}}, job.Spec{}, [][2]string{
			{"", "start 1/0"},
			{"1 cancel", "cancelled 1/1"},
			{"0 bad", "failed 1/0"},
		}},
		{"canaries", make([][]string, 4), job.Spec{Canary: 2}, [][2]string{
			{"", "start 1/0, start 1/1"},
			{"1 ok", "done 1/1"},
			{"crash", ""},
			{"0 ok", "done 1/0, start 1/2, start 1/3"},
			{"2 bad", "failed 1/2"},
		}},
		{"a canary that fails", make([][]string, 4), job.Spec{Canary: 2}, [][2]string{
			{"", "start 1/0, start 1/1"},
			{"1 bad", "failed 1/1, cancelled 1/2 (canary j1 failed), cancelled 1/3 (canary j1 failed)"},
			{"crash", ""},
			{"0 ok", "done 1/0"},
			{"3 retry", ""},
			{"1 retry", "retry 1/1, start 1/1"},
			{"3 retry", "retry 1/3"},
			{"1 ok", "done 1/1, start 1/3"},
		}},
		{"a canary that is cancelled", make([][]string, 3), job.Spec{Canary: 1}, [][2]string{
			{"", "start 1/0"},
			{"0 cancel", "cancelled 1/0, cancelled 1/1 (canary j0 was cancelled), cancelled 1/2 (canary j0 was cancelled)"},
		}},
		{"a need that is tried again", [][]string{nil, {"j0"}}, job.Spec{Retries: 1}, [][2]string{
			{"", "start 1/0"},
			{"0 bad", "back 1/0, start 1/0"},
			{"0 bad", "failed 1/0 (failed 2 times, on ws1, the last time: exit 1), failed 1/1 (needs j0, which failed)"},
		}},
		{"a canary that is tried again", make([][]string, 2), job.Spec{Canary: 1, Retries: 1}, [][2]string{
			{"", "start 1/0"},
			{"0 bad", "back 1/0, start 1/0"},
			{"0 ok", "done 1/0, start 1/1"},
		}},
		{"the last failure counts, and then nothing is tried again", make([][]string, 2), job.Spec{StopAfter: 1, Retries: 1}, [][2]string{
			{"", "start 1/0, start 1/1"},
			{"0 bad", "back 1/0, start 1/0"},
			{"0 bad", "failed 1/0 (failed 2 times, on ws1, the last time: exit 1)"},
			{"1 bad", "failed 1/1"},
		}},
		{"what a canary needs goes with it", [][]string{{"j3"}, nil, {"j3"}, nil}, job.Spec{Canary: 1}, [][2]string{
			{"", "start 1/3"},
			{"3 ok", "done 1/3, start 1/0"},
			{"0 ok", "done 1/0, start 1/1, start 1/2"},
		}},
		{"more canaries than jobs", make([][]string, 2), job.Spec{Canary: 5}, [][2]string{
			{"", "start 1/0, start 1/1"},
			{"1 bad", "failed 1/1"},
		}},
		{"after so many failed the rest is cancelled", [][]string{nil, nil, {"j0"}, nil, nil, nil, nil, nil}, job.Spec{StopAfter: 2}, [][2]string{
			{"", "start 1/0, start 1/1, start 1/3, start 1/4"},
			{"0 bad", "start 1/5, failed 1/0, failed 1/2 (needs j0, which failed)"},
			{"crash", ""},
			{"1 bad", "start 1/6, failed 1/1, cancelled 1/7 (2 jobs failed (stop_after))"},
			{"3 bad", "failed 1/3"},
			{"4 ok", "done 1/4"},
			{"crash", ""},
			{"7 retry", "retry 1/7, start 1/7"}, // which counts anew
			{"7 bad", "failed 1/7"},
			{"7 retry", "retry 1/7, start 1/7"},
		}},
		{"a share of all, with those that are added", make([][]string, 6), job.Spec{StopShare: 16}, [][2]string{
			{"", "start 1/0, start 1/1, start 1/2, start 1/3"},
			{"0 bad", "start 1/4, failed 1/0, cancelled 1/5 (1 job failed (stop_after))"},
			{"crash", ""},
			{"2 ok", "done 1/2"},
			{"6 add", "start 1/6"},
			{"crash", ""},
			{"1 bad", "failed 1/1"},
			{"7 add", "cancelled 1/7 (2 jobs failed (stop_after))"},
			{"crash", ""},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSteps(t, AddBatch{Batch: 1, Jobs: len(c.needs), Needs: needing(t, c.needs), Spec: &c.spec,
				Name: func(i int) string { return fmt.Sprint("j", i) }})
			for _, step := range c.steps {
				if got := s.step(step[0]); got != step[1] {
					t.Fatalf("after %q: %s\nwant %s", step[0], got, step[1])
				}
			}
		})
	}
}

// Steps is a machine with a node of four cpus that runs what it is told to.
type steps struct {
	*rig
	session uint64
	add     AddBatch
}

func newSteps(t *testing.T, add AddBatch) *steps {
	add.Spec.Kind, add.Spec.Resources = job.Command, job.Resources{CPUs: 1}
	s := &steps{rig: newRig(t, Config{}), add: add}
	s.rig.apply(Loaded{})
	return s
}

// step does what a line of the table says, and returns what was logged.
func (s *steps) step(what string) string {
	var got []Action
	give := func(ev Event) { got = append(got, s.rig.apply(ev)...) }
	var i uint32
	verb, _ := "", 0
	fmt.Sscan(what, &i, &verb)
	ref := Ref{1, i}
	switch {
	case what == "":
		give(s.add)
		s.connect(give)
	case what == "crash":
		fresh, err := s.replayed()
		if err != nil {
			s.t.Fatal(err)
		}
		s.m = fresh
		give(Loaded{})
		s.connect(give)
	case verb == "cancel":
		give(Cancel{Ref: ref})
	case verb == "retry":
		give(Retry{Ref: ref})
	case verb == "hold":
		give(hold(1, i))
	case verb == "add":
		ended := s.m.EndsAdded(1, 1)
		give(AddJobs{Batch: 1, Spec: s.add.Spec, Jobs: 1})
		if text := logged(got); strings.Contains(text, "cancelled") != (ended != "") || !strings.Contains(text, ended) {
			s.t.Errorf("EndsAdded says %q, and then: %s", ended, text)
		}
	default:
		a := s.m.batches[1].of[i]
		r := exited(map[string]int{"ok": 0, "bad": 1}[verb], "m")
		give(Ended{s.session, a.Token, r})
		give(Staged{Attempt: a.Token, Manifest: "m"})
		give(Gone{s.session, a.Token})
	}
	return logged(got)
}

// connect has the node come with what it runs.
func (s *steps) connect(give func(Event)) {
	s.session++
	var has []job.Token
	s.m.Live(func(a Attempt) { has = append(has, a.Token) })
	give(up(s.session, "ws1", 4))
	for _, token := range has {
		give(Item{Session: s.session, Attempt: token, Phase: job.PhaseRunning})
	}
	give(ListEnd{s.session})
}

// logged is the records among actions, without tokens and results.
func logged(actions []Action) string {
	var all []string
	for _, a := range actions {
		if l, ok := a.(Log); ok {
			text := fmt.Sprintf("%s %s", l.Rec.Kind, jobName(l.Ref))
			if l.Rec.Reason != "" {
				text += " (" + l.Rec.Reason + ")"
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

// A head that crashed in the middle of ending jobs ends the others when it is back.
func TestEndsGoOn(t *testing.T) {
	add := AddBatch{Batch: 1, Jobs: 4, Needs: needing(t, [][]string{nil, {"j0"}, {"j1"}, {"j1"}}), Spec: &job.Spec{StopAfter: 1}}
	s := newSteps(t, add)
	s.step("")
	s.step("0 bad")
	for keep := range s.logs[1] {
		if keep == 0 {
			continue
		}
		again := &steps{rig: newRig(t, Config{}), session: 1}
		again.drawn, again.adds, again.logs[1] = s.drawn, s.adds, slices.Clone(s.logs[1][:keep])
		again.step("crash")
		for i := range 4 {
			if got := again.m.State(Ref{1, uint32(i)}); keep > 1 && !got.Over() {
				t.Errorf("with %d records job %d is %s", keep, i, got)
			}
		}
	}
}

// What waits says for what, and a class of jobs that no node can run says that.
func TestGateReasons(t *testing.T) {
	s := newSteps(t, AddBatch{Batch: 1, Jobs: 6, Needs: needing(t, [][]string{nil, nil, nil, {"j0"}, {"j[012]"}, nil}), Spec: &job.Spec{},
		Name: func(i int) string { return fmt.Sprint("j", i) }})
	tell := func() (all []string) {
		stuck := s.m.Stuck(1)
		for i := range 6 {
			why := s.m.Why(Ref{1, uint32(i)})
			if stuck != nil && stuck(i) != "" && stuck(i) != why {
				t.Errorf("job %d: %q, and %q among all", i, why, stuck(i))
			}
			all = append(all, why)
		}
		return all
	}
	s.rig.apply(s.add)
	want := []string{"no node is connected", "no node is connected", "no node is connected", "waits for j0", "waits for j0, and 2 more", "no node is connected"}
	if got := tell(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	s.connect(func(ev Event) { s.rig.apply(ev) })
	s.step("0 ok")
	s.step("1 ok")
	want = []string{"", "", "", "", "waits for j2", ""}
	if got := tell(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	late := s.m.Stuck(1)
	s.step("2 ok")
	if got := late(4); got != "waits for j2" {
		t.Errorf("what was asked before says %q", got)
	}

	s = newSteps(t, AddBatch{Batch: 1, Jobs: 4, Spec: &job.Spec{Canary: 3}, Name: func(i int) string { return fmt.Sprint("j", i) }})
	s.step("")
	s.step("1 ok")
	s.why(Ref{1, 3}, "waits for canary j0, and 1 more")
}

// Who retries jobs retries what they need, too, first.
func TestWithNeeds(t *testing.T) {
	needs := [][]string{{"j1", "j2"}, {"j2"}, nil, {"j4"}, nil, {"j0"}, {"j1", "j2"}}
	for _, c := range []struct {
		canary int
		over   string // of which jobs, with how they ended
		of     []uint32
		want   []uint32
	}{
		{0, "2 bad", []uint32{0}, []uint32{2, 1, 0}},
		{0, "2 bad", []uint32{5, 2, 0}, []uint32{2, 1, 0, 5}},
		{0, "2 bad", []uint32{2}, []uint32{2}},
		{0, "4 cancel", []uint32{3}, []uint32{4, 3}},
		{0, "2 bad", []uint32{3, 2}, []uint32{3, 2}},
		{1, "2 bad", []uint32{4}, []uint32{2, 1, 0, 4}},
		{1, "2 bad", []uint32{3}, []uint32{2, 1, 0, 4, 3}}, // j4 waits for the canary, too
		{1, "2 bad", []uint32{6}, []uint32{2, 1, 0, 6}},    // the canary needs the same
	} {
		s := newSteps(t, AddBatch{Batch: 1, Jobs: len(needs), Needs: needing(t, needs), Spec: &job.Spec{Canary: c.canary}})
		s.step("")
		s.step(c.over)
		var of []Ref
		for _, i := range c.of {
			of = append(of, Ref{1, i})
		}
		all, gated := s.m.WithNeeds(of)
		var got []uint32
		for _, ref := range all {
			got = append(got, ref.Job)
		}
		if !gated || !slices.Equal(got, c.want) {
			t.Errorf("after %s, %v with what they need is %v, want %v", c.over, c.of, got, c.want)
		}
		for _, ref := range all {
			was := s.m.State(ref)
			if s.rig.apply(Retry{Ref: ref}); spoils(was) && spoils(s.m.State(ref)) {
				t.Errorf("after %s, job %d is not retried in the order %v", c.over, ref.Job, got)
			}
		}
	}
	m := New(Config{})
	m.step(AddBatch{Batch: 1, Jobs: 2}, 0)
	if all, gated := m.WithNeeds([]Ref{{1, 1}, {1, 0}, {7, 0}}); gated || len(all) != 3 {
		t.Errorf("a batch without gates: %v, %v", all, gated)
	}
}

// More jobs than are ended at one event are ended at several.
func TestEndsMany(t *testing.T) {
	const jobs = 2*failAtOnce + 5
	for _, spec := range []job.Spec{{Canary: 1}, {StopAfter: 1}} {
		m := New(Config{})
		m.step(Loaded{}, 0)
		spec.Kind, spec.Resources = job.Command, job.Resources{CPUs: 1}
		m.step(AddBatch{Batch: 1, Jobs: jobs, Spec: &spec}, 0)
		m.step(up(1, "ws1", 1), 0)
		m.step(ListEnd{1}, 0)
		a := m.batches[1].of[0]
		m.step(Ended{1, a.Token, exited(1, "")}, 0)
		for n, left := range []int{failAtOnce + 4, 4, 0} {
			if got := m.Counts(1)[job.Queued]; got != left {
				t.Errorf("%+v: %d jobs wait after event %d, want %d", spec, got, n, left)
			}
			m.step(Tick{}, 0)
		}
		if got := m.Counts(1); got[job.Failed] != 1 || got[job.Cancelled] != jobs-1 {
			t.Errorf("%+v: %v", spec, got)
		}
	}
}
