package head

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/wire"
)

// Limits of what peers may have at one time, in dwire(5) LIMITS.
const (
	maxTools   = 512        // sessions of the tools of one user, and of his at clusters: each costs descriptors
	maxNodes   = 4096       // sessions of nodes
	maxJoins   = 8          // of one node: one is there, and others begin or end
	maxOpen    = 10_000     // batches of one user that are not over: each costs two descriptors
	maxWaiting = 10_000_000 // jobs of these
	maxData    = 3          // data streams of a node
	maxTails   = 64         // logs that are followed on one node

	toolWithin   = time.Hour        // between two requests of a tool, and before its pick
	answerWithin = 10 * time.Minute // for the rows of a batch, or a large result, that a tool reads, when others wait
)

// A user is what one user has of the head.
type user struct {
	tools   int // sessions
	batches int // that are not over, or on their way in
	jobs    int // of these
}

// A fairShare is what one user may have, and how many batches that are not over all may have.
type fairShare struct {
	user
	open int
}

// shareOf is the share by the descriptors that this process may have: half of them go to open
// batches, of which one user has three quarters, and an eighth to the sessions of his tools.
func shareOf(files uint64) fairShare {
	files = min(files, 1<<20)
	s := fairShare{user{tools: maxTools, batches: maxOpen, jobs: maxWaiting}, int(files / 4)}
	s.tools, s.batches = min(s.tools, int(files/8)), min(s.batches, s.open*3/4)
	return s
}

// files is how many descriptors this process may have.
func files() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 1024
	}
	return limit.Cur
}

// user is what one user has; it is kept while it is anything. Of the state's
// goroutine.
func (t *tools) user(uid int) *user {
	u := t.users[uid]
	if u == nil {
		u = new(user)
		t.users[uid] = u
	}
	return u
}

// count changes what a user has.
func (t *tools) count(uid int, by user) {
	u := t.user(uid)
	u.tools, u.batches, u.jobs = u.tools+by.tools, u.batches+by.batches, u.jobs+by.jobs
	if *u == (user{}) {
		delete(t.users, uid)
	}
}

// admit counts a session in, if there is room for one more of that user.
func (h *Head) admit(p dial.Peer) error {
	ok := false
	there := h.do(func() {
		if ok = h.tools.users[p.UID] == nil || h.tools.users[p.UID].tools < h.tools.most.tools; ok {
			h.tools.count(p.UID, user{tools: 1})
		}
	})
	switch {
	case !there:
		return net.ErrClosed // as dsched ends: the tool asks the next one
	case !ok:
		return &wire.Error{Status: cli.Later, Text: fmt.Sprintf("user %s has %d sessions with this head already, which is the limit", p.User, h.tools.most.tools)}
	}
	return nil
}

// allow counts a batch of a user in, or jobs of one, if he may have as many; the
// caller takes them out again when they are in the state, or not to be.
func (h *Head) allow(uid int, more user) (err error) {
	h.do(func() {
		u := h.tools.users[uid]
		if u == nil {
			u = new(user)
		}
		open := 0
		for _, o := range h.tools.users {
			open += o.batches
		}
		switch {
		case u.batches+more.batches > h.tools.most.batches:
			err = cli.Errorf(cli.Later, "%d batches of yours are not over, which is the limit for one user: wait for some, or cancel some", u.batches)
			return
		case more.batches > 0 && open+more.batches > h.tools.most.open:
			err = cli.Errorf(cli.Later, "%d batches are not over, and dsched has descriptors for no more: wait for some, or let it have more (ulimit -n, LimitNOFILE of its unit)", open)
			return
		case u.jobs+more.jobs > maxWaiting:
			err = cli.Errorf(cli.Later, "with it %d jobs of yours would be in batches that are not over, and %d is the limit for one user: wait for some of them, or cancel some",
				u.jobs+more.jobs, maxWaiting)
			return
		}
		h.tools.count(uid, more)
	})
	return err
}

// giveBack takes out what admit or allow has counted in.
func (h *Head) giveBack(uid int, more user) {
	h.do(func() { h.tools.count(uid, user{tools: -more.tools, batches: -more.batches, jobs: -more.jobs}) })
}

// addJoin counts a session of a node in, if there is room for one more: of all,
// and of that node, whose sessions have not all said yet what they offer.
func (h *Head) addJoin(s *session) error {
	err := error(net.ErrClosed)
	h.do(func() {
		same, all := 0, 0
		for _, o := range h.nodes.joins {
			if o.slot() == s.slot() {
				same++
			}
			if !o.name.Abroad() {
				all++
			}
		}
		switch {
		case same >= maxJoins:
			err = &wire.Error{Status: cli.Later, Text: fmt.Sprintf("node %q has begun %d sessions that are not over, which is the limit", s.name, maxJoins)}
		case all >= maxNodes && !s.name.Abroad():
			err = &wire.Error{Status: cli.Later, Text: fmt.Sprintf("%d nodes are connected, which is the limit", maxNodes)}
		default:
			h.nodes.joins[s.join], err = s, nil
		}
	})
	return err
}
