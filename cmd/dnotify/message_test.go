package main

import (
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/query"
)

func TestOverMessage(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	b := query.NewBatch("lab/x", "ana", at)
	b.Add(job.Done, 5)
	b.Add(job.Failed, 9)
	b.Add(job.Cancelled, 1)
	b.Ended = at.Add(63 * time.Minute)
	exit := 3
	causes := []query.Cause{ // as the head has them, those with most jobs first
		{ID: "lab/x/c", State: job.Failed, Jobs: 7, Exit: &exit, Said: "<b>\x1b[1m" + strings.Repeat("ä", 400)},
		{ID: "lab/x/b", State: job.Failed, Jobs: 2, Signal: "SIGSEGV", Nodes: []string{"ws1", "ws2"}},
	}
	m := batchMessage(&b)
	m.explain(causes, []job.Row{{ID: "lab/x/b"}, {ID: "lab/x/c"}}, b.Failed)
	text := m.text
	for _, want := range []string{
		"lab/x is over: 15 jobs, 5 done, 9 failed, 1 cancelled, in 1h03m\n",
		"\n7 failed: \"exit 3: <b>\\x1b[1mää", "…\" (e.g. lab/x/c)\n2 failed: SIGSEGV on ws1, ws2 (e.g. lab/x/b)\n",
		"\nfirst failed: lab/x/b lab/x/c and 7 more\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q has no %q", text, want)
		}
	}
	again := batchMessage(&b)
	b.Ended = b.Ended.Add(time.Millisecond)
	if later := batchMessage(&b); again.id() != m.id() || later.id() == m.id() {
		t.Errorf("%s, %s, and for another end %s", m.id(), again.id(), later.id())
	}
}

func TestLostMessage(t *testing.T) {
	seen := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	m := lostMessage(&node.Row{Node: "ws1", Seen: seen, Note: "2 jobs went elsewhere"}, "@op:lab")
	if want := "the node ws1 is lost: it was last heard of at 2026-11-20T12:00:00Z\n2 jobs went elsewhere\n"; m.text != want {
		t.Errorf("%q", m.text)
	}
	if !m.moves()["lost ws1"].Equal(seen) || m.to != "@op:lab" {
		t.Errorf("%+v", m)
	}
}
