package spool

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
	"distribute/lib/suite"
)

// dspool(5) has the test vector, every member of every object, and every event.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../man/dspool.5")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	if !strings.Contains(strings.ReplaceAll(page, "\n", ""), vector) {
		t.Error("the test vector is not that of the manual")
	}
	words := make(map[string]bool)
	for _, w := range strings.FieldsFunc(page, func(r rune) bool { return strings.ContainsRune(" \n,;()", r) }) {
		words[w] = true
	}
	for _, v := range []any{job.Record{}, job.Set{}, job.Head{}, job.Spec{}, job.Job{}, job.Input{}, job.Resources{}, job.Option{}} {
		for _, name := range suite.Members(v) {
			if !words[name] {
				t.Errorf("the member %q of a %T is not in the manual", name, v)
			}
		}
	}
	var rows, want []string
	for row := range strings.Lines(page) {
		if cells := strings.Split(strings.TrimPrefix(row, ".It "), " Ta "); len(cells) == 3 && cells[0] != "Sy member" && len(rows) < len(job.RecordLine().Members) {
			rows = append(rows, cells[0])
		}
	}
	for _, m := range job.RecordLine().Members {
		want = append(want, m.Name)
	}
	if !slices.Equal(rows, want) {
		t.Errorf("the members of records in the manual are\n%q, and are\n%q", rows, want)
	}
	for _, k := range []job.Kind{job.KindBatch, job.KindStart, job.KindDone, job.KindFailed, job.KindBack, job.KindAdopt,
		job.KindCancelled, job.KindRetry, job.KindHold, job.KindRelease, job.KindFreeze, job.KindThaw, job.KindSet, job.KindLate, job.KindOpened, job.KindClosed,
		job.KindDeleted, job.KindNode, job.KindDrained, job.KindResumed} {
		if !words[string(k)] {
			t.Errorf("the event %q is not in the manual", k)
		}
	}
	const at = "../man/dspool.5"
	suite.SameWords(t, "head", suite.Column(t, at, "\nMembers of\n.Cm head :", 0), suite.Members(job.Head{}))
	suite.SameWords(t, "spec", suite.Column(t, at, "\nMembers of\n.Cm head :", 2), suite.Members(job.Spec{}))
	suite.SameWords(t, "a job", suite.Column(t, at, "\nA line of\n.Pa jobs.jsonl :", 0), suite.Members(job.Job{}))
	plain := strings.Join(strings.Fields(page), " ")
	for _, limit := range []string{fmt.Sprintf("lines of at most %d MiB", MaxLine>>20),
		fmt.Sprintf("inputs of %d KiB and more", job.SmallFile>>10), fmt.Sprintf("inputs of less than %d KiB", job.SmallFile>>10),
		fmt.Sprintf("an input of %d MiB or more", largeInput>>20), fmt.Sprintf("%d MiB that dsched frees", ballastSize>>20)} {
		if !strings.Contains(plain, limit) {
			t.Errorf("the manual does not say %q", limit)
		}
	}
}
