package pause

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The places of a machine, which its installation makes. They are for all nodes of
// the machine, whoever runs them. Only tests set them.
var (
	MachinePlace = "/var/lib/distribute/pause"
	RunPlace     = "/run/distribute/pause" // in memory, for when the disk takes nothing
)

// PlacesOf is the places that a node goes by whose directory is dir.
func PlacesOf(dir string) []string {
	places := []string{MachinePlace, RunPlace, OwnPlace(dir)}
	if machine := MachineOf(dir); machine != "" {
		places = append(places, OwnPlace(machine))
	}
	return places
}

// MachineOf is the directory of a machine that is several nodes, of one of which dir
// is the directory; empty if that is of a node that is the machine.
func MachineOf(dir string) string {
	up, part := filepath.Split(filepath.Dir(dir))
	up = filepath.Clean(up)
	if part != Parts {
		return ""
	}
	if _, err := os.Lstat(filepath.Join(up, "node.json")); err != nil {
		return ""
	}
	return up
}

// Parts is the directory of a machine in which those of its nodes are.
const Parts = "nodes"

// OwnPlace is the place in a node's directory.
func OwnPlace(dir string) string { return filepath.Join(dir, "pause") }

// EndedOf is the file of a node's directory that names the pauses which count no
// longer though their files are there.
func EndedOf(dir string) string { return filepath.Join(dir, "pause-ended") }

// MadeOf is the file of a node's directory that names the pauses which the node has
// made and whose reasons hold, so that it knows when somebody has ended one.
func MadeOf(dir string) string { return filepath.Join(dir, "pause-made") }

// A Pause is one person's wish that the jobs of a machine stand still, or that a
// part of the machine is given back.
type Pause struct {
	ID       string        // the name of its file
	UID      int           // who holds it: the owner of the file
	Made     time.Time     // as the maker's clock said
	Until    time.Time     // zero: until it is ended
	Boot     string        // the boot in which Deadline counts
	Deadline time.Duration // after the start of that boot; 0: only Until counts
	Give     *Give         // not everything stands still: this much is given back
	Out      bool          // jobs are to leave
	Why      string        // for people; of a pause that a daemon made
	Attempt  string        // not the machine stands still, but this attempt alone
	Ends     string        // it is none, but ends those that were made before: EndsAll or EndsHere
	Place    string        // the directory that the file is in

	Changed time.Time // when the file was changed last, as the kernel says
	Guest   bool      // its maker neither owns the node nor had a session
	Cap     time.Time // when it ends at the latest, whatever the file says; zero: that counts

	touched bool // the file was changed long after it was made
}

// Give is what is given back of a machine.
type Give struct {
	CPUs   int   `json:"cpus,omitempty"`
	Memory int64 `json:"memory,omitempty"` // bytes
}

// For is a pause from now for a length of time, in which the sleep of the machine
// counts, and which no change of its clock makes longer.
func For(c Clock, d time.Duration) Pause {
	return Pause{Made: c.Now, Until: c.Now.Add(d), Boot: c.Boot, Deadline: c.Uptime + d}
}

// To is a pause from now until the clock says t; with the zero time until it is
// ended.
func To(c Clock, t time.Time) Pause { return Pause{Made: c.Now, Until: t} }

// End is when the pause ends by itself; forever if it does not.
func (p Pause) End(c Clock) (t time.Time, forever bool) {
	t, forever = p.Asked(c)
	if !p.Cap.IsZero() && (forever || p.Cap.Before(t)) {
		return p.Cap, false
	}
	return t, forever
}

// Asked returns when the pause ends as its maker has asked.
func (p Pause) Asked(c Clock) (t time.Time, forever bool) {
	switch {
	case p.Until.IsZero():
		return time.Time{}, true
	case p.Deadline > 0 && p.Boot == c.Boot:
		return c.Now.Add(p.Deadline - c.Uptime), false
	}
	return p.Until, false
}

// Live says whether the pause has not ended by itself.
func (p Pause) Live(c Clock) bool {
	t, forever := p.End(c)
	return forever || t.After(c.Now)
}

// aheadFor is for how long the clock may be ahead, as after a start of the machine.
const aheadFor = 24 * time.Hour

// mayReturn says of a pause that is over whether it counts again if the clock is ahead now,
// and is set back.
func (p Pause) mayReturn(c Clock) bool {
	ago := c.Now.Sub(p.Until)
	if !p.Cap.IsZero() && p.Cap.Before(p.Until) {
		return false
	}
	return !p.Until.IsZero() && !(p.Deadline > 0 && p.Boot == c.Boot) && ago >= 0 && ago <= aheadFor
}

// Full says that everything stands still.
func (p Pause) Full() bool { return p.Give == nil }

// A State is what the places said at a moment.
type State struct {
	At   Clock
	Live []Pause  // that count, the oldest first
	Of   []Pause  // of single attempts, which nodes of this process's user have made
	Over []Pause  // whose time is over, or that were ended
	Ends []Pause  // records by which owners have ended pauses
	Seen Seen     // what a daemon is to note of the makers of all these
	Odd  []error  // files that are no pauses, of which nothing was taken
	Lost []string // places that could not be read, or not wholly
}

// keep is the state with what was known before of the places that cannot be read now:
// a pause of such a place counts until its time is over.
func (s State) keep(before State) State {
	s.Live = slices.Clone(s.Live)
	for _, p := range before.Live {
		there := func(q Pause) bool { return q.ID == p.ID && q.Place == p.Place }
		if slices.Contains(s.Lost, p.Place) && p.Live(s.At) && !slices.ContainsFunc(s.Live, there) && !slices.ContainsFunc(s.Over, there) {
			s.Live = append(s.Live, p)
		}
	}
	slices.SortFunc(s.Live, byAge)
	for _, p := range before.Of {
		if slices.Contains(s.Lost, p.Place) && !slices.ContainsFunc(s.Of, func(q Pause) bool { return q.ID == p.ID }) {
			s.Of = append(s.Of[:len(s.Of):len(s.Of)], p)
		}
	}
	return s
}

// For is the state as it is for one attempt.
func (s State) For(attempt string) State {
	s.Live = slices.Clone(s.Live)
	for _, p := range s.Of {
		if p.Attempt == attempt {
			s.Live = append(s.Live, p)
		}
	}
	return s
}

// Frozen says that everything is to stand still.
func (s State) Frozen() bool {
	return slices.ContainsFunc(s.Live, func(p Pause) bool { return p.Full() })
}

// Out says that jobs are to leave.
func (s State) Out() bool { return slices.ContainsFunc(s.Live, func(p Pause) bool { return p.Out }) }

// Give is the most that somebody wants back, of cpus and of memory; two who want
// four cpus want the same four.
func (s State) Give() (g Give) {
	for _, p := range s.Live {
		if p.Give != nil {
			g.CPUs, g.Memory = max(g.CPUs, p.Give.CPUs), max(g.Memory, p.Give.Memory)
		}
	}
	return g
}

// Until is when the last pause ends of those that decide: the full ones if there
// are any. Forever says that one of them does not end by itself; t is zero then,
// and where there is no pause.
func (s State) Until() (t time.Time, forever bool) {
	frozen := s.Frozen()
	for _, p := range s.Live {
		if frozen && !p.Full() {
			continue
		}
		end, f := p.End(s.At)
		if f {
			return time.Time{}, true
		}
		if end.After(t) {
			t = end
		}
	}
	return t, false
}

// clockEvery is how often a state is read again of which something ends by itself: the
// clock may be set, and the machine sleep.
const clockEvery = 10 * time.Second

// Next is after how long the state is to be read again though the places have not changed;
// false if no pause ends by itself, or may return.
func (s State) Next() (d time.Duration, ok bool) {
	d = clockEvery
	for _, p := range s.Live {
		if t, forever := p.End(s.At); !forever {
			d, ok = min(d, t.Sub(s.At.Now)), true
		}
	}
	ok = ok || slices.ContainsFunc(s.Over, func(p Pause) bool { return p.mayReturn(s.At) })
	return d, ok
}

func byAge(a, b Pause) int { return cmp.Or(a.Made.Compare(b.Made), cmp.Compare(a.ID, b.ID)) }
