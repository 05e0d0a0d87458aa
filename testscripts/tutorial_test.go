package testscripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sbatch is a cluster's that runs each task at once, and scontrol what tells of it.
const (
	sbatch = `#!/bin/bash
from=0 to=0
while case $1 in --*) ;; *) false ;; esac do
	case $1 in
	--array=*) to=${1%\%*} to=${to##*-} ;;
	esac
	shift
done
cd "$(dirname "$1")"
for ((i = from; i <= to; i++)); do
	SLURM_ARRAY_JOB_ID=1 SLURM_ARRAY_TASK_ID=$i SLURM_JOB_ID=1 SLURM_CPUS_ON_NODE=4 SLURMD_NODENAME=n1 "$@" >&2
done
echo 1
`
	scontrol = "#!/bin/sh\necho 'MaxArraySize            = 1001'\n"
)

// TestTutorial does on two desks what distribute-tutorial(7) says, each command as it
// stands there, and takes a batch to a cluster that only answers as one.
func TestTutorial(t *testing.T) {
	s := newSite(t, "ws1", "ws2", "cluster")
	for _, there := range []string{"ws2", "cluster"} {
		s.people(there, []string{"ws1"}, "maria")
	}
	for name, text := range map[string]string{"sbatch": sbatch, "scontrol": scontrol} {
		to := s.own("cluster", "usr/local/bin")
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := &reader{site: s, keys: map[string]string{}}
	before := r.source("ws1")
	for _, step := range steps(t, filepath.Join("..", "man", "distribute-tutorial.7")) {
		t.Logf("line %d, %s", step.line, step.where)

		r.do(step, before)
		if strings.Contains(step.text, "dadm accept") { // the page says that it takes seconds
			s.until("ws1", "maria", "dquery -N ws2 -c state", func(out string) bool { return out == "idle\n" })
		}
		if before = ""; step.where == "ws1" || step.print {
			before = "cd study 2>/dev/null || true\n"
		}
	}
	s.do("ws2", "maria", "pkill -u maria dnoded")
	s.do("ws1", "maria", "dlocal -s")
}
