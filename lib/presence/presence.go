package presence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/account"
	"distribute/lib/hours"
)

// A Config is what a node's file says of when the node pauses by itself.
type Config struct {
	AutoPause time.Duration // nobody must have been active for so long; 0: presence does not matter
	Hours     []hours.Span  // when the node is paused whoever is there
	Sources   []string      // the sources that AutoPause goes by; empty: all
}

// Any says whether the node ever pauses by itself.
func (c *Config) Any() bool { return c.AutoPause > 0 || len(c.Hours) > 0 }

// table has all sources, in the order in which they are asked and printed.
var table = []struct {
	name  string
	every time.Duration // the source is asked no more often; 0: at each look
	open  func(Host) source
}{
	{"logind", 30 * time.Second, func(h Host) source { return &logind{root: h.Root} }},
	{"terminals", 0, func(h Host) source { return &terminals{root: h.Root, name: h.Name} }},
	{"input", 0, func(h Host) source { return &input{root: h.Root} }},
	{"load", time.Minute, func(h Host) source { return &load{root: h.Root} }},
}

// Sources is the names of all sources.
func Sources() (names []string) {
	for _, s := range table {
		names = append(names, s.name)
	}
	return names
}

// A source tells when somebody was active last.
type source interface {
	look(ctx context.Context, m Moment) (sighting, error)
}

// A sighting is what one source found at one look.
type sighting struct {
	at   time.Duration // when somebody was active last, after the machine's start; 0: nobody was seen
	what string        // who or what that was; if nobody was seen, what the source watches
}

// An absent error says that this machine does not have what a source reads.
type absent string

func (a absent) Error() string { return string(a) }

// A Moment is a time by the wall clock, and by the clock that counts from the start
// of the machine and goes on while the machine sleeps.
type Moment struct {
	Now    time.Time
	Uptime time.Duration
}

// Host is where a Watcher looks. The zero value is this machine.
type Host struct {
	Root  string               // goes before /proc, /sys, /dev and /run
	Name  func(uid int) string // the name of a user; nil: account.UserName
	Clock func() Moment        // nil: the clocks of this machine
	Log   *slog.Logger         // gets each new reason why a source cannot be read; nil: nothing is logged
}

// A Watcher asks the sources. It is used by one goroutine at a time.
type Watcher struct {
	Host
	idle     time.Duration
	sources  []*asked
	last     sighting // the latest one of all sources
	returned bool     // see Returned
}

// asked is a source and its last answer.
type asked struct {
	source
	name        string
	every, next time.Duration // next is when it is asked again, after the machine's start
	found       sighting
	err         error
}

// New makes a Watcher that goes by the node's file.
func New(c Config, h Host) *Watcher {
	if h.Name == nil {
		h.Name = account.UserName
	}
	if h.Clock == nil {
		h.Clock = func() Moment {
			var ts unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // every Linux that Go supports has it
			return Moment{time.Now(), time.Duration(ts.Nano())}
		}
	}
	if h.Log == nil {
		h.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{Host: h, idle: c.AutoPause}
	for _, s := range table {
		if c.AutoPause > 0 && (len(c.Sources) == 0 || slices.Contains(c.Sources, s.name)) {
			w.sources = append(w.sources, &asked{source: s.open(h), name: s.name, every: s.every})
		}
	}
	return w
}

// Assume has the Watcher go on as if somebody had been active just now.
func (w *Watcher) Assume() { w.last = sighting{w.Clock().Uptime, "the node's own pause says so"} }

// Look asks the sources, and says why the node is to be paused: which source saw
// somebody last. It is empty if nobody was active for the time of auto_pause. If no
// source can be read, somebody may be there.
func (w *Watcher) Look(ctx context.Context) (why string) {
	m := w.Clock()
	var failed []string
	readable := len(w.sources) == 0
	w.returned = false
	for _, s := range w.sources {
		if m.Uptime >= s.next {
			w.ask(ctx, s, m)
		}
		if s.err == nil {
			readable = true
		} else if !errors.As(s.err, new(absent)) {
			failed = append(failed, s.name)
		}
	}
	switch {
	case w.last.at > 0 && m.Uptime-w.last.at < w.idle:
		if why = "somebody is active: " + w.last.what; len(failed) > 0 {
			why += " (not read: " + strings.Join(failed, ", ") + ")"
		}
	case !readable:
		why = "somebody may be active: no source can be read"
	}
	return why
}

// Returned reports whether the last Look found that somebody is there again after the time of
// auto_pause without anybody. No Look may have come in that time: the machine may have slept.
func (w *Watcher) Returned() bool { return w.returned }

// ask asks one source, and keeps its sighting if that is the latest of all.
func (w *Watcher) ask(ctx context.Context, s *asked, m Moment) {
	before := s.err
	s.found, s.err = s.look(ctx, m)
	s.next = m.Uptime + s.every
	if s.found.at = min(s.found.at, m.Uptime); s.found.at > w.last.at {
		// In the time between two looks of the source, or in which it failed, somebody may have been there.
		w.returned = w.returned || w.last.at > 0 && before == nil && s.found.at-w.last.at >= w.idle+s.every
		w.last = s.found
	}
	switch {
	case s.err == nil || before != nil && before.Error() == s.err.Error():
	case errors.As(s.err, new(absent)):
		w.Log.Info("this source of presence is not available on this machine", "source", s.name, "why", s.err)
	default:
		w.Log.Warn("cannot read a source of presence", "source", s.name, "why", s.err)
	}
}

// An Answer is what a source said when it was asked last, in words.
type Answer struct{ Source, Text string }

// Answers has one for each source that is asked.
func (w *Watcher) Answers() (all []Answer) {
	for _, s := range w.sources {
		text := s.found.what
		switch {
		case errors.As(s.err, new(absent)):
			text = s.err.Error()
		case s.err != nil:
			text = "cannot be read: " + s.err.Error()
		case s.found.at > 0:
			text += fmt.Sprintf(", %v ago", (w.Clock().Uptime - s.found.at).Truncate(time.Second))
		case text == "":
			text = "nobody"
		default:
			text = "nobody yet: " + text
		}
		all = append(all, Answer{s.name, text})
	}
	return all
}

// namesIn is the names in a directory; none if there is no such directory.
func namesIn(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
