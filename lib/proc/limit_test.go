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
		if err := os.WriteFile(filepath.Join(o.Dir, LimitFile), []byte("0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); st.Stopped != "" || st.Exit == nil || *st.Exit != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestLonger(t *testing.T) {
	dir := t.TempDir()
	if got := longer(dir, time.Minute); got != time.Minute {
		t.Errorf("without a file: %v", got)
	}
	for text, want := range map[string]time.Duration{
		"0\n": 0, "61\n": 61 * time.Second, "60\n": time.Minute, "59\n": time.Minute, "3155760000\n": maxLimit * time.Second,
		"3155760001\n": time.Minute, "61": time.Minute, "": time.Minute, "-1\n": time.Minute, "+61\n": time.Minute, "61 \n": time.Minute, "1h\n": time.Minute,
	} {
		if err := os.WriteFile(filepath.Join(dir, LimitFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := longer(dir, time.Minute); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
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
		if st := ended(t, s); st.Exit == nil || *st.Exit != 3 {
			t.Errorf("status %+v", st)
		}
		if got, err := os.ReadFile(o.Output); err != nil || string(got) != want {
			t.Errorf("of 10 bytes, %d of which are kept: %q, %v", keep, got, err)
		}
	}
}
