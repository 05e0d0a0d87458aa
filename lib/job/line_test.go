package job

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"distribute/lib/line"
)

func rowsToWrite() []Row {
	zero, three := 0, 3
	at := time.UnixMilli(1795176000250).UTC()
	return []Row{
		{},
		{ID: "ns/b/1", Namespace: "ns", Batch: "b", Job: "1", Owner: "ana", State: Queued, Submitted: at},
		{ID: "ns/b/1", Namespace: "ns", Batch: "b", Job: "1", Owner: "ana", State: Done, Node: "ws1", Attempt: 2, Exit: &zero, Submitted: at,
			Started: at, Ended: at.Add(time.Second), Ends: at.Add(time.Hour), Runtime: 1.25, Ran: 90.5, Paused: 0.5, CPUs: 4, Memory: 1 << 33, GPUs: 2250, Counted: "comsol=20 matlab=1", Limit: 3600, MemoryPeak: 1 << 40, CPUTime: 0.001, Written: 7, Priority: -10, Seq: 1 << 40, Param: []string{"n=64", "nu=0.1", "name=a <b>"}},
		{ID: "ns/b/x", Namespace: "ns", Batch: "b", Job: "y", Owner: "josé", State: Failed, Exit: &three, Signal: "SIGKILL", Reason: "a \"b\"\n<c>", Said: "E: 1 > 0", Phase: "building"},
		{ID: "ns/b/2", State: Running, Started: time.Unix(1795176000, 123000000).UTC(), Runtime: 1.0 / 3},
		{ID: "ns/b/2", Exit: new(int), Ended: time.Unix(0, 0).In(time.FixedZone("x", 3600))},
	}
}

func TestRowLines(t *testing.T) {
	words := map[string]string{}
	for _, want := range rowsToWrite() {
		text := AppendRow(nil, &want)
		if err := line.Check(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		var fast, slow Row
		if err := ReadRow(text, &fast, words); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if err := json.Unmarshal(text, &slow); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(fast, slow) {
			t.Errorf("%s read as\n%+v, and by encoding/json as\n%+v", text, fast, slow)
		}
		if !fast.Started.Equal(want.Started) || !fast.Ended.Equal(want.Ended) || !fast.Ends.Equal(want.Ends) || fast.Reason != want.Reason || fast.Said != want.Said || fast.Runtime != want.Runtime || fast.Ran != want.Ran {
			t.Errorf("%s read as %+v, written from %+v", text, fast, want)
		}
	}
}

// FuzzRowLine holds the fast reader and encoding/json equal.
func FuzzRowLine(f *testing.F) {
	for _, r := range rowsToWrite() {
		f.Add(AppendRow(nil, &r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var fast, slow Row
		s := line.Scan{B: b}
		if !RowLine().Scan(&s, &fast) || !s.Has("}") || s.I != len(b) {
			return
		}
		if err := line.Unmarshal(b, &slow); err != nil || !reflect.DeepEqual(fast, slow) {
			t.Fatalf("%q is read as\n%+v, and by encoding/json as\n%+v, %v", b, fast, slow, err)
		}
	})
}
