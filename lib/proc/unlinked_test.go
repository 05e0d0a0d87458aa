package proc

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A file that a job has removed and still has open counts once, however many of its processes
// have it, and a file with a name does not.
func TestUnlinked(t *testing.T) {
	s, o := newSlot(t), order(newDir(t), `
		head -c 300000 /dev/zero >gone; head -c 200000 /dev/zero >there
		exec 3<gone 4<there; rm gone; sleep 1000 & : >ready; wait`)
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	for _, err := os.Stat(filepath.Join(o.Cwd, "ready")); err != nil; _, err = os.Stat(filepath.Join(o.Cwd, "ready")) {
		time.Sleep(time.Millisecond)
	}
	start, err := StartOf(s.Pid())
	var st syscall.Stat_t
	if err = errors.Join(err, syscall.Stat(o.Cwd, &st)); err != nil {
		t.Fatal(err)
	}
	if bytes, inodes := Unlinked(t.Context(), s.Pid(), start, st.Dev); inodes != 1 || bytes < 300000 || bytes > 400000 {
		t.Errorf("%d bytes and %d inodes", bytes, inodes)
	}
	for what, of := range map[string][2]uint64{"another device": {start, st.Dev + 1}, "another process": {start + 1, st.Dev}} {
		if bytes, inodes := Unlinked(t.Context(), s.Pid(), of[0], of[1]); bytes != 0 || inodes != 0 {
			t.Errorf("of %s: %d bytes and %d inodes", what, bytes, inodes)
		}
	}
	if err := s.Stop(o.Token); err != nil {
		t.Fatal(err)
	}
	ended(t, s)
}
