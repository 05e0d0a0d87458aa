package head

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/wire"
	"distribute/spool"
)

// countTables counts the batches that are read for what is asked of one job's output.
func (s *site) countTables() *atomic.Int64 {
	n := new(atomic.Int64)
	k := &s.h.tools.table
	k.mu.Lock()
	defer k.mu.Unlock()
	read := k.read
	k.read = func(id job.BatchID, upto int64) (*spool.Table, error) {
		n.Add(1)
		return read(id, upto)
	}
	return n
}

// logOf is what a new session gets of a job's output, and of which attempt, or why not.
func (s *site) logOf(id job.ID) (text string, try int) {
	s.t.Helper()
	c := s.tool()
	defer c.Close()
	s.send(c, &wire.Log{Ref: job.NewToken(), ID: string(id)})
	send, err := wire.Expect[*wire.Send](c)
	if refusal := (*wire.Error)(nil); errors.As(err, &refusal) {
		return refusal.Text, 0
	}
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := io.ReadAll(c.RecvTransfer(send))
	if err != nil {
		s.t.Error(err)
	}
	return string(b), send.Try
}

// printed brings the end of an attempt, and puts what it printed into its result, which is in
// that directory of its batch.
func (d *desk) printed(start *wire.Start, exit int, dir, text string) {
	d.t.Helper()
	m, _ := result("hello\n")
	d.send(d.c, ended(start.Attempt, exit, m))
	d.give(next[*wire.Grant](d), "hello\n")
	next[*wire.Have](d)
	d.send(d.c, &wire.Gone{Attempt: start.Attempt})
	id := job.ID(start.Job)
	write(d.t, filepath.Join(d.dir, "batches", string(id.Batch()), dir, job.OutputName(id.Name())), text)
}

// closed waits until a batch is closed.
func (s *site) closed(id job.BatchID) {
	s.t.Helper()
	await(s.t, func() (closed bool) {
		s.h.do(func() { _, open := s.h.byID[id]; closed = !open })
		return closed
	})
}

func (s *site) wantLog(id job.ID, text string, try int) {
	s.t.Helper()
	if got, of := s.logOf(id); got != text || of != try {
		s.t.Errorf("of %s: %q of attempt %d, want %q of %d", id, got, of, text, try)
	}
}

// A batch is read once for what all its jobs printed, also when it is closed meanwhile.
func TestBatchIsReadOnce(t *testing.T) {
	s := newSite(t)
	reads := s.countTables()
	s.submit("ns/b", "a", "c")
	d := s.desk("ws1", "boot1")
	d.printed(next[*wire.Start](d), 0, "out/a", "of a\n")
	d.printed(next[*wire.Start](d), 0, "out/c", "of c\n")
	s.becomes("ns/b/c", job.Done)
	s.wantLog("ns/b/a", "of a\n", 1)
	s.closed("ns/b")
	for range 3 {
		s.wantLog("ns/b/a", "of a\n", 1)
		s.wantLog("ns/b/c", "of c\n", 1)
	}
	s.wantLog("ns/b/x", `no job "ns/b/x"`, 0)
	if n := reads.Load(); n != 1 {
		t.Errorf("it was read %d times", n)
	}
	s.over(d, "ns/b2", 0)
	s.closed("ns/b2")
	write(t, filepath.Join(s.dir, "batches/ns/b2/out/j/j_output.txt"), "of another\n")
	s.wantLog("ns/b2/j", "of another\n", 1)
	if n := reads.Load(); n != 2 {
		t.Errorf("both were read %d times", n)
	}
}

// What happens to a batch after it was read is seen at once.
func TestKeptTableIsNotStale(t *testing.T) {
	t.Run("goes on", func(t *testing.T) {
		s := newSite(t)
		s.submit("ns/b", "a", "c")
		d := s.desk("ws1", "boot1")
		d.printed(next[*wire.Start](d), 0, "out/a", "of a\n")
		c := next[*wire.Start](d)
		s.wantLog("ns/b/a", "of a\n", 1)
		s.wantLog("ns/b/c", "nothing is printed yet: the job is waiting on ws1", 0)
		d.send(d.c, &wire.Phase{Attempt: c.Attempt, Phase: job.PhaseSending}, &wire.Ping{N: 1})
		next[*wire.Pong](d)
		s.wantLog("ns/b/c", "nothing is printed yet: the job is sending on ws1", 0)
		d.printed(c, 0, "out/c", "of c\n")
		s.becomes("ns/b/c", job.Done)
		s.wantLog("ns/b/c", "of c\n", 1)
	})
	t.Run("retry", func(t *testing.T) {
		s := newSite(t)
		s.submit("ns/b", "j")
		d := s.desk("ws1", "boot1")
		d.printed(next[*wire.Start](d), 1, "attempts/j~1", "first\n")
		s.closed("ns/b")
		s.wantLog("ns/b/j", "first\n", 1)
		if ids, e := s.ask(s.tool(), &wire.Change{Verb: "retry", Args: []string{"ns/b/j"}}); e != nil || len(ids) != 1 {
			t.Fatalf("%q, %v", ids, e)
		}
		second := next[*wire.Start](d)
		s.becomes("ns/b/j", job.Running)
		s.wantLog("ns/b/j", "nothing is printed yet: the job is waiting on ws1", 0)
		s.wantLog("ns/b/j~1", "first\n", 1)
		d.printed(second, 0, "out/j", "second\n")
		s.becomes("ns/b/j", job.Done)
		s.wantLog("ns/b/j", "second\n", 2)
	})
	t.Run("deleted", func(t *testing.T) {
		s := newSite(t)
		d := s.desk("ws1", "boot1")
		s.submit("ns/b", "j")
		d.printed(next[*wire.Start](d), 0, "out/j", "first\n")
		s.closed("ns/b")
		s.wantLog("ns/b/j", "first\n", 1)
		if _, e := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: []string{"ns/b"}}); e != nil {
			t.Fatal(e)
		}
		s.wantLog("ns/b/j", `no job "ns/b/j": there is no such batch`, 0)
		s.submit("ns/b", "j", "k")
		start := next[*wire.Start](d)
		s.becomes("ns/b/j", job.Running)
		s.wantLog("ns/b/j", "nothing is printed yet: the job is waiting on ws1", 0)
		d.printed(start, 1, "attempts/j~1", "of the new one\n")
		s.becomes("ns/b/j", job.Failed)
		s.wantLog("ns/b/j", "of the new one\n", 1)
	})
	t.Run("private", func(t *testing.T) {
		s := newSite(t)
		s.stop()
		var other atomic.Bool
		s.proven = func(c net.Conn) (dial.Peer, error) {
			p, err := dial.Proven(c)
			if other.Load() && p.Proven {
				p.UID, p.User, p.Groups = 1<<20, "ana", nil
			}
			return p, err
		}
		s.start()
		d := s.desk("ws1", "boot1")
		s.submit("ns/b", "j")
		d.printed(next[*wire.Start](d), 0, "out/j", "secret\n")
		s.closed("ns/b")
		for _, dir := range []string{".", "batches", "batches/ns", "batches/ns/b"} {
			if err := os.Chmod(filepath.Join(s.dir, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		reads := s.countTables()
		other.Store(true)
		s.wantLog("ns/b/j", "secret\n", 1)
		if err := os.Chmod(filepath.Join(s.dir, "batches/ns/b"), 0o700); err != nil {
			t.Fatal(err)
		}
		s.wantLog("ns/b/j", `no job "ns/b/j": there is no such batch`, 0)
		s.wantLog("ns/b/k", `no job "ns/b/k": there is no such batch`, 0)
		other.Store(false)
		s.wantLog("ns/b/j", "secret\n", 1)
		if n := reads.Load(); n != 1 {
			t.Errorf("it was read %d times", n)
		}
	})
}

// A table is given back only for the very batch that it is of, and the same length of its log.
func TestKeptTableIsOfThisBatch(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j")
	infos, _, err := s.h.store.Batch("ns/b")
	if err != nil || len(infos) != 1 {
		t.Fatal(infos, err)
	}
	size, err := s.h.spool.LogSize("ns/b")
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.h.spool.ReadTable("ns/b", size)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(i *spool.Info, upto *int64){
		"":               func(*spool.Info, *int64) {},
		"another id":     func(i *spool.Info, _ *int64) { i.ID = "ns/c" },
		"first record":   func(i *spool.Info, _ *int64) { i.First++ },
		"another owner":  func(i *spool.Info, _ *int64) { i.Head.UID++ },
		"submitted when": func(i *spool.Info, _ *int64) { i.Submitted = i.Submitted.Add(time.Millisecond) },
		"longer":         func(_ *spool.Info, upto *int64) { *upto++ },
		"shorter":        func(_ *spool.Info, upto *int64) { *upto-- },
	} {
		var k keptTable
		k.put(table)
		i, upto := infos[0], size
		change(&i, &upto)
		if got := k.get(&i, upto) == table; got != (name == "") || got != (k.table != nil) {
			t.Errorf("%q: it is given %v, and kept is %v", name, got, k.table)
		}
	}
}

// A table is dropped ten seconds after its last use.
func TestKeptTableIsDropped(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j")
	infos, _, err := s.h.store.Batch("ns/b")
	if err != nil || len(infos) != 1 {
		t.Fatal(infos, err)
	}
	table, err := s.h.spool.ReadTable("ns/b", -1)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var k keptTable
		k.put(table)
		for range 2 {
			time.Sleep(tableFor - time.Nanosecond)
			if k.get(&infos[0], table.Upto()) == nil {
				t.Fatal("it is dropped while it is used")
			}
		}
		time.Sleep(tableFor)
		synctest.Wait()
		if k.get(&infos[0], table.Upto()) != nil {
			t.Error("it is kept for longer")
		}
	})
}
