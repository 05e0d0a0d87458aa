package query

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"testing"
	"time"

	"distribute/lib/match"

	"distribute/lib/job"
	"distribute/lib/node"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.FixedZone("", 3600))

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

// failed is a job with something in every field.
func failed() *job.Row {
	exit := 1
	return &job.Row{ID: "maria/cavity/re=100", Namespace: "maria", Batch: "cavity", Job: "re=100",
		Owner: "maria", UID: 1000, State: job.Failed, Phase: "returning", Node: "ws1", Attempt: 2, Exit: &exit, Signal: "SIGTERM",
		Reason: "time limit, 1h", Submitted: at("2026-11-18T08:00:00Z"), Started: at("2026-11-20T08:30:00Z"),
		Ended: at("2026-11-20T10:30:00.5Z"), Runtime: 5400.25, Paused: 1800, CPUs: 4, Memory: 8 << 30, GPUs: job.OneGPU, Counted: "comsol=20 matlab=1", Limit: 7200, MemoryPeak: 5 << 30,
		CPUTime: 21000, Written: 123456, Priority: -10}
}

func TestFilters(t *testing.T) {
	waiting := &job.Row{ID: "maria/cavity/re=200", Namespace: "maria", Batch: "cavity", Job: "re=200",
		Owner: "maria", UID: 1000, State: job.Queued, Submitted: at("2026-11-18T08:00:00Z")}
	tests := []struct {
		args          string
		over, waiting bool // which of the two rows fits
	}{
		{"job=*", true, true},
		{"job=re=100", true, false},
		{"job=re=?00", true, true},
		{"job=re=[2-9]*", false, true},
		{"job=re=[!2-9]*", true, false},
		{"job=x,*200,y", false, true},
		{"job!=*200", true, false},
		{"id=maria/*", true, true},
		{"id~cavity/re=1", true, false},
		{"id=maria", false, false},
		{"namespace=maria batch=cavity owner=maria", true, true},
		{"state=failed", true, false},
		{"state=queued,failed", true, true},
		{"state!=failed", false, true},
		{"state~^(fail|canc)", true, false},
		{"state=f*", true, false},
		{"phase=returning node=ws*", true, false},
		{"node=-", false, true},
		{"node!=-", true, false},
		{"node!=ws2", true, true},
		{"exit=1", true, false},
		{"exit=0", false, false},
		{"exit!=0", true, true},
		{"exit=-", false, true},
		{"exit=0,2..", false, false},
		{"exit=-,1..", true, true},
		{"attempt=2..", true, false},
		{"attempt=..1", false, false},
		{"attempt<2", false, false},
		{"attempt<=2", true, false},
		{"attempt>1", true, false},
		{"attempt>=2", true, false},
		{"attempt>=3", false, false},
		{"signal=SIGTERM", true, false},
		{"reason~limit,", true, false},
		{"reason~-", false, true},
		{"runtime=1h..", true, false},
		{"runtime=1h..90m", false, false},
		{"runtime=00:30:00..2d", true, false},
		{"runtime=..2d", true, false},
		{"runtime<5400.5", true, false},
		{"runtime~^5400.25$", true, false},
		{"paused=30m", true, false},
		{"cpus=4", true, false},
		{"memory=4G..8G", true, false},
		{"gpus=1 time=2h", true, false},
		{"gpus>0.5 gpus<=1.00 gpus=0.333..1", true, false},
		{"gpus=0.999", false, false},
		{"counted=matlab=*", true, false},
		{"counted=comsol=20,fluent=1", true, false},
		{"counted=matlab=2", false, false},
		{"counted!=matlab=*", false, true},
		{"memory_peak=4G..8G", true, false},
		{"memory_peak=..4G", false, false},
		{"written=100K..", true, false},
		{"priority=-10", true, false},
		{"priority<0", true, false},
		{"priority=0", false, true},
		{"priority=-20..-1", true, false},
		{"cpu_time>5h", true, false},
		{"ended=-2d..", true, false},
		{"ended=..-2d", false, false},
		{"ended=2026-11-20", true, false},
		{"ended=2026-11-19", false, false},
		{"ended=2026-11-20T11:30", true, false},
		{"ended=2026-11-20T10:30:00Z", true, false},
		{"ended=2026-11-20T11:30:01..", false, false},
		{"ended=..2026-11-20T11:30", true, false},
		{"ended=..2026-11-20T11:29", false, false},
		{"ended>2026-11-19", true, false},
		{"ended>2026-11-20", false, false},
		{"ended<=2026-11-20", true, false},
		{"ended<2026-11-20", false, false},
		{"ended>=2026-11-20", true, false},
		{"ended~^2026-11-20T10:30:00Z$", true, false},
		{"submitted=-3d..", true, true},
		{"submitted=..-3d", false, false},
		{"maria/cavity", true, true},
		{"maria/cavity/re=100", true, false},
		{"maria/cavity/re=100~2", true, false},
		{"maria/cavity/re=100 maria/cavity/re=200 state=queued", false, true},
		{"maria/other", false, false},
		{"", false, true},
	}
	for _, tt := range tests {
		q, err := Parse(strings.Fields(tt.args), now)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		q.For(1000)
		if got := q.Match(failed()); got != tt.over {
			t.Errorf("%s: a failed job fits: %v", tt.args, got)
		}
		if got := q.Match(waiting); got != tt.waiting {
			t.Errorf("%s: a queued job fits: %v", tt.args, got)
		}
	}
}

func TestMistakes(t *testing.T) {
	tests := []struct{ arg, want string }{
		{"sate=failed", `did you mean "state"?`},
		{"runtme=1h..", `did you mean "runtime"?`},
		{"memory_pek=4G..", `did you mean "memory_peak"?`},
		{"state=faild", `there is no "faild" (did you mean "failed"?)`},
		{"ended", "did the shell take the > ?"},
		{"runtime", "did the shell take the > ?"},
		{"state!failed", "after ! comes ="},
		{"state=", "an empty field is state=-"},
		{"state=failed,", "a word of the list is empty"},
		{"node>ws1", "node has no order"},
		{"job~(", "missing closing )"},
		{"job~" + strings.Repeat("x", match.MaxPattern+1), "more than 4096 bytes"},
		{"job=[a", "a [ has no ]"},
		{"job=[z-a]", "not a pattern"},
		{"exit=one", `"one" is not a whole number`},
		{"exit=1.5", "not a whole number"},
		{"runtime=1x", "not a length of time"},
		{"runtime=..", "needs one end"},
		{"runtime=2h..1h", "the wrong way round"},
		{"memory_peak=-4G", "not a size"},
		{"ended=tomorrow", "is not a time"},
		{"ended=-x", "not a length of time"},
		{"=x", `unknown field ""`},
		{"a b", `' ' is not allowed`},
		{"maria/../x", `must not start with '.'`},
		{"maria/cavity/x~0", "the number of an attempt"},
		{"a/b/c/d", "an id is"},
	}
	for _, tt := range tests {
		_, err := Parse([]string{tt.arg}, now)
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40q: %v; want %q in it", tt.arg, err, tt.want)
		}
	}
	_, err := Parse([]string{"sate=x", "cavity", "exit=one"}, now)
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("of three operands, two of them wrong: %v", err)
	}
}

func TestWhoseJobs(t *testing.T) {
	tests := []struct {
		args  string
		mine  bool // a job of the asker fits
		other bool
	}{
		{"state=queued", true, false},
		{"owner=*", true, true},
		{"owner=other", false, true},
		{"namespace=n", true, true},
		{"id=n/*", true, true},
		{"n/b", true, true},
		{"n/b state=queued", true, true},
		{"job=j", true, false},
	}
	mine := &job.Row{ID: "n/b/j", Namespace: "n", Batch: "b", Job: "j", Owner: "me", UID: 1}
	other := *mine
	other.Owner, other.UID = "other", 2
	for _, tt := range tests {
		q, err := Parse(strings.Fields(tt.args), now)
		if err != nil {
			t.Fatal(err)
		}
		if !q.Match(&other) && !strings.Contains(tt.args, "owner") {
			t.Errorf("%s: before For, another's job does not fit", tt.args)
		}
		q.For(1)
		if q.Match(mine) != tt.mine || q.Match(&other) != tt.other {
			t.Errorf("%s: mine %v, another's %v", tt.args, q.Match(mine), q.Match(&other))
		}
		if q.MayFit("n/b", &job.Head{Owner: "me", UID: 1}) != tt.mine || q.MayFit("n/b", &job.Head{Owner: "other", UID: 2}) != tt.other {
			t.Errorf("%s: may fit: mine %v, another's %v", tt.args, q.MayFit("n/b", &job.Head{Owner: "me", UID: 1}), q.MayFit("n/b", &job.Head{Owner: "other", UID: 2}))
		}
		if q.MayFit("m/b", &job.Head{Owner: "me", UID: 1}) && strings.Contains(tt.args, "n/b") {
			t.Errorf("%s: a job of another batch may fit", tt.args)
		}
	}
}

func TestNames(t *testing.T) {
	batches := map[job.BatchID]int{"a/cavity": 1, "b/cavity": 1, "c/cavity": 2, "a/pipe": 1, "c/duct": 2}
	resolve := func(args ...string) (*Query, error) {
		q, err := Parse(args, now)
		if err != nil {
			t.Fatal(err)
		}
		return q, q.Resolve(1, "me", iter.Seq2[job.BatchID, int](maps.All(batches)))
	}
	q, err := resolve("pipe", "c/cavity")
	if err != nil {
		t.Fatal(err)
	}
	ids, jobs := q.IDs()
	if len(ids) != 2 || ids[0] != "a/pipe" || ids[1] != "c/cavity" || jobs != nil {
		t.Errorf("the ids are %q and %q", ids, jobs)
	}
	if q.Names("b/pipe") {
		t.Error("a name that is resolved may be of another batch")
	}
	if _, err := resolve("cavity"); !errors.Is(err, ErrSeveral) || !strings.Contains(err.Error(), "a/cavity b/cavity") {
		t.Errorf("a name of two batches: %v", err)
	}
	for _, name := range []string{"duct", "nothing"} {
		if _, err := resolve(name); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), name) {
			t.Errorf("a name of no batch of mine: %v", err)
		}
	}
}

func TestHints(t *testing.T) {
	tests := []struct {
		args        string
		live, named bool
	}{
		{"", true, false},
		{"n/b", false, false},
		{"n/b/j", false, true},
		{"job=*", false, true},
		{"id=*", false, true},
		{"state=queued", true, false},
		{"state=running,paused", true, false},
		{"state!=done", false, false},
		{"state!=done state!=failed state!=cancelled", true, false},
		{"state~run", true, false},
		{"node=ws1", false, false},
	}
	for _, tt := range tests {
		q, err := Parse(strings.Fields(tt.args), now)
		if err != nil {
			t.Fatal(err)
		}
		if q.OnlyLive() != tt.live || q.NamesJobs() != tt.named {
			t.Errorf("%q: only live %v, names jobs %v", tt.args, q.OnlyLive(), q.NamesJobs())
		}
	}
}

// Of these batches, those that are looked at: for their names, and for their rows.
func TestReads(t *testing.T) {
	for args, want := range map[string][2]string{
		"":                 {"", "n/a m/a"},
		"state=done":       {"", "n/a m/a n/b"},
		"n/a":              {"n/a", "n/a"},
		"n/b n/a/1":        {"n/a n/b", "n/a n/b"},
		"n/a state=queued": {"n/a", "n/a"},
		"a state=done":     {"n/a m/a", "n/a"},
	} {
		q, err := Parse(strings.Fields(args), now)
		if err != nil {
			t.Fatal(err)
		}
		var named, read []string
		all := []job.BatchID{"n/a", "m/a", "n/b"} // the last is closed
		for _, id := range all {
			if q.Names(id) {
				named = append(named, string(id))
			}
		}
		if err := q.Resolve(1, "me", func(yield func(job.BatchID, int) bool) { _ = yield("n/a", 1) && yield("m/a", 2) }); err != nil {
			t.Fatal(err)
		}
		for i, id := range all {
			if q.Reads(id, i < 2) {
				read = append(read, string(id))
			}
		}
		if got := [2]string{strings.Join(named, " "), strings.Join(read, " ")}; got != want {
			t.Errorf("%q: %q, should be %q", args, got, want)
		}
	}
}

func TestTally(t *testing.T) {
	rows := []job.Row{
		{ID: "a/x/1", Owner: "me", UID: 1, State: job.Done},
		{ID: "a/x/2", Owner: "me", UID: 1, State: job.Queued},
		{ID: "a/y/1", Owner: "me", UID: 1, State: job.Failed},
		{ID: "a/x/3", Owner: "me", UID: 1, State: job.Done},
		{ID: "a/z/1", Owner: "you", UID: 2, State: job.Queued},
	}
	count := func(args ...string) []Batch {
		q, err := Parse(args, now)
		if err != nil {
			t.Fatal(err)
		}
		q.For(1)
		tally := NewTally(q)
		for i := range rows {
			tally.Add(&rows[i])
		}
		return tally.Rows(now)
	}
	if got := count(); len(got) != 1 || got[0].ID != "a/x" || got[0].Jobs != 3 || got[0].Done != 2 || got[0].Live() != 1 {
		t.Errorf("what is not over: %+v", got)
	}
	got := count("state=done,failed")
	if len(got) != 2 || got[0].Done != 2 || got[0].Jobs != 2 || got[1].Failed != 1 || got[1].Namespace != "a" || got[1].Batch != "y" {
		t.Errorf("what is over: %+v", got)
	}
	if s := Summary(got); s != "3 jobs, 2 done, 1 failed (dquery -w)" {
		t.Errorf("the sum is %q", s)
	}
}

// The end is estimated of the first fifty batches of which that can be, and takes no
// notice of what is held; a batch ended when its last job did.
func TestEnds(t *testing.T) {
	q, err := Parse([]string{"job=*"}, now)
	if err != nil {
		t.Fatal(err)
	}
	tally := NewTally(q)
	add := func(batch string, n int, row job.Row) {
		for range n {
			row.ID, row.Job = job.BatchID("n/"+batch).Job("j"), "j"
			tally.Add(&row)
		}
	}
	for i := range 52 {
		batch := fmt.Sprint("b", i)
		add(batch, 10, job.Row{State: job.Done, Attempt: 1, Runtime: 60, Ended: now.Add(-time.Hour)})
		add(batch, 1, job.Row{State: job.Running, Attempt: 1, Runtime: 30})
		if i == 1 {
			add(batch, 1000, job.Row{State: job.Held})
		}
	}
	add("over", 1, job.Row{State: job.Done, Ended: now.Add(-time.Minute)})
	add("over", 1, job.Row{State: job.Failed, Ended: now.Add(-time.Hour)})
	rows := tally.Rows(now)
	for i, r := range rows {
		if r.Ends.IsZero() != (i >= 50) || r.Ended.IsZero() != (i < 52) {
			t.Errorf("batch %d: %+v", i, r)
		}
	}
	if rows[1].Held != 1000 || !rows[1].EndsBy.Equal(rows[0].EndsBy) || !rows[52].Ended.Equal(now.Add(-time.Minute)) {
		t.Errorf("they end %v, %v; %v", rows[0].EndsBy, rows[1].EndsBy, rows[52].Ended)
	}
}

func TestNodes(t *testing.T) {
	ws1 := &node.Row{Node: "ws1", State: node.Busy, Jobs: 2, CPUs: 16, Memory: 64 << 30,
		Seen: now.Add(-time.Minute), Capability: []string{"gpu", "python3"}}
	tests := []struct {
		args string
		want bool
	}{
		{"", true},
		{"ws1", true},
		{"lap ws?", true},
		{"lap", false},
		{"state=busy", true},
		{"state=idle", false},
		{"state=idle,paused,draining,resting,silent,lost,site,pending", false},
		{"state=b*", true},
		{"cpus=8.. memory=32G..", true},
		{"jobs=0", false},
		{"capabilities=gpu", true},
		{"capabilities=g*,x", true},
		{"capabilities=fftw", false},
		{"capabilities!=fftw", true},
		{"capabilities=-", false},
		{"capabilities~gpu,", true},
		{"seen=-5m..", true},
		{"note=-", true},
	}
	for _, tt := range tests {
		n, err := ParseNodes(strings.Fields(tt.args), now)
		if err != nil || n.Match(ws1) != tt.want {
			t.Errorf("%q: %v, %v", tt.args, !tt.want, err)
		}
	}
	for _, arg := range []string{"a/b", "state", "stat=idle", "cpus<x", "[", "capabilities<a", "state=idle,pausd"} {
		if _, err := ParseNodes([]string{arg}, now); !errors.Is(err, ErrUsage) {
			t.Errorf("%q: %v", arg, err)
		}
	}
	if _, err := ParseNodes([]string{"state=pausd"}, now); err == nil || !strings.HasSuffix(err.Error(), `there is no "pausd" (did you mean "paused"?)`) {
		t.Errorf("a state that no node has: %v", err)
	}
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"job=*", "a/b/c~2", "x state=failed", "ended>-2d", "runtime=1h..", "reason~a|b", "job=[!a-z]*", "exit!=0,3..5"} {
		f.Add(s)
	}
	row, empty := failed(), &job.Row{}
	f.Fuzz(func(t *testing.T, s string) {
		args := strings.Split(s, " ")
		q, err := Parse(args, now)
		if err != nil {
			if !errors.Is(err, ErrUsage) {
				t.Fatalf("%q: %v", args, err)
			}
			return
		}
		for _, r := range []*job.Row{row, empty} {
			fits := q.Match(r)
			if fits && !q.MayFit(r.ID.Batch(), &job.Head{Owner: r.Owner, UID: r.UID}) && r == row {
				t.Fatalf("%q fits what may not fit", args)
			}
			if fits && q.OnlyLive() && r.State.Over() {
				t.Fatalf("%q fits what is over", args)
			}
			if fits && !q.Reads(r.ID.Batch(), !r.State.Over()) {
				t.Fatalf("%q fits what is not read", args)
			}
		}
		if key, val, ok := strings.Cut(s, "="); ok && len(args) == 1 && !strings.ContainsAny(key, operators) {
			not, err := Parse([]string{key + "!=" + val}, now)
			if err != nil || not.Match(row) == q.Match(row) {
				t.Fatalf("%q and its opposite fit alike (%v)", s, err)
			}
		}
	})
}
