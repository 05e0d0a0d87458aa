package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/account"
	"distribute/lib/inventory"
	"distribute/lib/pause"
)

// What root asks about the node of a unit that is another user is told of that user.
func TestRunsAs(t *testing.T) {
	dir, owner := t.TempDir(), os.Geteuid()
	if owner == 0 {
		owner = 12345
		if err := os.Chown(dir, owner, -1); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		file  inventory.File
		uid   int
		dir   string
		value string
		why   string
	}{
		{inventory.File{}, 0, dir, account.UserName(owner), "whose directory it is"},
		{inventory.File{}, 0, "/proc", account.UserName(0), "no run_as, so only root's jobs of a head on this machine"},
		{inventory.File{}, 0, dir + "/none", account.UserName(0), "no run_as, so only root's jobs of a head on this machine"},
		{inventory.File{}, 12346, dir, account.UserName(12346), "the user of dnoded"},
		{inventory.File{RunAs: "maria"}, 0, dir, "maria", "node.yaml"},
	} {
		if got := runsAs(&tt.file, tt.uid, tt.dir); got.Value != tt.value || got.Why != tt.why {
			t.Errorf("%q, %d, %s: %s, %s", tt.file.RunAs, tt.uid, tt.dir, got.Value, got.Why)
		}
	}
}

// P79: jobs are kept from pausing the node if no place of the machine lets their group write.
func TestP79JobPauses(t *testing.T) {
	defer func(machine, run string) { pause.MachinePlace, pause.RunPlace = machine, run }(pause.MachinePlace, pause.RunPlace)
	top := t.TempDir()
	pause.MachinePlace, pause.RunPlace = filepath.Join(top, "machine"), filepath.Join(top, "run")
	if err := errors.Join(os.Mkdir(pause.MachinePlace, 0o700), os.Chmod(pause.MachinePlace, pause.Closed)); err != nil {
		t.Fatal(err)
	}
	for gid, want := range map[int]string{os.Getegid(): "impossible", os.Getegid() + 1: "possible"} {
		if got := placesClosed(inventory.Fact{Value: "possible"}, gid); got.Value != want {
			t.Errorf("%d: %+v", gid, got)
		}
	}
	if err := os.Chmod(pause.MachinePlace, pause.Open); err != nil {
		t.Fatal(err)
	}
	if got := placesClosed(inventory.Fact{Value: "possible"}, os.Getegid()); got.Value != "possible" {
		t.Errorf("of a place for all: %+v", got)
	}
	if got := jobPauses(t.Context(), &inventory.File{}); got.Value != "possible" {
		t.Errorf("without run_as: %+v", got)
	}
}

// A daemon that cannot look up the name of its user for a moment runs the jobs of this user
// later, and never those of a user whose name is the number.
func TestOnlyOfLater(t *testing.T) {
	fails := true
	as := onlyOf(0, func(int) (string, error) {
		if fails {
			return "uid0", errors.New("no descriptors")
		}
		return "root", nil
	})
	for _, submitter := range []string{"root", "uid0"} {
		if _, err := as(t.Context(), submitter); err == nil || !strings.Contains(err.Error(), "no descriptors") {
			t.Errorf("of %s: %v", submitter, err)
		}
	}
	fails = false
	if _, err := as(t.Context(), "root"); err != nil {
		t.Error(err)
	}
	if _, err := as(t.Context(), "uid0"); err == nil {
		t.Error("a job of uid0 runs as root")
	}
}
