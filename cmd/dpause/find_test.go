package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"distribute/lib/cli"
	"distribute/lib/pause"
	"distribute/lib/proc"
)

// P70: what a stranger says in the name of another's node keeps nobody from pausing
// that: it is not believed, and where it cannot be looked into it is another node.
func TestP70StrangerSpeaksForNode(t *testing.T) {
	dir, me := t.TempDir(), os.Geteuid()
	said := func(dir string, uid int) *pause.Now {
		return &pause.Now{Node: "ws1", Dir: dir, UID: uid, Owners: []int{}}
	}
	for _, tt := range []struct {
		name string
		now  *pause.Now
		want bool
	}{
		{"its user", said(dir, me), true},
		{"root", said(dir, 0), true},
		{"a stranger", said(dir, me+1), false},
		{"of what is not to be seen", said(filepath.Join(dir, "none"), me+1), true},
	} {
		if got := credible(tt.now); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	m := &machine{}
	m.add(node{name: "ws1", dir: dir, now: said(dir, me+1)})
	m.add(node{name: "ws1", dir: dir, now: &pause.Now{Node: "ws1", Dir: dir, UID: me}})
	m.add(node{name: "this node", dir: dir})
	if len(m.nodes) != 2 {
		t.Fatalf("%d nodes", len(m.nodes))
	}
	for _, n := range m.nodes {
		if want := n.now.UID == me; n.may(12345) != want {
			t.Errorf("the node of %d may be paused: %v", n.now.UID, !want)
		}
	}
	// Groups that are not its own are not looked at, whoever says that they are.
	n := &node{now: &pause.Now{Node: "ws1", Dir: dir, UID: me, Cgroup: "/sys/fs/cgroup"}}
	if jobs := n.jobsHere(); jobs != nil {
		t.Errorf("jobs %+v", jobs)
	}
}

// P70: what another user's node has in its directory keeps nobody from pausing.
func TestP70NodeOfAnotherIsClosed(t *testing.T) {
	dir, me := t.TempDir(), os.Geteuid()
	if err := os.Mkdir(pause.EndedOf(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		uid  int
		want bool
	}{{me, false}, {me + 1, true}} {
		m := &machine{nodes: []node{{name: "ws1", dir: dir, now: &pause.Now{Node: "ws1", Dir: dir, UID: tt.uid}}}}
		if err := m.read(); (err == nil) != tt.want {
			t.Errorf("the node of %d, for %d: %v", tt.uid, me, err)
		}
	}
}

// The directory of a machine that is several nodes is no node besides these, whom anybody may
// pause. Those whose daemons were killed are the nodes that there are, if nothing runs.
func TestSeveralNodes(t *testing.T) {
	clock, err := pause.Here()
	if err != nil {
		t.Fatal(err)
	}
	dir := real(t.TempDir())
	if err := errors.Join(os.Mkdir(pause.OwnPlace(dir), 0o700), os.WriteFile(filepath.Join(dir, "node.json"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"left", "right"} {
		n := pause.Now{Node: name, Dir: filepath.Join(dir, pause.Parts, name), Boot: clock.Boot}
		if err := errors.Join(os.MkdirAll(pause.OwnPlace(n.Dir), 0o700), pause.PutNow(pause.OwnPlace(dir), &n)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := find(&cli.Cmd{Getenv: os.Getenv}, clock, dir)
	if err == nil {
		err = m.look()
	}
	if err != nil || len(m.nodes) != 2 || m.nodes[0].name != "left" || m.nodes[1].name != "right" {
		t.Errorf("%v, nodes %+v", err, m.nodes)
	}
}

// A stranger who says that a node of theirs is a part of another's machine does not take that
// machine's own node away, which everybody may pause.
func TestStrangerIsNoPart(t *testing.T) {
	dir := real(t.TempDir())
	if err := errors.Join(os.Mkdir(pause.OwnPlace(dir), 0o700), os.WriteFile(filepath.Join(dir, "node.json"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		uid  int
		want bool
	}{{os.Geteuid(), true}, {0, true}, {os.Geteuid() + 1, false}} {
		part := filepath.Join(dir, pause.Parts, "none")
		m := &machine{nodes: []node{{name: "ws1", dir: part, now: &pause.Now{Node: "ws1", Dir: part, UID: tt.uid}}}}
		if got := m.isSeveral(dir); got != tt.want {
			t.Errorf("as the user %d says: %v", tt.uid, got)
		}
	}
}

// P72: under hidepid a process that cannot be seen may live.
func TestP72Concealed(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{os.Getpid(), ended.Process.Pid} {
		if concealed(pid) {
			t.Errorf("%d is concealed", pid)
		}
	}
	start, err := proc.StartOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	n := node{now: &pause.Now{Running: []pause.Running{{PID: os.Getpid(), Start: start}, {PID: ended.Process.Pid}}}}
	if jobs := n.jobsHere(); len(jobs) != 1 || jobs[0].does != proc.Runs {
		t.Errorf("jobs %+v", jobs)
	}
}
