package job

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	for _, s := range []string{"a", "re=100_n=256", "A.b+c@d%e-f", strings.Repeat("n", MaxName), "jobs.yaml.2", "0"} {
		if err := CheckName(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", ".", "..", "../x", "-rf", ".hidden", "a/b", "a b", "a\nb", "a\x1b[2J", "a~2", "é", "a\xff",
		"x.yaml", "x.yml", "a:b", "a\x00", strings.Repeat("n", MaxName+1), strings.Repeat("n", 300)} {
		if err := CheckName(s); err == nil {
			t.Errorf("%q is a name", s)
		} else if strings.ContainsAny(err.Error(), "\n\x1b\x00") {
			t.Errorf("%q is not quoted in %q", s, err)
		}
	}
}

func TestParseID(t *testing.T) {
	for s, want := range map[string]string{
		"ns/b":       "ns/b  0",
		"ns/b/j":     "ns/b j 0",
		"ns/b/j~1":   "ns/b j 1",
		"ns/b/j~12":  "ns/b j 12",
		"ns":         "",
		"":           "",
		"/b":         "",
		"ns/":        "",
		"ns/b/":      "",
		"ns/b/j/k":   "",
		"ns/b/j~":    "",
		"ns/b/j~0":   "",
		"ns/b/j~-1":  "",
		"ns/b/j~+1":  "",
		"ns/b/j~01":  "",
		"ns/b/j~1~2": "",
		"ns/../j":    "",
		"ns/b/~1":    "",
	} {
		b, name, try, err := ParseID(s)
		got := fmt.Sprint(b, " ", name, " ", try)
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%q: %q, %v, want %q", s, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), s) && !strings.Contains(s, "..") {
			t.Errorf("%q is not named: %v", s, err)
		}
	}
	id := NewBatchID("ns", "b").Job("j")
	if id != "ns/b/j" || id.Batch() != "ns/b" || id.Name() != "j" || id.Try(2) != "ns/b/j~2" ||
		id.Batch().Namespace() != "ns" || id.Batch().Name() != "b" {
		t.Errorf("the parts of %q", id)
	}
}

func TestTokens(t *testing.T) {
	if a, b := NewToken(), NewToken(); a == b || a.Check() != nil {
		t.Errorf("tokens %q and %q", a, b)
	}
	for _, s := range []Token{"", "0", Token(strings.Repeat("g", 32)), Token(strings.Repeat("A", 32)), Token(strings.Repeat("0", 33))} {
		if s.Check() == nil {
			t.Errorf("%q is a token", s)
		}
	}
}

// legal is the table of moves of dspool(5): from each state, by each event.
var legal = map[State]map[Kind]State{
	Queued: {KindStart: Running, KindAdopt: Running, KindDone: Done, KindFailed: Failed, KindCancelled: Cancelled, KindHold: Held},
	Held:   {KindDone: Done, KindCancelled: Cancelled, KindRelease: Queued},
	Running: {KindDone: Done, KindFailed: Failed, KindBack: Queued,
		KindCancelled: Cancelled},
	Done:      {},
	Failed:    {KindRetry: Queued},
	Cancelled: {KindRetry: Queued},
}

var everyKind = []Kind{KindBatch, KindStart, KindDone, KindFailed, KindBack, KindAdopt, KindCancelled, KindRetry,
	KindHold, KindRelease, KindFreeze, KindThaw, KindSet, KindLate, KindOpened, KindClosed, KindDeleted, KindNode, KindDrained, KindResumed, "", "other"}

func TestNextIsTheTable(t *testing.T) {
	for s := range numStates {
		for _, k := range everyKind {
			got, ok := s.Next(k)
			want, legal := legal[s][k]
			switch k {
			case KindLate:
				want, legal = s, true
			case KindFreeze, KindThaw:
				want, legal = s, s == Running
			case KindSet:
				want, legal = s, !s.Over()
			}
			if ok != legal || ok && got != want {
				t.Errorf("%s, %s: %s, %v; want %s, %v", s, k, got, ok, want, legal)
			}
		}
	}
}

func TestI07DoneStays(t *testing.T) {
	for _, k := range everyKind {
		if s, ok := Done.Next(k); ok && s != Done {
			t.Errorf("%s leads from done to %s", k, s)
		}
	}
}

func TestStateNames(t *testing.T) {
	for s := range numStates {
		if got, ok := ParseState(s.String()); !ok || got != s {
			t.Errorf("%s is read as %s", s, got)
		}
		text, err := json.Marshal(s)
		var back State
		if err != nil || json.Unmarshal(text, &back) != nil || back != s {
			t.Errorf("%s as JSON is %s, %v, and back %s", s, text, err, back)
		}
		if want := s == Done || s == Failed || s == Cancelled; s.Over() != want {
			t.Errorf("%s.Over() is not %v", s, want)
		}
	}
	if _, ok := ParseState("asleep"); ok || numStates.Over() || new(State).UnmarshalText([]byte("x")) == nil {
		t.Error("a state that does not exist")
	}
}

func second(n int) time.Time { return time.Unix(int64(n), 0).UTC() }

func exits(n int) Outcome {
	return Outcome{Exit: &n, Started: second(10), Ended: second(20), Runtime: 9, CPUTime: 8, MemoryPeak: 7, Written: 6}
}

func TestFold(t *testing.T) {
	started := Record{Time: second(5), Kind: KindStart, Attempt: "t1", Try: 1, Node: "ws1", CPUs: 4}
	again := Record{Time: second(50), Kind: KindStart, Attempt: "t2", Try: 2, Node: "ws2", CPUs: 2}
	over := func(k Kind, o Outcome, sum string) Record {
		return Record{Time: second(30), Kind: k, Attempt: "t1", Try: 1, Node: "ws1", Outcome: o, Manifest: sum}
	}
	lost := over(KindBack, Outcome{Reason: "ws1 was lost"}, "")
	lost.Fate = FateLost
	cancel := Record{Time: second(25), Kind: KindCancelled, Outcome: Outcome{Reason: "by ana"}}
	zero, one := 0, 1
	for what, c := range map[string]struct {
		recs []Record
		want Row
	}{
		"nothing":   {nil, Row{State: Queued}},
		"started":   {[]Record{started}, Row{State: Running, Attempt: 1, Token: "t1", Node: "ws1", CPUs: 4, Started: second(5)}},
		"done":      {[]Record{started, over(KindDone, exits(0), "m")}, Row{State: Done, Attempt: 1, Token: "t1", Node: "ws1", CPUs: 4, Exit: &zero, Started: second(10), Ended: second(20), Runtime: 9, Ran: 9, CPUTime: 8, MemoryPeak: 7, Written: 6, Manifest: "m"}},
		"failed":    {[]Record{started, over(KindFailed, exits(1), "m")}, Row{State: Failed, Attempt: 1, Token: "t1", Node: "ws1", CPUs: 4, Exit: &one, Started: second(10), Ended: second(20), Runtime: 9, Ran: 9, CPUTime: 8, MemoryPeak: 7, Written: 6, Manifest: "m"}},
		"no ending": {[]Record{{Time: second(30), Kind: KindFailed, Outcome: Outcome{Reason: "build failed on ws1"}}}, Row{State: Failed, Reason: "build failed on ws1", Ended: second(30)}},
		"back":      {[]Record{started, lost}, Row{State: Queued, Attempt: 1, Token: "t1", Node: "ws1", CPUs: 4, Reason: "ws1 was lost"}},
		"elsewhere": {[]Record{started, lost, again}, Row{State: Running, Attempt: 2, Token: "t2", Node: "ws2", CPUs: 2, Started: second(50)}},
		"the first, late": {[]Record{started, lost, again, over(KindDone, exits(0), "m")},
			Row{State: Done, Attempt: 1, Token: "t1", Node: "ws1", CPUs: 2, Exit: &zero, Started: second(10), Ended: second(20), Runtime: 9, Ran: 9, CPUTime: 8, MemoryPeak: 7, Written: 6, Manifest: "m"}},
		"cancelled":       {[]Record{cancel}, Row{State: Cancelled, Reason: "by ana", Ended: second(25)}},
		"cancelled, late": {[]Record{started, cancel, over(KindLate, exits(1), "m")}, Row{State: Cancelled, Attempt: 1, Token: "t1", Node: "ws1", CPUs: 4, Exit: &one, Reason: "by ana", Started: second(10), Ended: second(25), Runtime: 9, Ran: 9, CPUTime: 8, MemoryPeak: 7, Written: 6, Manifest: "m"}},
		"tried again":     {[]Record{started, over(KindFailed, exits(1), "m"), {Kind: KindRetry}}, Row{State: Queued, Attempt: 1, Token: "t1", Node: "ws1", CPUs: 4, Ran: 9}},
		"done, late":      {[]Record{started, over(KindDone, exits(0), "m"), over(KindLate, exits(1), "other")}, Row{State: Done, Attempt: 1, Token: "t1", Node: "ws1", CPUs: 4, Exit: &zero, Started: second(10), Ended: second(20), Runtime: 9, Ran: 9, CPUTime: 8, MemoryPeak: 7, Written: 6, Manifest: "m"}},
	} {
		row := NewRow("ns/b", "j", &Head{Owner: "ana"}, second(1))
		want := row
		for i := range c.recs {
			if err := row.Fold(&c.recs[i]); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		c.want.ID, c.want.Namespace, c.want.Batch, c.want.Job = want.ID, want.Namespace, want.Batch, want.Job
		c.want.Owner, c.want.Submitted = want.Owner, want.Submitted
		if !reflect.DeepEqual(row, c.want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", what, row, c.want)
		}
		before := row
		if err := row.Fold(&Record{Kind: KindOpened}); err == nil || !reflect.DeepEqual(row, before) {
			t.Errorf("%s: an illegal move changes the row to %+v, %v", what, row, err)
		}
	}
}

func TestOutcomeOK(t *testing.T) {
	zero, one := 0, 1
	for _, c := range []struct {
		o    Outcome
		want bool
	}{
		{Outcome{Exit: &zero}, true},
		{Outcome{Exit: &one}, false},
		{Outcome{}, false},
		{Outcome{Exit: &zero, Signal: "SIGKILL"}, false},
		{Outcome{Exit: &zero, Reason: "time limit"}, false},
	} {
		if c.o.OK() != c.want {
			t.Errorf("%+v is OK: %v", c.o, !c.want)
		}
	}
}
