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

// A head.jsonl that is mostly of deleted batches is replaced at the start by what decides
// something. Who has read it reads on, and no seq is given again.
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
		job.Record{Kind: job.KindNode, Node: "ws1", State: "s1"}, job.Record{Kind: job.KindDrained, Node: "ws1", By: "ana"},
		job.Record{Kind: job.KindDrained, Node: "ws2", By: "ana"}, job.Record{Kind: job.KindResumed, Node: "ws2", By: "ana"},
		job.Record{Kind: job.KindClosed, Batch: "ns/open"}, job.Record{Kind: job.KindOpened, Batch: "ns/open"}, job.Record{Kind: job.KindOpened, Batch: "ns/open"},
		job.Record{Kind: job.KindDeleted, Batch: "ns/closed", By: "ana", Request: job.NewToken(), First: 1 << 30}, job.Record{Kind: job.KindClosed, Batch: "ns/closed"})
	listDeleted(t, dir, 5000)
	appendHead(t, dir, job.Record{Kind: job.KindResumed, Node: "ws3", By: "ana"})
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.listing()
	if err != nil {
		t.Fatal(err)
	}
	all, old := headRecords(t, dir), newHeadLog()
	foldAll := func(h *headLog) {
		text, err := os.ReadFile(filepath.Join(dir, "head.jsonl"))
		if err == nil {
			err = h.readHeadLog(newLogReader(bytes.NewReader(text), -1, "", "head.jsonl"), func(p *Problem) error { return p })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	foldAll(&old)

	// Without the sync of what was moved, nothing is replaced.
	undo := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "compact.sync" {
			return syscall.EIO
		}
		return nil
	}})
	if _, _, err := lockAndLoad(dir); !errors.Is(err, syscall.EIO) {
		t.Errorf("a sync that failed: %v", err)
	}
	undo()
	if got := headRecords(t, dir); len(got) != len(all) {
		t.Errorf("%d of %d records are left by a start that failed", len(got), len(all))
	}

	// Where there is no room, it stays as it is.
	compacts := false
	undo = durable.Observe(&durable.Observer{Step: func(name string) error {
		if compacts = compacts || name == "compact.replace"; compacts && name == "file.write" {
			return syscall.ENOSPC
		}
		return nil
	}})
	h, open, problems := loadHead(t, dir)
	undo()
	if len(problems) > 0 || len(open) != 1 || !compacts || len(h.listed) != len(before) || len(headRecords(t, dir)) != len(all) {
		t.Errorf("without room %d batches are open, %d listed of %d, problems %v", len(open), len(h.listed), len(before), problems)
	}
	if err := errors.Join(open[0].Close(), h.Close()); err != nil {
		t.Fatal(err)
	}

	h, open, problems = loadHead(t, dir)
	if len(problems) > 0 || len(open) != 1 || open[0].ID != "ns/open" {
		t.Fatalf("open %v, problems %v", open, problems)
	}
	got := headRecords(t, dir)
	if len(got) > 1100 || got[len(got)-1].Seq != all[len(all)-1].Seq {
		t.Errorf("%d records are left, the last is %+v", len(got), got[len(got)-1])
	}
	fresh := newHeadLog()
	foldAll(&fresh)
	deletions := 0
	for id, said := range before {
		if _, kept := fresh.listed[id]; said.kind == job.KindDeleted && !kept {
			delete(old.listed, id)
			deletions++
		}
	}
	if !maps.Equal(fresh.listed, old.listed) || !maps.Equal(fresh.drained, old.drained) || !maps.Equal(fresh.states, old.states) || deletions != 4000 {
		t.Errorf("it says %d, %v, %v, should say %d, %v, %v", len(fresh.listed), fresh.drained, fresh.states, len(old.listed), old.drained, old.states)
	}
	if !maps.Equal(h.listed, fresh.listed) {
		t.Error("the head goes by something else than what it has written")
	}
	h.AppendHead(&job.Record{Kind: job.KindDrained, Node: "ws9", By: "ana"})
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	if recs := headRecords(t, dir); len(recs) != len(got)+1 || recs[len(got)].Node != "ws9" {
		t.Errorf("after the next record there are %d of %d", len(recs), len(got)+1)
	}
	if after, err := s.listing(); err != nil || !maps.Equal(after, fresh.listed) {
		t.Errorf("who has read it before reads %d batches, %v", len(after), err)
	}
	size := len(headRecords(t, dir))
	if err := errors.Join(open[0].Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, problems = loadHead(t, dir); len(problems) > 0 || len(headRecords(t, dir)) != size {
		t.Errorf("the next start changes it again: %v", problems)
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
	if _, _, problems := loadHead(t, dir); len(problems) != 1 {
		t.Errorf("problems: %v", problems)
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
