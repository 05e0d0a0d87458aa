package proc

import (
	"os"
	"testing"
)

// Who holds a lock is known as soon as it has signed it, and as long as it holds it.
func TestHolderPid(t *testing.T) {
	dir := t.TempDir()
	boot, err := Boot()
	if err != nil {
		t.Fatal(err)
	}
	start, err := StartOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := TakeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := HolderPid(dir); err == nil {
		t.Errorf("of a lock that is not signed: %d", pid)
	}
	if err := appendTo(lock.f, Line{Supervised: &Holder{Token: "x", Pid: os.Getpid(), Start: start, Boot: boot}}); err != nil {
		t.Fatal(err)
	}
	if pid, err := HolderPid(dir); err != nil || pid != os.Getpid() {
		t.Errorf("of this process: %d, %v", pid, err)
	}
	lock.Release()
	if pid, err := HolderPid(dir); err == nil {
		t.Errorf("of a lock that nobody holds: %d", pid)
	}
}
