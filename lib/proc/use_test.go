package proc

import (
	"os"
	"strings"
	"testing"
)

// What processes have is counted by tree, and what the machine has is told.
func TestMemory(t *testing.T) {
	s := newSlot(t)
	o := run(t, s, "", "(echo up > said; sleep 1000) & wait", nil)
	if u, err := Memory([]int{s.Pid()}, 0); err != nil || len(u.Of) != 1 || u.Sum() <= 0 {
		t.Errorf("a job has %+v, %v", u, err)
	}
	s.Stop(o.Token)
	ended(t, s)
	u, err := Memory(nil, 0)
	if err != nil || len(u.Of) != 0 || u.Sum() != 0 || u.Free <= 0 {
		t.Errorf("nobody has %+v, %v", u, err)
	}
}

// What is in swap space is looked for where there is some, and is found.
func TestMemorySwapped(t *testing.T) {
	const none = "MemTotal: 100 kB\nMemAvailable:   50 kB\nSwapTotal: 10 kB\nSwapFree: 10 kB\n"
	for text, want := range map[string]bool{none: false, strings.Replace(none, "Free: 10", "Free: 9", 1): true, "MemTotal: 1 kB\nMemAvailable: 50 kB\n": false} {
		if free, swaps, err := availableIn(text); err != nil || free != 50<<10 || swaps != want {
			t.Errorf("%q: %d are free, swaps %v, %v", text, free, swaps, err)
		}
	}
	if _, _, err := availableIn("MemTotal: 100 kB\n"); err == nil {
		t.Error("nothing is said of what is available, and it is taken")
	}
	const status = "Name:\tVmSwap\nVmRSS:\t  7 kB\nVmSwap:\t   12 kB\nThreads:\t1\n"
	if n, ok := kibOf(status, "VmSwap"); !ok || n != 12<<10 {
		t.Errorf("of a process: %d, %v", n, ok)
	}
	for _, bad := range []string{"", "Name:\tx\n", "Name:\tx\nVmSwap:", "Name:\tx\nVmSwap: -1 kB\n", "Name:\tx\nVmSwap: 8796093022208 kB\n"} {
		if n, ok := kibOf(bad, "VmSwap"); ok {
			t.Errorf("%q says %d", bad, n)
		}
	}
	if n := swapped([]int{os.Getpid(), 1 << 30}); n < 0 {
		t.Errorf("this process has %d", n)
	}
}
