package head

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"distribute/lib/durable"
)

// What the simulated disk keeps of a power cut: what was synced always, the
// rest sometimes, a file that was renamed at one place exactly.
func TestSimDisk(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(60) {
		dir := simBase(t)
		root := filepath.Join(dir, "0")
		must(t, errors.Join(os.Mkdir(root, 0o700), os.Mkdir(root+"/a", 0o700), os.Mkdir(root+"/b", 0o700),
			os.WriteFile(root+"/a/moved", []byte("m"), 0o600), os.WriteFile(root+"/a/gone", []byte("g"), 0o600)))
		d := newSimDisk(root)
		end := durable.Observe(&durable.Observer{Sync: d.sync})
		must(t, durable.WriteFile(root+"/a/kept", []byte("kept"), 0o600))
		must(t, os.WriteFile(root+"/a/maybe", []byte("maybe"), 0o600))
		must(t, os.Rename(root+"/a/moved", root+"/b/moved"))
		must(t, os.Remove(root+"/a/gone"))
		l, err := durable.OpenLog(root+"/log", 0o600)
		must(t, err)
		l.Append([]byte("one"))
		must(t, errors.Join(l.Flush(), l.Sync()))
		l.Append([]byte("two"))
		must(t, errors.Join(l.Flush(), l.Close()))
		end()
		was := d.kill(filepath.Join(dir, "killed"))
		for i, from := range []*simDisk{d, was} {
			to := filepath.Join(dir, fmt.Sprint("cut", i))
			from.cut(to, rand.New(rand.NewPCG(seed, 1)))
			_, errA := os.Stat(to + "/a/moved")
			_, errB := os.Stat(to + "/b/moved")
			if (errA == nil) == (errB == nil) {
				t.Fatalf("seed %d: the renamed file: %v, %v", seed, errA, errB)
			}
			if b, err := os.ReadFile(to + "/a/kept"); string(b) != "kept" {
				t.Fatalf("seed %d: what was synced: %q, %v", seed, b, err)
			}
			b, _ := os.ReadFile(to + "/log")
			if len(b) < 4 || string(b[:4]) != "one\n" {
				t.Fatalf("seed %d: the log is %q", seed, b)
			}
			m, errM := os.ReadFile(to + "/a/maybe")
			_, errG := os.Stat(to + "/a/gone")
			seen[fmt.Sprintf("moved %v", errA == nil)]++
			seen[fmt.Sprintf("gone %v", errG != nil)]++
			seen[fmt.Sprintf("maybe %v %q", errM == nil, m)]++
			seen[fmt.Sprintf("log %q", b)]++
		}
	}
	for _, want := range []string{"moved true", "moved false", "gone true", "gone false", `maybe false ""`, `maybe true ""`,
		`maybe true "maybe"`, `log "one\n"`, `log "one\ntwo\n"`, `log "one\nt\x00\x00\x00"`, `log "one\ntwo"`} {
		if seen[want] == 0 {
			t.Errorf("never seen: %s (%v)", want, seen)
		}
	}
}

// A file whose old directory is gone for good is where it was renamed to, though
// no sync was of that place: a file system keeps the order of what it does to names.
func TestSimDiskOldDirectoryGone(t *testing.T) {
	for seed := range uint64(20) {
		dir := simBase(t)
		root := filepath.Join(dir, "0")
		must(t, errors.Join(os.MkdirAll(root+"/staging/one", 0o700), os.Mkdir(root+"/out", 0o700),
			os.WriteFile(root+"/staging/one/tree", []byte("t"), 0o600)))
		d := newSimDisk(root)
		must(t, errors.Join(os.Rename(root+"/staging/one/tree", root+"/out/tree"), os.Remove(root+"/staging/one")))
		f, err := os.Open(root + "/staging")
		must(t, err)
		must(t, errors.Join(d.sync(f, false), f.Close()))
		d.cut(filepath.Join(dir, "cut"), rand.New(rand.NewPCG(seed, 1)))
		if b, err := os.ReadFile(filepath.Join(dir, "cut/out/tree")); string(b) != "t" {
			t.Errorf("seed %d: %q, %v", seed, b, err)
		}
	}
}

// A file that another one replaced by a rename is there until the other one is.
func TestSimDiskReplaced(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(60) {
		dir := simBase(t)
		root := filepath.Join(dir, "0")
		must(t, errors.Join(os.Mkdir(root, 0o700), os.WriteFile(root+"/node.json", []byte("1"), 0o600)))
		d := newSimDisk(root)
		must(t, os.WriteFile(root+"/new", []byte("2"), 0o600))
		f, err := os.Open(root + "/new")
		must(t, err)
		must(t, errors.Join(d.sync(f, false), f.Close()))
		if seed%2 == 0 {
			f, err := os.Open(root)
			must(t, err)
			must(t, errors.Join(d.sync(f, false), f.Close()))
		}
		must(t, os.Rename(root+"/new", root+"/node.json"))
		d.cut(filepath.Join(dir, "cut"), rand.New(rand.NewPCG(seed, 1)))
		b, err := os.ReadFile(filepath.Join(dir, "cut/node.json"))
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		seen[string(b)]++
	}
	if seen["1"] == 0 || seen["2"] == 0 {
		t.Errorf("it had %v", seen)
	}
}

// What is durable does not go back in time, whichever of two syncs of one file
// begins first, reads it first, or returns first.
func TestSimDiskOverlap(t *testing.T) {
	for _, at := range []string{"before it is read", "after it is read"} {
		root := filepath.Join(simBase(t), "0")
		must(t, os.Mkdir(root, 0o700))
		f, err := os.Create(root + "/a")
		must(t, err)
		defer f.Close()
		d := newSimDisk(root)
		written, first := "", true
		other := func(when string) { // another sync of it, and then more is written
			if !first || when != at {
				return
			}
			first = false
			must(t, d.sync(f, false))
			_, err := f.WriteString("x")
			must(t, err)
			if at == "before it is read" {
				written = "x"
				return
			}
			must(t, d.sync(f, false))
			written = "x"
		}
		d.fail = func(string) error { other("before it is read"); return nil }
		d.near = func(_ string, after bool) {
			if !after {
				other("after it is read")
			}
		}
		must(t, d.sync(f, false))
		if got, there := d.durably("a"); string(got) != written {
			t.Errorf("%s: %q is durable, and not %q (%v)", at, got, written, there)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
