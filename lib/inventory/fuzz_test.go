package inventory

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
	"distribute/lib/node"
)

// placed is a mistake with its place. Aliases that are too many, and mistakes that
// are too many to be told, are of the file as a whole.
var placed = regexp.MustCompile(`^node\.yaml:[1-9][0-9]*:[1-9][0-9]*: .|^node\.yaml: (and |its aliases )`)

// FuzzNodeFile reads what may stand in a node.yaml: what it says is within its
// limits, or there is an error with its place.
func FuzzNodeFile(f *testing.F) {
	f.Add([]byte("name: ws1\nhead: tcp://127.0.0.1:8951\ncpus: 4\ncapabilities: [gfortran, -python3]\n"))
	f.Add([]byte("memory: 16G\ngpus: [0, 1]\nkeep: {cpus: 1, memory: 2G}\nowners: [ana, '@lab']\n"))
	f.Add([]byte("gpus: none\nrun_as: submitter\nusers: [maria]\nreserve: 2G\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("node.yaml", text)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !placed.MatchString(line) {
					t.Fatalf("%q: a mistake without a place: %q", text, line)
				}
			}
			return
		}
		if file.Name != "" && job.CheckName(string(file.Name)) != nil || file.CPUs < 0 || file.CPUs > node.MaxCPUs {
			t.Fatalf("%q is read as %+v", text, file)
		}
		if file.Memory < 0 || file.Keep.CPUs < 0 || file.Keep.CPUs > node.MaxCPUs || file.Keep.Memory < 0 || len(file.GPUs) > job.MaxCards {
			t.Fatalf("%q is read as %+v", text, file)
		}
		for i, g := range file.GPUs {
			if g < 0 || g >= job.MaxCards || slices.Contains(file.GPUs[:i], g) {
				t.Fatalf("%q offers GPUs %v", text, file.GPUs)
			}
		}
		for _, n := range []*int64{file.Reserve, file.Cache, file.Output} {
			if n != nil && *n < 0 {
				t.Fatalf("%q has %d bytes", text, *n)
			}
		}
	})
}
