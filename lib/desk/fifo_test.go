package desk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"distribute/lib/proc"
)

// A FIFO in the place of a file is waited for by nobody: not by a daemon that starts, nor by
// one that looks at what its jobs may have changed.
func TestFIFOs(t *testing.T) {
	whole, over, _, started, _ := fullDesk(t)
	for _, a := range []*Attempt{over, started} {
		for _, name := range []string{"node.json", "cache/boot", "ballast", "spare/0", filepath.Join("attempts", string(a.Token), proc.RecordFile),
			filepath.Join("attempts", string(a.Token), manifestFile), filepath.Join("attempts", string(a.Token), beforeFile)} {
			dir := filepath.Join(t.TempDir(), "node")
			if out, err := exec.Command("cp", "-a", whole, dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			at := filepath.Join(dir, name)
			os.Remove(at)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), syscall.Mkfifo(at, 0o600)); err != nil {
				t.Fatal(err)
			}
			d, err := Open(dir, "b1")
			if (err != nil) != (name == "node.json") {
				t.Errorf("%s: %v", name, err)
			}
			if err != nil {
				continue
			}
			as, _ := d.Attempts()
			for _, a := range append(as, &Attempt{Dir: filepath.Dir(at)}) {
				a.Manifest()
				a.Before()
				proc.ReadRun(a.Dir, string(a.Token))
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
