package desk

import (
	"os"
	"path/filepath"
	"testing"

	"distribute/lib/job"
	"distribute/lib/proc"
)

// FuzzDirectory puts foreign bytes into one file of a node's directory and reads
// it back: nothing of it leads out of the directory, and what is not understood
// is an error.
func FuzzDirectory(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "node")
	d, err := Open(dir, "b1")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { d.Close() })
	n := note("j")
	as, errs := d.Begin([]Note{n})
	if errs[0] != nil {
		f.Fatal(errs[0])
	}
	a := as[0]
	spec := []byte(`{"kind":"command","resources":{"cpus":1}}`)
	b, err := setBuild(d, "lab/b", "", sumOf(spec), spec)
	if err != nil {
		f.Fatal(err)
	}
	files := []string{filepath.Join(a.Dir, proc.RecordFile), filepath.Join(a.Dir, manifestFile), filepath.Join(b.Dir, proc.RecordFile)}
	for i, name := range files {
		text, _ := os.ReadFile(name)
		f.Add(uint8(i), text)
	}
	f.Add(uint8(0), []byte(`{"given":{"token":"../../x","job":"lab/b/j","try":1}}`+"\n"))
	f.Add(uint8(0), []byte(`{"result":{"exit":0,"runtime":1.5,"manifest":"00"},"list":[]}`+"\n"))
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		name := files[int(which)%len(files)]
		before, was := os.ReadFile(name)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		all, _ := d.Attempts()
		for _, x := range all {
			if job.Token(filepath.Base(x.Dir)) != x.Token || x.Check() != nil {
				t.Fatalf("%q is taken for a note of %q", text, x.Dir)
			}
		}
		for _, x := range all {
			x.Manifest()
		}
		if m, err := a.Manifest(); err == nil && len(m) > len(text) {
			t.Fatalf("%q has %d entries", text, len(m))
		}
		if bs, err := d.Builds(); err != nil {
			t.Fatal(err)
		} else if len(bs) > 1 {
			t.Fatalf("%d builds", len(bs))
		}
		for _, dir := range []string{a.Dir, b.Dir} { // what was not whole is removed
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if was != nil {
			os.Remove(name)
		} else if err := os.WriteFile(name, before, 0o600); err != nil {
			t.Fatal(err)
		}
	})
}
