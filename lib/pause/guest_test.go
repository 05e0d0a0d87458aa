package pause

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// rule returns the ruling of a moment, which is so long after noon.
func rule(after time.Duration, before Seen, ends ...Pause) *ruling {
	return &ruling{now: noon.Now.Add(after), owns: func(uid int) bool { return uid <= owner }, session: func(uid int) bool { return uid == sitter }, before: before, ends: ends}
}

// P79: a pause of one who neither owns the node nor has a session ends in an hour, and then
// he has none for three hours, however often he writes it again.
func TestP79Guest(t *testing.T) {
	const h = time.Hour
	had := Seen{Hours: map[int]int64{stranger: noon.Now.UnixNano()}}
	for _, tt := range []struct {
		name  string
		p     Pause
		now   time.Duration
		seen  Seen
		ends  []Pause
		want  time.Duration
		hours time.Duration // when the hour of the stranger began; -1: it has not
	}{
		{"an owner", from(owner, 0), 0, Seen{}, nil, -1, -1},
		{"a session", from(sitter, 0), 0, Seen{}, nil, -1, -1},
		{"no session", from(stranger, 0), 0, Seen{}, nil, h, 0},
		{"written again", from(stranger, h/2), h / 2, had, nil, h, 0},
		{"written again after the hour", from(stranger, h+1), h + 1, had, nil, h, 0},
		{"still there much later", from(stranger, 0), 9 * h, Seen{}, nil, h, -1},
		{"written while none counts, and looked at later", from(stranger, 3*h+h/2), 4*h + 1, had, nil, h, 0},
		{"written later", from(stranger, 4*h), 4 * h, had, nil, 5 * h, 4 * h},
		{"after an owner has ended all", from(stranger, 2*h), 2 * h, Seen{}, []Pause{end(owner, 0)}, 2 * h, -1},
		{"long after that", from(stranger, 3*h), 3 * h, Seen{}, []Pause{end(owner, 0)}, 4 * h, 3 * h},
		{"a session after that", from(sitter, 2*h), 2 * h, Seen{}, []Pause{end(owner, 0)}, -1, -1},
		{"a file that was changed long after it was made", touched(from(sitter, h)), h, Seen{}, nil, 2 * h, -1},
		{"of the future", from(stranger, 9*h), 0, Seen{}, nil, h, 0},
	} {
		all := []Pause{tt.p}
		seen := rule(tt.now, tt.seen, tt.ends...).apply(all)
		hours := time.Duration(-1)
		if first, ok := seen.Hours[stranger]; ok {
			hours = time.Unix(0, first).Sub(noon.Now)
		}
		if got := lasts(all[0]); got != tt.want || hours != tt.hours {
			t.Errorf("%s: lasts %v, want %v; its hour began %v, want %v", tt.name, got, tt.want, hours, tt.hours)
		}
	}
}

func touched(p Pause) Pause {
	p.touched = true
	return p
}

// P79: what counts is the session at the time when the daemon saw the pause first, and of a
// file that was changed since, that at the time when it saw the change.
func TestP79SeenFirst(t *testing.T) {
	all := []Pause{from(sitter, 0), from(stranger, 0)}
	seen := rule(0, Seen{}).apply(all)
	later := rule(time.Minute, seen)
	later.session = func(uid int) bool { return uid == stranger } // one has left, the other has come
	again := later.apply(all)
	if !seen.Same(again) || all[0].Guest || !all[1].Guest {
		t.Errorf("noted %+v, then %+v: %+v", seen, again, all)
	}
	all[0].Changed = noon.Now.Add(time.Minute)
	if later.apply(all); !all[0].Guest {
		t.Error("what was changed after its maker had left counts like before")
	}
	if gone := later.apply(nil); len(gone.Pauses) != 0 || len(gone.Hours) != 1 {
		t.Errorf("of pauses that are gone it keeps %+v", gone)
	}
	name := filepath.Join(t.TempDir(), "pause-seen")
	if err := PutSeen(name, seen); err != nil {
		t.Fatal(err)
	}
	if got := ReadSeen(name); !got.Same(seen) {
		t.Errorf("kept as %+v, not %+v", got, seen)
	}
	for n := range 10 * maxSightsOne {
		all = append(all, from(stranger, time.Duration(n)))
	}
	if many := later.apply(all); len(many.Pauses) > maxSightsOne+1 {
		t.Errorf("%d pauses of one user are noted", len(many.Pauses))
	}
}

// P79: a session is what logind says, with a person in it; where it does not run everybody has one.
func TestP79HasSession(t *testing.T) {
	defer func(was string) { sessionRoot = was }(sessionRoot)
	sessionRoot = t.TempDir()
	dir := sessionRoot + "/run/systemd/sessions"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if KnowsSessions() || !HasSession(5) {
		t.Error("without logind")
	}
	err := os.Mkdir(sessionRoot+"/run/systemd/system", 0o755)
	for name, text := range map[string]string{
		"1": "# private\nUID=1000\nACTIVE=1\nSTATE=active\nCLASS=user\n", "c2": "UID=1001\nSTATE=online\nCLASS=background\n",
		"3": "UID=1002\nSTATE=closing\nCLASS=user\n", "4.ref": "UID=1003\nSTATE=active\nCLASS=user\n", "5": "UID=1004\nSTATE=online\nCLASS=user-light\n",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]bool{1000: true, 1001: false, 1002: false, 1003: false, 1004: true, 100: false} {
		if HasSession(uid) != want {
			t.Errorf("%d: %v", uid, !want)
		}
	}
}

// After the clock was ahead, a guest's pauses still end an hour after the first.
func TestGuestAfterClockWasAhead(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := ruling{owns: func(int) bool { return false }, session: func(int) bool { return false }}
	r.before = Seen{Hours: map[int]int64{5: now.Add(100 * time.Hour).UnixNano()}}
	for hour := range 4 {
		r.now = now.Add(time.Duration(hour) * time.Hour)
		all := []Pause{{ID: "5.0", UID: 5, Changed: r.now}}
		r.before = r.apply(all)
		if live := all[0].Live(Clock{Now: r.now}); live != (hour == 0) {
			t.Errorf("after %d hours it counts: %v", hour, live)
		}
	}
}
