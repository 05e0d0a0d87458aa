package head

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/wire"
)

// A result that can be keeps its members, but for the clock of its node. What cannot be is
// dropped, and an exit status that cannot be is none of success.
func TestCheckResult(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	long := strings.Repeat("x", 2*maxReason)
	outcome := func(o job.Outcome) job.Result { return job.Result{Outcome: o} }
	number := func(n int) *int { return &n }
	for what, c := range map[string]struct{ said, want job.Result }{
		"nothing": {},
		"all": {
			job.Result{Outcome: job.Outcome{Exit: number(255), Rank: number(1023), Started: now.Add(-time.Hour), Ended: now.Add(time.Hour),
				Runtime: 50, Paused: 10, CPUTime: 70, MemoryPeak: 1, MemoryRank: 2, Cache: 3, Written: 4}, Entries: 5, Files: 6, Bytes: 7},
			job.Result{Outcome: job.Outcome{Exit: number(255), Rank: number(1023), Started: now.Add(-time.Minute), Ended: now,
				NodeStarted: now.Add(-time.Hour), NodeEnded: now.Add(time.Hour),
				Runtime: 50, Paused: 10, CPUTime: 70, MemoryPeak: 1, MemoryRank: 2, Cache: 3, Written: 4}, Entries: 5, Files: 6, Bytes: 7},
		},
		"heard of a moment later": {
			outcome(job.Outcome{Started: now.Add(-time.Hour), Ended: now.Add(-time.Second), Runtime: 60}),
			outcome(job.Outcome{Started: now.Add(-time.Minute), Ended: now, Runtime: 60}),
		},
		"below zero": {
			job.Result{Outcome: job.Outcome{Exit: number(0), Rank: number(-1), Runtime: -1, Paused: -1, CPUTime: -1, MemoryPeak: -1,
				MemoryRank: -1, Cache: -1, Written: math.MinInt64}, Entries: -1, Files: -1, Bytes: -1},
			outcome(job.Outcome{Exit: number(0)}),
		},
		"too much": {
			outcome(job.Outcome{Rank: number(1024), Started: now, Ended: now, Runtime: 1e300, Paused: 1e9, CPUTime: math.MaxFloat64, MemoryPeak: math.MaxInt64}),
			outcome(job.Outcome{Started: now, Ended: now}),
		},
		"exit below zero": {outcome(job.Outcome{Exit: number(math.MinInt32)}),
			outcome(job.Outcome{Reason: "its node reports exit status -2147483648, which cannot be"})},
		"exit above 255": {outcome(job.Outcome{Exit: number(256)}), outcome(job.Outcome{Reason: "its node reports exit status 256, which cannot be"})},
		"long": {outcome(job.Outcome{Reason: long, Signal: long, Skipped: long, Machine: long}),
			outcome(job.Outcome{Reason: long[:maxReason], Signal: long[:maxSignal], Skipped: long[:maxReason], Machine: long[:maxReason]})},
	} {
		if checkResult(&c.said, now); !reflect.DeepEqual(c.said, c.want) {
			t.Errorf("%s: %+v; want %+v", what, c.said, c.want)
		}
	}
}

// An exit status that cannot be fails the job, and the log does not have it.
func TestImpossibleExit(t *testing.T) {
	s, d, start := runningJob(t)
	s.send(d.c, &wire.Ended{Attempt: start.Attempt, Result: job.Result{Outcome: job.Outcome{Exit: new(math.MinInt32)}}})
	next[*wire.Have](d)
	if r := s.becomes("ns/b/j", job.Failed); r.Exit != nil || !strings.Contains(r.Reason, "exit status -2147483648, which cannot be") {
		t.Errorf("it failed with exit %v: %s", r.Exit, r.Reason)
	}
}
