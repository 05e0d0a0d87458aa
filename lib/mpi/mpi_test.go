package mpi

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mpirun begins one rank after the other, which exit as the words of ENDS say, or are killed with
// rank.sh, as at MPI_Abort.
const mpirun = `#!/bin/sh
exec 9>&1
n=$2 k=0
shift 2
while [ $k -lt $n ]; do PMI_RANK=$k "$@"; k=$((k + 1)); done 2>/dev/null
exit $ENDED
`

// sleep tells that it has a descriptor of the rank that waits for mpirun with it.
const sleep = `#!/bin/sh
{ echo descriptor 9 is open >&9; } 2>/dev/null
exit 1
`

// TestSaved has a state count as saved only if each rank has exited with 85 or 0. What waits for
// mpirun after a failure keeps no descriptor of the rank, as mpirun would wait for that.
func TestSaved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"mpirun": mpirun, "sleep": sleep} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		ranks, ended string
		want         int
	}{
		{"0 0", "0", 0},
		{"85 85", "0", 85},
		{"85 0", "0", 85},
		{"0 85", "0", 85},
		{"143 0", "0", 143},
		{"85 killed", "85", 137},
		{"85 killed", "9", 9},
		{"killed killed", "9", 9},
		{"killed killed", "85", 137},
	} {
		argv := Argv(2, ";", ";", []string{"sh", "-c", `set -- $ENDS; shift $RANK; [ $1 != killed ] || kill -KILL $PPID; exit $1`})
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+dir, "ENDS="+c.ranks, "ENDED="+c.ended)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != c.want || len(out) > 0 {
			t.Errorf("ranks %s, mpirun %s: exit status %d, not %d; %s", strings.Fields(c.ranks), c.ended, got, c.want, out)
		}
	}
}

// TestWords has the command get each of its words, also that at which mpirun begins another program.
func TestWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "#!/bin/sh\nfor word do [ \"$word\" != : ] || exit 9; done\nshift 2\nPMI_RANK=0 exec \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "mpirun"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	words := []string{"", " : ", ":", "-n", ":", "a:", "a\n:\nb", "::", ""}
	argv := Argv(1, "", "", append([]string{"printf", "<%s>"}, words...))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if want := "<" + strings.Join(words, "><") + ">"; err != nil || string(out) != want {
		t.Errorf("%v: got %q, not %q", err, out, want)
	}
}
