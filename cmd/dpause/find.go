package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/pause"
	"distribute/lib/proc"
)

// siteDir is the directory of a machine's own node.
const siteDir = "/var/lib/distribute/node"

// A machine is this one, as far as it is meant.
type machine struct {
	c     *cli.Cmd
	clock pause.Clock
	place string   // where a pause is put
	scope []string // where own ones are looked for that it replaces
	dir   string   // of the node that -D names; empty: all nodes
	nodes []node
}

// A node is one of this machine.
type node struct {
	name  string
	dir   string     // its directory; empty: not known
	now   *pause.Now // what it says of itself, nil if it does not
	state pause.State
	jobs  []job
}

// A job is an attempt or a build that a node runs.
type job struct {
	id     string // empty: not for everybody's eyes, or not known
	user   string
	cpus   int
	still  bool // no process of it runs
	hidden bool // nor could it be seen whether one does
	group  bool // its cgroup tells of what is hidden
	kernel bool // what runs of it waits in the kernel
	pid    int  // of a process of it that runs, else of the supervisor
}

// find finds where to pause and what is paused there.
func find(c *cli.Cmd, clock pause.Clock, dir string) (*machine, error) {
	m := &machine{c: c, clock: clock}
	own := []string{real(siteDir), real(ownDir(c.Getenv))}
	if dir != "" {
		var err error
		if m.dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		m.dir = real(m.dir)
		m.place = pause.OwnPlace(m.dir)
		if !isDir(m.place) {
			return nil, cli.Errorf(cli.Unreachable, "%q is not a node's directory that has a place for pauses, which dnoded makes when it starts", dir)
		}
		own = []string{m.dir}
	}
	for _, place := range []string{pause.MachinePlace, pause.OwnPlace(own[0]), pause.OwnPlace(own[len(own)-1])} {
		if m.place == "" && isDir(place) {
			m.place = place
		}
	}
	if m.place == "" {
		return nil, cli.Errorf(cli.Unreachable, "no node of this machine can be paused from here: neither %s nor %s is there; name the node's directory with -D, or have root run\nsystemd-tmpfiles --create distribute-node.conf",
			pause.MachinePlace, pause.OwnPlace(own[len(own)-1]))
	}
	m.scope = []string{m.place}
	if m.dir == "" {
		m.scope = []string{pause.MachinePlace, pause.RunPlace, pause.OwnPlace(own[0]), pause.OwnPlace(own[1])}
	}
	m.meet(own)
	return m, nil
}

// ownDir is the node's directory of this user.
func ownDir(getenv func(string) string) string {
	state := getenv("XDG_STATE_HOME")
	if state == "" {
		state = filepath.Join(getenv("HOME"), ".local", "state")
	}
	return filepath.Join(state, "distribute", "node")
}

// real is a path without links, as a node and its supervisors name it.
func real(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// meet finds the nodes that a pause in the place is for.
func (m *machine) meet(own []string) {
	for _, n := range pause.ReadNow(m.clock, m.places()) {
		if (m.dir == "" || n.Dir == m.dir || pause.MachineOf(n.Dir) == m.dir) && credible(&n) {
			m.add(node{name: n.Node, dir: n.Dir, now: &n})
		}
	}
	for _, dir := range own {
		if isDir(pause.OwnPlace(dir)) && (m.place == pause.MachinePlace || m.place == pause.OwnPlace(dir)) {
			m.add(node{name: "this node", dir: dir})
		}
	}
	if len(m.nodes) == 0 {
		m.nodes = append(m.nodes, node{name: "this machine"})
	}
}

// credible says whether a node is one of the user who says so: anybody may put
// files into a place, and could say in the name of another node that nobody may
// pause it. What cannot be looked at may be so.
func credible(n *pause.Now) bool {
	info, err := os.Stat(n.Dir)
	if err != nil || n.UID == 0 {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == n.UID
}

// add adds a node, unless one with its directory is known, of whom is known to be
// the same.
func (m *machine) add(n node) {
	if !slices.ContainsFunc(m.nodes, func(o node) bool {
		return o.dir == n.dir && (o.now == nil || n.now == nil || o.now.UID == n.now.UID)
	}) {
		m.nodes = append(m.nodes, n)
	}
}

// has says whether a supervisor is the node's.
func (n *node) has(t *proc.Tree) bool {
	return n.dir == t.Of && (n.now == nil || n.now.UID == t.UID)
}

// read reads what is paused for each node. What is in the directory of another
// user's node does not keep anybody from pausing: it may be closed, as homes are,
// or hold what is not to be read.
func (m *machine) read() (err error) {
	if m.clock, err = pause.Here(); err != nil {
		return err
	}
	for i := range m.nodes {
		n := &m.nodes[i]
		var e error
		if n.dir != "" {
			n.state, e = pause.Read(m.clock, pause.PlacesOf(n.dir), pause.EndedOf(n.dir), n.may)
		}
		if n.dir == "" || e != nil && (n.now == nil || n.now.UID != os.Geteuid()) {
			n.state, e = pause.Read(m.clock, []string{pause.MachinePlace, pause.RunPlace}, "", n.may)
		}
		err = errors.Join(err, e)
	}
	return err
}

// refresh has the nodes say anew what they run.
func (m *machine) refresh() {
	for _, now := range pause.ReadNow(m.clock, m.places()) {
		for i := range m.nodes {
			if n := &m.nodes[i]; n.now != nil && n.dir == now.Dir && n.now.UID == now.UID {
				n.now = &now
			}
		}
	}
}

// places are where nodes say what is here.
func (m *machine) places() []string {
	if m.dir == "" {
		return m.scope
	}
	return []string{m.place}
}

// may says whether a user may pause the node.
func (n *node) may(uid int) bool {
	return n.now == nil || n.now.Owners == nil || uid == 0 || uid == n.now.UID || slices.Contains(n.now.Owners, uid)
}

// look reads what is paused, and looks at what runs.
func (m *machine) look() error {
	trees, _, err := proc.Trees(m.dir, m.groups()...)
	if err != nil {
		return err
	}
	m.sort(trees)
	return m.read()
}

// mostly is how long the supervisors are trusted to say that they hold their trees:
// after that it is looked at once and again.
const mostly = 200 * time.Millisecond

// supervisors is those which nodes say run something that this user may pause.
func (m *machine) supervisors() (pids []int) {
	for _, n := range m.nodes {
		if n.now != nil && n.may(os.Geteuid()) {
			for _, r := range n.now.Running {
				pids = append(pids, r.PID)
			}
		}
	}
	return pids
}

// groups is the cgroups in which nodes say that something runs.
func (m *machine) groups() (dirs []string) {
	for _, n := range m.nodes {
		if n.now != nil {
			for _, r := range n.now.Running {
				if r.Cgroup != "" {
					dirs = append(dirs, r.Cgroup)
				}
			}
		}
	}
	return dirs
}

// await looks at what runs until nothing does, but not for ever.
func (m *machine) await(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	quick, done := context.WithTimeout(patience, mostly)
	proc.AwaitHeld(quick, m.supervisors())
	done()
	trees, _, err := proc.AwaitStill(patience, m.dir, m.groups()...)
	if err != nil {
		return err
	}
	for m.sort(trees); m.freezing() && patience.Err() == nil; m.sort(trees) {
		select {
		case <-patience.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// freezing says whether a job has not stopped of which only its cgroup can be seen.
func (m *machine) freezing() bool {
	return slices.ContainsFunc(m.meant(), func(j job) bool { return j.hidden && j.group })
}

// sort gives each node the jobs of its supervisors.
func (m *machine) sort(trees []proc.Tree) {
	for i := range m.nodes {
		m.nodes[i].jobs = nil
	}
	seen := map[int]bool{}
	for _, t := range trees {
		seen[t.PID] = true
		if t.Processes == 0 {
			continue
		}
		i := slices.IndexFunc(m.nodes, func(n node) bool { return n.has(&t) })
		if i < 0 {
			i = len(m.nodes)
			m.nodes = append(m.nodes, node{name: "this machine", dir: ""})
			if filepath.IsAbs(t.Of) {
				m.nodes[i] = node{name: "this machine", dir: t.Of}
			}
		}
		n := &m.nodes[i]
		n.jobs = append(n.jobs, n.jobOf(t))
	}
	for i := range m.nodes {
		m.nodes[i].addHidden(seen)
	}
	m.nodes = slices.DeleteFunc(m.nodes, func(n node) bool { return n.now != nil && !n.alive() && len(n.jobs) == 0 && len(m.nodes) > 1 })
}

// jobOf is what a supervisor runs, with what the node says of it.
func (n *node) jobOf(t proc.Tree) job {
	j := job{still: len(t.Running) == 0 && !t.Turning, kernel: t.InKernel, pid: t.PID}
	if len(t.Running) > 0 {
		j.pid = t.Running[0]
	}
	if n.now != nil {
		for _, r := range n.now.Running {
			if r.PID == t.PID && r.Start == t.Start {
				j.id, j.user, j.cpus = r.Job, r.User, r.CPUs
				return j
			}
		}
	}
	j.user = account.UserName(t.User)
	return j
}

// addHidden adds the jobs whose supervisors live and cannot be seen, because the
// kernel hides the processes of others. A job that had a cgroup and has it no more
// is over.
func (n *node) addHidden(seen map[int]bool) {
	if n.now == nil {
		return
	}
	for _, r := range n.now.Running {
		if seen[r.PID] || !concealed(r.PID) || r.Cgroup != "" && !isDir(r.Cgroup) {
			continue
		}
		still := r.Cgroup != "" && proc.GroupFrozen(r.Cgroup)
		n.jobs = append(n.jobs, job{id: r.Job, user: r.User, cpus: r.CPUs, still: still, hidden: !still, group: r.Cgroup != "", pid: r.PID})
	}
}

// concealed says whether a process lives that the kernel hides.
func concealed(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err != nil && errors.Is(syscall.Kill(pid, 0), syscall.EPERM)
}

// over says whether the node is one of which nothing is left but what it said.
func (n *node) over() bool {
	return n.now != nil && !n.alive() && !slices.ContainsFunc(n.now.Running, func(r pause.Running) bool { return proc.Lives(r.PID, r.Start) || concealed(r.PID) })
}

// hides says whether the kernel hides what the node runs, of which its daemon is to
// tell.
func (n *node) hides() bool {
	return n.now != nil && n.may(os.Geteuid()) && concealed(n.now.PID)
}

// alive says whether the node's daemon lives.
func (n *node) alive() bool {
	return n.now != nil && (proc.Lives(n.now.PID, n.now.Start) || concealed(n.now.PID))
}
