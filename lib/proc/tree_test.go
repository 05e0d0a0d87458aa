package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A process is of a node's trees by the supervisor above it, however far that is.
func TestInTree(t *testing.T) {
	if in, seen := InTree(os.Getpid(), "", "x"); in || !seen {
		t.Errorf("this process: %v, %v", in, seen)
	}
	if in, seen := InTree(1<<30, "", "x"); in || seen {
		t.Errorf("one that is not: %v, %v", in, seen)
	}
	top := t.TempDir()
	node, link := filepath.Join(top, "node"), filepath.Join(top, "link")
	if err := errors.Join(os.Mkdir(node, 0o700), os.Symlink(node, link)); err != nil {
		t.Fatal(err)
	}
	s, err := NewSlot(Absolute(link))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := newDir(t)
	o := order(dir, "(setsid sh -c 'echo $$ >pid.new; mv pid.new pid; exec sleep 60' >/dev/null 2>&1 &) ; exec sleep 60")
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for deadline := time.Now().Add(2 * time.Minute); pid == 0; <-time.After(time.Millisecond) {
		b, _ := os.ReadFile(filepath.Join(dir, "pid"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		if time.Now().After(deadline) {
			t.Fatal("the order does not begin")
		}
	}
	for _, tt := range []struct {
		pid  int
		node string
		in   bool
	}{{pid, node, true}, {pid, link, true}, {pid, "/another", false}, {s.Pid(), node, false}} {
		if in, seen := InTree(tt.pid, "", tt.node); in != tt.in || !seen {
			t.Errorf("%+v: %v, %v", tt, in, seen)
		}
	}
	if err := s.Stop(o.Token); err != nil {
		t.Fatal(err)
	}
	for r := range s.Reports() {
		if r.Ended != nil {
			return
		}
	}
}
