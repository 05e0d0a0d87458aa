package head

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// What no node could ever run is refused before its inputs are sent, queued all the
// same when that is asked for, and no matter when it is there already.
func TestNoNodeCouldEver(t *testing.T) {
	s := newSite(t)
	s.desk("ws1", "boot1")
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for known := false; !known; <-tick.C {
		s.h.do(func() { known = s.h.machine.Knows("ws1") })
	}
	s.h.do(func() {
		s.h.now += time.Minute
		s.h.apply(sched.Tick{})
	})
	ranks := 0
	try := func(batch job.BatchID, queue bool, cpus ...int) wire.Message {
		t.Helper()
		c, ref := s.tool(), job.NewToken()
		s.send(c, &wire.Submit{Ref: ref, Batch: batch, Queue: queue, Jobs: len(cpus)})
		s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
		s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, `{"kind":"command","resources":{"cpus":1}}`)
		var jobs []byte
		for i, n := range cpus {
			j := job.Job{Name: fmt.Sprint("j", i), Run: []string{"true"}, Resources: &job.Resources{CPUs: n, Ranks: ranks}}
			jobs = append(job.AppendJob(jobs, &j), '\n')
		}
		s.transfer(c, &wire.Send{X: 3, Of: wire.OfJobs}, string(jobs))
		for {
			m, err := c.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := m.(*wire.Lack); !ok {
				return m
			}
		}
	}
	refused := func(m wire.Message) bool {
		e, ok := m.(*wire.Error)
		return ok && e.Status == 65 && strings.Contains(e.Text, `no node could ever run "j1": none of 1 nodes offers 5000 cpus, the most is `) &&
			strings.HasSuffix(e.Text, " on ws1 (dsubmit -Q queues it all the same)")
	}
	accepted := func(m wire.Message) bool { _, ok := m.(*wire.Accepted); return ok }
	if m := try("ns/b", false, 1, 5000, 6000); !refused(m) {
		t.Errorf("it is answered %+v", m)
	}
	if m, ok := try("ns/b", true, 1, 5000, 6000).(*wire.Accepted); !ok || m.Same {
		t.Errorf("with -Q it is answered %+v", m)
	}
	if m, ok := try("ns/b", false, 1, 5000, 6000).(*wire.Accepted); !ok || !m.Same {
		t.Errorf("of what is there already it is answered %+v", m)
	}
	if m := try("ns/c", false, 1); !accepted(m) {
		t.Errorf("of what a node can run it is answered %+v", m)
	}
	ranks = 5
	e, ok := try("ns/e", false, 1000).(*wire.Error)
	if !ok || !strings.Contains(e.Text, "with all of its 5 ranks, none of 1 nodes offers 5000 cpus") || !strings.HasSuffix(e.Text, "; d2slurm takes it to a cluster)") {
		t.Errorf("of more ranks than there is room for it is answered %+v", e)
	}
	ranks = 0
	// A node of the list that was not here yet may be what is wanted.
	list := func(text string) {
		t.Helper()
		if err := os.WriteFile(s.h.spool.NodesFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.h.rereadNodes()
	}
	list("ws2 -\n")
	if m := try("ns/d", false, 1, 5000); !refused(m) {
		t.Errorf("with a node that is shut out it is answered %+v", m)
	}
	list("ws2 ssh://ws2.invalid\n")
	if m := try("ns/d", false, 1, 5000); !accepted(m) {
		t.Errorf("with a node that was not here yet it is answered %+v", m)
	}
}

// Whoever asks is told how many nodes could run what jobs need, and why none could.
func TestQueryAble(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	s.desk("ws2", "boot2")
	s.send(d.c, &wire.Offer{Offer: node.Offer{CPUs: 4, Capabilities: []string{"gfortran"}}})
	ask := func(need string) string {
		c := s.tool()
		s.send(c, &wire.Query{Ref: job.NewToken(), Of: "able", Args: []string{need}})
		if m, err := c.Recv(); err != nil {
			t.Fatal(err)
		} else if e, refused := m.(*wire.Error); refused {
			return e.Text
		} else if b, err := io.ReadAll(c.RecvTransfer(m.(*wire.Send))); err != nil {
			t.Fatal(err)
		} else {
			return string(b)
		}
		return ""
	}
	await(t, func() bool {
		return ask(`{"kind":"command","resources":{"cpus":4},"capabilities":["gfortran"]}`) == `{"able":1,"nodes":2}`+"\n"
	})
	s.h.do(func() {
		s.h.now += 2 * time.Minute
		s.h.apply(sched.Heard{})
	})
	for need, want := range map[string]string{
		`{"kind":"command","resources":{"cpus":1}}`:                             `{"able":2,"nodes":2}` + "\n",
		`{"kind":"command","resources":{"cpus":1},"capabilities":["node=ws2"]}`: `{"able":1,"nodes":2}` + "\n",
		`{"kind":"command","resources":{"cpus":1},"capabilities":["nosuch"]}`:   `{"able":0,"nodes":2,"why":"none of 2 nodes has nosuch"}` + "\n",
		`{"kind":"command","resources":{"cpus":5}}`:                             `{"able":0,"nodes":2,"why":"none of 2 nodes offers 5 cpus, the most is 4 cpus on ws1"}` + "\n",
		`{"resources":{"cpus":-1}}`:                                             "what a job needs: -1 cpus make no sense",
		`{"resources":{"ranks":1000}}`:                                          "what a job needs: ranks: each needs a number of cpus, and a whole node has none: say cpus, which each rank gets",
		`{"capabilities":["-O3"]}`:                                              `what a job needs: capability "-O3": "-O3": a capability does not start with '-'`,
		`{"kind":"` + strings.Repeat("x", maxNeed) + `"}`:                       "what a job needs: it has 16395 bytes, and 16384 is the limit",
		`{"kind":5}`: `what a job needs: malformed line: "kind" is a number, where a string belongs`,
	} {
		if got := ask(need); got != want {
			t.Errorf("of %s it is answered %q, want %q", need, got, want)
		}
	}
	c := s.tool()
	s.send(c, &wire.Query{Ref: job.NewToken(), Of: "able", Args: make([]string, job.MaxRequests+1)})
	if e := expect[*wire.Error](t, c); e.Text != "what 257 jobs need, and 256 is the limit" {
		t.Errorf("of very many jobs it is answered %q", e.Text)
	}
	if _, e := s.ask(s.tool(), &wire.Change{Verb: "remove", Args: []string{"ws2"}}); e != nil {
		t.Fatal(e)
	}
	for need, want := range map[string]string{
		`{"kind":"command","resources":{"cpus":1}}`:                             `{"able":1,"nodes":1}` + "\n",
		`{"kind":"command","resources":{"cpus":1},"capabilities":["node=ws2"]}`: `{"able":0,"nodes":1,"why":"none of 1 nodes has node=ws2"}` + "\n",
		`{"kind":"command","resources":{"cpus":5}}`:                             `{"able":0,"nodes":1,"why":"none of 1 nodes offers 5 cpus, the most is 4 cpus on ws1"}` + "\n",
	} {
		if got := ask(need); got != want {
			t.Errorf("when a node was removed, of %s it is answered %q, want %q", need, got, want)
		}
	}
	s.h.do(func() { s.h.apply(sched.Removed{Node: "ws1"}) })
	if got := ask(`{"kind":"command","resources":{"cpus":5}}`); got != `{"able":0,"nodes":0}`+"\n" {
		t.Errorf("when all were removed it is answered %q", got)
	}
}

// A job that writes more than the whole disk of every node is refused, too.
func TestNoDiskIsSoLarge(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	s.send(d.c, &wire.Offer{Offer: node.Offer{CPUs: 1, Disk: 1 << 30, DiskSize: 73 << 30}})
	await(t, func() (known bool) {
		w := wishes{}
		w.add(&job.Job{Name: "fits", Resources: &job.Resources{CPUs: 1, Disk: 70 << 30}})
		w.add(&job.Job{Name: "huge", Resources: &job.Resources{CPUs: 1, Disk: 100 << 40}})
		s.h.do(func() {
			s.h.now += time.Minute
			s.h.apply(sched.Heard{})
		})
		err := s.h.impossible(&w)
		return err != nil && err.Error() == `no node could ever run "huge": of the nodes that could run it none has a disk of 100T, the most is 73G on ws1 (dsubmit -Q queues it all the same)`
	})
}
