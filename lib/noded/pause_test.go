package noded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/account"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pause"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// put pauses the node of a directory.
func put(t *testing.T, dir string, d time.Duration, change func(*pause.Pause)) pause.Pause {
	t.Helper()
	c, err := pause.Here()
	if err != nil {
		t.Fatal(err)
	}
	p := pause.For(c, d)
	if change != nil {
		change(&p)
	}
	if p, err = pause.Put(pause.OwnPlace(dir), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// begun is an attempt of maria's that runs until there is a file.
func (h *fakeHead) begun(s *fakeSession, gate string) *wire.Start {
	h.t.Helper()
	st := h.start(fmt.Sprintf("touch %s.begun; until test -e %s; do sleep 0.02; done", gate, gate))
	st.User = "maria"
	s.say(st)
	s.phase(job.PhaseRunning)
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(time.Millisecond) {
		if _, err := os.Stat(gate + ".begun"); err == nil {
			return st
		}
		if time.Now().After(deadline) {
			h.t.Fatal("a job does not begin")
		}
	}
}

// offered is the next offer of which that holds. What jobs do meanwhile, which their
// supervisors tell in their own time, is not passed over.
func (s *fakeSession) offered(what string, fits func(*wire.Offer) bool) *wire.Offer {
	s.t.Helper()
	for {
		m := s.recv()
		o, ok := m.(*wire.Offer)
		switch {
		case !ok:
			s.before = append(s.before, m)
		case fits(o):
			return o
		default:
			s.t.Logf("waiting until %s: %+v", what, o.Pause)
		}
	}
}

func paused(o *wire.Offer) bool    { return o.Pause.Full() }
func notPaused(o *wire.Offer) bool { return o.Pause == nil }
func lendsCPUs(o *wire.Offer) bool { return o.Pause != nil && o.Pause.Give != nil }
func letsGo(o *wire.Offer) bool    { return o.Pause != nil && o.Pause.Out }
func (s *fakeSession) phase(p job.Phase) {
	s.t.Helper()
	for awaited[*wire.Phase](s).Phase != p {
	}
}

// P73, P71: what comes while the node is paused is given back with the reason, also
// by a node that was started anew; what runs is told to be paused, and goes on.
func TestP71P73StartAtAPausedNode(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	dir := filepath.Join(top, "node")
	stop := h.live(dir, nil)
	s, _ := h.session()
	gate := filepath.Join(top, "gate")
	runs := h.begun(s, gate)
	waits := h.start("true") // the node has one cpu
	s.say(waits)
	p := put(t, dir, time.Hour, nil)
	o := s.offered("it is paused", paused)
	if me := account.UserName(os.Geteuid()); !slices.Equal(o.Pause.By, []string{me}) || o.Pause.Left < 3500 || o.Pause.Left > 3600 || o.Pause.Go != nil || o.CPUs != 1 {
		t.Errorf("it offers %+v", o.Pause)
	}
	given := func(st *wire.Start) {
		t.Helper()
		if e := awaited[*wire.Ended](s); e.Attempt != st.Attempt || e.Fate != job.FateNodePaused || e.Reason != "ws1 is paused" {
			t.Errorf("it says %+v", e)
		}
	}
	given(waits)
	late := h.start("true")
	s.say(late)
	given(late)
	stop()
	h.live(dir, nil)
	s, items := h.session()
	if i := slices.IndexFunc(items, func(i *wire.Item) bool { return i.Attempt == runs.Attempt }); i < 0 || items[i].Phase != job.PhasePaused {
		t.Errorf("it lists %d: %+v", len(items), items[max(0, i)])
	}
	late = h.start("true")
	s.say(late)
	given(late)
	if err := pause.Remove(p); err != nil {
		t.Fatal(err)
	}
	s.offered("it is not paused", notPaused)
	s.phase(job.PhaseRunning)
	create(t, gate)
	if e := awaited[*wire.Ended](s); e.Attempt != runs.Attempt || !e.OK() {
		t.Errorf("it says %+v", e)
	}
}

// A pausedMachine has supervisors that know of a pause before the daemon does.
type pausedMachine struct{ thisMachine }

func (pausedMachine) NewSlot() (Slot, error) { return pausedSlot{make(chan proc.Report, 1)}, nil }

type pausedSlot struct{ reports chan proc.Report }

func (s pausedSlot) Run(*proc.Order) error {
	s.reports <- proc.Report{Refused: "paused", Passing: true, Paused: true}
	return nil
}
func (s pausedSlot) Stop(string) error           { return nil }
func (s pausedSlot) Reports() <-chan proc.Report { return s.reports }
func (s pausedSlot) Pid() int                    { return os.Getpid() }
func (s pausedSlot) Close() error                { return nil }

// P73: what a supervisor refuses because of a pause, a job or its build, is given
// back as such, so that nothing speaks against the node.
func TestP73RefusedBySupervisor(t *testing.T) {
	for what, spec := range map[string]string{
		"job":   `{"kind":"command","resources":{"cpus":1}}`,
		"build": `{"kind":"command","build":["true"],"resources":{"cpus":1}}`,
	} {
		t.Run(what, func(t *testing.T) {
			h := newFakeHead(t)
			h.spec = spec
			dir := filepath.Join(t.TempDir(), "node")
			h.liveAs(dir, func(s *Settings) { s.Machine = pausedMachine{thisMachine{dir}} })
			s, _ := h.session()
			st := h.start("true")
			s.say(st)
			if e := awaited[*wire.Ended](s); e.Attempt != st.Attempt || e.Fate != job.FateNodePaused || e.Reason != "ws1 is paused" {
				t.Errorf("it says %+v", e)
			}
		})
	}
}

// What a pause asks of a node.
func TestStand(t *testing.T) {
	c := pause.Clock{Now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Uptime: 10 * time.Hour, Boot: "b"}
	n := &daemon{Settings: &Settings{Offer: node.Offer{CPUs: 4, Memory: 8 << 30}}}
	four, zero := 4*3600.0, 0.0
	ago := func(d time.Duration) pause.Clock {
		return pause.Clock{Now: c.Now.Add(-d), Uptime: c.Uptime - d, Boot: "b"}
	}
	full := pause.For(ago(time.Hour), 6*time.Hour)
	give := func(cpus int) pause.Pause {
		p := pause.For(ago(time.Hour), 2*time.Hour)
		p.Give = &pause.Give{CPUs: cpus}
		return p
	}
	long := func(cpus int) pause.Pause {
		p := pause.For(ago(time.Hour), 5*time.Hour)
		p.Give = &pause.Give{CPUs: cpus}
		return p
	}
	memory := func(bytes int64) pause.Pause {
		p := give(0)
		p.Give.Memory = bytes
		return p
	}
	tests := []struct {
		name         string
		live         []pause.Pause
		patience     *float64
		frozen       bool
		give         int
		since        time.Duration // before now
		until, leave time.Duration // from now; -1: never
	}{
		{"none", nil, &four, false, 0, 0, -1, -1},
		{"longer than jobs wait", []pause.Pause{full}, &four, true, 0, time.Hour, 5 * time.Hour, 3 * time.Hour},
		{"jobs wait for ever", []pause.Pause{full}, nil, true, 0, time.Hour, 5 * time.Hour, -1},
		{"jobs wait for nothing", []pause.Pause{full}, &zero, true, 0, time.Hour, 5 * time.Hour, -time.Hour},
		{"shorter than jobs wait", []pause.Pause{pause.For(c, time.Hour)}, &four, true, 0, 0, time.Hour, -1},
		{"without an end", []pause.Pause{pause.To(c, time.Time{})}, &four, true, 0, 0, -1, 4 * time.Hour},
		{"a part", []pause.Pause{give(3)}, &four, false, 3, time.Hour, time.Hour, -1},
		{"all of it", []pause.Pause{give(4)}, &four, true, 4, time.Hour, time.Hour, -1},
		{"all of it, longer than jobs wait", []pause.Pause{long(4)}, &four, true, 4, time.Hour, 4 * time.Hour, 3 * time.Hour},
		{"all of it, and a part for longer", []pause.Pause{give(4), long(1)}, &four, true, 4, time.Hour, time.Hour, -1},
		{"all of it for longer than all stands still", []pause.Pause{pause.For(c, 2*time.Hour), long(4)}, &four, true, 4, time.Hour, 4 * time.Hour, 3 * time.Hour},
		{"all of its memory", []pause.Pause{memory(8 << 30)}, &four, true, 0, time.Hour, time.Hour, -1},
		{"most of its memory", []pause.Pause{memory(8<<30 - 1)}, &four, false, 0, time.Hour, time.Hour, -1},
	}
	for _, tt := range tests {
		p := &pausing{n: n, names: map[int]string{}}
		s := pause.State{At: c, Live: tt.live}
		whole := p.whole(s)
		if whole.Frozen() {
			p.since = c.Uptime - tt.since
		}
		st := p.stand(c, whole, p.part.Gives(s), tt.patience)
		until, leave := time.Duration(-1), time.Duration(-1)
		if st.until >= 0 {
			until = st.until - c.Uptime
		}
		if st.leave >= 0 {
			leave = st.leave - c.Uptime
		}
		since := time.Duration(0)
		if st.since > 0 {
			since = c.Uptime - st.since
		}
		if st.frozen != tt.frozen || st.give.CPUs != tt.give || since != tt.since || until != tt.until || leave != tt.leave {
			t.Errorf("%s: frozen %v, gives %d, since %v, until %v, leave %v", tt.name, st.frozen, st.give.CPUs, since, until, leave)
		}
	}
}

// P75: while the node cannot keep its own pause, as on a full disk, it tries again
// once in a while, and not all the time.
func TestP75OwnPauseTriedSeldom(t *testing.T) {
	c := pause.Clock{Now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Uptime: 10 * time.Hour, Boot: "b"}
	s := pause.State{At: c, Live: []pause.Pause{pause.To(c, time.Time{})}}
	for _, tt := range []struct {
		st   standing
		want time.Duration
	}{
		{standing{leave: -1}, never},
		{standing{leave: c.Uptime + time.Second}, time.Second},
		{standing{leave: c.Uptime}, ownAgain},
		{standing{leave: c.Uptime - time.Hour}, ownAgain},
		{standing{leave: c.Uptime - time.Hour, out: true}, never},
	} {
		if got := tt.st.stays(c, s); got != tt.want {
			t.Errorf("%+v: %v, not %v", tt.st, got, tt.want)
		}
	}
}

// P78: root and the node's own pauses count also when its file names owners.
func TestP78PausersOfNode(t *testing.T) {
	if n := (&daemon{Settings: &Settings{Offer: node.Offer{CPUs: 1}}}); n.pausers() != nil || !n.may(12345) {
		t.Errorf("of a node of all: %v", n.pausers())
	}
	for _, named := range [][]int{{}, {12345}} {
		n := &daemon{Settings: &Settings{Offer: node.Offer{CPUs: 1}, Pausers: named}}
		for _, uid := range append([]int{0, os.Geteuid()}, named...) {
			if !n.may(uid) {
				t.Errorf("named %v: %d may not", named, uid)
			}
		}
		if n.may(54321) {
			t.Errorf("named %v: everybody may", named)
		}
	}
}

// Of very many who hold a pause the first are named: their names go into one message.
func TestManyHolders(t *testing.T) {
	n := &daemon{Settings: &Settings{Offer: node.Offer{CPUs: 4}}}
	c, err := pause.Here()
	if err != nil {
		t.Fatal(err)
	}
	s := pause.State{At: c}
	p := &pausing{n: n, names: map[int]string{}}
	for uid := range 10000 {
		q := pause.For(c, time.Hour)
		q.UID = 100000 + uid
		p.names[q.UID] = fmt.Sprint("user", uid)
		s.Live = append(s.Live, q)
	}
	if st := p.stand(c, s, pause.Give{}, nil); len(st.by) != maxNamed || !slices.Contains(st.by, "user0") {
		t.Errorf("%d are named: %.100q", len(st.by), st.by)
	}
}

// What is given back is not offered, and what would need it is given back too.
func TestLentCPUs(t *testing.T) {
	h := newFakeHead(t)
	dir := filepath.Join(t.TempDir(), "node")
	ended := h.liveWith(dir, 2, nil)
	defer ended()
	s, _ := h.session()
	p := put(t, dir, time.Hour, func(p *pause.Pause) { p.Give = &pause.Give{CPUs: 1} })
	if o := s.offered("it lends cpus", lendsCPUs); o.CPUs != 1 || o.Pause.Give.CPUs != 1 {
		t.Errorf("it offers %d: %+v", o.CPUs, o.Pause)
	}
	small, large := h.start("true"), h.start("true")
	small.Attempt, large.Attempt = job.NewToken(), job.NewToken()
	large.CPUs = 2
	s.say(large)
	if e := awaited[*wire.Ended](s); e.Attempt != large.Attempt || e.Fate != job.FateNodePaused || e.Reason != "ws1 has lent back 1 cpu" {
		t.Errorf("it says %+v", e)
	}
	s.say(small)
	if e := awaited[*wire.Ended](s); e.Attempt != small.Attempt || !e.OK() {
		t.Errorf("it says %+v", e)
	}
	if err := pause.Remove(p); err != nil {
		t.Fatal(err)
	}
	if o := s.offered("it lends none", notPaused); o.CPUs != 2 {
		t.Errorf("it offers %d", o.CPUs)
	}
}

// Who waits for more memory than is left is given back, and so is who comes for it.
func TestLentMemory(t *testing.T) {
	h := newFakeHead(t)
	h.spec = `{"kind":"command","resources":{"cpus":1,"memory":6442450944}}`
	dir := filepath.Join(t.TempDir(), "node")
	h.liveAs(dir, func(s *Settings) { s.Offer = node.Offer{CPUs: 2, Memory: 8 << 30} })
	s, _ := h.session()
	gate := filepath.Join(dir, "gate")
	h.begun(s, gate)
	first, second := h.start("true"), h.start("true")
	s.say(first)
	p := put(t, dir, time.Hour, func(p *pause.Pause) { p.Give = &pause.Give{Memory: 4 << 30} })
	s.offered("it lends memory", func(o *wire.Offer) bool { return o.Memory == 4<<30 })
	for _, st := range []*wire.Start{first, second} {
		if st == second {
			s.say(st)
		}
		if e := awaited[*wire.Ended](s); e.Attempt != st.Attempt || e.Fate != job.FateNodePaused || e.Reason != "ws1 has lent back 4G" {
			t.Errorf("it says %+v", e)
		}
	}
	if err := pause.Remove(p); err != nil {
		t.Fatal(err)
	}
	create(t, gate)
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Errorf("it says %+v", e)
	}
}

// A pause that takes cpus back counts anew against what the node offers from then on.
func TestLentOfOtherOffer(t *testing.T) {
	h := newFakeHead(t)
	dir := filepath.Join(t.TempDir(), "node")
	changes := make(chan Given)
	h.liveAs(dir, func(s *Settings) { s.Offer.CPUs, s.Changes = 2, changes })
	s, _ := h.session()
	put(t, dir, time.Hour, func(p *pause.Pause) { p.Give = &pause.Give{CPUs: 1} })
	s.offered("it lends one of two", lendsCPUs)
	changes <- Given{Offer: node.Offer{CPUs: 1}}
	s.offered("it lends all", paused)
	changes <- Given{Offer: node.Offer{CPUs: 2}}
	s.offered("it lends one of two again", lendsCPUs)
}

// P75: a pause that is longer than jobs wait lets them leave, and no longer than
// somebody holds it.
func TestP75Patience(t *testing.T) {
	h := newFakeHead(t)
	zero := 0.0
	h.patience = &zero
	dir := filepath.Join(t.TempDir(), "node")
	h.live(dir, nil)
	s, _ := h.session()
	p := put(t, dir, time.Hour, nil)
	if o := s.offered("jobs are to leave", letsGo); !slices.Equal(o.Pause.By, []string{account.UserName(os.Geteuid())}) || o.Pause.Go != nil {
		t.Errorf("it offers %+v", o.Pause)
	}
	if err := pause.Remove(p); err != nil {
		t.Fatal(err)
	}
	s.offered("it is not paused", notPaused)
}

// What a node says of itself for who sits at it.
func TestNowHere(t *testing.T) {
	h := newFakeHead(t)
	patience := 4 * 3600.0
	h.patience = &patience
	top := t.TempDir()
	dir := filepath.Join(top, "node")
	stop := h.live(dir, nil)
	s, _ := h.session()
	gate := filepath.Join(top, "gate")
	h.begun(s, gate)
	now := func(what string, fits func(pause.Now) bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(10 * time.Millisecond) {
			n, err := pause.OwnNow(pause.OwnPlace(dir), dir)
			if err == nil && fits(n) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("waiting for %s: %+v, %v", what, n, err)
			}
		}
	}
	now("a job", func(n pause.Now) bool {
		d, forever := n.Waits()
		return len(n.Running) == 1 && n.Running[0].Job == "lab/b/j" && n.Running[0].User == "maria" && n.Running[0].CPUs == 1 && n.PID == os.Getpid() &&
			n.Dir == dir && d == 4*time.Hour && !forever
	})
	stop()
	now("what runs without a daemon", func(n pause.Now) bool { return len(n.Running) == 1 })
	pause.RemoveNow(pause.OwnPlace(dir), dir)
	stop = h.live(dir, nil)
	s, _ = h.session()
	now("the job of before", func(n pause.Now) bool { return len(n.Running) == 1 && n.Running[0].Job == "lab/b/j" })
	create(t, gate)
	awaited[*wire.Ended](s)
	now("nothing", func(n pause.Now) bool { return len(n.Running) == 0 })
	stop()
	if n, err := pause.OwnNow(pause.OwnPlace(dir), dir); err == nil {
		t.Errorf("left: %+v", n)
	}
}

// TestNowOfALateStart has a daemon end when it has not written yet that a job runs, which runs on.
func TestNowOfALateStart(t *testing.T) {
	h := newFakeHead(t)
	patience := 4 * 3600.0
	h.patience = &patience
	top := t.TempDir()
	dir, gate, failed := filepath.Join(top, "node"), filepath.Join(top, "gate"), make(chan struct{})
	place := pause.OwnPlace(dir)
	stop := h.liveAs(dir, func(s *Settings) { s.Log = slog.New(untilLogged{s.Log.Handler(), "list of running jobs", failed}) })
	s, _ := h.session()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		if n, err := pause.OwnNow(place, dir); err == nil && n.Patience != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it says nothing")
		}
	}
	if err := errors.Join(os.Rename(place, top+"/aside"), os.WriteFile(place, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	h.begun(s, gate)
	<-failed
	if err := errors.Join(os.Remove(place), os.Rename(top+"/aside", place)); err != nil {
		t.Fatal(err)
	}
	stop()
	if n, err := pause.OwnNow(place, dir); err != nil || len(n.Running) != 1 || n.Running[0].Job != "lab/b/j" {
		t.Errorf("it says %+v, %v", n, err)
	}
	h.live(dir, nil)
	s, _ = h.session()
	create(t, gate)
	awaited[*wire.Ended](s)
}

// What a node could not say of itself, as on a full disk, it says later.
func TestNowIsWrittenLater(t *testing.T) {
	h := newFakeHead(t)
	patience := 4 * 3600.0
	h.patience = &patience
	top := t.TempDir()
	dir, failed := filepath.Join(top, "node"), make(chan struct{})
	place := pause.OwnPlace(dir)
	h.liveAs(dir, func(s *Settings) { s.Log = slog.New(untilLogged{s.Log.Handler(), "list of running jobs", failed}) })
	s, _ := h.session()
	said := func(fits func(pause.Now) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
			n, err := pause.OwnNow(place, dir)
			if err == nil && fits(n) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("it says %+v, %v", n, err)
			}
		}
	}
	said(func(n pause.Now) bool { return n.Patience != nil })
	if err := errors.Join(os.Rename(place, top+"/aside"), os.WriteFile(place, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	gate := filepath.Join(top, "gate")
	h.begun(s, gate)
	<-failed
	if err := errors.Join(os.Remove(place), os.Rename(top+"/aside", place)); err != nil {
		t.Fatal(err)
	}
	said(func(n pause.Now) bool { return len(n.Running) == 1 })
	create(t, gate)
	awaited[*wire.Ended](s)
}

// TestNowIsWrittenOnce has one of two places take nothing for a while: what the other one has is
// not written again.
func TestNowIsWrittenOnce(t *testing.T) {
	h := newFakeHead(t)
	patience := 4 * 3600.0
	h.patience = &patience
	top := t.TempDir()
	dir, failed := filepath.Join(top, pause.Parts, "ws1"), make(chan struct{})
	shared, own := pause.OwnPlace(top), pause.OwnPlace(dir)
	if err := errors.Join(os.WriteFile(filepath.Join(top, "node.json"), nil, 0o600), os.WriteFile(shared, nil, 0o600), os.Mkdir(filepath.Dir(dir), 0o700)); err != nil {
		t.Fatal(err)
	}
	h.liveAs(dir, func(s *Settings) { s.Log = slog.New(untilLogged{s.Log.Handler(), "list of running jobs", failed}) })
	h.session()
	<-failed
	said := func(place string) (fs.FileInfo, []byte) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
			n, err := pause.OwnNow(place, dir)
			names, _ := filepath.Glob(filepath.Join(place, "*now*"))
			if err == nil && n.Patience != nil && len(names) == 1 {
				info, ierr := os.Stat(names[0])
				b, err := os.ReadFile(names[0])
				if err := errors.Join(ierr, err); err != nil {
					t.Fatal(err)
				}
				return info, b
			}
			if time.Now().After(deadline) {
				t.Fatalf("it says %+v, %v", n, err)
			}
		}
	}
	was, content := said(own)
	if err := errors.Join(os.Remove(shared), os.Mkdir(shared, 0o700)); err != nil {
		t.Fatal(err)
	}
	said(shared)
	is, later := said(own)
	if string(later) == string(content) && !os.SameFile(was, is) {
		t.Error("it was written again")
	}
}

// An untilLogged closes a channel when a message with a text is logged, which happens once.
type untilLogged struct {
	slog.Handler
	text   string
	logged chan struct{}
}

func (u untilLogged) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, u.text) {
		close(u.logged)
	}
	return u.Handler.Handle(ctx, r)
}
