package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// No blob has its name before it is synced, however many are synced together,
// and what has come stays when a submission is cut.
func TestBlobsAreSyncedBeforeTheirNames(t *testing.T) {
	h := newHead(t)
	var all []string
	for i := range 2*syncedAtOnce + 3 {
		all = append(all, strings.Repeat(fmt.Sprintf("%03d", i), job.SmallFile))
	}
	var mu sync.Mutex
	synced, syncs := map[os.FileInfo]bool{}, 0
	defer durable.Observe(&durable.Observer{
		Step: func(name string) error {
			if name == "submit.blob.sync" {
				syncs++
			}
			return nil
		},
		Sync: func(f *os.File, _ bool) error {
			info, err := f.Stat()
			mu.Lock()
			defer mu.Unlock()
			synced[info] = true
			return err
		},
	})()
	s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	if err := fillIn(s, plain, []string{"a"}, all...); err != nil {
		t.Fatal(err)
	}
	named := func() (n int) {
		list, err := filepath.Glob(h.path("blobs", "*", "[0-9a-f]*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range list {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			was := false
			for before := range synced {
				was = was || os.SameFile(before, info)
			}
			if !was {
				t.Errorf("%s has its name and was not synced", name)
			}
		}
		return len(list)
	}
	if n := named(); n != 2*syncedAtOnce || syncs != 2 {
		t.Errorf("%d of %d have their names, after %d syncs together", n, len(all), syncs)
	}
	if err := s.Abort(); err != nil {
		t.Fatal(err)
	}
	if n := named(); n != len(all) || syncs != 3 {
		t.Errorf("%d of %d stay, after %d syncs together", n, len(all), syncs)
	}
}
