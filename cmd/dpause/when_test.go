package main

import (
	"strings"
	"testing"
	"time"

	"distribute/lib/pause"
)

// zone is one in which summer begins on 2026-03-29 at 2:00 and ends on 2026-10-25
// at 3:00.
func zone(t *testing.T) *time.Location {
	t.Helper()
	z, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	return z
}

func TestNextClock(t *testing.T) {
	z := zone(t)
	for _, tt := range []struct{ now, clock, want string }{
		{"2026-11-20 13:02:00 +0100", "17:30", "2026-11-20 17:30:00 +0100"},
		{"2026-11-20 17:29:59 +0100", "17:30", "2026-11-20 17:30:00 +0100"},
		{"2026-11-20 17:30:00 +0100", "17:30", "2026-11-21 17:30:00 +0100"},
		{"2026-11-20 18:00:00 +0100", "0:00", "2026-11-21 00:00:00 +0100"},
		{"2026-12-31 23:59:00 +0100", "8:15", "2027-01-01 08:15:00 +0100"},
		{"2026-02-28 23:59:00 +0100", "08:15", "2026-03-01 08:15:00 +0100"},
		{"2026-03-28 22:00:00 +0100", "08:00", "2026-03-29 08:00:00 +0200"},
		{"2026-10-24 22:00:00 +0200", "08:00", "2026-10-25 08:00:00 +0100"},
		// Left out, and twice.
		{"2026-03-29 01:00:00 +0100", "02:30", "2026-03-29 03:30:00 +0200"},
		{"2026-10-25 02:00:00 +0200", "02:30", "2026-10-25 02:30:00 +0200"},
		{"2026-10-25 02:45:00 +0200", "02:30", "2026-10-25 02:30:00 +0100"},
		{"2026-10-25 02:45:00 +0100", "02:30", "2026-10-26 02:30:00 +0100"},
	} {
		const layout = "2006-01-02 15:04:05 -0700"
		now, err := time.Parse(layout, tt.now)
		if err != nil {
			t.Fatal(err)
		}
		hour, minute, ok := parseClock(tt.clock)
		if got := nextClock(now.In(z), hour, minute).Format(layout); !ok || got != tt.want {
			t.Errorf("%s, %s: %s, want %s", tt.now, tt.clock, got, tt.want)
		}
	}
}

func TestParseEnd(t *testing.T) {
	c := pause.Clock{Now: time.Date(2026, 11, 20, 13, 2, 0, 0, time.UTC), Uptime: time.Hour, Boot: "b"}
	for s, want := range map[string]time.Duration{"2h": 2 * time.Hour, "90m": 90 * time.Minute, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour,
		"1s": time.Second, "366d": longest, "13:03": time.Minute, "13:02": 24 * time.Hour, "9:00": 19*time.Hour + 58*time.Minute} {
		p, err := parseEnd(c, s)
		if err != nil || p.Until.Sub(c.Now) != want || (p.Deadline != 0) != !strings.Contains(s, ":") {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	}
	for s, want := range map[string]string{"": "no length of time", "17:75": `"17:75" is no time of day`, "24:00": "no time of day", "2": "2m, 2h or", "17.5": "of what?",
		"tea": "2h, 90m or 17:30", "2 h": "no length of time", "17:30:00": "may be a time of day or", "0h": `"0h" is less than a second`, "0": `"0" is less than a second`, "0.0": "less than a second", "0.5": "of what?", "367d": "longer than 366 days", "99999w": "longer than 366 days", "99999w:": "no time of day",
		"1:2": "no time of day", "17:30pm": "no time of day", "::": "no time of day", "\x1b[2J": `"\x1b[2J"`} {
		if p, err := parseEnd(c, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", s, p, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	now := time.Date(2026, 11, 20, 13, 2, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{0: "13:02", time.Second: "13:02", 45 * time.Second: "13:03", 2 * time.Hour: "15:02", 11 * time.Hour: "Sat 00:02", 6 * 24 * time.Hour: "Thu 13:02",
		7 * 24 * time.Hour: "2026-11-27 13:02"} {
		if got := nearest(now, now.Add(d)); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestSentence(t *testing.T) {
	for n, want := range []string{"", "1 job of a stands", "2 jobs of a and b stand", "3 jobs of a and b stand", "4 jobs of a, b and 1 other stand", "5 jobs of \"\\x1b[2J\", a and 2 others stand"} {
		var jobs []job
		for _, user := range []string{"a", "b", "b", "c", "\x1b[2J"}[:n] {
			jobs = append(jobs, job{user: user})
		}
		if got := sentence(jobs, "stands", "stand"); n > 0 && got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
