// Package hours knows the times of a week, as people write them: "mon-fri 8-18".
// Times are those of the clock of a place, whatever it does in spring and autumn.
package hours

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Span is a time of some days of the week, by the clock of the place.
type Span struct {
	Days     [7]bool // on which it begins, Sunday first
	From, To int     // minutes after midnight; To is on the next day if it is not after From
	Text     string  // as it was written
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// Parse reads the days and times of a week: "mon-fri 8-18",
// "mon,wed 8:30-12,13-17", "daily 22-6". Each of its times is a span.
func Parse(text string) ([]Span, error) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) != 2 {
		return nil, fmt.Errorf("%q is not days and times: write mon-fri 8-18, or daily 22-6 (in quotes if there is a comma in it)", text)
	}
	days, err := parseDays(words[0])
	if err != nil {
		return nil, err
	}
	var all []Span
	for part := range strings.SplitSeq(words[1], ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			return nil, fmt.Errorf("%q is no span of a day: write 8-18, or 8:30-12", part)
		}
		s := Span{Days: days, Text: words[0] + " " + part}
		if s.From, err = parseTime(from); err != nil {
			return nil, err
		}
		if s.To, err = parseTime(to); err != nil {
			return nil, err
		}
		if s.From == s.To || s.From == dayLong {
			return nil, fmt.Errorf("%q has no length: a whole day is 0-24", part)
		}
		all = append(all, s)
	}
	return all, nil
}

// dayLong is a day in minutes.
const dayLong = 24 * 60

func parseDays(text string) (days [7]bool, err error) {
	if text == "daily" {
		return [7]bool{true, true, true, true, true, true, true}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, b := slices.Index(weekdays, first), slices.Index(weekdays, last)
		if a < 0 || b < 0 {
			return days, fmt.Errorf("%q are no days: write mon tue wed thu fri sat sun, mon-fri, mon,wed or daily", part)
		}
		for ; ; a = (a + 1) % 7 {
			if days[a] = true; a == b {
				break
			}
		}
	}
	return days, nil
}

// parseTime reads a time of a day, as minutes after midnight.
func parseTime(text string) (int, error) {
	hour, minute, exact := strings.Cut(text, ":")
	h, err := strconv.ParseUint(hour, 10, 8)
	m := uint64(0)
	if exact && err == nil {
		if m, err = strconv.ParseUint(minute, 10, 8); len(minute) != 2 {
			err = strconv.ErrSyntax
		}
	}
	if err != nil || len(hour) > 2 || m > 59 || h > 24 || h == 24 && m > 0 {
		return 0, fmt.Errorf("%q is no time of a day: write 8, 8:30 or 18:00, up to 24", text)
	}
	return int(h*60 + m), nil
}

// Localtime is the file with the time zone of the machine, as localtime(5) has it. Only tests set
// it.
var Localtime = "/etc/localtime"

// Local returns t in the time zone that the machine has now: [time.Local] is the one that it had when
// the program started. The zone stays if the variable TZ says it; without the file it is UTC.
func Local(t time.Time) time.Time {
	if _, set := os.LookupEnv("TZ"); set {
		return t.Local()
	}
	b, err := os.ReadFile(Localtime)
	if errors.Is(err, fs.ErrNotExist) {
		return t.UTC()
	}
	if err != nil {
		return t.Local()
	}
	zone, err := time.LoadLocationFromTZData("Local", b)
	if err != nil {
		return t.Local()
	}
	return t.In(zone)
}

// A period is one time that a span covers.
type period struct {
	from, to time.Time
	text     string
}

// periods is what the spans cover from the day before t to 8 days after it, sorted
// by when they begin. A time that the clock leaves out or has twice, when it is
// changed in spring and autumn, is as [time.Date] has it.
func periods(all []Span, t time.Time) (list []period) {
	y, m, d := t.Date()
	for _, s := range all {
		length := 0 // in days, beside the times of the day
		if s.To <= s.From {
			length = 1
		}
		for day := d - 1; day <= d+8; day++ {
			at := func(day, minute int) time.Time { return time.Date(y, m, day, 0, minute, 0, 0, t.Location()) }
			if noon := at(day, dayLong/2); s.Days[noon.Weekday()] {
				list = append(list, period{at(day, s.From), at(day+length, s.To), s.Text})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b period) int { return a.from.Compare(b.from) })
	return list
}

// Within says whether t is in one of the spans, when that ends, and how it was
// written. Spans that follow without a gap are one, for 8 days at most.
func Within(all []Span, t time.Time) (until time.Time, text string, ok bool) {
	until = t
	for _, p := range periods(all, t) {
		if !p.from.After(until) && p.to.After(until) {
			if until, ok = p.to, true; text == "" {
				text = p.text
			}
		}
	}
	return until, text, ok
}

// Next is when the next of the spans begins after t; zero if there are none.
func Next(all []Span, t time.Time) time.Time {
	for _, p := range periods(all, t) {
		if p.from.After(t) {
			return p.from
		}
	}
	return time.Time{}
}
