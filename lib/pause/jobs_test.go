package pause

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"distribute/lib/suite"
)

// P79: a process in the group of jobs makes no pause, and removes none, and all others do.
func TestP79CloseTo(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can be others")
	}
	const jobs, ana = 61000, 61001
	top, err := os.MkdirTemp("/tmp", "pause")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	place := filepath.Join(top, "pause")
	closeTo := func() error { return CloseTo(place, jobs) }
	// It may be not there, and may be closed already.
	if err := errors.Join(os.Chmod(top, 0o755), closeTo(), os.Mkdir(place, 0o755), closeTo(), closeTo()); err != nil {
		t.Fatal(err)
	}
	as := func(command string, groups ...uint32) error {
		c := exec.Command("sh", "-c", command, place)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ana, Gid: ana, Groups: groups}}
		return c.Run()
	}
	for _, tt := range []struct {
		command string
		groups  []uint32
		ok      bool
	}{
		{"echo >$0/a", []uint32{ana, jobs}, false},
		{"echo >$0/a", []uint32{ana}, true},
		{"rm $0/a", []uint32{ana, jobs}, false},
		{"ls $0/a", []uint32{ana, jobs}, true},
		{"rm $0/a", []uint32{ana}, true},
	} {
		if err := as(tt.command, tt.groups...); (err == nil) != tt.ok {
			t.Errorf("%s in the groups %v: %v", tt.command, tt.groups, err)
		}
	}
	if InJob(place) {
		t.Error("this is a process of a job")
	}
}
