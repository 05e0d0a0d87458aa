package job

import (
	"strings"
	"testing"
)

// What came to a limit that the job has set itself is told from what its node lacked.
func TestOwnLimit(t *testing.T) {
	for reason, want := range map[string][2]bool{
		"":           {false, false},
		"time limit": {true, false},
		"time limit; what it left is too much: x":                                    {true, false},
		"out of memory: it had 2G":                                                   {true, false},
		"out of memory: its node had no more":                                        {false, true},
		"stopped: it had written 3G, and 2G were asked for":                          {true, false},
		"stopped: the node's disk was nearly full; it had written 3G":                {false, false},
		"failed 2 times, on ws1, the last time: time limit":                          {true, false},
		"failed 2 times, on ws1, the last time: out of memory: it had 2G":            {true, false},
		"failed 2 times, on ws1, the last time: out of memory: its node had no more": {false, true},
		"stopped: it printed more than 1G":                                           {false, false},
		"it ended well, but its node has no result of it":                            {false, false},
	} {
		o := Outcome{Reason: reason}
		if own, node := o.OwnLimit(), o.NodeMemory(); own != want[0] || node != want[1] {
			t.Errorf("%q: %v, %v", reason, own, node)
		}
	}
}

// How an attempt ended is told by what is known of it.
func TestOutcomeWords(t *testing.T) {
	three := 3
	for want, o := range map[string]Outcome{
		"time limit":                 {Reason: "time limit", Signal: "SIGTERM", Exit: &three},
		"SIGSEGV":                    {Signal: "SIGSEGV"},
		"exit 3":                     {Exit: &three},
		"it ended, nobody knows how": {},
	} {
		if got := o.Words(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhyCut(t *testing.T) {
	for _, c := range []struct {
		reason string
		size   int64
		want   string
	}{
		{"it printed more than 1M", 1 << 20, "it printed more than 1M"},
		{"stopped: it printed more than 1M", 1 << 20, "it printed more than 1M"},
		{"failed twice, the last time: it printed more than 1.5M; exit 1", 1 << 21, "it printed more than 1.5M"},
		{"it printed more than 1M", 5, ""}, // another rank did
		{"it printed more than \x1b[2J", 1 << 20, ""},
		{"it printed more than " + strings.Repeat("0", 1000) + "1M", 1 << 20, ""},
		{"time limit", 1 << 20, ""},
		{"", 0, ""},
	} {
		if got := WhyCut(c.reason, c.size); got != c.want {
			t.Errorf("%.60q of %d bytes: %q, want %q", c.reason, c.size, got, c.want)
		}
	}
}
