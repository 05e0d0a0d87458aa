package job

import "testing"

// What came to a limit that the job has set itself is told from what its node lacked.
func TestOwnLimit(t *testing.T) {
	for reason, want := range map[string][2]bool{
		"":           {false, false},
		"time limit": {true, false},
		"time limit; what it left is too much: x":                     {true, false},
		"out of memory: it had 2G":                                    {true, false},
		"out of memory: its node had no more":                         {false, true},
		"stopped: it had written 3G, and 2G were asked for":           {true, false},
		"stopped: the node's disk was nearly full; it had written 3G": {false, false},
		"stopped: it printed more than 1G":                            {false, false},
		"it ended well, but its node has no result of it":             {false, false},
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
