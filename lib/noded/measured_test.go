package noded

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

const gib = 1 << 30

// A meterRig is a daemon of 8 GiB that admits by what is measured, whose attempts
// only use memory. It is called by no goroutine but the test's.
type meterRig struct {
	*daemon
	t     *testing.T
	use   proc.MemoryUse
	ended map[string]error
}

func newMeterRig(t *testing.T) *meterRig {
	n := &daemon{Settings: &Settings{Offer: node.Offer{CPUs: 8, Memory: 8 * gib}, Measured: true, Log: strictLog(slog.DiscardHandler)},
		attempts: map[job.Token]*attempt{}, held: map[*share]bool{}}
	r := &meterRig{n, t, proc.MemoryUse{Of: map[int]int64{}, Free: 100 * gib}, map[string]error{}}
	r.look()
	return r
}

// begin begins an attempt, as batch/number, if it is admitted; why says why not.
func (r *meterRig) begin(name string, change func(*share)) (why string) {
	r.t.Helper()
	batch, _, _ := strings.Cut(name, "/")
	s := &share{cpus: 1, batch: job.BatchID("lab/" + batch)}
	if change != nil {
		change(s)
	}
	if err := r.admits(s); err != nil {
		return err.Error()
	}
	r.meter.begun++
	s.pid, s.begun = 100+r.meter.begun, r.meter.begun
	a := &attempt{Attempt: &desk.Attempt{Note: desk.Note{Token: job.Token(name)}}, has: s, stage: stageRunning, keeping: true}
	a.cancel = func(err error) { r.ended[name] = err }
	r.attempts[a.Token], r.held[s] = a, true
	return ""
}

// uses says how much an attempt uses from now on, in GiB.
func (r *meterRig) uses(name string, n float64) {
	r.use.Of[r.attempts[job.Token(name)].has.pid] = int64(n * gib)
}

// look measures, and returns who was ended by it, and why.
func (r *meterRig) look() string {
	clear(r.ended)
	all := ""
	if a, why := r.measured(&r.use, r.meter.begun); a != nil {
		if r.askToSave(a, why, r.left(&r.use)) {
			all = string(a.Token) + " is asked: "
		} else {
			r.endAttempt(a, endingFor(why), why, errKilled)
		}
	}
	for name, err := range r.ended {
		a := r.attempts[job.Token(name)]
		all += fmt.Sprintf("%s (back %v, at once %v): %s", name, a.end == endMemory, err == errKilled, a.why)
	}
	return all
}

// over ends an attempt.
func (r *meterRig) over(name string) {
	a := r.attempts[job.Token(name)]
	delete(r.use.Of, a.has.pid)
	r.giveUp(a, a.has)
	delete(r.attempts, a.Token)
	a.stage = stageExited
}

func (r *meterRig) expect(got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Jobs are begun until memory runs low. Then the one that began last goes back, one
// at a time, and others of its batch are begun when there is as much as it used.
func TestMeasured(t *testing.T) {
	r := newMeterRig(t)
	for i := range 4 {
		r.expect(r.begin(fmt.Sprint("a/", i), nil), "")
		r.uses(fmt.Sprint("a/", i), 1.25)
	}
	r.expect(r.look(), "")
	r.expect(r.begin("a/4", nil), "") // 5 GiB are used, and 3 are free
	r.expect(r.begin("a/5", nil), "no room: 1.8G of memory are free, others of its batch used 1.3G, and 1G are to stay free")
	for i := range 5 {
		r.uses(fmt.Sprint("a/", i), 1.5)
	}
	r.expect(r.look(), "a/4 (back true, at once true): the node had only 512M of memory left, and it began last")
	r.expect(r.look(), "") // it is going
	r.expect(r.begin("b/0", nil), "no room: 512M of memory are free")
	r.over("a/4")
	r.expect(r.look(), "")
	r.expect(r.begin("a/4", nil), "no room: 2G of memory are free, others of its batch used 1.5G, and 1G are to stay free")
	r.expect(r.begin("b/0", nil), "")
	r.uses("b/0", 0.2)
	r.expect(r.look(), "")
	r.over("a/0")
	r.expect(r.look(), "")
	r.expect(r.begin("a/4", nil), "") // 3.3 GiB are free
	r.uses("a/4", 1.5)
	r.expect(r.look(), "")
}

// A job that asks for a least is begun where so much is free, may use more, and goes back as one
// that asks for nothing.
func TestMeasuredLeast(t *testing.T) {
	least := func(s *share) { s.memory, s.grows = 3*gib, true }
	r := newMeterRig(t)
	r.expect(r.begin("a/0", least), "")
	r.uses("a/0", 3.5)
	r.expect(r.look(), "")
	r.expect(r.begin("a/1", least), "")
	r.uses("a/1", 4)
	r.expect(r.begin("b/0", least), "no room: 1G of memory are free, it asks for 3G or more, and 1G are to stay free")
	r.expect(r.look(), "a/1 (back true, at once true): the node had only 512M of memory left, and it began last")
	r.over("a/1")
	r.uses("a/0", 8.1)
	r.expect(r.look(), "a/0 (back false, at once true): out of memory: its node had no more")
	if l := (&daemon{}).limits(&share{memory: gib, grows: true}, job.Resources{CPUs: 1, Memory: gib, Grows: true}); l.Memory != 0 {
		t.Errorf("its limit is %d bytes", l.Memory)
	}
}

// One of several nodes of a machine that the kernel does not bound has no more than its
// part; what others leave of the machine is nothing to it.
func TestPartIsBounded(t *testing.T) {
	r := newMeterRig(t)
	if r.Measured, r.Nodes = false, 2; !r.looks() {
		t.Error("nobody looks")
	}
	r.use.Free = 0
	for name, gibs := range map[string]float64{"a/0": 5, "a/1": 3} {
		r.expect(r.begin(name, nil), "")
		r.uses(name, gibs)
	}
	r.expect(r.look(), "")
	r.begin("b/0", nil)
	r.uses("b/0", 0.5)
	r.expect(r.look(), "b/0 (back true, at once true): the node had no memory left, and it began last")
	for _, name := range []string{"a/1", "b/0"} {
		r.over(name)
	}
	r.uses("a/0", 8.5)
	r.expect(r.look(), "a/0 (back false, at once true): "+job.ReasonNodeMemory)
	if r.bounds = true; r.looks() {
		t.Error("it is looked where the kernel bounds")
	}
	if r.bounds, r.Nodes = false, 1; r.looks() {
		t.Error("it is looked at the only node of a machine")
	}
}

// Where jobs are not measured none is ended for memory that a person takes back: only the
// kernel could take it from them. It is not given to others either.
func TestReturnedMemoryEndsNoJob(t *testing.T) {
	r := newMeterRig(t)
	r.Measured, r.Nodes = false, 2
	for i, gibs := range []float64{5, 2} {
		name := fmt.Sprint("a/", i)
		r.expect(r.begin(name, nil), "")
		r.uses(name, gibs)
	}
	r.pause.give.Memory = 4 * gib
	r.expect(r.look(), "")
	r.stock.sized = true
	if err := r.never(&want{share: share{memory: 5 * gib}}); !errors.Is(err, errPaused) {
		t.Errorf("one that needs more than is left: %v", err)
	}
	r.uses("a/1", 3.5)
	r.expect(r.look(), "a/1 (back true, at once true): the node had no memory left, and it began last")
}

// Who is begun and uses what others of its batch did is not ended for it.
func TestMeasuredIsNoLoop(t *testing.T) {
	for eighths := range 64 {
		r, uses := newMeterRig(t), float64(eighths)/8
		for i := range 16 {
			name := fmt.Sprint("a/", i)
			if r.begin(name, nil) != "" {
				break
			}
			r.uses(name, uses)
			if got := r.look(); got != "" {
				t.Fatalf("with %g GiB each: %s", uses, got)
			}
		}
	}
}

// What is not the jobs' counts, too: what the machine has free, and what its user
// takes back. Where they have not as much as is missing none goes.
func TestMeasuredMachine(t *testing.T) {
	r := newMeterRig(t)
	r.begin("a/0", nil)
	r.begin("a/1", nil)
	r.use.Free = gib / 2
	r.expect(r.look(), "")
	r.uses("a/0", 0.25)
	r.uses("a/1", 0.2)
	r.expect(r.look(), "")
	r.uses("a/1", 0.25)
	r.expect(r.look(), "a/1 (back true, at once true): the node had only 512M of memory left, and it began last")
	r.over("a/1")
	r.expect(r.look(), "") // the last one stays
	r.expect(r.begin("b/0", nil), "no room: 512M of memory are free")
	r.use.Free = 100 * gib
	r.expect(r.look(), "")
	r.expect(r.begin("b/0", nil), "")
	r.pause.give.Memory = 8 * gib
	r.expect(r.look(), "") // nothing is left that could run low
}

// Who has said how much he needs, or must not be started twice, stays, and the next
// one goes.
func TestMeasuredStays(t *testing.T) {
	r := newMeterRig(t)
	r.begin("a/0", nil)
	r.begin("a/1", nil)
	r.begin("n/0", func(s *share) { s.never = true })
	r.expect(r.begin("d/0", func(s *share) { s.memory = 15 * gib / 2 }), "")
	r.expect(r.begin("a/2", nil), "no room: 512M of memory are free")
	r.uses("d/0", 7.5)
	if got := r.look(); !strings.HasPrefix(got, "a/1 (back true") {
		t.Errorf("got %s", got)
	}
	r.over("a/1")
	if got := r.look(); !strings.HasPrefix(got, "a/0 (back true") {
		t.Errorf("then %s", got)
	}
	r.over("a/0")
	r.expect(r.look(), "")
}

// What a supervisor had for the attempt before is not what the next one uses.
func TestMeasuredBefore(t *testing.T) {
	r := newMeterRig(t)
	r.begin("a/0", nil)
	r.uses("a/0", 3)
	seen, begun := proc.MemoryUse{Of: maps.Clone(r.use.Of), Free: r.use.Free}, r.meter.begun
	pid := r.attempts["a/0"].has.pid
	r.over("a/0")
	r.begin("b/0", nil)
	r.attempts["b/0"].has.pid = pid
	r.measured(&seen, begun)
	if known := r.meter.known["lab/b"]; known != 0 {
		t.Errorf("a job of the next batch is taken to use %d bytes", known)
	}
}

// An adoptedMachine is one on which a supervisor of an earlier daemon has 2 GiB.
type adoptedMachine struct{ bareMachine }

func (adoptedMachine) Holder(string) (int, error) { return 42, nil }
func (adoptedMachine) Memory([]int, int64) (*proc.MemoryUse, error) {
	return &proc.MemoryUse{Of: map[int]int64{42: 2 * gib}, Free: 6 * gib}, nil
}

// beside calls do, on such a machine, from another goroutine than the state's.
func (r *meterRig) beside(m Machine, do func()) {
	r.Machine, r.acts, r.daemon.over = m, make(chan func()), make(chan struct{})
	go func() {
		defer close(r.daemon.over)
		do()
	}()
	for {
		select {
		case act := <-r.acts:
			act()
			continue
		case <-r.daemon.over:
		}
		break
	}
}

// While nobody looks, as beside a build when no job has run since, what was free when somebody
// looked last does not count: it is looked before a job is admitted.
func TestMeasuredAnew(t *testing.T) {
	r := newMeterRig(t)
	r.use.Free = 512 << 20
	r.look()
	r.held[&share{cpus: 1}] = true // of a build
	r.expect(r.begin("a/0", nil), "no room: 512M of memory are free")
	r.beside(adoptedMachine{}, r.measureFirst)
	r.expect(r.begin("a/0", nil), "")
}

// What an earlier daemon began is measured, too, and counts once.
func TestMeasuredAdopted(t *testing.T) {
	r := newMeterRig(t)
	r.begin("a/0", nil)
	a := r.attempts["a/0"]
	a.has.pid, a.has.begun, a.has.batch, a.stage = 0, 0, "lab/a", stageAdopted
	r.beside(adoptedMachine{}, r.measure)
	if a.has.uses != 2*gib || r.meter.other != 0 || r.unused() != 6*gib {
		t.Errorf("it uses %d bytes, others %d, and %d are free", a.has.uses, r.meter.other, r.unused())
	}
}

// The last one goes only if there is not enough for it alone, and has failed.
func TestMeasuredAlone(t *testing.T) {
	r := newMeterRig(t)
	r.begin("a/0", nil)
	r.uses("a/0", 7.9)
	r.expect(r.look(), "")
	r.uses("a/0", 8.1)
	r.expect(r.look(), "a/0 (back false, at once true): out of memory: its node had no more")
}

// It stays when that is what a build beside it uses, or what a person has taken back,
// when it has a limit of its own, and when somebody has stopped it already.
func TestMeasuredAloneStays(t *testing.T) {
	for what, change := range map[string]func(r *meterRig, a *attempt){
		"a build":            func(r *meterRig, a *attempt) { r.use.Of[a.has.pid], r.use.Of[1] = 5*gib, 5*gib },
		"a person":           func(r *meterRig, a *attempt) { r.pause.give.Memory, r.use.Of[a.has.pid] = 4*gib, 5*gib },
		"a limit of its own": func(_ *meterRig, a *attempt) { a.has.memory = gib },
		"a stop":             func(_ *meterRig, a *attempt) { a.end = endStopped },
	} {
		r := newMeterRig(t)
		r.begin("a/0", nil)
		r.uses("a/0", 9)
		change(r, r.attempts["a/0"])
		if got := r.look(); got != "" {
			t.Errorf("with %s: %s", what, got)
		}
	}
}

// One that can save itself is asked to, as long as there is time; then it is ended. One
// that stands still, or on a node that does, has no time.
func TestMeasuredAsks(t *testing.T) {
	for _, c := range []struct {
		what   string
		free   float64 // GiB
		change func(r *meterRig, a *attempt)
		first  string
	}{
		{"memory is low", 0.9, nil, "a/1 is asked: "},
		{"memory is gone", 0.4, nil, "a/1 (back true, at once true): the node had only 410M of memory left, and it began last"},
		{"it cannot", 0.9, func(_ *meterRig, a *attempt) { a.has.saves = false }, "a/1 (back true, at once true): the node had only 922M of memory left, and it began last"},
		{"it stands still", 0.9, func(_ *meterRig, a *attempt) { a.own = ownFrozen }, "a/1 (back true, at once true): the node had only 922M of memory left, and it began last"},
		{"the node does", 0.9, func(r *meterRig, _ *attempt) { r.pause.frozen = true }, "a/1 (back true, at once true): the node had only 922M of memory left, and it began last"},
	} {
		r := newMeterRig(t)
		r.pausing = &pausing{}
		for i := range 2 {
			name := fmt.Sprint("a/", i)
			r.begin(name, func(s *share) { s.saves = true })
			r.uses(name, 2)
		}
		a := r.attempts["a/1"]
		if c.change != nil {
			c.change(r, a)
		}
		r.use.Free = int64(c.free * gib)
		if got := r.look(); got != c.first {
			t.Errorf("%s: got %q, want %q", c.what, got, c.first)
		}
		if got := r.look(); got != "" {
			t.Errorf("%s: at the next look %q", c.what, got)
		}
		r.use.Free = gib / 4
		if got := r.look(); (a.own == ownLeave) != strings.HasPrefix(got, "a/1 (back true, at once true)") {
			t.Errorf("%s: asked: %v, and when it is gone %q", c.what, a.own == ownLeave, got)
		}
	}
}

// What is known of how one ended says whether it goes back: it was ended for that, or
// the kernel was quicker, while others ran or it stood still; alone, or with a limit of its own, or never
// to be started twice, it has failed.
func TestMeasuredResult(t *testing.T) {
	ended := proc.Status{Stopped: proc.StoppedOrder}
	killed := proc.Status{NoMemory: true}
	still := proc.Status{Frozen: true, Signal: 9}
	declared := func(r *meterRig, a *attempt) { r.Measured, a.has.memory = false, gib }
	for _, c := range []struct {
		what   string
		st     proc.Status
		change func(r *meterRig, a *attempt)
		back   bool
		reason string
	}{
		{"ended", ended, func(_ *meterRig, a *attempt) { a.end, a.why = endMemory, "low" }, true, "low"},
		{"ended for something else", ended, nil, false, "stopped"},
		{"over by itself before that", proc.Status{}, func(_ *meterRig, a *attempt) { a.end, a.why = endMemory, "low" }, false, "stopped"},
		{"asked", proc.Status{Evicted: true}, func(_ *meterRig, a *attempt) { a.end, a.why = endAsked, "low" }, true, "low"},
		{"killed", killed, nil, true, "the memory of its node was used up, by it and others"},
		{"killed by its own limit", proc.Status{NoMemory: true, Had: gib}, nil, false, "stopped"},
		{"killed, never to be started twice", killed, func(_ *meterRig, a *attempt) { a.has.never = true }, false, "stopped"},
		{"killed, and the other ended while it was looked at", killed, func(r *meterRig, a *attempt) { r.over("a/1"); r.over("a/0") }, true, "the memory of its node was used up, by it and others"},
		{"killed alone", killed, func(r *meterRig, a *attempt) { r.over("a/0"); r.over("a/1") }, false, "stopped"},
		{"killed alone, and another has begun", killed, func(r *meterRig, a *attempt) { r.over("a/0"); r.over("a/1"); r.begin("a/2", nil) }, false, "stopped"},
		{"killed where nothing is measured", killed, func(r *meterRig, _ *attempt) { r.Measured = false }, false, "stopped"},
		{"killed while it stood still", still, declared, true, "killed while it stood still"},
		{"killed for want of memory while it stood still", proc.Status{Frozen: true, Signal: 9, NoMemory: true}, declared, true, "killed while it stood still"},
		{"killed while it stood still, never to be started twice", still, func(_ *meterRig, a *attempt) { a.has.never = true }, false, "stopped"},
		{"killed by its own limit, and stood still", proc.Status{Frozen: true, Signal: 9, NoMemory: true, Had: gib}, declared, false, "stopped"},
		{"stopped while it stood still", proc.Status{Frozen: true, Signal: 9, Stopped: proc.StoppedOrder}, declared, false, "stopped"},
		{"exited as it was to stand still", proc.Status{Frozen: true}, declared, false, "stopped"},
		{"too big alone", ended, func(_ *meterRig, a *attempt) { a.end, a.why = endStopped, job.ReasonNodeMemory }, false, job.ReasonNodeMemory},
	} {
		r := newMeterRig(t)
		r.begin("a/0", nil)
		r.begin("a/1", nil)
		a := r.attempts["a/1"]
		if c.change != nil {
			c.change(r, a)
		}
		got := job.Result{Outcome: job.Outcome{Reason: "stopped"}}
		if c.st.Evicted {
			got.Fate = job.FateEvicted
		}
		if r.ranOut(a, &c.st, &got); (got.Fate == job.FateNoMemory) != c.back || got.Reason != c.reason {
			t.Errorf("%s: %+v", c.what, got)
		}
		zero := 0
		got = job.Result{Outcome: job.Outcome{Exit: &zero}}
		if r.ranOut(a, &c.st, &got); !got.OK() || got.Fate.Evicted() {
			t.Errorf("%s, but it ended well: %+v", c.what, got)
		}
	}
}

// Where nothing is measured anybody is begun, and nobody ended.
func TestMeasuredNot(t *testing.T) {
	r := newMeterRig(t)
	r.Measured = false
	for i := range 8 {
		r.expect(r.begin(fmt.Sprint("a/", i), nil), "")
		r.uses(fmt.Sprint("a/", i), 3)
	}
}

// One job that uses more than the others of its batch keeps these waiting for a while
// only.
func TestMeasuredForgets(t *testing.T) {
	r := newMeterRig(t)
	r.begin("a/0", nil)
	r.uses("a/0", 6)
	r.look()
	r.expect(r.begin("a/1", nil), "no room: 2G of memory are free, others of its batch used 6G, and 1G are to stay free")
	r.over("a/0")
	for n, running := range []int{1, 1, 1, 2} {
		names := []string{}
		for i := range 2 {
			if name := fmt.Sprintf("a/%d.%d", n, i); r.begin(name, nil) == "" {
				r.uses(name, 1)
				names = append(names, name)
			}
			r.look()
		}
		if len(names) != running {
			t.Errorf("after %d rounds %d run at once, want %d", n, len(names), running)
		}
		for _, name := range names {
			r.over(name)
		}
	}
}

// What is known of batches is bounded.
func TestMeasuredBounded(t *testing.T) {
	var m meter
	for i := range 3 * maxKnown {
		m.learn(job.BatchID(fmt.Sprint("lab/", i)), 1)
	}
	if len(m.known) != maxKnown || len(m.order) != maxKnown || m.known[job.BatchID(fmt.Sprint("lab/", 3*maxKnown-1))] != 1 {
		t.Errorf("%d batches are known", len(m.known))
	}
}

// What was ended for want of memory goes back also if the daemon that has ended it, or was
// about to, does not live to see it.
func TestMeasuredIsEndedByTheNext(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	dir := filepath.Join(top, "node")
	stop := h.live(dir, nil)
	s, _ := h.session()
	runs := h.begun(s, filepath.Join(top, "gate"))
	var items []*wire.Item
	for _, kept := range []string{`{"ending":"l`, "\n" + `{"ending":"low"}` + "\n"} {
		stop()
		f, err := os.OpenFile(filepath.Join(dir, "attempts", string(runs.Attempt), proc.RecordFile), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(kept); errors.Join(err, f.Close()) != nil {
			t.Fatal(err)
		}
		stop = h.live(dir, nil)
		if s, items = h.session(); len(items) != 1 || !strings.Contains(kept, "low") && items[0].Phase != job.PhaseRunning {
			t.Fatalf("with %q it lists %+v", kept, items)
		}
	}
	got := items[0].Result
	if got == nil {
		s.say(&wire.Keep{Attempt: runs.Attempt})
		got = &awaited[*wire.Ended](s).Result
	}
	if got.Fate != job.FateNoMemory || got.Reason != "low" {
		t.Errorf("it says %+v", got)
	}
}
