package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/durable"
	"distribute/lib/pause"
	"distribute/lib/proc"
	"distribute/lib/unit"
)

// pause puts a pause in the place, sees that it is obeyed, and says so.
func (m *machine) pause(ctx context.Context, p pause.Pause) error {
	if err := m.look(); err != nil {
		return err
	}
	if err := cmp.Or(m.notInJob(), m.allowed()); err != nil {
		return err
	}
	before := m.meant()       // soon they are gone, if they are to leave
	last, unread := m.owned() // before the new one: of two at once, none takes the other's for its last
	put, err := m.put(p)
	if err != nil {
		return err
	}
	if err := m.refusedGuest(put); err != nil {
		return err
	}
	if put.Out {
		err = m.look()
	} else {
		err = m.await(ctx, put)
	}
	if err := errors.Join(unread, remove(last), err); err != nil {
		return err
	}
	m.awaitNoted(ctx, put)
	end := m.endOf(put)
	until := nearest(m.clock.Now, end)
	m.shortened(put)
	switch {
	case put.Out:
		err = m.leave(ctx, until, before)
	case put.Full():
		err = m.still(put, until)
	default:
		err = m.given(put, until)
	}
	if err == nil && !put.Out {
		m.others(put, end)
		m.wait(put, end)
		m.dead()
	}
	for _, n := range m.nodes {
		pause.Tidy(&n.state, m.scope)
	}
	return err
}

// refusedGuest returns an error, and removes the pause, if it counts for no node: its
// maker has no session here, and has had the time for that.
func (m *machine) refusedGuest(put pause.Pause) error {
	if err := m.read(); err != nil {
		return err
	}
	var from time.Time
	for _, n := range m.nodes {
		if n.may(put.UID) && !slices.ContainsFunc(n.state.Over, func(p pause.Pause) bool { return p.ID == put.ID && p.Guest }) {
			return nil
		}
		if t := n.state.GuestFrom(put.UID); from.IsZero() || t.Before(from) {
			from = t
		}
	}
	who := account.UserName(put.UID)
	return errors.Join(cli.Errorf(cli.NotAllowed, "%s has no session here: a pause by %s counts from %s on, for an hour", who, who, nearest(m.clock.Now, from)), pause.Remove(put))
}

// awaitNoted waits until the daemons that live have noted whether this user has a session,
// which may end with this command, as one by ssh does.
func (m *machine) awaitNoted(ctx context.Context, put pause.Pause) {
	if !pause.KnowsSessions() {
		return
	}
	for begin := time.Now(); ctx.Err() == nil && time.Since(begin) < time.Second; {
		if !slices.ContainsFunc(m.nodes, func(n node) bool {
			name := pause.SeenOf(n.dir)
			_, noted := pause.ReadSeen(name).Pauses[put.ID]
			_, err := os.Stat(name)
			closed := errors.Is(err, fs.ErrPermission)
			return !noted && !closed && n.alive() && n.may(put.UID) && !n.owns(put.UID)
		}) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// endOf returns when a pause ends that was read last, on the node where it lasts longest.
func (m *machine) endOf(put pause.Pause) (end time.Time) {
	for _, n := range m.nodes {
		for _, p := range n.state.Live {
			if t, _ := p.End(m.clock); p.ID == put.ID && t.After(end) {
				end = t
			}
		}
	}
	if end.IsZero() {
		end, _ = put.End(m.clock)
	}
	return end
}

// shortened says where a pause ends before the time that was asked for, or may: without a daemon
// nobody has noted that its maker has a session.
func (m *machine) shortened(put pause.Pause) {
	asked, _ := put.End(m.clock)
	for _, n := range m.nodes {
		for _, p := range n.state.Live {
			if p.ID == put.ID && p.Guest && !p.Cap.IsZero() && p.Cap.Before(asked) {
				m.c.Talk("%s: until %s at most, as %s has no session here", unit.Quote(n.name), nearest(m.clock.Now, p.Cap), account.UserName(p.UID))
			}
			if p.ID != put.ID || p.Guest || n.alive() || n.owns(p.UID) || !pause.KnowsSessions() {
				continue
			}
			if most := p.Changed.Add(pause.GuestFor); most.Before(asked) && pause.ReadSeen(pause.SeenOf(n.dir)).Pauses[p.ID] == (pause.Sight{}) {
				m.c.Talk("%s: until %s at most, if the session of %s ends before dnoded runs", unit.Quote(n.name), nearest(m.clock.Now, most), account.UserName(p.UID))
			}
		}
	}
}

// allowed returns an error if this user may pause none of the nodes, and names those that go on.
func (m *machine) allowed() error {
	var refused error
	may := false
	for _, n := range m.nodes {
		if n.over() {
			continue
		}
		if n.may(os.Geteuid()) {
			may = true
			continue
		}
		var owners []string
		for _, uid := range n.now.Owners {
			owners = append(owners, account.UserName(uid))
		}
		if len(owners) == 0 { // none of those that its file names can be found
			owners = []string{account.UserName(n.now.UID)}
		}
		if len(m.nodes) > 1 {
			m.c.Talk("%s goes on: its node.yaml lets %s pause it", unit.Quote(n.name), names(owners))
		}
		if refused == nil {
			refused = cli.Errorf(cli.NotAllowed, "%s may be paused by %s only, says its node.yaml", unit.Quote(n.name), names(owners))
		}
	}
	if may {
		return nil
	}
	return refused
}

// notAllowed says whether no node lets this user pause it any more, and ends what
// this one has put there.
func (m *machine) notAllowed(put pause.Pause) bool {
	if m.refresh(); m.allowed() == nil {
		return false
	}
	pause.Remove(put)
	return true
}

// put keeps the pause: in the place, on a full disk in memory, and where there is
// no such place as a pause of everything, which needs no room.
func (m *machine) put(p pause.Pause) (pause.Pause, error) {
	put, err := pause.Put(m.place, p)
	if err == nil {
		if p.Deadline != put.Deadline {
			m.c.Talk("the disk is full: the pause is kept, and ends by the wall clock")
		}
		return put, nil
	}
	if m.dir == "" && isDir(pause.RunPlace) {
		if put, e := pause.Put(pause.RunPlace, p); e == nil {
			m.c.Talk("%v: the pause is kept in memory, until the machine is started again", err)
			return put, nil
		}
	}
	if durable.NoRoom(err) && (!p.Full() || p.Out) {
		all := p
		all.Give, all.Out = nil, false
		if put, e := pause.Put(m.place, all); e == nil {
			m.c.Talk("the disk is full: it takes no more than a pause of everything, so all jobs stand still, and stay")
			return put, nil
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return pause.Pause{}, cli.Errorf(cli.NotAllowed, "%w: the place is to have mode 1777, or 1757 and the group %s", err, pause.JobGroup)
	}
	return pause.Pause{}, cli.Errorf(cli.IO, "the pause cannot be kept: %w", err)
}

// owned is the pauses of this user. With an error it may be not all.
func (m *machine) owned() (all []pause.Pause, err error) {
	places := slices.Clone(m.scope)
	if m.dir == "" {
		for _, n := range m.nodes {
			if place := pause.OwnPlace(n.dir); n.dir != "" && !slices.Contains(places, place) {
				places = append(places, place)
			}
		}
	}
	s, err := (&pause.Reader{Places: places}).Read()
	return slices.DeleteFunc(slices.Concat(s.Live, s.Over), func(p pause.Pause) bool { return !m.own(p) }), err
}

// remove ends pauses.
func remove(all []pause.Pause) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, pause.Remove(p))
	}
	return errors.Join(errs...)
}

// own says whether a pause is this user's. What a node made for reasons of its own
// is not, though it may run as this user.
func (m *machine) own(p pause.Pause) bool {
	return p.UID == os.Geteuid() && p.Why == ""
}

// still says that nothing runs, or what does.
func (m *machine) still(put pause.Pause, until string) error {
	if err := m.read(); err != nil {
		return err
	}
	if err := m.runs(put, until); err != nil {
		return err
	}
	if jobs := m.meant(); len(jobs) == 0 {
		m.c.Talk("paused until %s; no job was running", until)
	} else {
		m.c.Talk("%s until %s", sentence(jobs, "stands still", "stand still"), until)
	}
	m.bestEffort()
	return nil
}

// runs returns an error that names a job of a node that the pause stops, if the job does not stand
// still, or may not.
func (m *machine) runs(put pause.Pause, until string) error {
	stopped := *m
	stopped.nodes = slices.DeleteFunc(slices.Clone(m.nodes), func(n node) bool { return !n.stops(put) })
	for _, j := range stopped.meant() {
		switch {
		case j.still():
		case m.notAllowed(put):
			return m.allowed()
		case j.group == "" && concealed(j.pid):
			return cli.Errorf(cli.Later, "paused until %s, but this machine hides the processes of others (hidepid), and it cannot be seen whether %s stands still", until, j.what())
		case j.does == proc.Hidden:
			return cli.Errorf(cli.Later, "paused until %s, but you may not look into %s, and it cannot be seen whether %s stands still", until, j.group, j.what())
		case j.does == proc.InKernel:
			return cli.Errorf(cli.Later, "paused until %s, but a process of %s waits in the kernel, as for a disk; it stands still when it comes out of it", until, j.what())
		default:
			return cli.Errorf(cli.Later, "paused until %s, but %s not stopped after %d seconds", until, j.whatRuns(), patience/time.Second)
		}
	}
	return nil
}

// meant is the jobs of the nodes that this user may pause: one whose ranks are on several of
// them once.
func (m *machine) meant() (jobs []job) {
	for _, n := range m.nodes {
		if n.may(os.Geteuid()) {
			for _, j := range n.here() {
				if !slices.ContainsFunc(jobs, func(o job) bool { return o.pid == j.pid && o.group == j.group }) {
					jobs = append(jobs, j)
				}
			}
		}
	}
	return jobs
}

// leave waits until nothing of any job is left, of those that were there before the
// pause and of others.
func (m *machine) leave(ctx context.Context, until string, jobs []job) error {
	if now := m.meant(); len(now) > len(jobs) {
		jobs = now
	}
	if len(jobs) == 0 {
		m.c.Talk("paused until %s; no job was running", until)
	} else {
		m.c.Talk("%s this machine until %s; you may interrupt this", sentence(jobs, "leaves", "leave"), until)
	}
	m.dead()
	progress := m.c.Progress("jobs gone:", int64(len(m.meant())), nil)
	defer progress.Done()
	for left := len(m.meant()); ; {
		if err := m.look(); err != nil {
			return err
		}
		now := len(m.meant())
		progress.Add(int64(left - now))
		if left = now; left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// given says what is given back.
func (m *machine) given(put pause.Pause, until string) error {
	if err := m.read(); err != nil {
		return err
	}
	if err := m.runs(put, until); err != nil {
		return err
	}
	m.c.Talk("%s until %s", giveWords(*put.Give), until)
	for _, n := range m.nodes {
		if n.standsStill(put) {
			m.c.Talk("that is all that %s has for jobs: they stand still", unit.Quote(n.name))
		}
		if put.Give.Memory > 0 && n.now != nil && !n.now.Memory {
			m.c.Talk("the kernel does not let %s take memory from jobs: only cpus are given back", unit.Quote(n.name))
		}
	}
	return nil
}

// stops reports whether a pause leaves nothing for the jobs of the node.
func (n *node) stops(p pause.Pause) bool { return p.Full() || n.standsStill(p) }

// standsStill says whether a pause is one of everything for a node that says what it has.
func (n *node) standsStill(p pause.Pause) bool {
	return n.now != nil && (p.Full() || n.now.Part.Gives(pause.State{Live: []pause.Pause{p}}).CPUs >= n.now.CPUs)
}

// giveWords is what is given back, in words.
func giveWords(g pause.Give) string {
	switch {
	case g.CPUs == 0:
		return unit.FormatBytes(g.Memory) + " of memory given back"
	case g.Memory == 0:
		return count(g.CPUs, "cpu") + " given back"
	}
	return count(g.CPUs, "cpu") + " and " + unit.FormatBytes(g.Memory) + " of memory given back"
}

// others names who has paused besides, if that ends later or asks for more.
func (m *machine) others(put pause.Pause, end time.Time) {
	for _, h := range m.holders() {
		theirs, forever := h.p.End(m.clock)
		later := forever || theirs.After(end)
		more := h.p.Full() && !put.Full() || h.p.Out && !put.Out
		if h.p.ID != put.ID && (more || later && (h.p.Full() || !put.Full())) {
			m.c.Talk("%s", h.words(m.clock))
		}
	}
}

// wait says when jobs go on elsewhere that stand still for longer than they wait.
func (m *machine) wait(put pause.Pause, end time.Time) {
	for _, n := range m.nodes {
		if !n.standsStill(put) {
			continue
		}
		waits, forever := n.now.Waits()
		since := put.Made
		for _, p := range n.state.Live {
			if n.standsStill(p) && p.Made.Before(since) {
				since = p.Made
			}
		}
		leave := since.Add(waits)
		switch {
		case forever || leave.After(end):
		case !leave.After(m.clock.Now):
			m.c.Talk("%s lets no job wait so long: they go on elsewhere; yours until %s", unit.Quote(n.name), nearest(m.clock.Now, end))
		default:
			m.c.Talk("longer than %s lets jobs wait: at %s they go on elsewhere; yours until %s", unit.Quote(n.name), nearest(m.clock.Now, leave), nearest(m.clock.Now, end))
		}
	}
}

// dead says which daemons do not run, so that their heads hear of nothing.
func (m *machine) dead() {
	for _, n := range m.nodes {
		switch {
		case n.now == nil || n.alive():
		case len(n.state.Live) > 0:
			m.c.Talk("dnoded of %s does not run: the head hears of this when it does", unit.Quote(n.name))
		default:
			m.c.Talk("dnoded of %s does not run", unit.Quote(n.name))
		}
	}
}

// bestEffort says of which nodes the kernel does not hold what runs.
func (m *machine) bestEffort() {
	for _, n := range m.nodes {
		if n.now != nil && n.now.Cgroup == "" && len(n.jobs) > 0 {
			m.c.Talk("%s has no cgroups: jobs are stopped by best effort (dnoded(8))", unit.Quote(n.name))
		}
	}
}

// resume ends what is this user's; for root and owners everything.
func (m *machine) resume(ctx context.Context) error {
	if err := m.notInJob(); err != nil {
		return err
	}
	before, had := m.holders(), slices.Clone(m.nodes)
	if err := m.putEnds(before); err != nil {
		return err
	}
	for _, h := range before {
		if (os.Geteuid() == 0 || h.p.UID == os.Geteuid()) && m.reaches(h.p) {
			if err := pause.Remove(h.p); err != nil {
				return err
			}
		}
	}
	own, err := m.owned()
	if err := errors.Join(err, remove(own)); err != nil {
		return err
	}
	if err := m.read(); err != nil {
		return err
	}
	ended := map[string]bool{} // for each node, by its directory
	for _, h := range before {
		gone := len(m.nodesOf(h)) == 0
		for i, n := range had {
			if n.has(h.p) && !m.nodes[i].has(h.p) {
				ended[n.dir] = true
			}
		}
		if gone && h.p.UID != os.Geteuid() {
			m.c.Talk("%s; ended", h.words(m.clock))
		}
	}
	left := m.holders()
	for _, h := range left {
		m.c.Talk("%s; %s", h.words(m.clock), m.whoEnds(h))
	}
	m.nodes = slices.DeleteFunc(m.nodes, func(n node) bool { return !ended[n.dir] })
	switch jobs := m.meant(); {
	case len(left) > 0:
		return cli.Quiet(cli.No)
	case len(ended) == 0:
		m.c.Talk("nothing is paused")
	case len(jobs) == 0:
		m.c.Talk("the pause is over; no job was here")
	default:
		m.c.Talk("%s", sentence(jobs, "goes on", "go on"))
	}
	return ctx.Err()
}

// reaches reports whether a pause is in a place that is meant.
func (m *machine) reaches(p pause.Pause) bool { return m.dir == "" || p.Place == m.place }

// putEnds ends the pauses of others, of nodes that this user owns, by a record: this user
// cannot remove their files, and their makers can write them again.
func (m *machine) putEnds(all []holder) error {
	var others []pause.Pause
	for _, h := range all {
		if h.p.UID != os.Geteuid() && m.reaches(h.p) && slices.ContainsFunc(m.nodesOf(h), func(n node) bool { return n.owns(os.Geteuid()) }) {
			others = append(others, h.p)
		}
	}
	if len(others) == 0 {
		return nil
	}
	err := pause.PutEnd(m.place, time.Now(), m.dir == "", others)
	if err != nil && m.dir == "" && isDir(pause.RunPlace) {
		err = pause.PutEnd(pause.RunPlace, time.Now(), true, others)
	}
	if err != nil {
		return cli.Errorf(cli.IO, "the pauses of others cannot be ended: %w", err)
	}
	// Without a place of the machine a node reads none but its own.
	for place := range m.ownPlaces(others) {
		if err := pause.PutEnd(place, time.Now(), false, others); err != nil && !errors.Is(err, fs.ErrPermission) {
			return cli.Errorf(cli.IO, "the pauses of others cannot be ended: %w", err)
		}
	}
	return nil
}

// ownPlaces returns the places of pauses that are those of single nodes.
func (m *machine) ownPlaces(all []pause.Pause) map[string]bool {
	places := map[string]bool{}
	for _, p := range all {
		if p.Place != m.place && m.place != pause.MachinePlace && p.Place != pause.MachinePlace && p.Place != pause.RunPlace {
			places[p.Place] = true
		}
	}
	return places
}

// notInJob returns an error if this process is one of a job, as the kernel says: it has the
// group or is in the cgroup of jobs.
func (m *machine) notInJob() error {
	refused := func(of string) error {
		return cli.Errorf(cli.NotAllowed, "this is a process of a job of %s: a job cannot pause its node, nor end a pause", of)
	}
	if pause.InJob(m.place) {
		return refused("this machine")
	}
	b, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for _, n := range m.nodes {
			if ok && n.now != nil && n.now.Cgroup != "" && strings.HasPrefix("/sys/fs/cgroup"+path+"/", n.now.Cgroup+"/") {
				return refused(unit.Quote(n.name))
			}
		}
	}
	return nil
}
