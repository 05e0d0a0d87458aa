package job

import (
	"testing"
	"time"
)

// A job that had to leave its node tells from where it went on, and how long all
// of its attempts ran.
func TestRowOfEvicted(t *testing.T) {
	zero, saved := 0, ExitSaved
	r := NewRow("ns/b", "j", &Head{Owner: "ana"}, time.Time{})
	fold := func(kind Kind, try int, change func(*Record), reason string, runtime, ran float64) {
		t.Helper()
		rec := Record{Kind: kind, Job: "j", Try: try, Attempt: Token(string(rune('a' + try))), Node: string(rune('m' + try))}
		if change != nil {
			change(&rec)
		}
		if err := r.Fold(&rec); err != nil {
			t.Fatal(err)
		}
		if r.Reason != reason || r.Runtime != runtime || r.Ran != ran {
			t.Errorf("after %s of attempt %d: %q, %v of %v seconds, should be %q, %v of %v", kind, try, r.Reason, r.Runtime, r.Ran, reason, runtime, ran)
		}
	}
	evicted := func(runtime float64, saves bool) func(*Record) {
		return func(rec *Record) {
			rec.Fate, rec.Saved, rec.Manifest, rec.Runtime, rec.Exit, rec.Reason = FateEvicted, saves, "m", runtime, &saved, "asked to leave"
		}
	}
	fold(KindStart, 1, nil, "", 0, 0)
	r.Take(1) // as a head that looks at it meanwhile
	fold(KindBack, 1, evicted(2.1, false), "asked to leave", 2.1, 2.1)
	fold(KindStart, 2, nil, "", 0, 2.1)
	fold(KindBack, 2, evicted(4.2, true), "asked to leave", 4.2, 6.3)
	fold(KindStart, 3, nil, "went on from o", 0, 6.3)
	fold(KindBack, 3, func(rec *Record) { rec.Fate, rec.Reason = FateLost, "lost" }, "lost", 0, 6.3)
	fold(KindStart, 4, nil, "went on from o", 0, 6.3)
	fold(KindLate, 3, func(rec *Record) { rec.Runtime = 1 }, "went on from o", 0, 7.3)
	fold(KindBack, 4, evicted(0.5, true), "asked to leave", 0.5, 7.8)
	fold(KindStart, 5, nil, "went on from q", 0, 7.8)
	r.Take(3)
	again := r
	fold(KindDone, 5, func(rec *Record) { rec.Exit, rec.Runtime = &zero, 8 }, "went on from q", 8, 15.8)
	r = again
	fold(KindFailed, 5, func(rec *Record) { rec.Exit, rec.Runtime, rec.Reason = &saved, 9, "time limit" }, "time limit", 9, 16.8)
	fold(KindRetry, 0, nil, "", 0, 16.8)
	fold(KindStart, 6, nil, "", 0, 16.8)
	fold(KindCancelled, 0, nil, "", 0, 16.8)
	fold(KindLate, 6, func(rec *Record) { rec.Runtime = 1 }, "", 1, 17.8)
}

// The row of an attempt has its own runtime, not those of all, and says once why it was given back.
func TestRowOfAttempt(t *testing.T) {
	r := NewRow("ns/b", "j", &Head{Owner: "ana"}, time.Time{})
	back := Record{Kind: KindBack, Attempt: "a1", Try: 1, Node: "o", Job: "j", Fate: FateNoRoom, Outcome: Outcome{Reason: "no room: needs 3G"}}
	if err := r.Fold(&Record{Kind: KindStart, Attempt: "a1", Try: 1, Node: "o", Job: "j"}); err != nil {
		t.Fatal(err)
	}
	old, ok := r.Superseded(&back)
	if !ok || old.Reason != "no room: needs 3G" {
		t.Errorf("%v, and its reason is %q", ok, old.Reason)
	}
	zero := 0
	for _, rec := range []Record{back, {Kind: KindStart, Attempt: "a2", Try: 2, Node: "o", Job: "j"},
		{Kind: KindFailed, Attempt: "a2", Try: 2, Node: "o", Job: "j", Outcome: Outcome{Runtime: 2, Exit: &zero}}} {
		if err := r.Fold(&rec); err != nil {
			t.Fatal(err)
		}
	}
	old.Runtime, old.Ran = 1, 1
	r.Old, r.Ran = []Row{old}, 3
	for i, a := range r.Attempts() {
		if want := float64(i + 1); a.Ran != want {
			t.Errorf("attempt %d ran %g s, want %g", a.Attempt, a.Ran, want)
		}
	}
}

// A job that is tried again tells how the attempt before ended, and where.
func TestRowOfTriedAgain(t *testing.T) {
	zero, one := 0, 1
	r := NewRow("ns/b", "j", &Head{Owner: "ana"}, time.Time{})
	for i, step := range []struct {
		rec    Record
		reason string
	}{
		{Record{Kind: KindStart, Try: 1, Attempt: "a", Node: "ws1"}, ""},
		{Record{Kind: KindBack, Try: 1, Attempt: "a", Node: "ws1", Outcome: Outcome{Exit: &one}}, "after exit 1 on ws1"},
		{Record{Kind: KindStart, Try: 2, Attempt: "b", Node: "ws2"}, "after exit 1 on ws1"},
		{Record{Kind: KindBack, Try: 2, Attempt: "b", Node: "ws2", Fate: FateLost, Outcome: Outcome{Reason: "ws2 was silent"}}, "ws2 was silent"},
		{Record{Kind: KindStart, Try: 3, Attempt: "c", Node: "ws3"}, "after exit 1 on ws1"},
		{Record{Kind: KindBack, Try: 3, Attempt: "c", Node: "ws3", Outcome: Outcome{Signal: "SIGSEGV"}}, "after SIGSEGV on ws3"},
		{Record{Kind: KindStart, Try: 4, Attempt: "d", Node: "ws1"}, "after SIGSEGV on ws3"},
		{Record{Kind: KindFailed, Try: 4, Attempt: "d", Node: "ws1", Outcome: Outcome{Exit: &one, Reason: "failed 3 times"}}, "failed 3 times"},
		{Record{Kind: KindRetry}, ""},
		{Record{Kind: KindStart, Try: 5, Attempt: "e", Node: "ws1"}, ""},
		{Record{Kind: KindDone, Try: 5, Attempt: "e", Node: "ws1", Outcome: Outcome{Exit: &zero}}, ""},
	} {
		if err := r.Fold(&step.rec); err != nil || r.Reason != step.reason {
			t.Errorf("after record %d: %q, %v; should be %q", i, r.Reason, err, step.reason)
		}
	}
}

// A job of a file that a cluster has run before the head knew of it began before that.
func TestRowRanOnCluster(t *testing.T) {
	zero := 0
	at := func(n int) time.Time { return time.Unix(int64(n), 0).UTC() }
	for node, want := range map[string]time.Time{"slurm:hpc": at(400), "ws1": at(990)} {
		r := NewRow("ns/b", "j", &Head{Owner: "ana"}, at(990))
		end := Record{Time: at(1000), Kind: KindDone, Job: "j", Attempt: "a", Node: node, Outcome: Outcome{Exit: &zero, Started: at(400), Ended: at(1000), Runtime: 600}}
		for _, rec := range []Record{{Time: at(990), Kind: KindStart, Job: "j", Attempt: "a", Node: node}, end} {
			if err := r.Fold(&rec); err != nil {
				t.Fatal(err)
			}
		}
		if !r.Started.Equal(want) {
			t.Errorf("on %s it began at %v; want %v", node, r.Started, want)
		}
	}
}

// Times of a log that a release has written which took them from the clocks of nodes count
// only if they can be.
func TestRowBoundsTimes(t *testing.T) {
	zero := 0
	at := func(n int) time.Time { return time.Unix(int64(n), 0).UTC() }
	const given, logged, ran = 1000, 2000, 60
	for what, c := range map[string]struct {
		began, ended         time.Time
		wantBegan, wantEnded time.Time
	}{
		"none":           {time.Time{}, time.Time{}, time.Time{}, at(logged)},
		"between":        {at(1100), at(1200), at(1100), at(1200)},
		"long ago":       {at(10), at(20), at(logged - ran), at(logged)},
		"to come":        {at(9000), at(9100), at(logged - ran), at(logged)},
		"backwards":      {at(1500), at(1400), at(1400 - ran), at(1400)},
		"began before":   {at(900), at(1020), at(given), at(1020)},
		"ended too late": {at(1100), at(2001), at(1100), at(logged)},
	} {
		r := NewRow("ns/b", "j", &Head{Owner: "ana"}, at(500))
		end := Record{Time: at(logged), Kind: KindDone, Job: "j", Attempt: "a", Outcome: Outcome{Exit: &zero, Started: c.began, Ended: c.ended, Runtime: ran - 10, Paused: 10}}
		for _, rec := range []Record{{Time: at(given), Kind: KindStart, Job: "j", Attempt: "a"}, end} {
			if err := r.Fold(&rec); err != nil {
				t.Fatal(err)
			}
		}
		if !r.Started.Equal(c.wantBegan) || !r.Ended.Equal(c.wantEnded) {
			t.Errorf("%s: from %v to %v; want %v to %v", what, r.Started, r.Ended, c.wantBegan, c.wantEnded)
		}
	}
}
