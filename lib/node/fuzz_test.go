package node

import (
	"testing"

	"distribute/lib/job"
)

// FuzzNodeFile reads what may stand in a node.yaml: what it says is within its
// limits, or there is an error.
func FuzzNodeFile(f *testing.F) {
	f.Add([]byte("name: ws1\nhead: tcp://127.0.0.1:8951\ncpus: 4\ncapabilities: [gfortran, -python3]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("node.yaml", text)
		if err != nil {
			return
		}
		if file.Name != "" && job.CheckName(string(file.Name)) != nil || file.CPUs < 0 || file.CPUs > MaxCPUs {
			t.Fatalf("%q is read as %+v", text, file)
		}
		for _, n := range []*int64{file.Reserve, file.Cache, file.Output} {
			if n != nil && *n < 0 {
				t.Fatalf("%q has %d bytes", text, *n)
			}
		}
	})
}
