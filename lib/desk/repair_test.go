package desk

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	dir := filepath.Join(t.TempDir(), "node")
	if out, err := exec.Command("cp", "-a", whole, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	harmed, err := harm.Do(t, rand.New(rand.NewPCG(seed, 49)), dir, whole, "lock")
	if err != nil {
		t.Fatal(err)
	}
	delete(harmed.Before, "lock")
	lines := func(found []*check.Finding) string {
		var b strings.Builder
		for _, f := range found {
			b.WriteString(f.Text() + "\n")
		}
		return b.String()
	}
	tell := func(how string, found []*check.Finding) { t.Errorf("%s; %s:\n%s", harmed.Told, how, lines(found)) }
	look := func(mend bool) (found []*check.Finding, err error) {
		r := &check.Run{Dir: dir, Sums: true, Mend: mend, Key: check.PEM, Tell: func(f *check.Finding) error { found = append(found, f); return nil }}
		return found, Check(t.Context(), r, "b1", proc.Alive)
	}
	defer func() {
		if !harmed.Outside() {
			t.Errorf("%s: a link was followed", harmed.Told)
		}
	}()
	first, err := look(true)
	if err != nil && harmed.At("node.json") { // no program goes on without it
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", harmed.Told, err)
	}
	second, err := look(false)
	if err != nil {
		t.Fatalf("%s; a second time: %v", harmed.Told, err)
	}
	if !harm.Known(first, second) {
		tell("told", first)
		tell("after that", second)
	}
	mended, err := harm.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range harmed.Lost(harmed.Before, mended) {
		tell(gone+" is not what it was", first)
	}
	third, err := look(true)
	if again, ferr := harm.Files(dir); err != nil || ferr != nil || !maps.Equal(mended, again) ||
		slices.ContainsFunc(third, func(f *check.Finding) bool { return f.Cured }) {
		tell(fmt.Sprintf("mending again (%v, %v)", err, ferr), third)
	}
	d, err := Open(dir, "b1")
	if err != nil && strings.Contains(lines(first), "it belongs to user ") { // which people have to put right
		return
	}
	if err != nil {
		t.Fatalf("%s: no daemon opens it: %v\n%s", harmed.Told, err, lines(first))
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
