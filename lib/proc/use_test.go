package proc

import "testing"

// What processes have is counted by tree, and what the machine has is told.
func TestMemory(t *testing.T) {
	u, err := Memory(t.TempDir(), 0)
	if err != nil || len(u.Of) != 0 || u.Sum() != 0 || u.Free <= 0 {
		t.Errorf("nobody has %+v, %v", u, err)
	}
}
