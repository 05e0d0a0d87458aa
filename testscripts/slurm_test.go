package testscripts

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// wantSlurm is what is missing for scripts/peers/slurm to work here.
func wantSlurm() error {
	for _, program := range []string{"slurmctld", "slurmd", "munged"} {
		if err := rootHas("/usr/sbin/" + program); err != nil {
			return err
		}
	}
	for _, program := range []string{"sbatch", "ip", "nsenter", "unshare"} {
		if err := installed(program); err != nil {
			return err
		}
	}
	return exec.Command("unshare", "-n", "true").Run()
}

// cmdSlurm is the command "slurm [SETTING=VALUE ...]" of scripts: a cluster of the
// script's own, by scripts/peers/slurm, of which the commands come first in PATH.
func cmdSlurm(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: slurm [SETTING=VALUE ...]")
	}
	dir, err := os.MkdirTemp("", "slurm") // the name of a socket is short
	ts.Check(err)
	ts.Defer(func() { os.RemoveAll(dir) })
	script := exec.Command(filepath.Join(os.Getenv("TOP"), "scripts", "peers", "slurm"), append([]string{dir}, args...)...)
	var talk strings.Builder
	script.Stderr = &talk
	end, err := script.StdinPipe()
	ts.Check(err)
	out, err := script.StdoutPipe()
	ts.Check(err)
	ts.Check(script.Start())
	ts.Defer(func() {
		end.Close()
		script.Wait()
	})
	if lines := bufio.NewScanner(out); !lines.Scan() {
		ts.Check(fmt.Errorf("%w: %s", script.Wait(), talk.String()))
	}
	ts.Setenv("SLURM", dir)
	ts.Setenv("PATH", filepath.Join(dir, "bin")+":"+ts.Getenv("PATH"))
}
