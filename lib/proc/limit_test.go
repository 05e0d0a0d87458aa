package proc

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An order whose time is over runs on if its directory says by then that it may.
func TestLongerLimit(t *testing.T) {
	t.Parallel()
	groups(t, func(t *testing.T, cgroup string) {
		s, o := newSlot(t), order(newDir(t), "sleep 0.25")
		o.Cgroup, o.Time = cgroup, 100*time.Millisecond
		writeRecord(t, o.Dir, `{"limit":0}`)
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); st.Stopped != "" || st.Exit == nil || *st.Exit != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestLonger(t *testing.T) {
	o := &Order{Dir: t.TempDir(), Token: "t"}
	if got := LongerLimit(o.Dir, o.Token, time.Minute); got != time.Minute {
		t.Errorf("without a record: %v", got)
	}
	for text, want := range map[string]time.Duration{
		"0": 0, "61": 61 * time.Second, "60": time.Minute, "59": time.Minute, "3155760000": maxLimit * time.Second,
		"3155760001": time.Minute, "-1": time.Minute, `"61"`: time.Minute, "": time.Minute, "1h": time.Minute,
	} {
		writeRecord(t, o.Dir, `{"limit":`+text+"}")
		if got := LongerLimit(o.Dir, o.Token, time.Minute); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// writeRecord makes the record in a directory one line.
func writeRecord(t *testing.T, dir, line string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, RecordFile), []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Of what is printed so much is kept as the order says, from its beginning.
func TestN61OutputIsCut(t *testing.T) {
	t.Parallel()
	for keep, want := range map[int64]string{0: "0123456789", 4: "0123", 10: "0123456789", 11: "0123456789"} {
		s, o := newSlot(t), order(newDir(t), "printf 0123456789; exit 3")
		o.Keep = keep
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		more := int64(0)
		if keep == 4 {
			more = keep
		}
		if st := ended(t, s); st.Exit == nil || *st.Exit != 3 || st.Printed != more {
			t.Errorf("with %d: status %+v", keep, st)
		}
		if got, err := os.ReadFile(o.Output); err != nil || string(got) != want {
			t.Errorf("of 10 bytes, %d of which are kept: %q, %v", keep, got, err)
		}
	}
}
