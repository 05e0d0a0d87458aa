package job

import (
	"fmt"
	"slices"
	"testing"
)

// A job that is sent from node to node for ever keeps what two attempts left and
// what ten printed, the last ones; at its end what was saved goes.
func TestLeft(t *testing.T) {
	var l Left
	kept := map[int]string{}
	fold := func(rec Record) {
		if rec.Leaves() {
			kept[rec.Try] = "all"
		}
		for _, less := range l.Fold(&rec) {
			if kept[less.Try] == "" || string(less.Attempt) != fmt.Sprint("t", less.Try) {
				t.Fatalf("less is kept of %+v", less)
			}
			if kept[less.Try] = "printed"; less.Nothing {
				delete(kept, less.Try)
			}
		}
	}
	for try := 1; try <= 1000; try++ {
		rec := Record{Kind: KindBack, Attempt: Token(fmt.Sprint("t", try)), Try: try, Fate: FateEvicted, Saved: try%3 == 0, Manifest: "m"}
		if try%7 == 0 {
			rec.Fate, rec.Saved, rec.Manifest = FateLost, false, ""
		}
		fold(Record{Kind: KindStart, Try: try})
		fold(rec)
	}
	all, printed := []int{}, []int{}
	for try, what := range kept {
		if what == "all" {
			all = append(all, try)
		} else {
			printed = append(printed, try)
		}
	}
	slices.Sort(all)
	slices.Sort(printed)
	if got, want := fmt.Sprint(all, printed), "[999 1000] [988 989 990 991 992 993 995 996 997 998]"; got != want {
		t.Errorf("kept are %s, should be %s", got, want)
	}
	for _, over := range []Kind{KindFailed, KindRetry, KindCancelled, KindLate} {
		fold(Record{Kind: over, Try: 1001})
	}
	if kept[999] != "printed" || kept[1000] != "all" || kept[988] != "" || len(kept) != 11 {
		t.Errorf("at the end kept are %v", kept)
	}
}
