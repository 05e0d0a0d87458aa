package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/suite"
)

// smallDisk is a file system of that many bytes, or skips. Its tests are not parallel: a
// program that another test begins has the files of this process open for a moment, in
// which the room of those that are removed is not free.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		suite.Missing(t, fmt.Sprintf("a small file system cannot be mounted here: %v", err))
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fillDisk writes until there is no room.
func fillDisk(t *testing.T, dir string) (name string) {
	t.Helper()
	name = filepath.Join(dir, "filler")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return name
}

// On a full disk ends can still be written: the ballast is given up. When that
// is gone too, nothing is lost: Commit is called again when there is room.
func TestJ26FullDisk(t *testing.T) {
	disk := smallDisk(t, "40m")
	dir := filepath.Join(disk, "spool")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	h, _, _ := loadHead(t, dir)
	names := []string{"a", "b", "c"}
	b, c := submit(t, h, "ns/b", names), submit(t, h, "ns/c", names)
	commit(t, h, b, start("a", 1))
	filler := fillDisk(t, disk)

	long := job.Record{Kind: job.KindBack, Job: "a", Outcome: job.Outcome{Reason: strings.Repeat("x", 8192)}}
	commit(t, h, b, long)
	if err := exists(h.path("ballast")); err == nil {
		t.Error("the ballast is there")
	}
	fillDisk(t, disk)
	recs := []job.Record{start("a", 2), start("b", 1), start("c", 1)}
	recs[0].Reason = strings.Repeat("y", 8192)
	for i := range recs {
		h.Append(b, &recs[i])
		h.Append(c, &recs[i])
	}
	if err := h.Commit(); !errors.Is(err, ErrFull) || errors.Is(err, ErrBroken) {
		t.Fatalf("Commit on a full disk: %v", err)
	}
	if _, err := h.Begin(job.NewToken(), "other/b", "ana", 1); err != nil && !errors.Is(err, ErrFull) {
		t.Errorf("Begin on a full disk: %v", err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Read("ns/b", -1, func(*job.Row) error { return nil }); err != nil {
		t.Errorf("a reader of a log that was cut back: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if !h.Pending() {
		t.Error("nothing is pending")
	}
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	h, open, problems := restart(t, h, b, c)
	if len(open) != 2 || len(problems) != 0 {
		t.Fatalf("open %v, problems %v", open, problems)
	}
	if got := records(t, open[1]); len(got) != 3 || !reflect.DeepEqual(got[2], recs[2]) {
		t.Errorf("the log of c: %+v", got)
	}
	if got := records(t, open[0]); len(got) != 5 {
		t.Errorf("the log of b has %d records", len(got))
	}
	if err := exists(h.path("ballast")); err != nil {
		t.Errorf("the ballast was not made anew: %v", err)
	}
}

func TestD94FullDiskWhileReceiving(t *testing.T) {
	disk := smallDisk(t, "16m")
	dir := filepath.Join(disk, "spool")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	h, _, _ := loadHead(t, dir)
	big := strings.Repeat("0123456789abcdef", 2<<20)
	s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	if err := fillIn(s, plain, []string{"a"}, big); !errors.Is(err, ErrFull) {
		t.Errorf("an input on a full disk: %v", err)
	}
	if err := s.Abort(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(h.path("blobs", "*", ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	submit(t, h, "ns/c", []string{"a"})
}

// A submission that ends for want of room leaves no blob, but one that another
// counts on or that was there before.
func TestS04NoBlobIsLeft(t *testing.T) {
	disk := smallDisk(t, "40m")
	dir := filepath.Join(disk, "spool")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	h, _, _ := loadHead(t, dir)
	begin := func(name job.BatchID, contents ...string) *Submission {
		t.Helper()
		s, err := h.Begin(job.NewToken(), name, "ana", os.Getuid())
		if err == nil {
			err = s.Spec(plain)
		}
		j := job.Job{Name: "a", Run: []string{"true"}}
		for i, c := range contents {
			j.Inputs = append(j.Inputs, job.Input{Path: fmt.Sprint("in", i), Size: int64(len(c)), Mode: 0o644, Sum: sumOf(c)})
		}
		if err == nil {
			err = s.AddJob(&j)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Lacks()
		return s
	}
	put := func(s *Submission, c string) error { return s.Put(sumOf(c), int64(len(c)), strings.NewReader(c)) }
	there := func(c string) bool { return exists(h.path("blobs", sumOf(c)[:2], sumOf(c))) == nil }
	old, mine, shared, cut := strings.Repeat("o", 1<<20), strings.Repeat("m", 1<<20), strings.Repeat("s", 1<<20), strings.Repeat("c", 1<<20)
	big := strings.Repeat("b", 64<<20)

	first := begin("ns/first", old)
	if err := put(first, old); err != nil {
		t.Fatal(err)
	}
	b, err := first.Finish(false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	gone := begin("ns/gone", cut)
	if err := errors.Join(put(gone, cut), gone.Abort()); err != nil {
		t.Fatal(err)
	}
	s := begin("ns/b", old, mine, shared, big)
	for _, c := range []string{old, mine, shared} {
		if err := put(s, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.nameArrivals(); err != nil {
		t.Fatal(err)
	}
	other := begin("ns/other", shared)
	if err := put(s, big); !errors.Is(err, ErrFull) {
		t.Fatalf("a blob without room: %v", err)
	}
	if err := s.Abort(); err != nil {
		t.Error(err)
	}
	if !there(old) || there(mine) || !there(shared) || !there(cut) || there(big) {
		t.Errorf("left: old %v, its own %v, shared %v, of one that was cut %v, big %v", there(old), there(mine), there(shared), there(cut), there(big))
	}
	b2, err := other.Finish(false)
	if err != nil {
		t.Fatalf("the other: %v", err)
	}
	b2.Close()
	if len(h.kept.sole) != 0 {
		t.Errorf("%d are still noted", len(h.kept.sole))
	}
}

// A submission that was left in incoming/ is not refused for what the head's disk
// lacks, wherever that is noticed: it waits.
func TestS04WaitsForRoomWhereverItLacks(t *testing.T) {
	for _, at := range []string{"submit.blob", "submit.blob.rename", "submit.blob.sync"} {
		h := newHead(t)
		d := Drop{Submission: job.NewToken(), Batch: "ns/b"}
		leave1(t, h.Spool, d, "a")
		lacks := true
		end := durable.Observe(&durable.Observer{Step: func(name string) error {
			if lacks && name == at {
				return fmt.Errorf("%s: %w", name, syscall.ENOSPC)
			}
			return nil
		}})
		_, _, err := h.Take(string(d.Submission), nobody, anyRoom)
		if !errors.Is(err, ErrFull) || errors.Is(err, ErrInput) {
			t.Errorf("%s: %v", at, err)
		}
		lacks = false
		s, _, err := h.Take(string(d.Submission), nobody, anyRoom)
		if err != nil {
			t.Fatalf("%s: with room: %v", at, err)
		}
		b, err := s.Finish(false)
		if end(); err != nil {
			t.Fatalf("%s: with room: %v", at, err)
		}
		b.Close()
	}
}

// S04: of an addition for which there is no room nothing half made stays.
func TestS04NoAddedLineIsLeft(t *testing.T) {
	disk := smallDisk(t, "40m")
	dir := filepath.Join(disk, "spool")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	h, _, _ := loadHead(t, dir)
	b := submit(t, h, "ns/b", []string{"a"})
	s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{Name: "b", Run: []string{strings.Repeat("x", 64<<10)}}
	if err := errors.Join(s.Spec(plain), s.AddJob(j), s.out.Flush()); err != nil {
		t.Fatal(err)
	}
	fillDisk(t, disk)
	_, err = s.Add(b)
	wantErr(t, "on a full disk", err, ErrFull)
	if info, err := os.Stat(filepath.Join(b.dir, "jobs.jsonl")); err != nil || info.Size() != b.index().end {
		t.Errorf("%d bytes of lines, want %d, %v", info.Size(), b.index().end, err)
	}
}
