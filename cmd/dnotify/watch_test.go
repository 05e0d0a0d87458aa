package main

import (
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/query"
)

// The operands for batches, also for older ones with "=" in the namespace, mean these batches, and
// have the head read no others.
func TestAboutOlder(t *testing.T) {
	for _, ids := range [][]string{{"lab/a"}, {"lab/a", "lab/b"}, {"of=1/a"}, {"of=1/a", "lab/b", "lab/c"}} {
		q, err := query.Parse(about(ids...), time.Now())
		if err != nil {
			t.Errorf("%q: %v", ids, err)
			continue
		}
		meant := map[job.BatchID]bool{"other/a": false, "of=1/other": false, "of=2/a": false}
		for _, id := range ids {
			meant[job.BatchID(id)] = true
		}
		for id, want := range meant {
			head := &job.Head{}
			row := job.NewRow(id, "j", head, time.Now())
			if read, fits := q.Reads(id, true) && q.MayFit(id, head), q.Match(&row); read != want || fits != want {
				t.Errorf("%q: %s is read: %v, and fits: %v", ids, id, read, fits)
			}
		}
	}
}
