package query

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"distribute/lib/job"
	"distribute/lib/node"
)

func look(w *bytes.Buffer) Look {
	return Look{W: w, Width: 80, Now: func() time.Time { return now }}
}

// show prints rows and compares what came of it.
func show[R any](t *testing.T, p Printer[R], out *bytes.Buffer, rows []R, want string) {
	t.Helper()
	for i := range rows {
		if err := p.Print(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func some3() []job.Row {
	row := func(name string, s job.State) job.Row {
		return job.Row{ID: job.ID("maria/cavity/" + name), Namespace: "maria", Batch: "cavity", Job: name, Owner: "maria", State: s}
	}
	ran, builds, over := row("re=100_n=256", job.Running), row("re=200_n=256", job.Running), row("re=400_n=256", job.Done)
	ran.Node, ran.Started, ran.Attempt = "ws1", now.Add(-62*time.Minute), 1
	builds.Node, builds.Started, builds.Phase, builds.Attempt = "ws2", now.Add(-2*time.Minute), "building", 3
	over.Node, over.Runtime, over.Ended = "ws3", 720, now.Add(-26*time.Hour)
	f := *failed()
	return []job.Row{ran, row("q1", job.Queued), builds, row("q2", job.Queued), over, f}
}

func TestJobTable(t *testing.T) {
	var out bytes.Buffer
	last := some3()[5]
	last.ID, last.State = "ana/pipe/only", job.Queued
	last.Exit, last.Reason, last.Signal, last.Runtime, last.Ended = nil, "", "", 0, time.Time{}
	last.Node, last.Attempt, last.Phase, last.Started = "", 0, "", time.Time{}
	show(t, NewJobTable(look(&out), false), &out, append(some3(), last), `
JOB                        STATE    NODE  RAN    END        NOTE
maria/cavity/re=100_n=256  running  ws1   1h02m  -
maria/cavity/re=200_n=256  running  ws2   2m     -          building, attempt 3
maria/cavity/re=400_n=256  done     ws3   12m    Thu 10:00
maria/cavity/re=100        failed   ws1   1h30m  11:30      exit 1, SIGTERM…
maria/cavity (2)           queued   -     -      -
ana/pipe/only              queued   -     -      -
`[1:])
	out.Reset()
	each := NewJobTable(look(&out), true)
	show(t, each, &out, some3()[1:4:4], `
JOB                        STATE    NODE  RAN  NOTE
maria/cavity/q1            queued   -     -
maria/cavity/re=200_n=256  running  ws2   2m   building, attempt 3
maria/cavity/q2            queued   -     -
`[1:])
	// A column that was empty until now brings a new header.
	out.Reset()
	show(t, each, &out, some3()[4:5], `
JOB                        STATE    NODE  RAN  END        NOTE
maria/cavity/re=400_n=256  done     ws3   12m  Thu 10:00
`[1:])
}

// The times of who has held a job are those of the one who reads.
func TestTimesOfHeld(t *testing.T) {
	var out bytes.Buffer
	held, paused, over := some3()[1], some3()[0], *failed()
	held.State, paused.State = job.Held, job.Paused
	held.Reason = "by ana since " + now.Add(-time.Hour).UTC().Format(time.RFC3339)
	paused.Reason = "by ana since " + now.Add(-26*time.Hour).UTC().Format(time.RFC3339)
	over.Exit, over.Signal, over.Reason = nil, "", "2026-10-01T10:00:00Z" // the job's own words
	show(t, NewJobTable(look(&out), false), &out, []job.Row{held, paused, over}, `
JOB                        STATE   NODE  RAN    END    NOTE
maria/cavity/re=100_n=256  paused  ws1   1h02m  -      by ana since Thu 10:00
maria/cavity/re=100        failed  ws1   1h30m  11:30  2026-10-01T10:00:00Z…
maria/cavity/q1            held    -     -      -      by ana since 11:00
`[1:])
}

func TestTableFits(t *testing.T) {
	long := strings.Repeat("n", 60)
	rows := some3()
	rows[5].ID = job.ID("maria/cavity/" + long)
	rows[5].Reason = strings.Repeat("ü", 200) + "\x1b[2J"
	var out bytes.Buffer
	p := NewJobTable(look(&out), false)
	for i := range rows {
		if err := p.Print(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
		if n > 80 && !strings.Contains(line, long) {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(out.String(), "maria/cavity/"+long+"  failed") {
		t.Errorf("the long id is not whole:\n%s", out.String())
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("a control character came through: %q", out.String())
	}
}

func TestColor(t *testing.T) {
	var out bytes.Buffer
	l := look(&out)
	l.Color = true
	show(t, NewFieldTable(l, must(Pick(JobFields(), "id,exit,memory_peak"))), &out, some3()[4:],
		"ID                         EXIT  MEMORY_PEAK\n"+
			"maria/cavity/re=400_n=256  -     -\n"+
			"\x1b[31mmaria/cavity/re=100        1     5G\x1b[0m\n")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestBatchTable(t *testing.T) {
	a, b := NewBatch("maria/cavity", "maria", now), NewBatch("maria/pipe", "maria", now)
	a.Add(job.Queued, 157)
	a.Add(job.Running, 3)
	a.Add(job.Done, 40)
	b.Add(job.Done, 7)
	var out bytes.Buffer
	show(t, NewBatchTable(look(&out)), &out, []Batch{a, b}, `
BATCH         JOBS  QUEUED  RUNNING  DONE
maria/cavity  200   157     3        40
maria/pipe    7     -       -        7
`[1:])
	out.Reset()
	show(t, &Records[Batch]{W: &out, Fields: must(Pick(BatchFields(), DefaultBatch))}, &out, []Batch{b},
		"maria/pipe\t7\t0\t0\t0\t0\t0\t0\t7\t0\t0\t-\t-\t-\n")
}

func nodes() []node.Row {
	return []node.Row{
		{Node: "ws1", State: node.Busy, Jobs: 1, CPUs: 16, CPUsUsed: 12, Memory: 64 << 30, MemoryUsed: 9 << 30, GPUs: 2, GPUsUsed: 500, Seen: now.Add(-time.Second)},
		{Node: "ws4", State: node.Lost, CPUs: 32, Seen: now.Add(-3 * time.Hour), Capability: []string{"gpu", "python3"},
			Note: "lost \"it\"\n"},
	}
}

func TestNodeTable(t *testing.T) {
	var out bytes.Buffer
	show(t, NewNodeTable(look(&out)), &out, nodes(), `
NODE  STATE  JOBS  CPUS   MEMORY  GPU    SEEN   NOTE
ws1   busy   1     12/16  9G/64G  0.5/2  now
ws4   lost   0     0/32   -       -      09:00  "lost \"it\"\n"
`[1:])
	out.Reset()
	show(t, &Records[node.Row]{W: &out, Fields: must(Pick(NodeFields(), DefaultNode))}, &out, nodes(), ""+
		"ws1\tbusy\t1\t12\t16\t68719476736\t2026-11-20T10:59:59Z\t-\n"+
		"ws4\tlost\t0\t0\t32\t-\t2026-11-20T08:00:00Z\t\"lost \\\"it\\\"\\n\"\n")
	out.Reset()
	show(t, &Objects[node.Row]{W: &out, Fields: must(Pick(NodeFields(), "node,capabilities,jobs,arch"))}, &out, nodes()[1:],
		`{"node":"ws4","capabilities":["gpu","python3"],"jobs":0}`+"\n")
}

// What the site counts has a row that is no node's.
func TestSiteRow(t *testing.T) {
	var out bytes.Buffer
	site := []node.Row{{State: node.Site, Counted: "comsol=3 matlab=2", CountedUsed: "matlab=1"}}
	show(t, NewNodeTable(look(&out)), &out, append(site, nodes()[0]), `
NODE  STATE  JOBS  CPUS   MEMORY  GPU    SEEN  NOTE
-     site   -     -      -       -      -     0/3 comsol, 1/2 matlab
ws1   busy   1     12/16  9G/64G  0.5/2  now
`[1:])
	out.Reset()
	show(t, &Records[node.Row]{W: &out, Fields: must(Pick(NodeFields(), "node,state,counted,counted_used"))}, &out, site,
		"-\tsite\tcomsol=3,matlab=2\tmatlab=1\n")
}

// A node's long name leaves room for what is said of it, in both tables, and is
// whole in records.
func TestLongNodeNames(t *testing.T) {
	long := strings.Repeat("n", 57)
	pending := node.Row{Node: node.Name(long), State: node.Pending, Note: "SHA256:x: dadm accept"}
	busy := nodes()[0]
	busy.Node = node.Name(long)
	var out bytes.Buffer
	cut := strings.Repeat("n", 23) + "…"
	show(t, NewNodeTable(look(&out)), &out, append(nodes()[1:], busy, pending), `
NODE                    STATE    JOBS  CPUS   MEMORY  GPU    SEEN   NOTE
ws4                     lost     0     0/32   -       -      09:00
    "lost \"it\"\n"
`[1:]+cut+`  busy     1     12/16  9G/64G  0.5/2  now
`+cut+`  pending  -     -      -       -      -
    SHA256:x: dadm accept
`)
	out.Reset()
	show(t, &Records[node.Row]{W: &out, Fields: must(Pick(NodeFields(), "node"))}, &out, []node.Row{busy}, long+"\n")
	row := some3()[5]
	row.ID, row.Node = "m/c/1", long
	out.Reset()
	show(t, NewJobTable(look(&out), true), &out, []job.Row{row}, `
JOB    STATE   NODE                      RAN    END    NOTE
m/c/1  failed  `[1:]+cut+`  1h30m  11:30  exit 1, SIGTERM, time…
`)
}

// What is said of a node is whole, in lines below where it does not fit, and cut
// behind a word where it is very long.
func TestNotesOfNodes(t *testing.T) {
	rows := nodes()[:1]
	rows[0].GPUsUsed = job.OneGPU
	for _, note := range []string{
		"ana, 13:02 to 15:02",
		"ana and ben, 13:02 to tomorrow 15:02; jobs leave at 17:02",
		"SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU: dadm accept lap7 SHA256:47DEQpj8",
		"3 jobs failed within 20s: " + strings.Repeat("no such file or directory, ", 10) + "; until 14:20",
	} {
		r := rows[0]
		r.Node, r.State, r.Note = "ws2", node.Paused, note
		rows = append(rows, r)
	}
	var out bytes.Buffer
	show(t, NewNodeTable(look(&out)), &out, rows, `
NODE  STATE   JOBS  CPUS   MEMORY  GPU  SEEN  NOTE
ws1   busy    1     12/16  9G/64G  1/2  now
ws2   paused  1     12/16  9G/64G  1/2  now   ana, 13:02 to 15:02
ws2   paused  1     12/16  9G/64G  1/2  now   ana and ben, 13:02 to tomorrow
                                              15:02; jobs leave at 17:02
ws2   paused  1     12/16  9G/64G  1/2  now
    SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU: dadm accept lap7
    SHA256:47DEQpj8
ws2   paused  1     12/16  9G/64G  1/2  now   3 jobs failed within 20s: no such
                                              file or directory, no such file or
                                              directory, no such file or…
`[1:])
}

func TestRecords(t *testing.T) {
	var out bytes.Buffer
	show(t, &Records[job.Row]{W: &out, Fields: must(Pick(JobFields(), DefaultJob))}, &out, some3()[4:], ""+
		"maria/cavity/re=400_n=256\tdone\tws3\t-\t-\t720\t-\n"+
		"maria/cavity/re=100\tfailed\tws1\t2\t1\t5400.25\ttime limit, 1h\n")
	out.Reset()
	show(t, &Records[job.Row]{W: &out, Fields: must(Pick(JobFields(), "ended,memory_peak,id"))}, &out, some3()[5:],
		"2026-11-20T10:30:00Z\t5368709120\tmaria/cavity/re=100\n")
}

// What -j prints of a row is what it prints of all of its fields.
func TestObjects(t *testing.T) {
	var all, picked bytes.Buffer
	var names []string
	for _, f := range JobFields() {
		names = append(names, f.Name)
	}
	rows := some3()
	rows[5].Reason = "a < b\n"
	rows[4].Param = []string{"n=64", "name=a < b"}
	for i := range rows {
		all.Reset()
		picked.Reset()
		if err := (&Objects[job.Row]{W: &all}).Print(&rows[i]); err != nil {
			t.Fatal(err)
		}
		if err := (&Objects[job.Row]{W: &picked, Fields: must(Pick(JobFields(), strings.Join(names, ",")))}).Print(&rows[i]); err != nil {
			t.Fatal(err)
		}
		var a, b map[string]any
		if err := json.Unmarshal(all.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(picked.Bytes(), &b); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("all members:  %v\nall fields: %v", a, b)
		}
		if strings.Count(all.String(), "\n") != 1 || strings.Contains(all.String(), `\u003c`) {
			t.Errorf("not one plain line: %q", all.String())
		}
	}
}

func TestPick(t *testing.T) {
	if _, err := Pick(JobFields(), "id,nod"); err == nil || err.Error() != `unknown field "nod" (did you mean "node"?)` {
		t.Error(err)
	}
}

// Rows come out in blocks, so that a million of them need no memory.
func TestBlocks(t *testing.T) {
	var out bytes.Buffer
	p := NewJobTable(look(&out), true)
	for i := range block {
		if err := p.Print(&job.Row{ID: job.ID(fmt.Sprintf("n/b/%d", i))}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != block+1 {
		t.Errorf("%d lines after %d rows", n, block)
	}
}

// TestJobTableReasons puts jobs into one row that wait for different reasons, and
// shows what is paused before its node has said that it is.
func TestJobTableReasons(t *testing.T) {
	rows := some3()
	first, second, paused := rows[1], rows[3], rows[0]
	first.Reason, second.Reason = "no node has 3 gpus", "no node has 1T of memory"
	paused.State, paused.Phase, paused.Reason = job.Paused, "running", "ana, until 15:02"
	var out bytes.Buffer
	show(t, NewJobTable(look(&out), false), &out, []job.Row{paused, first, second}, `
JOB                        STATE   NODE  RAN    NOTE
maria/cavity/re=100_n=256  paused  ws1   1h02m  ana, until 15:02
maria/cavity (2)           queued  -     -      no node has 3 gpus, and other…
`[1:])
	out.Reset()
	third := second
	third.Reason = ""
	show(t, NewJobTable(look(&out), false), &out, []job.Row{third, second, second, third}, `
JOB               STATE   NOTE
maria/cavity (4)  queued  2 of them: no node has 1T of memory
`[1:])
}
