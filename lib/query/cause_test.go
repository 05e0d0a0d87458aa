package query

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
)

// failing is a row of a job that failed on a node.
func failing(name string, exit int, node, said string) *job.Row {
	id := job.BatchID("m/c").Job(name)
	return &job.Row{ID: id, Namespace: "m", Batch: "c", Job: name, Owner: "m", UID: 1, State: job.Failed, Exit: &exit, Node: node, Attempt: 1, Said: said}
}

func causes(t *testing.T, rows []*job.Row, args ...string) *Causes {
	t.Helper()
	q, err := Parse(args, now)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCauses(q)
	for i, r := range rows {
		c.Add(r, now.Add(time.Duration(len(rows)-i)*time.Hour))
	}
	return c
}

// Jobs that were tried again have the cause of their last attempt, wherever and however
// often they failed before.
func TestCausesOfRetried(t *testing.T) {
	tried := func(name, node, reason string) *job.Row {
		r := failing(name, 1, node, "")
		r.Reason = reason
		return r
	}
	rows := []*job.Row{
		tried("a", "ws1", "failed 2 times, on ws2 and ws1, the last time: exit 1"),
		tried("b", "ws3", "failed 3 times, on ws2, ws1 and ws3, the last time: exit 1"), failing("c", 1, "ws1", ""),
		tried("d", "ws1", "failed 2 times, on ws2 and ws1, the last time: time limit"), tried("e", "ws1", "time limit")}
	got := causes(t, rows, "m/c").Rows()
	if len(got) != 2 || got[0].Jobs != 3 || got[0].Reason != "" || got[1].Jobs != 2 || got[1].Reason != "time limit" {
		t.Errorf("causes are %+v", got)
	}
}

// Causes are told apart by how jobs ended, and not by the numbers in what they said.
func TestCauses(t *testing.T) {
	waits := *failing("w", 0, "", "")
	waits.State, waits.Exit, waits.Reason = job.Queued, nil, "no node is connected"
	runs, done, killed := waits, *failing("d", 0, "ws1", ""), *failing("k", 0, "ws1", "")
	runs.State, done.State, killed.Exit, killed.Signal, killed.Reason = job.Running, job.Done, nil, "SIGKILL", "out of memory: 4G"
	rows := []*job.Row{failing("a", 1, "ws1", "CFL 1.7 > 1"), &waits, failing("b", 1, "ws2", "CFL 3 > 1"), &runs,
		failing("c", 2, "ws1", "CFL 3 > 1"), &done, failing("x", 1, "ws2", "CFL 9e9 > 1"), &killed, &waits}
	got := causes(t, rows, "m/c").Rows()
	want := []struct {
		id    job.ID
		jobs  int
		nodes string
		until int // hours from now
	}{{"m/c/w", 2, "[]", 1}, {"m/c/a", 3, "[ws2 ws1]", 3}, {"m/c/c", 1, "[ws1]", 5}, {"m/c/k", 1, "[ws1]", 2}}
	if len(got) != len(want) {
		t.Fatalf("%d causes: %+v", len(got), got)
	}
	for i, w := range want {
		c := got[i]
		if c.ID != w.id || c.Jobs != w.jobs || fmt.Sprint(c.Nodes) != w.nodes || !c.Until.Equal(now.Add(time.Duration(w.until)*time.Hour)) {
			t.Errorf("cause %d is %+v, should be %+v", i, c, w)
		}
	}
	if got := causes(t, rows).Rows(); len(got) != 1 || got[0].ID != "m/c/w" {
		t.Errorf("of what is not over: %+v", got)
	}
	if got := causes(t, rows, "state=failed", "exit=2").Rows(); len(got) != 1 || got[0].ID != "m/c/c" {
		t.Errorf("of what a filter lets through: %+v", got)
	}
}

// Beyond the limit causes are told apart by how jobs ended alone, and none is lost.
func TestVeryManyCauses(t *testing.T) {
	var rows []*job.Row
	for i := range maxCauses + 100 {
		rows = append(rows, failing(fmt.Sprint("j", i), 1, fmt.Sprint("ws", i%40), strings.Repeat("x", i%200)+string(rune('a'+i/200%26))+string(rune('a'+i/5200))))
	}
	got, jobs := causes(t, rows, "m/c").Rows(), 0
	for _, c := range got {
		jobs += c.Jobs
	}
	if jobs != len(rows) || len(got) != maxCauses+1 || got[0].Jobs != 100 || len(got[0].Nodes) != maxCauseNodes {
		t.Errorf("%d causes of %d jobs, the first of %d on %v", len(got), jobs, got[0].Jobs, got[0].Nodes)
	}
	rest := got[0]
	sample := causes(t, rows[maxCauses:maxCauses+1], "m/c").Rows() // what it said is a cause in another lot
	if rest.ID != sample[0].ID || rest.Reason != theRest || rest.Said != "" {
		t.Errorf("the rest is %+v", rest)
	}
	if joined := JoinCauses(slices.Concat([]Cause{rest}, sample)); len(joined) != 2 || joined[0].Jobs != 100 || joined[1].Jobs != 1 {
		t.Errorf("joined with its sample's cause it is %+v", joined)
	}
	named := rest // a sample whose name is a word of the reason
	named.ID = "m/c/causes"
	if joined := JoinCauses([]Cause{rest, named}); len(joined) != 1 || joined[0].Jobs != 200 {
		t.Errorf("the rests of two lots are %+v", joined)
	}
}

// A cause stands whole in lines of the screen's width, and its sample's id is not cut.
func TestCauseTable(t *testing.T) {
	var b strings.Builder
	three := 3
	table := NewCauseTable(Look{W: &b, Width: 40, Color: true, Now: func() time.Time { return now }})
	for _, c := range []Cause{
		{ID: "m/c/re=900_n=1024_dt=0.0001_cfl=0.9_order=4", State: job.Queued, Jobs: 12, Reason: "gpu: 1 of 6 nodes has it: ws4 busy until about 14:20; 3 jobs go first (by age)"},
		{ID: "m/c/a", State: job.Failed, Jobs: 1, Exit: &three, Reason: "odd", Nodes: []string{"a", "b", "c", "d"}, Said: "CFL\x1b 1.7"},
		{ID: "m/c/b", State: job.Failed, Jobs: 2},
	} {
		if err := table.Print(&c); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `12 queued     e.g. m/c/re=900_n=1024_dt=0.0001_cfl=0.9_order=4
    gpu: 1 of 6 nodes has it: ws4 busy
    until about 14:20; 3 jobs go first
    (by age)
` + "\x1b[31m1 failed      e.g. m/c/a\x1b[0m" + `
    "exit 3, odd on a, b, c and others:
    CFL\x1b 1.7"
` + "\x1b[31m2 failed      e.g. m/c/b\x1b[0m" + `
    nothing more is known
`
	if b.String() != want {
		t.Errorf("it is\n%s\nshould be\n%s", b.String(), want)
	}
}

// The members of JSON are the fields.
func TestCauseFields(t *testing.T) {
	var c Cause
	fields := CauseFields()
	for i := range reflect.TypeOf(c).NumField() {
		name, _, _ := strings.Cut(reflect.TypeOf(c).Field(i).Tag.Get("json"), ",")
		if i >= len(fields) || fields[i].Name != name {
			t.Errorf("member %d of JSON is %q, and no such field", i, name)
		}
	}
}

// BenchmarkCauses is what it costs to find the causes of 100,000 jobs that failed.
func BenchmarkCauses(b *testing.B) {
	rows := make([]*job.Row, 100_000)
	for i := range rows {
		rows[i] = failing(fmt.Sprint("re=", i), i%3, fmt.Sprint("ws", i%20), fmt.Sprintf("case re=%d: CFL %d.%d > 1 at /scratch/%d/mesh.h5", i, i, i%7, i))
	}
	q, err := Parse([]string{"m/c"}, now)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c := NewCauses(q)
		for _, r := range rows {
			c.Add(r, time.Time{})
		}
		if n := len(c.Rows()); n != 3 {
			b.Fatalf("%d causes", n)
		}
	}
}

// Causes of lots that were counted each by itself are those of all of them together.
func TestJoinCauses(t *testing.T) {
	var rows []*job.Row
	for i := range 60 {
		r := failing(fmt.Sprint("j", i), i%3, fmt.Sprint("ws", i%2), fmt.Sprintf("j%d: step %d", i, i*i))
		if i%5 == 0 {
			r.State, r.Exit, r.Reason, r.Said = job.Queued, nil, fmt.Sprintf("waits for %d", i%2), ""
		}
		rows = append(rows, r)
	}
	want := causes(t, rows, "m/c").Rows()
	var lots []Cause
	for len(rows) > 0 {
		n := min(7, len(rows))
		lots = append(lots, causes(t, rows[:n], "m/c").Rows()...)
		rows = rows[n:]
	}
	got := JoinCauses(lots)
	if len(got) != len(want) || len(got) != 5 {
		t.Fatalf("%d causes, want %d", len(got), len(want))
	}
	for i := range got {
		if g, w := got[i], want[i]; g.State != w.State || g.Jobs != w.Jobs || g.Reason != w.Reason || len(g.Nodes) != len(w.Nodes) {
			t.Errorf("cause %d is %+v, want %+v", i, g, w)
		}
	}
}
