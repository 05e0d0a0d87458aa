package job

import "testing"

func TestSetRead(t *testing.T) {
	for _, c := range []struct {
		key, text string
		want      int64 // of what is read
		err       string
	}{
		{"priority", "10", 10, ""},
		{"priority", "-1000", -1000, ""},
		{"priority", "0", 0, ""},
		{"priority", "1001", 0, "a whole number from -1000 to 1000 is wanted"},
		{"priority", "none", 0, "a whole number from -1000 to 1000 is wanted"},
		{"priority", "", 0, "a whole number from -1000 to 1000 is wanted"},
		{"max_running", "4", 4, ""},
		{"max_running", "none", 0, ""},
		{"max_running", "0", 0, "a whole number from 1 to 1000000 is wanted"},
		{"time", "1h30m", 5400, ""},
		{"time", "none", 0, ""},
		{"time", "0s", 0, `"0s" is no time to run: write none if there is to be no limit`},
		{"time", "5", 0, `"5" has no unit: write 5s, 5m or 5h`},
		{"time", "later", 0, "*"},
		{"memory", "1G", 0, `"memory" cannot be set`},
	} {
		var s Set
		err := s.Read(c.key, c.text)
		if err != nil && c.err != "*" && err.Error() != c.err || (err == nil) != (c.err == "") {
			t.Errorf("%s=%s: %v, want %q", c.key, c.text, err, c.err)
		}
		if err != nil {
			continue
		}
		got := int64(0)
		switch {
		case s.Priority != nil:
			got = int64(*s.Priority)
		case s.MaxRunning != nil:
			got = int64(*s.MaxRunning)
		case s.Time != nil:
			got = *s.Time
		}
		if got != c.want || s.Check() != nil {
			t.Errorf("%s=%s is read as %+v, %v", c.key, c.text, s, s.Check())
		}
	}
}

func TestSetCheck(t *testing.T) {
	low, most, never := -MaxPriority-1, MaxJobs+1, int64(-1)
	for _, s := range []*Set{nil, {}, {Priority: &low}, {MaxRunning: &most}, {Time: &never}} {
		if s.Check() == nil {
			t.Errorf("%+v can be set", s)
		}
	}
}
