package head

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// spoil changes a letter in the line of a job in jobs.jsonl.
func (s *site) spoil(batch job.BatchID, name string) {
	s.t.Helper()
	path := filepath.Join(s.dir, "batches", string(batch), "jobs.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	at := bytes.Index(text, []byte(`"`+name+`"`))
	if at < 0 {
		s.t.Fatalf("no job %q in %s", name, text)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("!"), int64(at)+1); err != nil || f.Close() != nil {
		s.t.Fatal(err)
	}
}

// A batch whose jobs.jsonl is damaged while dsched runs ends nothing: it is set aside as
// soon as something of it is to be logged, and the others go on.
func TestDamagedBeforeItStarts(t *testing.T) {
	t.Run("changed", func(t *testing.T) { damagedBeforeItStarts(t, func(s *site) { s.spoil("ns/bad", "a") }) })
	t.Run("cut off", func(t *testing.T) {
		damagedBeforeItStarts(t, func(s *site) {
			if err := os.Truncate(filepath.Join(s.dir, "batches/ns/bad/jobs.jsonl"), 10); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("on bad blocks", func(t *testing.T) {
		damagedBeforeItStarts(t, func(s *site) { unread(t, filepath.Join(s.dir, "batches/ns/bad/jobs.jsonl")) })
	})
}

// unread has all reads of a file that this process has open fail, as on a disk with bad blocks.
func unread(t *testing.T, path string) {
	t.Helper()
	bad, err := os.Open("/proc/self/mem") // at 0 nothing is mapped: EIO
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	if _, err := bad.ReadAt(make([]byte, 1), 1); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, e := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || to != path {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err == nil {
			err = unix.Dup3(int(bad.Fd()), fd, unix.O_CLOEXEC)
		}
		if err != nil {
			t.Fatal(err)
		}
		found = true
	}
	if !found {
		t.Fatalf("%s is not open", path)
	}
}

func damagedBeforeItStarts(t *testing.T, damage func(*site)) {
	s := newSite(t)
	s.submit("ns/bad", "a", "b")
	s.submit("ns/good", "j")
	damage(s)
	c, _, err := s.greet(s.addr, wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "boot1", State: "state-ws1"})
	if err != nil {
		t.Fatal(err)
	}
	s.send(c, &wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{})
	for { // the session in which it was to be started ends
		if _, err := c.Recv(); err != nil {
			break
		}
	}
	d := s.desk("ws1", "boot1")
	if start := next[*wire.Start](d); start.Job != "ns/good/j" {
		t.Errorf("%s is started", start.Job)
	}
	if _, refusal := s.ask(s.tool(), &wire.Change{Verb: "cancel", Args: []string{"ns/bad"}}); refusal == nil || refusal.Status != 74 {
		t.Errorf("who cancels it is told %+v", refusal)
	}
	s.stop()
	if log := s.log.String(); !strings.Contains(log, "spool damaged; the batch is left alone") {
		t.Errorf("the log has nothing of it: %s", log)
	}
}

// Of a batch that is damaged while a job of it runs, nothing is deleted on its node, which
// has to come again with what it holds; when the batch is mended the result comes home.
func TestDamagedWhileItRuns(t *testing.T) {
	s, d, start := runningJob(t)
	path := filepath.Join(s.dir, "batches/ns/b/jobs.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s.spoil("ns/b", "j")
	m, _ := result("hello\n")
	over := ended(start.Attempt, 0, m)
	s.send(d.c, over)
	d.give(next[*wire.Grant](d), "hello\n")
	for {
		m, err := d.c.Recv()
		if err != nil { // the session is over
			break
		}
		if have, ok := m.(*wire.Have); ok {
			t.Fatalf("the node may delete %s", have.Attempt)
		}
	}
	s.submit("ns/other", "j")
	item := &wire.Item{Attempt: start.Attempt, Job: "ns/b/j", Try: 1, Phase: job.PhaseReturning, Result: &over.Result}
	d = s.desk("ws1", "boot1", item)
	if hold := next[*wire.Hold](d); hold.Attempt != start.Attempt {
		t.Errorf("%+v", hold)
	}
	if other := next[*wire.Start](d); other.Job != "ns/other/j" {
		t.Errorf("%s is started", other.Job)
	}
	s.stop()
	if err := os.WriteFile(path, whole, 0o640); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.desk("ws1", "boot1", item) // which is asked for nothing: all of the result is in staging/
	s.becomes("ns/b/j", job.Done)
	s.resultIs("hello\n")
}

// Who changes jobs of a batch that turns out to be damaged just then is not told that they
// are changed.
func TestDamagedWhileItIsChanged(t *testing.T) {
	s := newSite(t)
	s.submitAs("ns/bad", `{"kind":"command","resources":{"cpus":1},"canary":1}`, "first", "other")
	s.spoil("ns/bad", "other") // which is cancelled since its canary is
	tool := &tool{Head: s.h, peer: dial.Peer{UID: os.Getuid()}}
	changed, err := tool.changeAll(&wire.Change{Ref: job.NewToken(), Verb: "cancel"}, []job.ID{"ns/bad/first"})
	if err == nil || len(changed) > 0 || cli.Status(err) != cli.IO {
		t.Errorf("changed %q, %v", changed, err)
	}
	if log := s.file("ns/bad/log.jsonl"); strings.Contains(log, "cancelled") {
		t.Errorf("the log has\n%s", log)
	}
}

// A job whose line turns out to be damaged is not told of as one that is not there.
func TestDamagedIsNotMissing(t *testing.T) {
	s := newSite(t)
	s.submitAs("ns/bad", `{"kind":"command","resources":{"cpus":1}}`, "first", "other")
	s.spoil("ns/bad", "other")
	tool := &tool{Head: s.h, peer: dial.Peer{UID: os.Getuid()}}
	if missing := tool.missingJobs([]job.ID{"ns/bad/none", "ns/bad/other"}); len(missing) != 1 || missing[0].Error() != `no job "ns/bad/none"` {
		t.Errorf("missing are %q", missing)
	}
	changed, err := tool.changeAll(&wire.Change{Ref: job.NewToken(), Verb: "cancel"}, []job.ID{"ns/bad/other"})
	if len(changed) > 0 || cli.Status(err) != cli.IO {
		t.Errorf("changed %q, %v", changed, err)
	}
}

// The result that a node was told to keep stays when the job's cancellation is not recorded, as its
// batch turns out to be damaged just then.
func TestKeptResultOfDamagedBatch(t *testing.T) {
	s := newSite(t)
	s.submitAs("ns/b", `{"kind":"command","resources":{"cpus":1},"canary":1}`, "j", "other")
	d := s.desk("ws1", "boot1")
	start := next[*wire.Start](d)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	m, _ := result("hello\n")
	lost := &wire.Ended{Attempt: start.Attempt, Result: job.Result{Fate: job.FateLost}}
	s.send(d.c, &wire.Offer{Offer: node.Offer{}}, lost)
	next[*wire.Have](d)
	s.send(d.c, ended(start.Attempt, 0, m))
	next[*wire.Hold](d)
	s.spoil("ns/b", "other") // which is cancelled since its canary is
	tool := &tool{Head: s.h, peer: dial.Peer{UID: os.Getuid()}}
	if _, err := tool.changeAll(&wire.Change{Ref: job.NewToken(), Verb: "cancel"}, []job.ID{"ns/b/j"}); err == nil {
		t.Error("it is cancelled")
	}
	s.send(d.c, &wire.Ping{N: 1})
	for {
		switch m := d.received().(type) {
		case *wire.Have:
			t.Fatalf("told to delete %s", m.Attempt)
		case *wire.Pong:
			return
		}
	}
}

// A node on which ranks of another batch are stays connected when a batch is set aside.
func TestNodeWithRanksOfAnotherBatch(t *testing.T) {
	s := newSite(t)
	var desks []*desk
	for _, name := range []string{"ws1", "ws2"} {
		d := s.desk(name, "boot1")
		s.send(d.c, &wire.Offer{Offer: node.Offer{CPUs: 1, Machine: "m"}}, &wire.Ping{N: 1})
		next[*wire.Pong](d)
		desks = append(desks, d)
	}
	s.submitAs("ns/b", `{"kind":"command","resources":{"cpus":1,"ranks":2}}`, "j")
	s.becomes("ns/b/j", job.Running)
	s.submitAs("ns/bad", `{"kind":"command","resources":{"cpus":1},"canary":1}`, "first", "other")
	s.spoil("ns/bad", "other")
	guests := map[string]bool{}
	s.h.do(func() {
		for _, name := range []node.Name{"ws1", "ws2"} {
			s.h.machine.Guests(name, func(sched.Attempt) { guests[string(name)] = true })
		}
	})
	if len(guests) != 1 {
		t.Fatalf("ranks are on %v", guests)
	}
	tool := &tool{Head: s.h, peer: dial.Peer{UID: os.Getuid()}}
	if _, err := tool.changeAll(&wire.Change{Ref: job.NewToken(), Verb: "cancel"}, []job.ID{"ns/bad/first"}); err == nil {
		t.Error("it is cancelled")
	}
	for _, d := range desks {
		s.send(d.c, &wire.Ping{N: 2})
		next[*wire.Pong](d)
	}
}
