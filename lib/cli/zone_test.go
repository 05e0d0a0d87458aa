package cli

import (
	"testing"
	"time"
)

// The rules that tzset(3) knows. Each time is that which date(1) of glibc prints.
func TestZoneOfRule(t *testing.T) {
	winter, summer := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC), time.Date(2026, 7, 15, 12, 0, 0, 0, time.UTC)
	for rule, want := range map[string][2]string{
		"JST-9":                       {"21:00 JST", "21:00 JST"},
		"CET-1CEST,M3.5.0,M10.5.0/3":  {"13:00 CET", "14:00 CEST"},
		"<+03>-3":                     {"15:00 +03", "15:00 +03"},
		"<-0330>3:30":                 {"08:30 -0330", "08:30 -0330"},
		"NZST-12NZDT,M9.5.0,M4.1.0/3": {"01:00 NZDT", "00:00 NZST"},
		"AAA0BBB,J60/0,J300":          {"12:00 AAA", "13:00 BBB"},
		"IST-1GMT0,M10.5.0,M3.5.0/1":  {"12:00 GMT", "13:00 IST"},
	} {
		zone := ruleZone(rule)
		if zone == nil {
			t.Errorf("%s is no rule", rule)
			continue
		}
		for i, at := range []time.Time{winter, summer} {
			if got := at.In(zone).Format("15:04 MST"); got != want[i] {
				t.Errorf("%s: %s is %s, want %s", rule, at, got, want[i])
			}
		}
	}
	for _, rule := range []string{"", "Mars/Olympus", "JST", "9", "CET-1CEST,M3.5.0", "JST-9\n", "JST-25x"} {
		if zone := ruleZone(rule); zone != nil {
			t.Errorf("%q is a rule: %s", rule, time.Now().In(zone))
		}
	}
}

// A name of a zone is none, and TZ counts for a program.
func TestSetZone(t *testing.T) {
	was := time.Local
	defer func() { time.Local = was }()
	for tz, moves := range map[string]bool{"JST-9": true, ":JST-9": true, "UTC": false, "": false, "Nowhere": false, "/nowhere": false} {
		time.Local = time.UTC
		t.Setenv("TZ", tz)
		if setZone(); (time.Local != time.UTC) != moves {
			t.Errorf("with TZ=%s it is %s", tz, time.Now())
		}
	}
}
