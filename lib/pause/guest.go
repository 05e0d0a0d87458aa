package pause

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/durable"
)

// A guest is the maker of a pause who neither owns the node nor had a session on the machine
// when the pause was made. A job whose user has no session is one, too.
const (
	GuestFor  = time.Hour     // the pauses of a guest end so long after the first
	guestRest = 3 * time.Hour // then so long none of them counts; nor after an owner has ended all pauses
)

// touchedAfter is how long after it was made the file of a pause is final. One that was
// changed later counts like that of a guest: a job can write to the files of its user.
const touchedAfter = time.Minute

// A Seen is what a daemon has noted of the makers of pauses, which nobody else can change.
// The methods do not change it.
type Seen struct {
	Pauses map[string]Sight `json:"pauses,omitempty"` // by the names of their files
	Hours  map[int]int64    `json:"hours,omitempty"`  // when the first pause of each guest was made, in nanoseconds since 1970
}

// A Sight is what was noted of a pause when it was seen first.
type Sight struct {
	Changed int64 `json:"changed"` // the kernel's time of the file, in nanoseconds since 1970
	Session bool  `json:"session"` // the maker had a session
}

// Bounds of a Seen.
const (
	maxSeen      = 1 << 20 // bytes
	maxHours     = 10000
	maxSights    = 1000
	maxSightsOne = 20 // of one user
)

// SeenOf returns the file of a node's directory that has the Seen of its daemon.
func SeenOf(dir string) string { return filepath.Join(dir, "pause-seen") }

// PutSeen writes a Seen durably.
func PutSeen(name string, seen Seen) error {
	b, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	return durable.WriteFile(name, append(b, '\n'), 0o644)
}

// ReadSeen reads a Seen. What cannot be read is empty: then sessions of now count.
func ReadSeen(name string) Seen {
	var seen Seen
	if b, err := readSmall(name, maxSeen); err != nil || json.Unmarshal(b, &seen) != nil {
		return Seen{}
	}
	return seen
}

// Same reports whether two have noted the same.
func (n Seen) Same(o Seen) bool {
	return maps.Equal(n.Pauses, o.Pauses) && maps.Equal(n.Hours, o.Hours)
}

// A ruling decides how long the pauses of guests count.
type ruling struct {
	now     time.Time
	owns    func(uid int) bool
	session func(uid int) bool // the user has a session now
	before  Seen
	ends    []Pause // the records by which owners have ended pauses
}

// apply sets when the pauses of guests end at the latest, and returns what is noted now.
func (r *ruling) apply(all []Pause) Seen {
	after := Seen{map[string]Sight{}, map[int]int64{}}
	for uid, first := range r.before.Hours {
		if r.now.Before(time.Unix(0, first).Add(2 * (GuestFor + guestRest))) {
			after.Hours[uid] = min(first, r.now.UnixNano()) // the clock may have been set back
		}
	}
	order := make([]*Pause, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortStableFunc(order, func(a, b *Pause) int { return a.Changed.Compare(b.Changed) })
	noted := map[int]int{}
	for _, p := range order {
		if r.owns(p.UID) {
			continue
		}
		changed := p.Changed.UnixNano()
		sight, known := r.before.Pauses[p.ID]
		if !known || sight.Changed != changed {
			sight = Sight{changed, r.session(p.UID)}
		}
		if noted[p.UID]++; noted[p.UID] <= maxSightsOne && len(after.Pauses) < maxSights {
			after.Pauses[p.ID] = sight
		}
		if p.Guest = !sight.Session || p.touched; p.Guest {
			r.bound(p, after.Hours)
		}
	}
	return after
}

// bound limits a pause of a guest, whose first pause is among the hours.
func (r *ruling) bound(p *Pause, hours map[int]int64) {
	made := p.Changed
	if made.After(r.now) { // the clock was set back
		made = r.now
	}
	p.atMost(made.Add(GuestFor))
	for i := range r.ends {
		if end := &r.ends[i]; end.covers(p) && !made.Before(end.Changed) && made.Before(end.Changed.Add(guestRest)) {
			p.atMost(made)
		}
	}
	first, known := hours[p.UID]
	switch begin := time.Unix(0, first); {
	case known && made.Before(begin.Add(GuestFor+guestRest)):
		p.atMost(begin.Add(GuestFor))
	case p.Cap.After(r.now) && len(hours) < maxHours:
		hours[p.UID] = made.UnixNano()
	}
}

// GuestFrom returns from when on a pause of a guest counts; a time that has passed: now.
func (s State) GuestFrom(uid int) (t time.Time) {
	if first, known := s.Seen.Hours[uid]; known {
		t = time.Unix(0, first).Add(GuestFor + guestRest)
	}
	for _, end := range s.Ends {
		if from := end.Changed.Add(guestRest); from.After(t) {
			t = from
		}
	}
	return t
}

// sessionRoot goes before /run. Only tests set it.
var sessionRoot = ""

// KnowsSessions reports whether this machine says who has a session: logind runs.
func KnowsSessions() bool {
	for _, mark := range []string{"/run/systemd/system", "/run/elogind.pid"} {
		if _, err := os.Stat(sessionRoot + mark); err == nil {
			_, err = os.Stat(sessionRoot + "/run/systemd/sessions")
			return err == nil
		}
	}
	return false
}

// HasSession reports whether a user has a session on this machine, as logind says, in whose
// directory only root can write. It is true for everybody where nobody knows that.
func HasSession(uid int) bool {
	if !KnowsSessions() {
		return true
	}
	dir := sessionRoot + "/run/systemd/sessions"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), ".") { // a FIFO of the session, or one that is being written
			continue
		}
		if b, err := readSmall(filepath.Join(dir, e.Name()), maxFile*4); err == nil && isSessionOf(b, uid) {
			return true
		}
	}
	return false
}

// isSessionOf reports whether a file of logind is of a session in which the user can be at
// work. Sessions of cron are not.
func isSessionOf(b []byte, uid int) bool {
	said := map[string]string{}
	for line := range bytes.Lines(b) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
		said[name] = value
	}
	return said["UID"] == strconv.Itoa(uid) && strings.HasPrefix(said["CLASS"], "user") && said["STATE"] != "closing" && said["STOPPING"] != "1"
}
