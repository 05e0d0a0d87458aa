package noded

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/pause"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// stills says that so many attempts of a node have a pause of their own.
func stills(t *testing.T, dir string, n int) func() bool {
	return func() bool {
		t.Helper()
		s, err := (&pause.Reader{Places: []string{pause.OwnPlace(dir)}}).Read()
		return err == nil && len(s.Of) == n && len(s.Live) == 0
	}
}

// An attempt stands still when the head says so, also under a daemon that was started
// anew, until the head says otherwise to whichever lives then.
func TestStandsStill(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	dir, gate := filepath.Join(top, "node"), filepath.Join(top, "gate")
	stop := h.live(dir, nil)
	s, _ := h.session()
	runs := h.begun(s, gate)
	var clock proc.Clock // of its supervisor
	noted := func(still bool) {
		t.Helper()
		eventually(t, "its supervisor has noted whether it stands still", func() bool {
			boot, _ := proc.Boot()
			holder, ok := proc.HolderOf(filepath.Join(dir, "attempts", string(runs.Attempt)), boot)
			if ok {
				clock = holder.Clock
			}
			return ok && still == (clock.Since != 0)
		})
	}
	for range 2 { // said twice, it is so once
		s.say(&wire.Keep{Attempt: runs.Attempt, Still: true})
	}
	s.phase(job.PhasePaused)
	eventually(t, "its pause is kept", stills(t, dir, 1))
	noted(true)
	s.say(&wire.Keep{Attempt: runs.Attempt})
	s.phase(job.PhaseRunning)
	eventually(t, "its pause is gone", stills(t, dir, 0))
	noted(false)
	s.say(&wire.Keep{Attempt: runs.Attempt, Still: true})
	s.phase(job.PhasePaused)
	eventually(t, "its pause is kept", stills(t, dir, 1))
	noted(true)
	stop()
	anew := proc.Uptime()
	stop = h.live(dir, nil)
	s, items := h.session()
	if len(items) != 1 || items[0].Phase != job.PhasePaused {
		t.Errorf("a daemon that is started anew lists %+v", items)
	}
	ran, least := items[0].Ran, (clock.Since - clock.Began).Seconds()
	if ran < least-0.001 || ran > least+(proc.Uptime()-anew).Seconds()+0.001 {
		t.Errorf("a daemon that is started anew says that it has run for %g seconds, and its supervisor %g", ran, least)
	}
	s.say(&wire.Keep{Attempt: runs.Attempt, Still: true})
	stop()
	if !stills(t, dir, 1)() {
		t.Error("a daemon that ends lets it go on")
	}
	h.live(dir, nil)
	s, items = h.session()
	s.say(&wire.Keep{Attempt: runs.Attempt}) // released while nobody was here
	if p := awaited[*wire.Phase](s); p.Phase != job.PhaseRunning || p.Ran < least-0.001 || p.Ran != items[0].Ran {
		t.Errorf("it has run for %g seconds, and in phase %s for %g", items[0].Ran, p.Phase, p.Ran)
	}
	eventually(t, "its pause is gone", stills(t, dir, 0))
	create(t, gate)
	if e := awaited[*wire.Ended](s); e.Attempt != runs.Attempt || !e.OK() {
		t.Errorf("it says %+v", e)
	}
}

// An attempt that stands still goes on when the head does not know it any more.
func TestStillAndUnknown(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	dir := filepath.Join(top, "node")
	stop := h.live(dir, nil)
	s, _ := h.session()
	gate := filepath.Join(top, "gate")
	runs := h.begun(s, gate)
	s.say(&wire.Keep{Attempt: runs.Attempt, Still: true})
	eventually(t, "its pause is kept", stills(t, dir, 1))
	stop()
	h.live(dir, nil)
	s, _ = h.session() // of a head whose logs were rolled back
	s.say(&wire.Hold{Attempt: runs.Attempt})
	s.phase(job.PhaseRunning)
	eventually(t, "its pause is gone", stills(t, dir, 0))
	create(t, gate)
	if e := awaited[*wire.Ended](s); e.Attempt != runs.Attempt || !e.OK() {
		t.Errorf("it says %+v", e)
	}
}

// What is to stand still and has not begun is given back, which is held against
// nobody; one that is stopped leaves no pause.
func TestStillBeforeItBegins(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	dir := filepath.Join(top, "node")
	h.live(dir, nil)
	s, _ := h.session()
	runs := h.begun(s, filepath.Join(top, "gate"))
	waits := h.start("true") // the node has one cpu
	s.say(waits, &wire.Keep{Attempt: waits.Attempt, Still: true})
	if e := awaited[*wire.Ended](s); e.Attempt != waits.Attempt || e.Fate != job.FateUnstarted || e.Reason != "stopped: its job is held" {
		t.Errorf("it says %+v", e)
	}
	unstarted := h.start("true")
	s.say(unstarted, &wire.Stop{Attempt: runs.Attempt, Unstarted: true}, &wire.Stop{Attempt: unstarted.Attempt, Unstarted: true})
	if e := awaited[*wire.Ended](s); e.Attempt != unstarted.Attempt || e.Fate != job.FateUnstarted {
		t.Errorf("it says %+v", e)
	}
	s.say(&wire.Keep{Attempt: runs.Attempt, Still: true})
	eventually(t, "its pause is kept", stills(t, dir, 1))
	s.say(&wire.Stop{Attempt: runs.Attempt, Why: "cancelled"})
	if e := awaited[*wire.Ended](s); e.Attempt != runs.Attempt || e.Signal == "" || !strings.Contains(e.Reason, "cancelled") {
		t.Errorf("it says %+v", e)
	}
	eventually(t, "its pause is gone", stills(t, dir, 0))
}

// Jobs of one batch have one spec, which is fetched once, also if they come together.
func TestSpecIsFetchedOnce(t *testing.T) {
	h := newFakeHead(t)
	var specs atomic.Int32
	together := make(chan struct{})
	h.answer = func(_ *wire.Conn, _ uint64, f *wire.Fetch) bool {
		if f.Of == wire.OfSpec {
			specs.Add(1)
			<-together
		}
		return false
	}
	h.live(filepath.Join(t.TempDir(), "node"), nil)
	s, _ := h.session()
	s.say(h.start("true"), h.start("true"))
	s.phase(job.PhaseSending)
	s.phase(job.PhaseSending)
	close(together)
	awaited[*wire.Ended](s)
	awaited[*wire.Ended](s)
	s.say(h.start("true"))
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Errorf("it says %+v", e)
	}
	if n := specs.Load(); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
}

// A pause of an attempt that is not here is removed by a daemon that begins.
func TestStillOfNobody(t *testing.T) {
	h := newFakeHead(t)
	dir := filepath.Join(t.TempDir(), "node")
	stop := h.live(dir, nil)
	h.session()
	stop()
	err := pause.PutFor(pause.OwnPlace(dir), pause.Pause{Made: time.Now(), Attempt: strings.Repeat("0", 32)})
	if err != nil {
		t.Fatal(err)
	}
	h.live(dir, nil)
	eventually(t, "it is gone", stills(t, dir, 0))
}

// An attempt that runs may run for longer, and is made to run for less by nobody.
func TestLengthens(t *testing.T) {
	h := newFakeHead(t)
	h.spec = `{"kind":"command","resources":{"cpus":1,"time":3600}}`
	top := t.TempDir()
	dir, gate := filepath.Join(top, "node"), filepath.Join(top, "gate")
	stop := h.live(dir, nil)
	s, _ := h.session()
	runs := h.begun(s, gate)
	limit := func(of *wire.Start) *int64 {
		run, err := proc.ReadRun(filepath.Join(dir, "attempts", string(of.Attempt)), string(of.Attempt))
		if err != nil {
			return nil
		}
		return run.Limit
	}
	says := func(of *wire.Start, want int64) func() bool {
		return func() bool {
			got := limit(of)
			return got != nil && *got == want
		}
	}
	s.say(&wire.Keep{Attempt: runs.Attempt, Time: 60}, &wire.Keep{Attempt: runs.Attempt, Time: 3600}, &wire.Keep{Attempt: runs.Attempt, Time: 7200})
	eventually(t, "it may run for two hours", says(runs, 7200))
	stop()
	h.live(dir, nil)
	s, _ = h.session()
	s.say(&wire.Keep{Attempt: runs.Attempt, Time: 60}, &wire.Keep{Attempt: runs.Attempt})
	eventually(t, "it may run for ever", says(runs, 0))
	s.say(&wire.Keep{Attempt: runs.Attempt, Time: 9000}, &wire.Keep{Attempt: runs.Attempt, Still: true})
	eventually(t, "its pause is kept", stills(t, dir, 1))
	s.say(&wire.Keep{Attempt: runs.Attempt})
	// Of those that wait meanwhile that counts when they are started.
	second := filepath.Join(top, "second")
	shorter, longer := h.start("true"), h.start(fmt.Sprintf("until test -e %s; do sleep 0.02; done", second))
	s.say(shorter, longer, &wire.Keep{Attempt: shorter.Attempt, Time: 60}, &wire.Keep{Attempt: longer.Attempt, Time: 7200})
	ends := func() {
		t.Helper()
		if e := awaited[*wire.Ended](s); !e.OK() {
			t.Errorf("it says %+v", e)
		}
	}
	create(t, gate)
	ends()
	ends()
	eventually(t, "the one that waited may run for two hours", says(longer, 7200))
	create(t, second)
	ends()
	if !says(runs, 0)() {
		t.Error("it may not run for ever any more")
	}
	if got := limit(shorter); got != nil {
		t.Errorf("it is made to run for %d s", *got)
	}
	if !says(longer, 7200)() {
		t.Errorf("its limit is %v", limit(longer))
	}
}
