package presence

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/hours"
)

// The sources, in the order in which they are told.
const (
	Logind    = "logind"
	Terminals = "terminals"
	Input     = "input"
	Load      = "load"
)

// Sources is all of them.
var Sources = []string{Logind, Terminals, Input, Load}

// A Config is what a node's file says of when its jobs stand still by themselves.
type Config struct {
	AutoPause time.Duration // for how long nobody is to have been there; 0: nobody is looked for
	Hours     []hours.Span  // when jobs stand still whoever is there
	Sources   []string      // what AutoPause goes by; empty: all
}

// Any says that there is something to be seen to.
func (c *Config) Any() bool { return c.AutoPause > 0 || len(c.Hours) > 0 }

// A Moment is a time by the clock of the wall and by that which runs from the start
// of the machine, its sleep included.
type Moment struct {
	Now    time.Time
	Uptime time.Duration
}

// A Reading is what one source says.
type Reading struct {
	Source string
	Last   time.Duration // when somebody was last active, after the machine's start
	Seen   bool          // Last is known
	What   string        // who or what that was; and without Seen, what there is
	Err    error         // it cannot be read; [ErrAbsent] if there is nothing to read
}

// ErrAbsent says that a machine has not what a source reads.
var ErrAbsent = errors.New("not there")

// An absence is ErrAbsent in words of its own.
type absence string

func (a absence) Error() string      { return string(a) }
func (absence) Is(target error) bool { return target == ErrAbsent }

// text is the reading for a person.
func (r *Reading) text(m Moment) string {
	switch {
	case errors.Is(r.Err, ErrAbsent):
		return r.Err.Error()
	case r.Err != nil:
		return "cannot be read: " + r.Err.Error()
	case !r.Seen && r.What == "":
		return "nobody"
	case !r.Seen:
		return "nobody yet: " + r.What
	}
	ago := max(0, m.Uptime-r.Last).Truncate(time.Second)
	if ago == 0 {
		return r.What + ", now"
	}
	return fmt.Sprintf("%s, %v ago", r.What, ago)
}

// A Verdict is what all sources say together.
type Verdict struct {
	Here bool          // somebody is, or was not long ago
	What string        // which source decided, in words
	Left time.Duration // until nobody is, if nobody is seen any more
	Cost time.Duration // of a cpu, for what is asked at each look
}

// decide says of the readings of a moment whether somebody was active within idle
// before it. The most recent one decides. If none can be read, somebody is there.
func decide(m Moment, idle time.Duration, readings []Reading) Verdict {
	var last *Reading
	var broken []string
	readable := false
	for i := range readings {
		r := &readings[i]
		if r.Err != nil && !errors.Is(r.Err, ErrAbsent) {
			broken = append(broken, r.Source)
		}
		readable = readable || r.Err == nil
		if r.Seen && (last == nil || r.Last > last.Last) {
			last = r
		}
	}
	not := ""
	if len(broken) > 0 {
		not = " (not read: " + strings.Join(broken, ", ") + ")"
	}
	switch {
	case last != nil && m.Uptime-last.Last < idle:
		return Verdict{true, "somebody is active: " + last.What + not, idle - (m.Uptime - last.Last), 0}
	case !readable:
		return Verdict{true, "somebody may be active: no source can be read", idle, 0}
	}
	return Verdict{}
}

// A source is one of those that can be asked.
type source interface {
	// look is what it says now. It may cost a process; ctx bounds it.
	look(ctx context.Context, m Moment) Reading
}

// A Watcher asks the sources. It is used by one goroutine at a time.
type Watcher struct {
	config  Config
	sources []*asked
	clock   func() (Moment, error)
	log     func(source string, err error)
}

// An asked source is one with what it said before, which it may forget: who was
// there has been there.
type asked struct {
	name  string
	every time.Duration // not more often than that; 0: as often as one looks
	source
	last Reading
	at   time.Duration // when it was asked; 0: never
	told string        // the error that was logged
}

// Host is where a Watcher looks. The zero value is this machine.
type Host struct {
	Root  string               // before /proc, /sys and /dev
	Path  string               // where loginctl is looked for, as PATH; empty: nowhere
	Name  func(uid int) string // of a user; nil: the number
	Clock func() (Moment, error)

	// Log is told once of each way in which a source cannot be read; nil: nobody is.
	Log func(source string, err error)
}

// New is a Watcher that goes by what the node's file says.
func New(c Config, h Host) *Watcher {
	w := &Watcher{config: c, clock: h.Clock, log: h.Log}
	if w.clock == nil {
		w.clock = here
	}
	if w.log == nil {
		w.log = func(string, error) {}
	}
	if h.Name == nil {
		h.Name = func(uid int) string { return fmt.Sprint("user ", uid) }
	}
	for _, name := range Sources {
		if len(c.Sources) > 0 && !slices.Contains(c.Sources, name) || c.AutoPause == 0 {
			continue
		}
		s := &asked{name: name}
		switch name {
		case Logind:
			s.source, s.every = &logind{root: h.Root, path: h.Path}, logindEvery
		case Terminals:
			s.source = &terminals{root: h.Root, name: h.Name}
		case Input:
			s.source = &input{root: h.Root}
		case Load:
			s.source = &load{root: h.Root}
		}
		w.sources = append(w.sources, s)
	}
	return w
}

// Recall has each source know of somebody who was active at a time.
func (w *Watcher) Recall(at time.Duration) {
	for _, s := range w.sources {
		s.seen(Reading{Seen: true, Last: at, What: "before dnoded was started"})
	}
}

// seen remembers the later of two readings.
func (s *asked) seen(r Reading) {
	r.Source = s.name
	if !r.Seen || s.last.Seen && s.last.Last > r.Last {
		r.Seen, r.Last = s.last.Seen, s.last.Last
		if s.last.Seen {
			r.What = s.last.What
		}
	}
	s.last = r
}

// Look asks the sources, as far as it matters: logind costs two processes, and is
// asked only when the others have not seen anybody, and not more often than every
// 30 seconds; with fresh, not more often than every 5.
func (w *Watcher) Look(ctx context.Context, fresh bool) (v Verdict, err error) {
	m, err := w.clock()
	if err != nil {
		return v, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cost := time.Duration(0)
	defer func() { v.Cost = cost }()
	var dear []*asked
	for _, s := range w.sources {
		if s.every > 0 {
			dear = append(dear, s)
			continue
		}
		began := threadTime()
		if w.ask(ctx, s, m); s.name != Load { // which sees to that itself
			cost += threadTime() - began
		}
	}
	v = w.verdict(m)
	for _, s := range dear {
		every := s.every
		if fresh {
			every = freshEvery
		}
		if v.Here && len(dear) < len(w.sources) && s.at > 0 || s.at > 0 && m.Uptime-s.at < every {
			continue
		}
		w.ask(ctx, s, m)
		v = w.verdict(m)
	}
	return v, nil
}

// threadTime is what this thread has had of a cpu.
func threadTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
}

// ask asks one source.
func (w *Watcher) ask(ctx context.Context, s *asked, m Moment) {
	r := s.look(ctx, m)
	if r.Seen {
		r.Last = min(r.Last, m.Uptime)
	}
	if r.Err == nil {
		s.told = ""
	} else if text := r.Err.Error(); text != s.told {
		s.told = text
		w.log(s.name, r.Err)
	}
	s.at = max(1, m.Uptime)
	s.seen(r)
}

func (w *Watcher) verdict(m Moment) Verdict {
	readings := make([]Reading, len(w.sources))
	for i, s := range w.sources {
		readings[i] = s.last
	}
	return decide(m, w.config.AutoPause, readings)
}

// A Said is what a source says, in words.
type Said struct{ Source, Text string }

// Say is what each source said when it was asked last.
func (w *Watcher) Say() []Said {
	m, err := w.clock()
	var all []Said
	for _, s := range w.sources {
		text := s.last.text(m)
		if err != nil {
			text = "cannot be read: " + err.Error()
		}
		all = append(all, Said{s.name, text})
	}
	return all
}
