package main

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/spool"
)

// keptOf is what a head has kept.
func (s *site) keptOf() *spool.Past {
	s.t.Helper()
	p, err := s.h.spool.ReadPast()
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// What speaks against a node and what was used is the same after a restart, but for jobs
// of batches that are over, which are kept by their number only.
func TestPastOverARestart(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "one", "two")
	s.stop()
	at := time.Now()
	want := &spool.Past{Time: at, Users: []spool.UserPast{{UID: 7, Used: 4000}}, Nodes: []spool.NodePast{{Node: "ws1", Boot: "b", Heard: at.Add(-10 * time.Hour),
		Until: at.Add(50 * time.Minute), Reason: "3 jobs failed only here", Given: "why", Blamed: true,
		Fast: []spool.PastJob{{Batch: "ns/b", Line: 2}}, Since: at.Add(-time.Hour), Rests: 2,
		Only: []spool.PastJob{{}, {}, {}}, Proofs: 1, Proven: at.Add(50 * time.Minute), Left: at.Add(-5 * time.Minute), Leaving: 20}}}
	store, err := s.h.spool.Lock()
	must(t, err)
	must(t, store.WritePast(want, false))
	must(t, store.Close())
	s.start()
	s.stop() // it keeps what it has when it ends
	got := s.keptOf()
	if len(got.Users) != 1 || got.Users[0].UID != 7 || got.Users[0].Used <= 2000 || got.Users[0].Used > 4000 {
		t.Errorf("used is %+v", got.Users)
	}
	if len(got.Nodes) != 1 {
		t.Fatalf("kept is %+v", got.Nodes)
	}
	g, w := got.Nodes[0], want.Nodes[0]
	for _, times := range [][2]*time.Time{{&g.Heard, &w.Heard}, {&g.Until, &w.Until}, {&g.Since, &w.Since}, {&g.Proven, &w.Proven}, {&g.Left, &w.Left}} {
		if off := times[0].Sub(*times[1]); off.Abs() > 2*time.Minute {
			t.Errorf("a time is %v, and was %v", times[0], times[1])
		}
		*times[0], *times[1] = time.Time{}, time.Time{}
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("kept is %+v, and was %+v", g, w)
	}
}

// Without what was kept, or with what is damaged, a head begins anew and says so.
func TestPastOfNoUse(t *testing.T) {
	s := newSite(t)
	if !strings.Contains(s.log.String(), "that begins anew") {
		t.Error("a new spool has no past, and nothing is said")
	}
	s.stop()
	must(t, os.WriteFile(s.dir+"/past.jsonl", []byte("{}\n"), 0o640))
	s.log = &bytes.Buffer{}
	s.start()
	s.stop()
	if !strings.Contains(s.log.String(), "cannot be read, and begins anew") {
		t.Errorf("the log says %s", s.log)
	}
	s.keptOf()
}

// While nothing happens nothing is written.
func TestPastAtRest(t *testing.T) {
	h := newState(t)
	h.now += 2 * pastEvery
	if h.agePast(); h.pastDue() {
		t.Error("nothing has happened, and something is to be kept")
	}
	h.apply(sched.NodeUp{Session: 1, Node: "ws1", Boot: "b", State: "s", Offer: node.Offer{CPUs: 1}})
	h.now += pastEvery
	if h.agePast(); h.pastDue() {
		t.Error("a node is here, and that is to be kept")
	}
}
