package testscripts

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The other rank of a program sleeps until this one fails, also after a step that has it
// ignore SIGTERM.
func TestRankEndingFailsThoughSIGTERMIsIgnored(t *testing.T) {
	w := &programmer{Rand: rand.New(rand.NewPCG(1, 1))}
	top := t.TempDir()
	if err := os.WriteFile(filepath.Join(top, "at0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r1 := filepath.Join(top, "r1")
	if err := os.Mkdir(r1, 0o700); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for range 50 {
		step := w.rankEnding()
		if known[step] || !strings.Contains(step, "at0") {
			continue
		}
		known[step] = true
		c := exec.Command("sh", "-c", "trap '' TERM HUP\n"+step+"\nexit 0")
		c.Dir, c.Env = r1, append(os.Environ(), "RANK=1")
		if out, err := c.CombinedOutput(); err == nil {
			t.Errorf("rank 1 ends well after %q: %s", step, out)
		}
	}
	if len(known) < 3 {
		t.Errorf("%d kinds of a failing rank, not 3", len(known))
	}
}
