// Package suite says how much of the tests runs, and compares tables of manuals with what
// there is. Only tests import it.
//
//	make test     the quick tests; what is not installed here is left out
//	D_PARTS=1     the same, and what is not installed fails (.ci/run)
//	D_FULL=1      everything, and nothing may be left out (make full)
package suite

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Full says that the long tests run too: long searches, real machines, chaos.
func Full() bool { return os.Getenv("D_FULL") == "1" }

// Parts says that nothing may be skipped because it is not installed or not allowed here.
func Parts() bool { return Full() || os.Getenv("D_PARTS") == "1" }

// Size is how many cases a search tries: few in the quick tests, many in the full run.
func Size[T any](few, many T) T {
	if Full() {
		return many
	}
	return few
}

// Long skips a test that only the full run has; instead says how to run it alone, or is "".
func Long(t testing.TB, instead string) {
	t.Helper()
	if !Full() {
		if instead != "" {
			instead = ", or " + instead
		}
		t.Skip("only in the full run: D_FULL=1" + instead)
	}
}

// Missing skips a test for what is missing here, and fails it where all parts must be here.
func Missing(t testing.TB, what any) {
	t.Helper()
	if Parts() {
		t.Fatal("nothing may be left out here, and: ", what)
	}
	t.Skip(what)
}

// Gone waits up to ten seconds until there is no process with the id that line has, and else
// kills it and fails the test. Nothing is done if line is no number: what was to write it may
// have been killed before.
func Gone(t testing.TB, line string) {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 {
		return
	}
	for range 1000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") { // nobody may have asked how it ended
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d is left", pid)
}
