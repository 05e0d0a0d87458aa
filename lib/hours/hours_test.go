package hours

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

func TestWithin(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	// 20 November 2026 is a Friday.
	tests := []struct {
		hours []string
		now   string
		until string // empty: not within
		next  string
	}{
		{[]string{"mon-fri 8-18"}, "2026-11-20 07:59", "", "2026-11-20 08:00"},
		{[]string{"mon-fri 8-18"}, "2026-11-20 08:00", "2026-11-20 18:00", "2026-11-23 08:00"},
		{[]string{"mon-fri 8-18"}, "2026-11-20 17:59", "2026-11-20 18:00", "2026-11-23 08:00"},
		{[]string{"mon-fri 8-18"}, "2026-11-20 18:00", "", "2026-11-23 08:00"},
		{[]string{"mon-fri 8-18"}, "2026-11-21 12:00", "", "2026-11-23 08:00"},
		{[]string{"fri 8-18"}, "2026-11-20 08:00", "2026-11-20 18:00", "2026-11-27 08:00"},
		{[]string{"MON,Fri 8:30-12,13-17"}, "2026-11-20 12:30", "", "2026-11-20 13:00"},
		{[]string{"mon,fri 8:30-12,13-17"}, "2026-11-20 13:30", "2026-11-20 17:00", "2026-11-23 08:30"},
		{[]string{"daily 22-6"}, "2026-11-20 23:00", "2026-11-21 06:00", "2026-11-21 22:00"},
		{[]string{"daily 22-6"}, "2026-11-20 05:00", "2026-11-20 06:00", "2026-11-20 22:00"},
		{[]string{"fri 22-6"}, "2026-11-21 05:00", "2026-11-21 06:00", "2026-11-27 22:00"},
		{[]string{"fri 22-6"}, "2026-11-20 05:00", "", "2026-11-20 22:00"},
		{[]string{"sat-mon 0-24"}, "2026-11-21 05:00", "2026-11-24 00:00", "2026-11-22 00:00"},
		{[]string{"sat-mon 0-24"}, "2026-11-20 05:00", "", "2026-11-21 00:00"},
		{[]string{"fri 8-12", "fri 11-14"}, "2026-11-20 09:00", "2026-11-20 14:00", "2026-11-20 11:00"},
		{[]string{"daily 0-24"}, "2026-11-20 09:00", "2026-11-29 00:00", "2026-11-21 00:00"},
		{[]string{"daily 12-12:01"}, "2026-11-20 12:00", "2026-11-20 12:01", "2026-11-21 12:00"},
		// The clock goes from 2:00 to 3:00 on 29 March, from 3:00 to 2:00 on 25 October.
		{[]string{"daily 1-4"}, "2026-03-29 03:30", "2026-03-29 04:00", "2026-03-30 01:00"},
		{[]string{"sat 22-6"}, "2026-03-29 05:59", "2026-03-29 06:00", "2026-04-04 22:00"},
		{[]string{"sat 22-6"}, "2026-10-25 05:59", "2026-10-25 06:00", "2026-10-31 22:00"},
		{[]string{"sun 8-18"}, "2026-10-25 08:00", "2026-10-25 18:00", "2026-11-01 08:00"},
		{nil, "2026-10-25 08:00", "", "-"},
	}
	const layout = "2006-01-02 15:04"
	for _, tt := range tests {
		var all []Span
		for _, h := range tt.hours {
			spans, err := Parse(h)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, spans...)
		}
		now, err := time.ParseInLocation(layout, tt.now, berlin)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		until, _, ok := Within(all, now)
		if ok {
			got = until.Format(layout)
		}
		next := "-"
		if n := Next(all, now); !n.IsZero() {
			next = n.Format(layout)
		}
		if got != tt.until || next != tt.next {
			t.Errorf("%q at %s: until %q, next %s", tt.hours, tt.now, got, next)
		}
	}
}

func TestParseMistakes(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "write mon-fri 8-18",
		"8-18":               "write mon-fri 8-18",
		"mon":                "in quotes if there is a comma",
		"mon-fri 8-18 x":     "is not days and times",
		"monday 8-18":        `"monday" are no days`,
		"mon-frei 8-18":      `"mon-frei" are no days`,
		"mon, 8-18":          `"" are no days`,
		"mon 8":              `"8" is no span`,
		"mon 8-":             `"" is no time of a day`,
		"mon 8-25":           `"25" is no time`,
		"mon 8-24:30":        `"24:30" is no time`,
		"mon 8:5-9":          `"8:5" is no time`,
		"mon 8:60-9":         `"8:60" is no time`,
		"mon 8-8":            "a whole day is 0-24",
		"mon 24-6":           "has no length",
		"mon 8-12,":          `"" is no span`,
		"mon -1-8":           "no time of a day",
		"mon 008-9":          `"008" is no time`,
		"mon 8.30-9":         `"8.30" is no time`,
		"mon-fri 8-18,am-pm": `"am" is no time`,
	} {
		if got, err := Parse(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %s", in, got, err, want)
		}
	}
}
