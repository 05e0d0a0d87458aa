package spool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// What an earlier head staged is synced and read from the disk before it is
// believed: that head may have ended because a write failed that the cache
// hides. A head that finds the disk failing so ends. What this head has staged
// itself is not synced for it.
func TestJ25StagedIsReadAgain(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	token := job.NewToken()
	m, err := bring(h, b, token, "hello\n")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	synced := map[string]int{}
	var fault error
	end := durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		mu.Lock()
		defer mu.Unlock()
		synced[filepath.Base(f.Name())]++
		if strings.Contains(f.Name(), "staging") {
			return fault
		}
		return nil
	}})
	defer end()
	resume := func(h *Head, b *Batch) (pack.Want, error) {
		got, want, err := h.Resume(context.Background(), b, token, m.Sum())
		if err == nil && got.Sum() != m.Sum() {
			t.Error("another manifest")
		}
		return want, err
	}
	if want, err := resume(h, b); err != nil || !want.Empty(m) || synced["x.csv"] != 0 {
		t.Errorf("its own: %+v, %v, %d syncs", want, err, synced["x.csv"])
	}
	h, open, _ := restart(t, h, b)
	fault = syscall.EIO
	if _, err := resume(h, open[0]); !errors.Is(err, ErrBroken) {
		t.Errorf("a disk that fails: %v", err)
	}
	h, open, _ = restart(t, h, open[0])
	fault = nil
	before := synced["x.csv"]
	for range 2 {
		if want, err := resume(h, open[0]); err != nil || !want.Empty(m) || synced["x.csv"] != before+1 {
			t.Errorf("an earlier one's: %+v, %v, %d syncs", want, err, synced["x.csv"]-before)
		}
	}
}

// A file that was changed while it was staged is wanted again, alone.
func TestD89FlippedInStaging(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	token := job.NewToken()
	m, err := bring(h, b, token, "hello\n")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(b.dir, "staging", string(token), "tree", "out", "x.csv")
	if err := os.WriteFile(name, []byte("hallo\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if n, err := h.StagedBytes(b, token); n != 6 || err != nil {
		t.Errorf("%d bytes are staged, %v", n, err)
	}
	got, want, err := h.Resume(context.Background(), b, token, m.Sum())
	if err != nil || got.Sum() != m.Sum() || want.Entries(m) != 1 || want.Bytes(m) != 6 || want.Ranges[0] != [2]int{1, 2} {
		t.Errorf("wanted: %+v, %v", want, err)
	}
	if err := exists(name); err == nil {
		t.Error("what is wrong is still there")
	}
	if n, err := h.StagedBytes(b, token); n != 0 || err != nil {
		t.Errorf("%d bytes are staged, %v", n, err)
	}
	if n, err := h.StagedBytes(b, job.NewToken()); n != 0 || err != nil {
		t.Errorf("of nothing %d bytes are staged, %v", n, err)
	}
}

// The ballast that was given up is made anew while the head runs, as soon as
// there is plenty of room and not before.
func TestJ26BallastAnew(t *testing.T) {
	disk := smallDisk(t, "60m")
	dir := filepath.Join(disk, "spool")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	h, _, _ := loadHead(t, dir)
	if h.Bare() {
		t.Error("there is no ballast after the start")
	}
	filler := fillDisk(t, disk)
	if !h.drop() || !h.Bare() {
		t.Error("it cannot be given up")
	}
	if err := h.Restock(0); err != nil || !h.Bare() {
		t.Errorf("on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := h.Restock(1 << 40); err != nil || !h.Bare() {
		t.Errorf("below the reserve: %v", err)
	}
	if err := h.Restock(0); err != nil || h.Bare() {
		t.Errorf("with room: %v", err)
	}
	if info, err := os.Stat(h.path("ballast")); err != nil || info.Size() != ballastSize {
		t.Errorf("the ballast: %v, %v", info, err)
	}
}

// A head starts on a full disk, also when the end of a log is torn.
func TestJ26StartOnFullDisk(t *testing.T) {
	disk := smallDisk(t, "40m")
	dir := filepath.Join(disk, "spool")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	h, _, _ := loadHead(t, dir)
	b := submit(t, h, "ns/b", []string{"a"})
	commit(t, h, b, start("a", 1))
	name := filepath.Join(b.dir, "log.jsonl")
	if err := errors.Join(b.Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	fillDisk(t, disk)
	h, open, problems := loadHead(t, dir)
	if len(open) != 1 || len(problems) != 1 || !strings.Contains(problems[0].Error(), "its 7 bytes were cut off") {
		t.Fatalf("open %v, problems %v", open, problems)
	}
	commit(t, h, open[0], job.Record{Kind: job.KindBack, Job: "a"})
}

// What may be left to others is by the size of the disk.
func TestReserve(t *testing.T) {
	for size, want := range map[int64]int64{0: 0, 20 << 20: 1 << 20, 1 << 50: 1 << 30} {
		if got := (Space{Size: size}).Reserve(); got != want {
			t.Errorf("of %d: %d", size, got)
		}
	}
}
