package spool

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// Nobody looks into staging/ of a batch that is closed. So what was removed there
// is removed for good before head.jsonl says so on the disk: else an empty
// directory would be back after a power cut, and stay.
func TestJ28NothingIsBackInStaging(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	one := start("a", 1)
	m, err := bring(h, b, one.Attempt, "x\n")
	if err != nil {
		t.Fatal(err)
	}
	root, err := h.Stage(b, job.NewToken()) // of an attempt that nobody wants any more
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
	commit(t, h, b, one, endOf(job.KindDone, one, m))
	if err := errors.Join(h.Publish(b, "a", one.Attempt), h.SyncPublished()); err != nil {
		t.Fatal(err)
	}
	var synced []string
	defer durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		name := filepath.Base(f.Name())
		if name == "staging" {
			list, err := os.ReadDir(f.Name())
			if err != nil || len(list) > 0 {
				t.Errorf("it is synced with %v, %v", list, err)
			}
		}
		synced = append(synced, name)
		return nil
	}})()
	h.CloseBatch(b)
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(synced, []string{"staging", "head.jsonl"}) {
		t.Errorf("synced: %s", strings.Join(synced, " "))
	}
}
