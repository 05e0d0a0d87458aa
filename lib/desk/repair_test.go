package desk

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/check"
	"distribute/lib/check/harm"
	"distribute/lib/proc"
)

// After a repair of any damages, a second check tells nothing but what the first has left to
// people, and a second repair changes nothing. Files that were whole are there as they were,
// and a daemon opens the directory.
func TestRepairs(t *testing.T) {
	harm.Each(t, 60, func() string {
		dir, over, _, started, _ := fullDesk(t)
		for name, text := range map[string]string{"ssh_key": "-----BEGIN A-----\n-----END A-----\n", "ssh_key.pub": "a", "known_hosts": "h",
			"pause-made": "{}", filepath.Join("attempts", string(started.Token), "output"): "printed"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		work := filepath.Join(over.Dir, "work")
		if err := errors.Join(os.Mkdir(work, 0o700), os.WriteFile(filepath.Join(work, "result"), []byte("a result"), 0o600)); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(dir, "ballast"))
		return dir
	}, repair)
}

func repair(t *testing.T, whole string, seed uint64) {
	harmed, first, mended := harm.Repair(t, rand.New(rand.NewPCG(seed, 49)), whole, "lock", "node.json", func(r *check.Run) error { return Check(t.Context(), r, "b1", proc.Alive) })
	if mended == nil {
		return
	}
	d, err := Open(harmed.Dir, "b1")
	if err != nil && strings.Contains(harm.Lines(first), "it belongs to user ") { // which people have to put right
		return
	}
	if err != nil {
		t.Fatalf("%s: no daemon opens it: %v\n%s", harmed.Told, err, harm.Lines(first))
	}
	defer d.Close()
	as, err := d.Attempts()
	if err != nil && len(first) == 0 {
		t.Errorf("%s: %v", harmed.Told, err)
	}
	d.Builds()
	d.Settle(as)
	for _, a := range as {
		a.Manifest()
		a.Before()
	}
}
