package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"distribute/lib/pause"
	"distribute/lib/unit"
)

// longest is how long a pause may be: what is longer is a slip of the keys, or a
// node to be taken away.
const longest = 366 * 24 * time.Hour

// parseEnd reads an operand: a length of time with units, or a time of day, which
// is the next one after now.
func parseEnd(clock pause.Clock, s string) (pause.Pause, error) {
	if hour, minute, ok := parseClock(s); ok {
		return pause.To(clock, nextClock(clock.Now, hour, minute)), nil
	}
	d, err := unit.ParseDuration(s)
	switch {
	case err != nil && d == 0 && strings.Contains(s, ":"):
		err = fmt.Errorf("%q is no time of day: write it like 17:30", s)
	case err != nil && d == 0:
		err = fmt.Errorf("%q is no length of time and no time of day: write it like 2h, 90m or 17:30", s)
	case d > 0 && strings.Trim(s, "0123456789.") == "":
		err = fmt.Errorf("%q of what? write %sm, %sh or a time of day like 17:30", s, s, s)
	case strings.Contains(s, ":"):
		err = fmt.Errorf("%q may be a time of day or a length of time: write it like 17:30 or 2h", s)
	case d < time.Second:
		err = fmt.Errorf("%q is less than a second", s)
	case d > longest:
		err = fmt.Errorf("%q is longer than %d days; to take the machine away from jobs stop dnoded", s, longest/(24*time.Hour))
	}
	if err != nil {
		return pause.Pause{}, err
	}
	return pause.For(clock, d), nil
}

// parseClock reads a time of day.
func parseClock(s string) (hour, minute int, ok bool) {
	h, m, found := strings.Cut(s, ":")
	if !found || len(h) < 1 || len(h) > 2 || len(m) != 2 || strings.Trim(h+m, "0123456789") != "" {
		return 0, 0, false
	}
	hour, _ = strconv.Atoi(h)
	minute, _ = strconv.Atoi(m)
	return hour, minute, hour < 24 && minute < 60
}

// nextClock is the next moment after now at which a clock shows that time, where
// now is. A time that the change to summer time leaves out is that of the clock as
// it would have gone on.
func nextClock(now time.Time, hour, minute int) time.Time {
	for day := 0; ; day++ {
		at := time.Date(now.Year(), now.Month(), now.Day()+day, hour, minute, 0, 0, now.Location())
		// It comes twice in the night in which the clock is set back.
		for _, t := range []time.Time{at.Add(-time.Hour), at, at.Add(time.Hour)} {
			if t.After(now) && t.Hour() == hour && t.Minute() == minute {
				return t
			}
		}
		if at.After(now) && (at.Hour() != hour || at.Minute() != minute) {
			return at
		}
	}
}

// nearest is a time for the eye: the nearest minute, as dquery shows it.
func nearest(now, t time.Time) string { return clockOf(now, t.Add(30*time.Second)) }

// clockOf is a time for the eye, as short as it can be said today.
func clockOf(now, t time.Time) string {
	t = t.In(now.Location())
	day := func(t time.Time) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day(), 12, 0, 0, 0, time.UTC)
	}
	switch days := int(day(t).Sub(day(now)) / (24 * time.Hour)); {
	case days == 0:
		return t.Format("15:04")
	case days > 0 && days < 7:
		return t.Format("Mon 15:04")
	}
	return t.Format("2006-01-02 15:04")
}
