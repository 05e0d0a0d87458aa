package noded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pause"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// twoNodes is a machine that is two of four cpus each.
func twoNodes(t *testing.T) (one, two *daemon) {
	both := NewBeside([]node.Name{"one", "two"}, t.TempDir())
	var all []*daemon
	for i, name := range both.names {
		n := liveDaemonOn(t, nil, both)
		n.Name, n.Machine, n.spread = name, idleMachine{}, "/cg/nodes"
		n.Part = &pause.Part{Of: []pause.Give{{CPUs: 4}, {CPUs: 4}}, Index: i}
		n.pausing = newPausing(n)
		all = append(all, n)
	}
	return all[0], all[1]
}

// An idleMachine has supervisors that do nothing.
type idleMachine struct{ Machine }

func (idleMachine) NewSlot() (Slot, error)       { return idleSlot{}, nil }
func (idleMachine) Holder(d string) (int, error) { return 100 + len(d), nil }

type idleSlot struct{ Slot }

func (idleSlot) Close() error                { return nil }
func (idleSlot) Reports() <-chan proc.Report { return nil }

// visiting is an attempt that was given to a node, with so many ranks on another.
func visiting(token string, on string, ranks int) *attempt {
	return &attempt{Attempt: &desk.Attempt{Note: desk.Note{Token: job.Token(token), Job: "lab/ring/a", User: "ana", CPUs: 2,
		Also: []job.Visit{{Portion: job.Portion{Node: on, Ranks: ranks}, GPUs: nil}}}, Dir: token}, cpus: 2}
}

// acquired is what an attempt of ranks of one cpu gets.
func acquired(ctx context.Context, n *daemon, a *attempt, ranks int) (*share, Slot, error) {
	asked := job.Resources{Ranks: ranks, CPUs: 1}
	want, err := n.wantOf(ctx, a, asked)
	if err != nil {
		return nil, nil, err
	}
	return n.acquireAll(ctx, a, want)
}

func free(n *daemon) (cpus int) {
	n.do(func() { cpus = n.free })
	return cpus
}

// What an attempt has of another node of its machine is not that one's to give, until the
// attempt is over; and what can't be had of all is had of none.
func TestAcquireBeside(t *testing.T) {
	one, two := twoNodes(t)
	a := visiting("a", "two", 3)
	got, slot, err := acquired(t.Context(), one, a, 5)
	if err != nil || got.allRanks() != 5 || free(one) != 2 || free(two) != 1 {
		t.Fatalf("%v; %d and %d cpus are left", err, free(one), free(two))
	}
	ctx, stop := context.WithCancel(t.Context())
	b, ended := visiting("b", "one", 2), make(chan error)
	go func() {
		_, _, err := acquired(ctx, two, b, 4) // it has its part of the first, and waits for that of its own
		ended <- err
	}()
	for free(one) != 0 {
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) || free(one) != 2 || free(two) != 1 {
		t.Errorf("%v; %d and %d cpus are left", err, free(one), free(two))
	}
	one.release(nil, got, slot)
	if free(one) != 4 || free(two) != 4 {
		t.Errorf("after all %d and %d cpus are left", free(one), free(two))
	}
	for want, a := range map[string]*attempt{
		`has ranks on "three", which is no other node of this machine`: visiting("c", "three", 1),
		`has ranks on "one", which is no other node of this machine`:   visiting("d", "one", 1),
		"needs 5 cpus, and two has 4":                                  visiting("e", "two", 5),
		"has all of its ranks on other nodes of this machine":          visiting("f", "two", 3),
	} {
		ranks := 7
		if a.Token == "f" {
			ranks = 3
		}
		if _, _, err := acquired(t.Context(), one, a, ranks); err == nil || err.Error() != want || free(one) != 4 {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := (&daemon{Settings: &Settings{Beside: &Beside{}}}).wantOf(t.Context(), a, job.Resources{Ranks: 5}); err == nil {
		t.Error("a node that is the only one has others beside it")
	}
}

// Who waits for a node beside his own goes back when that is paused, and whose ranks run
// there is told to be paused.
func TestPausedBeside(t *testing.T) {
	one, two := twoNodes(t)
	paused := standing{live: []string{"x"}, frozen: true, until: -1, leave: -1}
	two.do(func() { two.free = 0 })
	ended := make(chan error)
	go func() {
		_, _, err := acquired(t.Context(), one, visiting("a", "two", 1), 3)
		ended <- err
	}()
	for waits := false; !waits; {
		two.do(func() { waits = len(two.queue) > 0 })
	}
	two.do(func() { two.setPause(paused) })
	if err := <-ended; !errors.Is(err, errPaused) || err.Error() != "two is paused" || free(one) != 4 {
		t.Errorf("%v; %d cpus are left", err, free(one))
	}
	if _, _, err := acquired(t.Context(), one, visiting("b", "two", 1), 3); !errors.Is(err, errPaused) {
		t.Errorf("while it is paused: %v", err)
	}
	two.do(func() { two.setPause(standing{until: -1, leave: -1}); two.free = 4 })

	a := visiting("c", "two", 1)
	got, slot, err := acquired(t.Context(), one, a, 3)
	if err != nil {
		t.Fatal(err)
	}
	one.do(func() { a.has, a.stage, one.attempts["c"] = got, stageRunning, a })
	phase := func(want job.Phase) {
		t.Helper()
		for is := job.Phase(""); is != want; {
			one.do(func() { is = a.phase })
		}
	}
	two.do(func() { two.setPause(paused) })
	phase(job.PhasePaused)
	two.do(func() { two.setPause(standing{until: -1, leave: -1}) })
	phase(job.PhaseRunning)

	o := one.pausing.ask("c", got.beside...)
	if own := pause.OwnPlace(two.desk.Dir()); len(o.Beside) != 1 || !slices.Contains(o.Beside[0].Places, own) || o.Beside[0].Part.Own != own || o.Beside[0].Part.Index != 1 {
		t.Errorf("it goes by %+v", o)
	}
	now, _ := two.nowHere()
	pids, here := two.supervisors()
	if len(pids) != 1 || here[pids[0]] != 1.0/3 || now.Node != "two" {
		t.Errorf("of %v it has %v", pids, here)
	}
	one.do(func() { a.has.pid = 7 })
	if pids, here := one.supervisors(); len(pids) != 1 || here[7] != 2.0/3 {
		t.Errorf("of %v the own node has %v", pids, here)
	}
	var s desk.Started
	got.note(&s)
	if want := "[{{two 1} 1 [] [] 0}]"; fmt.Sprint(s.Also) != want || s.Cgroup != "/cg/nodes" || one.groupOf(a) != "/cg/nodes/c" {
		t.Errorf("it notes %v below %s, want %s", s.Also, s.Cgroup, want)
	}
	one.release(nil, got, slot)
}

// A daemon that comes later takes the same again, of all nodes, also of a job whose ranks mpirun
// starts.
func TestReturnBeside(t *testing.T) {
	for _, s := range []*desk.Started{{Ranks: 6}, {MPI: 6}} {
		testReturnBeside(t, s)
	}
}

func testReturnBeside(t *testing.T, s *desk.Started) {
	one, two := twoNodes(t)
	s.Grows, s.Cgroup = true, "/cg/nodes"
	s.Also = []desk.Portion{{Portion: job.Portion{Node: "two", Ranks: 3}, CPUs: 3}, {Portion: job.Portion{Node: "gone", Ranks: 1}, CPUs: 1}}
	d := one.desk
	as, errs := d.Begin([]desk.Note{{Order: 1, Token: "00112233445566778899aabbccddeeff", Job: "lab/ring/a", Try: 1, CPUs: 2,
		Spec: "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865", Also: []job.Visit{{Portion: job.Portion{Node: "two", Ranks: 3}}}}})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	if err := as[0].SetStarted(s); err != nil {
		t.Fatal(err)
	}
	a := &attempt{Attempt: as[0], cpus: 2, stage: stageAdopted}
	a.has = a.shareIn(as[0].Started())
	one.do(func() { one.retake(a.has); one.attempts[a.Token] = a })
	var both sync.WaitGroup
	for _, n := range []*daemon{one, two} {
		both.Go(func() { n.returnBeside(t.Context()) })
	}
	both.Wait()
	if free(one) != 2 || free(two) != 1 || a.has.ranks != 2 || one.groupOf(a) != "/cg/nodes/00112233445566778899aabbccddeeff" {
		t.Errorf("%d and %d cpus are left, %d ranks are here, below %s", free(one), free(two), a.has.ranks, one.groupOf(a))
	}
	if g := a.has.beside[0].share.guest; g.ranks != 6 {
		t.Errorf("the other node knows of %d ranks", g.ranks)
	}
	if !a.has.beside[0].share.grows {
		t.Error("it may not have more memory on the other node than it asked for")
	}
	a.has.leaveBeside()
	if free(two) != 4 {
		t.Errorf("after it %d cpus are left", free(two))
	}
}

// Who came first goes first, and it is told for dpause who is here.
func TestGuestsInOrder(t *testing.T) {
	one, two := twoNodes(t)
	two.do(func() { two.free = 0 })
	one.do(func() { one.free = 10 })
	came := make(chan string)
	for i, name := range []string{"first", "second", "third"} {
		go func() {
			if _, _, err := acquired(t.Context(), one, visiting(name, "two", 1), 3); err != nil {
				t.Error(err)
			}
			came <- name
		}()
		for n := 0; n != i+1; {
			two.do(func() { n = len(two.queue) })
		}
	}
	for _, want := range []string{"first", "second", "third"} {
		two.do(func() { two.free++; two.pump() })
		if got := <-came; got != want {
			t.Errorf("%s goes, where it is the turn of the %s", got, want)
		}
		select {
		case <-two.nowNews:
		default:
			t.Error("nobody is told")
		}
	}
}

// A head that does not know visits is sent none: it would log each of them as an error.
func TestVisitsAreAskedFor(t *testing.T) {
	for _, known := range []bool{true, false} {
		one, two := twoNodes(t)
		visits := func(s *session) (n int) {
			for _, m := range s.out.take() {
				switch m.(type) {
				case *wire.Visit:
					n++
				case *wire.ListEnd:
					if known && n == 0 {
						t.Error("the list ends before the visit: the head may start jobs in its place")
					}
				}
			}
			return n
		}
		has, slot, err := acquired(t.Context(), one, visiting("first", "two", 1), 3)
		if err != nil {
			t.Fatal(err)
		}
		s := &session{out: newOutbox()}
		if err := two.link.attach(t.Context(), s, &wire.Hello{Visits: known}); err != nil {
			t.Fatal(err)
		}
		came := visits(s)
		one.release(nil, has, slot)
		two.do(func() {})
		if left := visits(s); came != left || came == 1 != known {
			t.Errorf("with a head that knows them %t: %d and %d are sent", known, came, left)
		}
	}
}

// Of two attempts that were given to one node and need the same of another, that one begins
// which has it: it does not wait for the one that was given first, and waits for what it has.
func TestNeitherWaitsForTheOther(t *testing.T) {
	one, two := twoNodes(t)
	one.do(func() { one.free = 2 })
	begun := make(chan *share)
	early, late := visiting("early", "one", 2), visiting("late", "one", 2)
	for i, a := range []*attempt{early, late} {
		a.Order, a.stage = i+1, stageReady
		two.do(func() { two.attempts[a.Token] = a })
	}
	begin := func(a *attempt) {
		got, _, err := acquired(t.Context(), two, a, 4)
		if err != nil {
			t.Error(err)
		}
		begun <- got
	}
	go begin(late)
	for free(one) != 0 {
	}
	go begin(early)
	got := <-begun
	if free(two) != 2 {
		t.Errorf("%d cpus are left", free(two))
	}
	two.do(func() { late.stage = stageRunning })
	two.release(nil, got, nil)
	<-begun
}
