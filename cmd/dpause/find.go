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
	id    string // empty: not for everybody's eyes, or not known
	user  string // empty: not known
	cpus  int
	does  proc.Standing
	group string       // its cgroup; empty: it is held by best effort
	pid   int          // of its supervisor; 0: not known
	loose []proc.Loose // what runs of it that nothing has stopped, as far as that is seen
}

// still says that nothing of the job runs.
func (j job) still() bool { return j.does == proc.Frozen }

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
		if isDir(pause.OwnPlace(dir)) && (m.place == pause.MachinePlace || m.place == pause.OwnPlace(dir)) && !m.isSeveral(dir) {
			m.add(node{name: "this node", dir: dir})
		}
	}
	if len(m.nodes) == 0 {
		m.nodes = append(m.nodes, node{name: "this machine"})
	}
}

// isSeveral reports whether a directory is that of a machine of which several nodes are known:
// nothing else runs jobs there. Only root and the owner of the directory can say so.
func (m *machine) isSeveral(dir string) bool {
	return slices.ContainsFunc(m.nodes, func(n node) bool {
		return n.now != nil && pause.MachineOf(n.dir) == dir && credible(&pause.Now{Dir: dir, UID: n.now.UID})
	})
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
			n.state, e = (&pause.Reader{Places: pause.PlacesOf(n.dir), Ended: pause.EndedOf(n.dir), Seen: pause.SeenOf(n.dir), May: n.may, Owns: n.owns, Runs: n.runs}).Read()
		}
		if n.dir == "" || e != nil && (n.now == nil || n.now.UID != os.Geteuid()) {
			n.state, e = (&pause.Reader{Places: []string{pause.MachinePlace, pause.RunPlace}, May: n.may, Owns: n.owns, Runs: n.runs}).Read()
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

// owns reports whether a user owns the node: its pauses have no limit, and it may end all.
func (n *node) owns(uid int) bool {
	return uid == 0 || n.runs(uid) || n.now != nil && slices.Contains(n.now.Owners, uid)
}

// runs reports whether the node's daemon runs as a user.
func (n *node) runs(uid int) bool {
	if n.now != nil {
		return uid == n.now.UID
	}
	info, err := os.Stat(n.dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}

// look reads what is paused, and looks at what runs.
func (m *machine) look() error {
	m.refresh()
	for i := range m.nodes {
		m.nodes[i].jobs = m.nodes[i].jobsHere()
	}
	if slices.ContainsFunc(m.nodes, func(n node) bool { return !n.over() }) {
		m.nodes = slices.DeleteFunc(m.nodes, func(n node) bool { return n.over() })
	}
	return m.read()
}

// jobsHere is what runs on the node. Where jobs have cgroups the kernel tells, whatever the
// node says: it may have said nothing yet of what has just begun.
func (n *node) jobsHere() (jobs []job) {
	if n.now == nil {
		return nil
	}
	if n.ownGroup(n.now.Cgroup) {
		entries, _ := os.ReadDir(n.now.Cgroup)
		for _, e := range entries {
			j := job{group: filepath.Join(n.now.Cgroup, e.Name())}
			if j.does = proc.StandingOf(j.group); j.does != proc.Gone {
				jobs = append(jobs, j)
			}
		}
	}
	for _, r := range n.now.Running {
		j := job{id: r.Job, user: r.User, cpus: r.CPUs, group: r.Cgroup, pid: r.PID, does: proc.Runs}
		if r.Cgroup != "" {
			i := slices.IndexFunc(jobs, func(j job) bool { return j.group == r.Cgroup })
			if i >= 0 {
				j.does = jobs[i].does
				j.seeLoose(r.Start)
				jobs[i] = j
			} else if j.does = proc.StandingOf(r.Cgroup); j.does != proc.Gone && n.ownGroup(filepath.Dir(r.Cgroup)) {
				if j.does == proc.Hidden && !proc.Lives(r.PID, r.Start) && !concealed(r.PID) {
					continue
				}
				j.seeLoose(r.Start)
				jobs = append(jobs, j) // an earlier daemon began it elsewhere, or this user may not look
			}
			continue
		}
		switch { // by best effort
		case concealed(r.PID):
		case !proc.Lives(r.PID, r.Start):
			continue
		case proc.HoldsTree(r.PID, r.Start):
			j.does = proc.Frozen
		default:
			j.seeLoose(r.Start)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// seeLoose looks for processes of the job that its group does not hold: they are in other groups,
// and stand still if its supervisor has stopped them. Of a job by best effort these are all.
func (j *job) seeLoose(start uint64) {
	if j.group != "" && j.does == proc.Runs {
		return
	}
	all := proc.LooseOf(j.pid, start, j.group)
	for _, l := range all {
		if !l.Stopped {
			j.loose = append(j.loose, l)
		}
	}
	switch {
	case len(j.loose) > 0:
		j.does = proc.Runs
	case j.does == proc.Empty && len(all) > 0:
		j.does = proc.Frozen
	}
}

// ownGroup says whether a directory may be that of the node's cgroups, also if the node had another
// name, or of those whose ranks are on several nodes of its machine, and is not one of somebody
// else's processes.
func (n *node) ownGroup(dir string) bool {
	name, whole := filepath.Base(dir), filepath.Dir(filepath.Dir(n.now.Dir))
	its := filepath.Ext(name) == filepath.Ext(proc.GroupName(n.now.Node, n.now.Dir)) || n.now.Part != nil && name == proc.GroupName(pause.Parts, whole)
	return its && filepath.Base(filepath.Dir(dir)) == "distribute"
}

// Bounds of await.
const (
	patience = 5 * time.Second
	starting = 200 * time.Millisecond // a group that is empty for longer is not of what is just starting
)

// await looks at what runs until nothing does on the nodes that the pause stops, but not for ever.
// What is just starting has an empty group: it saw no pause, and runs for a moment, or saw it and
// goes.
func (m *machine) await(ctx context.Context, put pause.Pause) error {
	for begin := time.Now(); ; {
		if err := m.look(); err != nil {
			return err
		}
		waited := time.Since(begin)
		moves := func(j job) bool {
			return !j.still() && j.does != proc.Hidden && (j.does != proc.Empty || waited < starting)
		}
		if waited > patience || !slices.ContainsFunc(m.nodes, func(n node) bool { return n.stops(put) && n.may(os.Geteuid()) && slices.ContainsFunc(n.jobs, moves) }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(20*time.Millisecond, max(time.Millisecond, waited/10))):
		}
	}
}

// concealed says whether a process lives that the kernel hides.
func concealed(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err != nil && errors.Is(syscall.Kill(pid, 0), syscall.EPERM)
}

// over says whether the node is one of which nothing is left but what it said.
func (n *node) over() bool { return n.now != nil && !n.alive() && len(n.here()) == 0 }

// here is the jobs of which there are processes.
func (n *node) here() []job {
	return slices.DeleteFunc(slices.Clone(n.jobs), func(j job) bool { return j.does == proc.Empty })
}

// alive says whether the node's daemon lives.
func (n *node) alive() bool {
	return n.now != nil && (proc.Lives(n.now.PID, n.now.Start) || concealed(n.now.PID))
}
