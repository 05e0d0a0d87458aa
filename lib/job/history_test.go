package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What the records of a log make of the jobs, and why a record is refused that cannot
// follow those before it, in the same words for everybody who reads logs.
func TestHistory(t *testing.T) {
	const a, b = Token("00000000000000000000000000000001"), Token("00000000000000000000000000000002")
	h := History{Started: map[Key]struct{}{}}
	h.Add(3)
	priority := 5
	for _, step := range []struct {
		i    int
		rec  Record
		want string // the states, or the error
	}{
		{0, Record{Kind: KindStart, Attempt: a}, "running queued queued"},
		{WholeBatch, Record{Kind: KindHold}, "running held held"},
		{0, Record{Kind: KindStart, Attempt: b}, `"start" is no event, or not one of a job that is running`},
		{WholeBatch, Record{Kind: KindRelease}, "running queued queued"},
		{9, Record{Kind: KindStart, Job: "x", Attempt: b}, `there is no job "x"`},
		{1, Record{Kind: KindBack, Attempt: "00000000000000000000000000000003"}, "was never started"},
		{0, Record{Kind: KindBack, Attempt: "x"}, "was never started"},
		{WholeBatch, Record{Kind: KindStart, Attempt: b}, `there is no job ""`},
		{WholeBatch, Record{Kind: KindSet, Set: &Set{}}, "what it sets cannot be"},
		{WholeBatch, Record{Kind: KindSet, Set: &Set{Priority: &priority}}, "running queued queued"},
		{WholeBatch, Record{Kind: KindAdded}, "it adds 0 jobs to 3"},
		{WholeBatch, Record{Kind: KindAdded, Jobs: MaxJobs}, "it adds"},
		{WholeBatch, Record{Kind: KindAdded, Jobs: 1}, "running queued queued queued"},
		{0, Record{Kind: KindDone, Attempt: a}, "done queued queued queued"},
		{3, Record{Kind: KindCancelled}, "done queued queued cancelled"},
	} {
		before := fmt.Sprint(h.States)
		moved := map[int]State{}
		_, err := h.Fold(step.i, &step.rec, func(i int, from State) { moved[i] = from })
		after := strings.Trim(fmt.Sprint(h.States), "[]")
		if err != nil && strings.Contains(err.Error(), step.want) && fmt.Sprint(h.States) == before && len(moved) == 0 {
			continue
		}
		if err != nil || after != step.want {
			t.Fatalf("%s: %s, %v; should be %s", step.rec.Kind, after, err, step.want)
		}
		if restored := fmt.Sprint(h.before(moved)); restored != before && step.rec.Kind != KindAdded {
			t.Errorf("%s: the jobs were %s, and are told as %s", step.rec.Kind, before, restored)
		}
	}
}

// before is the states before a record that has moved these jobs and added none.
func (h *History) before(moved map[int]State) []State {
	states := slices.Clone(h.States)
	for i, from := range moved {
		states[i] = from
	}
	return states
}
