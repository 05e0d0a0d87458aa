package noded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"distribute/lib/hours"
	"distribute/lib/job"
	"distribute/lib/pause"
	"distribute/lib/presence"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// A desktop is a machine made of files, with one terminal, at which somebody typed
// two hours ago.
type desktop struct {
	*testing.T
	root string
	skip atomic.Int64 // by which its clocks are ahead
}

func newDesktop(t *testing.T) *desktop {
	d := &desktop{T: t, root: t.TempDir()}
	if err := errors.Join(os.MkdirAll(d.root+"/dev/pts", 0o755), os.WriteFile(d.root+"/dev/pts/3", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	d.typed(2 * time.Hour)
	return d
}

// typed has somebody type at the terminal, so long ago.
func (d *desktop) typed(ago time.Duration) {
	d.Helper()
	at := time.Now().Add(time.Duration(d.skip.Load()) - ago)
	if err := os.Chtimes(d.root+"/dev/pts/3", at, at); err != nil {
		d.Fatal(err)
	}
}

// settings has a node pause while somebody is at the desktop, and an hour after.
func (d *desktop) settings(s *Settings) {
	s.Presence = presence.Config{AutoPause: time.Hour, Sources: []string{"terminals"}}
	s.Host = presence.Host{Root: d.root, Name: func(int) string { return "ana" }, Clock: func() presence.Moment {
		skip := time.Duration(d.skip.Load())
		return presence.Moment{Now: time.Now().Add(skip), Uptime: proc.Uptime() + skip}
	}}
}

// leave has nobody be there for two hours.
func (d *desktop) leave() { d.skip.Add(int64(2 * time.Hour)) }

// own is the pauses that a node has made.
func own(t *testing.T, dir string) (all []pause.Pause) {
	t.Helper()
	s, err := (&pause.Reader{Places: []string{pause.OwnPlace(dir)}, Ended: pause.EndedOf(dir)}).Read()
	if err != nil {
		t.Fatal(err)
	}
	return s.Live
}

const byTerminal = "somebody is active: terminal pts/3 (ana)"

// A job stands still when somebody comes, and goes on when he has been away.
func TestSomebodyComes(t *testing.T) {
	t.Parallel()
	h, d := newFakeHead(t), newDesktop(t)
	top := t.TempDir()
	dir := filepath.Join(top, "node")
	h.liveAs(dir, d.settings)
	s, _ := h.session()
	st := h.begun(s, filepath.Join(top, "gate"))
	d.typed(0)
	o := s.offered("it is paused", paused)
	if o.Pause.Why != byTerminal || len(o.Pause.By) > 0 || o.Pause.Left != 0 {
		t.Errorf("it offers %+v", o.Pause)
	}
	s.phase(job.PhasePaused)
	d.leave()
	s.offered("nobody is there", notPaused)
	if err := os.WriteFile(filepath.Join(top, "gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := awaited[*wire.Ended](s); e.Attempt != st.Attempt || !e.OK() {
		t.Errorf("it says %+v", e)
	}
}

// Somebody who is there when the node starts, or came while it had nothing to do,
// keeps what comes from being started.
func TestSomebodyIsThere(t *testing.T) {
	t.Parallel()
	h, d := newFakeHead(t), newDesktop(t)
	dir := filepath.Join(t.TempDir(), "node")
	d.typed(0)
	stop := h.liveAs(dir, d.settings)
	s, _ := h.session()
	refused := func() {
		t.Helper()
		st := h.start("true")
		s.say(st)
		if e := awaited[*wire.Ended](s); e.Attempt != st.Attempt || e.Fate != job.FateNodePaused {
			t.Errorf("it says %+v", e)
		}
	}
	refused()
	stop()
	// One that is started anew while its pause holds makes no second, and does not
	// end it though nobody is seen any more.
	d.typed(2 * time.Hour)
	stop = h.liveAs(dir, d.settings)
	s, _ = h.session()
	refused()
	if p := own(t, dir); len(p) != 1 || p[0].Why != byTerminal {
		t.Errorf("it holds %+v", p)
	}
	stop()
	// One that is to do so no more ends it.
	stop = h.live(dir, nil)
	s, _ = h.session()
	st := h.start("true")
	s.say(st)
	if e := awaited[*wire.Ended](s); e.Attempt != st.Attempt || !e.OK() {
		t.Errorf("it says %+v", e)
	}
	if p := own(t, dir); len(p) != 0 {
		t.Errorf("it holds %+v", p)
	}
	stop()
	// One that has nothing to do sees who comes.
	h.liveAs(dir, d.settings)
	s, _ = h.session()
	d.typed(0)
	s.offered("it is paused", paused)
	refused()
}

// An attempt that waited when the node went down is not started by the next one
// before that has looked whether somebody is there.
func TestSomebodyIsThereWhenItGoesOn(t *testing.T) {
	t.Parallel()
	h, d := newFakeHead(t), newDesktop(t)
	top := t.TempDir()
	dir, gate := filepath.Join(top, "node"), filepath.Join(top, "gate")
	stop := h.liveAs(dir, d.settings)
	s, _ := h.session()
	runs, waits := h.begun(s, gate), h.start("true")
	s.say(waits, waits)
	for p := awaited[*wire.Phase](s); p.Attempt != waits.Attempt; p = awaited[*wire.Phase](s) {
	}
	stop()
	d.typed(0)
	h.liveAs(dir, d.settings)
	s, items := h.session()
	if p := own(t, dir); len(p) != 1 {
		t.Errorf("it holds %+v", p)
	}
	var back *job.Result
	for _, m := range items {
		if m.Attempt == waits.Attempt {
			back = m.Result
		}
	}
	if back == nil {
		e := awaited[*wire.Ended](s)
		back = &e.Result
	}
	if back.Fate != job.FateNodePaused {
		t.Errorf("it says %+v", back)
	}
	d.leave()
	create(t, gate)
	if e := awaited[*wire.Ended](s); e.Attempt != runs.Attempt || !e.OK() {
		t.Errorf("it says %+v", e)
	}
}

// What the node has paused by itself others may end, also when it has seen its pause
// since: then jobs run until the reason is over, and the next time it pauses again.
func TestSomebodyOverrules(t *testing.T) {
	t.Parallel()
	h, d := newFakeHead(t), newDesktop(t)
	dir := filepath.Join(t.TempDir(), "node")
	d.typed(0)
	overruled, over, looks := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.liveAs(dir, func(s *Settings) {
		d.settings(s)
		clock := s.Host.Clock
		s.Host.Clock = func() presence.Moment {
			select {
			case looks <- struct{}{}:
			default:
			}
			return clock()
		}
		l := &listener{t.Output(), "the node's own pause was ended by somebody", overruled}
		s.Log = strictLog(slog.NewTextHandler(&listener{l, "reason of the node's own pause is over", over}, nil))
	})
	s, _ := h.session()
	p := own(t, dir)
	if len(p) != 1 {
		t.Fatalf("it holds %+v", p)
	}
	<-looks
	<-looks // the one before is over
	d.typed(0)
	if err := pause.Remove(p[0]); err != nil {
		t.Fatal(err)
	}
	s.offered("it is not paused", notPaused)
	s.say(h.start("true"))
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Fatalf("it says %+v", e)
	}
	<-overruled
	d.leave()
	<-over
	d.typed(0)
	s.offered("it is paused again", paused)
}

// What somebody has ended of the node's own pauses stays ended for the next dnoded, until the
// reason is over: also if it was ended while none ran.
func TestOverruledStays(t *testing.T) {
	t.Parallel()
	always, err := hours.Parse("daily 0-24")
	if err != nil {
		t.Fatal(err)
	}
	d := newDesktop(t)
	d.typed(0)
	for what, change := range map[string]func(*Settings){
		"hours":    func(s *Settings) { s.Presence = presence.Config{Hours: always} },
		"somebody": d.settings,
	} {
		for _, down := range []bool{false, true} {
			t.Run(fmt.Sprint(what, ", without dnoded: ", down), func(t *testing.T) {
				h := newFakeHead(t)
				dir := filepath.Join(t.TempDir(), "node")
				overruled := make(chan struct{})
				stop := h.liveAs(dir, func(s *Settings) {
					change(s)
					s.Log = strictLog(slog.NewTextHandler(&listener{t.Output(), "the node's own pause was ended by somebody", overruled}, nil))
				})
				h.session()
				p := own(t, dir)
				if len(p) != 1 {
					t.Fatalf("it holds %+v", p)
				}
				if down {
					stop()
				}
				if err := pause.Remove(p[0]); err != nil {
					t.Fatal(err)
				}
				if !down {
					<-overruled
					stop()
				}
				for range 2 {
					stop = h.liveAs(dir, change)
					h.session()
					if p := own(t, dir); len(p) != 0 {
						t.Errorf("it pauses again: %+v", p)
					}
					stop()
				}
				stop = h.live(dir, nil) // for which there is no such reason
				h.session()
				stop()
				h.liveAs(dir, change)
				h.session()
				if p := own(t, dir); len(p) != 1 {
					t.Errorf("when its reason comes again it holds %+v", p)
				}
			})
		}
	}
}

// What somebody has ended of the node's own pauses is no longer ended when its reason was over and
// has come again while the machine slept, and no look was in between.
func TestOverruledBeforeSleep(t *testing.T) {
	t.Parallel()
	always, err := hours.Parse("daily 0-24")
	if err != nil {
		t.Fatal(err)
	}
	d := newDesktop(t)
	var s Settings
	d.settings(&s)
	for what, tt := range map[string]struct {
		config presence.Config
		sleep  func(w *presenceWatcher)
	}{
		"hours":    {presence.Config{Hours: always}, func(w *presenceWatcher) { w.hours.until = time.Now().Add(-time.Hour) }},
		"somebody": {s.Presence, func(*presenceWatcher) { d.leave() }},
	} {
		t.Run(what, func(t *testing.T) {
			n := givenNode(t)
			n.Host = s.Host
			n.change(Given{Offer: offer4(), Presence: tt.config})
			w := newPresenceWatcher(n)
			look := func(want int) {
				t.Helper()
				d.typed(0)
				w.look(t.Context())
				if p := own(t, n.desk.Dir()); len(p) != want || w.failed != "" {
					t.Fatalf("it holds %+v, want %d; %s", p, want, w.failed)
				}
			}
			look(1)
			if err := pause.Remove(own(t, n.desk.Dir())[0]); err != nil {
				t.Fatal(err)
			}
			look(0)
			look(0)
			tt.sleep(w)
			look(1)
			look(1)
		})
	}
}

// The hours are those of the time zone that the machine has, also if that was changed while dnoded
// ran.
func TestHoursOfAnotherZone(t *testing.T) {
	t.Setenv("TZ", "") // is set back at the end
	os.Unsetenv("TZ")
	defer func(was string) { hours.Localtime = was }(hours.Localtime)
	hours.Localtime = filepath.Join(t.TempDir(), "localtime")
	now := time.Now().UTC()
	zone := func(noonIn time.Duration) { // a clock that shows 12:30 in so long
		t.Helper()
		at := time.Date(now.Year(), now.Month(), now.Day(), 12, 30, 0, 0, time.UTC).Sub(now.Add(noonIn))
		data := append([]byte("TZif"), make([]byte, 40)...)
		data[39], data[43] = 1, 4 // kinds of time, bytes of names
		data = binary.BigEndian.AppendUint32(data, uint32(int32(at/time.Second)))
		if err := os.WriteFile(hours.Localtime, append(data, "\x00\x00XST\x00"...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	noon, err := hours.Parse("daily 12-13")
	if err != nil {
		t.Fatal(err)
	}
	n := givenNode(t)
	n.change(Given{Offer: offer4(), Presence: presence.Config{Hours: noon}})
	n.Pauses = true
	w := newPresenceWatcher(n)
	for _, in := range []time.Duration{3 * time.Hour, 0, 2 * time.Hour} {
		zone(in)
		want := 0
		if in == 0 {
			want = 1
		}
		w.look(t.Context())
		if p := own(t, n.desk.Dir()); len(p) != want || w.failed != "" {
			t.Errorf("noon in %v: it holds %+v; %s", in, p, w.failed)
		}
		if soon := n.nextHours(); in > 0 && (soon < (in-time.Hour).Seconds() || soon > in.Seconds()) {
			t.Errorf("noon in %v: it pauses in %v seconds", in, soon)
		}
	}
}

// A listener closes a channel when it hears a text.
type listener struct {
	io.Writer
	text string
	over chan struct{}
}

func (l *listener) Write(p []byte) (int, error) {
	if l.text != "" && strings.Contains(string(p), l.text) {
		l.text = ""
		close(l.over)
	}
	return l.Writer.Write(p)
}
