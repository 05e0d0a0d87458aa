package head

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"distribute/lib/account"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/wire"
	"distribute/spool"
)

// over runs a batch of one job to its end on a node, and says how it ended.
func (s *site) over(d *desk, batch job.BatchID, exit int) {
	s.t.Helper()
	s.submit(batch, "j")
	start := next[*wire.Start](d)
	m, _ := result("hello\n")
	s.send(d.c, ended(start.Attempt, exit, m))
	d.give(next[*wire.Grant](d), "hello\n")
	next[*wire.Have](d)
	s.send(d.c, &wire.Gone{Attempt: start.Attempt})
}

// ask asks for a change, and returns the lines of the answer.
func (s *site) ask(c *wire.Conn, m *wire.Change) (lines []string, refusal *wire.Error) {
	s.t.Helper()
	m.Ref = job.NewToken()
	s.send(c, m)
	send, err := wire.Expect[*wire.Send](c)
	if errors.As(err, &refusal) {
		return nil, refusal
	}
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := io.ReadAll(c.RecvTransfer(send))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Fields(string(text)), nil
}

// A batch that stays open since something else is in the place of a result says so.
func TestDeleteWithResultNotInPlace(t *testing.T) {
	s, d, start := runningJob(t)
	if err := os.WriteFile(filepath.Join(s.dir, "batches/ns/b/out/j"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m, _ := result("hello\n")
	s.send(d.c, ended(start.Attempt, 0, m))
	d.give(next[*wire.Grant](d), "hello\n")
	next[*wire.Have](d)
	s.send(d.c, &wire.Gone{Attempt: start.Attempt})
	s.h.do(func() {
		first := s.h.batches[s.h.byID["ns/b"]].First()
		if why, _ := s.h.undeletable(spool.Info{ID: "ns/b", First: first}); !strings.Contains(why, "a result of it is not in its place") {
			t.Errorf("it stays, as %q", why)
		}
	})
}

// Nobody deletes what is another's, or gives up nodes, but operators.
func TestOthersDoNotDelete(t *testing.T) {
	s := newSite(t)
	s.stop()
	var ben atomic.Bool
	daemon, err := account.Lookup(t.Context(), "daemon") // whom every machine has
	if err != nil {
		t.Fatal(err)
	}
	s.proven = func(c net.Conn) (dial.Peer, error) {
		p, err := dial.Proven(c)
		if ben.Load() && p.Proven {
			p.User, p.UID = "ben", daemon.UID
		}
		return p, err
	}
	s.start()
	d := s.desk("ws1", "boot1")
	s.over(d, "ns/b", 0)
	ben.Store(true)
	for _, m := range []*wire.Change{
		{Verb: "delete", Args: []string{"ns/b"}},
		{Verb: "delete", Args: []string{"ns/b"}, Dry: true},
		{Verb: "delete", Args: []string{"state=done"}, All: true},
		{Verb: "delete", Args: []string{"owner=*", "batch=b"}},
		{Verb: "lost", Args: []string{"ws9"}},
		{Verb: "accept", Args: []string{"ws9", "ssh://ws9"}},
		{Verb: "remove", Args: []string{"ws1"}},
	} {
		if lines, e := s.ask(s.tool(), m); e == nil || e.Status != 77 {
			t.Errorf("%s %q: %q, %v", m.Verb, m.Args, lines, e)
		}
	}
	for _, args := range [][]string{{"state=done"}, {"ns/b", "owner=ben"}, {}} {
		if lines, e := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: args}); e != nil || len(lines) != 0 {
			t.Errorf("%q: %q, %v", args, lines, e)
		}
	}
	if lines, e := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: []string{"b"}}); e == nil || e.Status != 66 {
		t.Errorf("a batch of that name of ben's: %q, %v", lines, e)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "batches/ns/b/log.jsonl")); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.h.set.Store(&settings{Reserve: -1})
	write(t, filepath.Join(s.dir, "head.yaml"), "operators: [daemon]\n") // another name of that number
	s.start()
	lines, e := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: []string{"state=done"}, All: true})
	if e != nil || len(lines) != 1 || lines[0] != `{"batch":"ns/b"}` {
		t.Errorf("an operator gets %q, %v", lines, e)
	}
}

// A batch that is deleted while somebody reads its result: he is told that it
// was cut short, or gets all of it.
func TestDeletedWhileItIsPulled(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	s.over(d, "ns/b", 0)
	c := s.tool()
	s.send(c, &wire.Pull{Ref: job.NewToken(), ID: "ns/b/j"})
	m, err := pack.DecodeManifest(c.RecvTransfer(expect[*wire.Send](t, c)), pack.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	other := s.tool()
	if lines, e := s.ask(other, &wire.Change{Verb: "delete", Args: []string{"ns/b"}}); e != nil || len(lines) != 1 {
		t.Fatalf("%q, %v", lines, e)
	}
	for { // until the file is gone
		left, err := filepath.Glob(filepath.Join(s.dir, "trash/*/out/j/*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
	}
	s.send(c, &wire.Pick{Ref: job.NewToken()})
	err = wire.Drain(c.RecvTransfer(expect[*wire.Send](t, c)))
	if !errors.Is(err, wire.ErrGaveUp) {
		t.Errorf("of %d entries he got them all, or was told %v", len(m), err)
	}
	s.send(c, &wire.Pull{Ref: job.NewToken(), ID: "ns/b/j"})
	if e := expect[*wire.Error](t, c); e.Status != 66 {
		t.Errorf("asked again he is told %+v", e)
	}
}

// A result that is replaced by that of a later batch of its name while it is pulled: the next
// pick of its files is refused, as no file is there to be read.
func TestReplacedWhileItIsPulled(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	s.over(d, "ns/b", 0)
	c := s.tool()
	s.send(c, &wire.Pull{Ref: job.NewToken(), ID: "ns/b/j"})
	if _, err := pack.DecodeManifest(c.RecvTransfer(expect[*wire.Send](t, c)), pack.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	s.send(c, &wire.Pick{Ref: job.NewToken(), More: true})
	if err := wire.Drain(c.RecvTransfer(expect[*wire.Send](t, c))); err != nil {
		t.Fatal(err)
	}
	if lines, e := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: []string{"ns/b"}}); e != nil || len(lines) != 1 {
		t.Fatalf("%q, %v", lines, e)
	}
	s.over(d, "ns/b", 0)
	for { // until it is in its place
		if _, err := os.Stat(filepath.Join(s.dir, "batches/ns/b/out/j/out.txt")); err == nil {
			break
		}
	}
	s.send(c, &wire.Pick{Ref: job.NewToken(), More: true})
	if e := expect[*wire.Error](t, c); e.Status != 66 {
		t.Errorf("it is told %+v", e)
	}
}

// A deletion of a batch whose name has passed to another one meanwhile does not
// give up what that has on its nodes.
func TestDeleteLeavesAnotherOfItsName(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	s.over(d, "ns/b", 0)
	infos, _, err := s.h.store.Batches(nil)
	if err != nil || len(infos) != 1 {
		t.Fatal(infos, err)
	}
	if lines, e := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: []string{"ns/b"}}); e != nil || len(lines) != 1 {
		t.Fatalf("%q, %v", lines, e)
	}
	s.submit("ns/b", "j")
	start := next[*wire.Start](d)
	if lines, e := s.ask(s.tool(), &wire.Change{Verb: "cancel", Args: []string{"ns/b"}}); e != nil || len(lines) != 1 {
		t.Fatalf("%q, %v", lines, e)
	}
	next[*wire.Stop](d)
	s.free(1)
	m, _ := result("hello\n")
	s.send(d.c, ended(start.Attempt, 1, m))
	await(t, func() (waits bool) {
		s.h.do(func() { waits = s.h.machine.Waits(s.h.byID["ns/b"]) })
		return waits
	})
	tool := &tool{Head: s.h}
	why, err := tool.whyKept(t.Context(), infos[0], time.Now(), true)
	if err != nil || why != "it was deleted just now" {
		t.Errorf("it says %q, %v", why, err)
	}
	s.h.do(func() {
		if !s.h.machine.Waits(s.h.byID["ns/b"]) {
			t.Error("what the other batch has on its node is given up")
		}
	})
}

// One who deletes a batch and one who tries its job again at the same time:
// only one of the two is told that it was done, and it was.
func TestDeleteBesideRetry(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	deleter, retrier := s.tool(), s.tool()
	for n := range 20 {
		id := job.BatchID(fmt.Sprintf("ns/b%d", n))
		s.over(d, id, 1)
		s.becomes(id.Job("j"), job.Failed)
		var both sync.WaitGroup
		var deleted, retried []string
		var no *wire.Error
		both.Go(func() { deleted, no = s.ask(deleter, &wire.Change{Verb: "delete", Args: []string{string(id)}}) })
		both.Go(func() { retried, _ = s.ask(retrier, &wire.Change{Verb: "retry", Args: []string{string(id)}}) })
		both.Wait()
		var gone wire.Deletion
		if no == nil && len(deleted) > 0 {
			if err := line.Unmarshal([]byte(strings.Join(deleted, " ")), &gone); err != nil {
				t.Fatal(err)
			}
		}
		_, err := os.Stat(filepath.Join(s.dir, "batches", string(id)))
		isGone := errors.Is(err, fs.ErrNotExist)
		wasDeleted := gone.Batch == id && gone.Why == ""
		if isGone != wasDeleted || wasDeleted == (len(retried) == 1) {
			t.Fatalf("deleted %q (%v), retried %q, gone: %v", deleted, no, retried, isGone)
		}
		if !isGone { // the job runs again
			start := next[*wire.Start](d)
			m, _ := result("hello\n")
			s.send(d.c, ended(start.Attempt, 0, m))
			d.give(next[*wire.Grant](d), "hello\n")
			next[*wire.Have](d)
			s.send(d.c, &wire.Gone{Attempt: start.Attempt})
		}
	}
}

// Who follows what happens is told of a batch, too, that has the name of one that
// was deleted meanwhile.
func TestFollowedBesideDeletion(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "boot1")
	_, row := s.follows(wire.Query{Args: []string{"job=*"}})
	done := func() {
		for row().State != job.Done {
		}
	}
	s.over(d, "ns/b", 0)
	done()
	await(t, func() bool {
		_, err := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: []string{"ns/b"}})
		return err == nil && exists(filepath.Join(s.dir, "batches/ns/b")) != nil
	})
	s.over(d, "ns/b", 0)
	done()
}
