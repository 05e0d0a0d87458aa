package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// headRecords returns the records of a head.jsonl.
func headRecords(t *testing.T, dir string) (recs []job.Record) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "head.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	err = newLogReader(bytes.NewReader(text), -1, "", "head.jsonl").eachRecord(func(p *Problem) error { return p }, func(r *job.Record) error {
		recs = append(recs, *r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// appendHead appends records to a head.jsonl of which no head runs.
func appendHead(t *testing.T, dir string, recs ...job.Record) {
	t.Helper()
	seq := uint64(1 << 20)
	if all := headRecords(t, dir); len(all) > 0 {
		seq = max(seq, all[len(all)-1].Seq)
	}
	var text []byte
	for _, rec := range recs {
		seq++
		rec.Seq, rec.Time = seq, time.Now()
		normalise(&rec)
		text = appendRecord(text, &rec)
	}
	f, err := os.OpenFile(filepath.Join(dir, "head.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// listDeleted appends that n batches were closed and deleted.
func listDeleted(t *testing.T, dir string, n int) {
	t.Helper()
	var recs []job.Record
	for i := range n {
		id := job.BatchID(fmt.Sprintf("ns/gone-%d-%s", i, strings.Repeat("x", 40)))
		recs = append(recs, job.Record{Kind: job.KindClosed, Batch: id},
			job.Record{Kind: job.KindDeleted, Batch: id, By: "ana", Request: job.NewToken(), First: uint64(i + 1)})
	}
	appendHead(t, dir, recs...)
}

// compactHead compacts head.jsonl as a running head does, if it has grown, and calls between
// while the smaller file is not in place yet.
func compactHead(h *Head, between func() error) error {
	upto := h.Grown()
	if upto == 0 {
		return nil
	}
	c, err := h.Compact(upto)
	if err != nil || c == nil {
		return err
	}
	if err := between(); err != nil {
		return err
	}
	h.UseCompacted(c)
	if !h.Pending() {
		return errors.New("nothing is to be committed")
	}
	return errors.Join(h.Commit(), h.Compacted(c))
}

func nothing() error { return nil }

// foldedHead folds a head.jsonl.
func foldedHead(t *testing.T, dir string) headLog {
	t.Helper()
	h := newHeadLog()
	text, err := os.ReadFile(filepath.Join(dir, "head.jsonl"))
	if err == nil {
		err = h.readHeadLog(newLogReader(bytes.NewReader(text), -1, "", "head.jsonl"), func(p *Problem) error { return p })
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A head.jsonl that is mostly of deleted batches is replaced, while the head runs, by the
// lines that decide something. The head goes by the new file, a reader of the old one reads
// on, and no seq is given again.
func TestCompact(t *testing.T) {
	h := newHead(t)
	over(t, h, submit(t, h, "ns/closed", []string{"a"}), job.KindDone)
	b := submit(t, h, "ns/open", []string{"a"})
	commit(t, h, b, start("a", 1))
	dir := h.Dir()
	if err := errors.Join(b.Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	appendHead(t, dir,
		job.Record{Kind: job.KindNode, Node: "ws1", State: "s0"}, job.Record{Kind: job.KindNode, Node: "ws1", State: "s1"},
		job.Record{Kind: job.KindNode, Node: "ws1", State: "s1", Outcome: job.Outcome{Machine: "m1"}, First: 7}, job.Record{Kind: job.KindDrained, Node: "ws1", By: "ana"},
		job.Record{Kind: job.KindDrained, Node: "ws2", By: "ana"}, job.Record{Kind: job.KindResumed, Node: "ws2", By: "ana"},
		job.Record{Kind: job.KindClosed, Batch: "ns/open"}, job.Record{Kind: job.KindOpened, Batch: "ns/open"}, job.Record{Kind: job.KindOpened, Batch: "ns/open"},
		job.Record{Kind: job.KindDeleted, Batch: "ns/closed", By: "ana", Request: job.NewToken(), First: 1 << 30}, job.Record{Kind: job.KindClosed, Batch: "ns/closed"})
	listDeleted(t, dir, 5000)
	back := job.BatchID("ns/gone-0-" + strings.Repeat("x", 40)) // its name was used again
	appendHead(t, dir, job.Record{Kind: job.KindOpened, Batch: back}, job.Record{Kind: job.KindClosed, Batch: back},
		job.Record{Kind: job.KindResumed, Node: "ws3", By: "ana"})
	h, open, problems := loadHead(t, dir)
	if len(problems) > 0 || len(open) != 1 || open[0].ID != "ns/open" {
		t.Fatalf("open %v, problems %v", open, problems)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.listing(); err != nil {
		t.Fatal(err)
	}
	between := func() error { // records that come meanwhile: one durable, one in the same Commit
		h.AppendHead(&job.Record{Kind: job.KindDrained, Node: "ws4", By: "ana"})
		err := h.Commit()
		h.list(&job.Record{Kind: job.KindClosed, Batch: "ns/open"})
		return err
	}
	if err := compactHead(h, between); err != nil {
		t.Fatal(err)
	}
	after := foldedHead(t, dir)
	deletions := 0
	for _, said := range after.listed {
		if said.kind == job.KindDeleted {
			deletions++
		}
	}
	got := headRecords(t, dir)
	if last := got[len(got)-1]; len(got) > 1100 || last.Kind != job.KindClosed || last.Seq != h.seq.Load() || deletions != keptDeleted {
		t.Errorf("%d records are left with %d deletions, the last is %+v", len(got), deletions, last)
	}
	want := map[job.BatchID]job.Kind{"ns/open": job.KindClosed, "ns/closed": job.KindClosed, back: job.KindClosed}
	for id, kind := range want {
		if after.listed[id].kind != kind {
			t.Errorf("%s is listed as %q", id, after.listed[id].kind)
		}
	}
	if len(after.listed) != deletions+len(want) || !maps.Equal(after.drained, map[string]string{"ws1": "ana", "ws4": "ana"}) ||
		len(after.states) != 1 || after.states["ws1"].id != "s1" || after.states["ws1"].machine != "m1" || after.states["ws1"].session != 7 {
		t.Errorf("it says %d, %v, %v", len(after.listed), after.drained, after.states)
	}
	if !maps.Equal(h.listed, after.listed) {
		t.Errorf("the head goes by %d batches, its file by %d", len(h.listed), len(after.listed))
	}
	h.AppendHead(&job.Record{Kind: job.KindDrained, Node: "ws9", By: "ana"})
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	if recs := headRecords(t, dir); len(recs) != len(got)+1 || recs[len(got)].Node != "ws9" {
		t.Errorf("after the next record there are %d of %d", len(recs), len(got)+1)
	}
	if read, err := s.listing(); err != nil || !maps.Equal(read, after.listed) {
		t.Errorf("who has read it before reads %d batches, %v", len(read), err)
	}
	size := len(headRecords(t, dir))
	if err := compactHead(h, nothing); err != nil || len(headRecords(t, dir)) != size {
		t.Errorf("it is changed again, %v", err)
	}
	if h.log.Path() != filepath.Join(dir, "head.jsonl") {
		t.Errorf("the log calls itself %s", h.log.Path())
	}
}

// What fails before the smaller file is in place changes nothing: the head goes on with the
// old one, and tries again when that has grown to twice its size. Only a rename that may not
// be durable ends it. A full disk leaves the Commit to be called again.
func TestCompactFails(t *testing.T) {
	for _, fault := range []struct {
		step   string
		err    error
		broken bool
	}{
		{"compact.sync", syscall.EIO, false},
		{"compact.write", syscall.EMFILE, false},
		{"compact.tail", syscall.EIO, false},
		{"compact.tail", syscall.ENOSPC, false},
		{"compact.rename", syscall.EACCES, false},
		{"compact.syncdir", syscall.EIO, true},
	} {
		t.Run(fault.step+" "+fault.err.Error(), func(t *testing.T) {
			h := newHead(t)
			dir := h.Dir()
			h.Close()
			listDeleted(t, dir, 2500)
			h, _, _ = loadHead(t, dir)
			h.compactAt = 1
			before := headRecords(t, dir)
			undo := durable.Observe(&durable.Observer{Step: func(name string) error {
				if name == fault.step {
					return fault.err
				}
				return nil
			}})
			err := compactHead(h, nothing)
			undo()
			if !errors.Is(err, fault.err) || errors.Is(err, ErrBroken) != fault.broken {
				t.Fatalf("error %v", err)
			}
			if fault.broken {
				return
			}
			h.AppendHead(&job.Record{Kind: job.KindDrained, Node: "ws1", By: "ana"})
			if err := h.Commit(); err != nil {
				t.Fatal(err)
			}
			if after := headRecords(t, dir); len(after) != len(before)+1 || h.Grown() != 0 {
				t.Errorf("%d records became %d, grown %d", len(before), len(after), h.Grown())
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
			h.Close()
			h, _, _ = loadHead(t, dir)
			h.compactAt = 1
			if err := compactHead(h, nothing); err != nil || len(headRecords(t, dir)) > 1100 {
				t.Errorf("the next head: %d records, %v", len(headRecords(t, dir)), err)
			}
		})
	}
}

// A Commit that has no room yet puts the smaller file in place when it is called again.
func TestCompactFull(t *testing.T) {
	h := newHead(t)
	dir := h.Dir()
	h.Close()
	listDeleted(t, dir, 2500)
	h, _, _ = loadHead(t, dir)
	h.compactAt = 1
	c, err := h.Compact(h.Grown())
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	h.UseCompacted(c)
	h.AppendHead(&job.Record{Kind: job.KindDrained, Node: "ws1", By: "ana"})
	undo := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "log.write" {
			return syscall.ENOSPC
		}
		return nil
	}})
	err = h.Commit()
	undo()
	if !errors.Is(err, ErrFull) || !h.Pending() {
		t.Fatalf("a full disk: %v", err)
	}
	if err := errors.Join(h.Commit(), h.Compacted(c)); err != nil {
		t.Fatal(err)
	}
	if recs := headRecords(t, dir); len(recs) > 1100 || recs[len(recs)-1].Node != "ws1" {
		t.Errorf("%d records, the last %+v", len(recs), recs[len(recs)-1])
	}
}

// A head.jsonl with a damaged line stays as it is: dfsck mends that.
func TestCompactNotDamaged(t *testing.T) {
	h := newHead(t)
	dir := h.Dir()
	h.Close()
	listDeleted(t, dir, 5000)
	name := filepath.Join(dir, "head.jsonl")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text[500] ^= 1
	if err := os.WriteFile(name, text, 0o640); err != nil {
		t.Fatal(err)
	}
	h, _, problems := loadHead(t, dir)
	if len(problems) != 1 {
		t.Errorf("problems: %v", problems)
	}
	if err := compactHead(h, nothing); err == nil {
		t.Error("it is compacted")
	}
	if after, err := os.ReadFile(name); err != nil || !bytes.Equal(after, text) {
		t.Errorf("it was changed, %v", err)
	}
}

// A deleted batch whose log could not be read when head.jsonl was replaced is not back when
// it can be read again.
func TestCompactUnreadable(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/old", []string{"a"})
	over(t, h, b, job.KindDone)
	dir := h.Dir()
	if _, err := h.Delete("ns/old", b.seq, "ana", job.NewToken()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Commit(), h.Close()); err != nil {
		t.Fatal(err)
	}
	listDeleted(t, dir, 5000)
	log := filepath.Join(dir, "batches/ns/old/log.jsonl")
	if err := os.Rename(log, log+".aside"); err != nil {
		t.Fatal(err)
	}
	h, _, problems := loadHead(t, dir)
	if err := compactHead(h, nothing); err != nil {
		t.Fatal(err)
	}
	if recs := headRecords(t, dir); len(problems) != 1 || len(recs) > 1100 {
		t.Errorf("%d records are left, problems %v", len(recs), problems)
	}
	if err := errors.Join(h.Close(), os.Rename(log+".aside", log)); err != nil {
		t.Fatal(err)
	}
	_, open, problems := loadHead(t, dir)
	if err := exists(filepath.Dir(log)); len(open) > 0 || len(problems) > 0 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the batch is back: open %v, problems %v, %v", open, problems, err)
	}
}
