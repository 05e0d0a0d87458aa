package main

import (
	"os"
	"testing"

	"distribute/lib/account"
	"distribute/lib/inventory"
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
