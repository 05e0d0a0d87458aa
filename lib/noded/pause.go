package noded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"distribute/lib/account"
	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pause"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// errPaused is errStopped for an attempt that did not begin because the node is
// paused.
var errPaused = fmt.Errorf("%w: its node is paused", errStopped)

// whyPatience is why a node pauses itself: jobs have waited for as long as the
// head lets them.
const whyPatience = "jobs have waited long enough"

// A standing is what pauses ask of the node at a moment.
type standing struct {
	live   []string // the ids of the pauses
	frozen bool     // nothing is to run
	out    bool     // jobs are to leave
	give   pause.Give
	by     []string // who holds them
	why    string   // of the first that a node made

	// By the clock of the machine's start; negative: never.
	since, until, leave time.Duration
}

// pausing is what reads the pauses of a node. Its fields belong to the goroutine
// of its method run.
type pausing struct {
	n *daemon
	pause.Reader
	part   *pause.Part    // of the machine that the node is; nil: it is the machine
	kept   []int          // what the file of owners says
	isKept bool           // it says that
	offers []byte         // what the file of the offer says; nil: that is not known
	since  time.Duration  // when everything came to stand still, after the machine's start; 0: it does not
	names  map[int]string // of users, by number
	odd    map[string]bool
	of     []pause.Pause // of single attempts, as they were read last
	failed string        // what could not be read last, as it was logged
}

func newPausing(n *daemon) *pausing {
	dir := n.desk.Dir()
	var part *pause.Part
	if n.Part != nil {
		own := *n.Part
		own.Own, part = pause.OwnPlace(dir), &own
	}
	reader := pause.Reader{Places: pause.PlacesOf(dir), Ended: pause.EndedOf(dir), Owners: pause.OwnersOf(dir), Seen: pause.SeenOf(dir), May: n.may}
	return &pausing{n: n, Reader: reader, part: part, names: map[int]string{}, odd: map[string]bool{}}
}

// ask is what an order goes by, of an attempt that has portions of other nodes, too.
func (p *pausing) ask(attempt job.Token, beside ...*portion) *proc.Pausing {
	if p == nil {
		return nil
	}
	has := p.offer()
	o := &proc.Pausing{Attempt: string(attempt), Places: p.Places, Ended: p.Ended, Owners: p.Owners, Seen: p.Seen, Offer: pause.OfferOf(p.n.desk.Dir()), CPUs: has.CPUs, Memory: has.Memory, Part: has.Part}
	for _, b := range beside {
		o.Beside = append(o.Beside, *b.on.pausing.ask(attempt))
	}
	return o
}

// offer is what somebody can take back of the node.
func (p *pausing) offer() pause.Offer {
	return pause.Offer{CPUs: p.n.offeredCPUs(), Memory: p.n.given().Offer.Memory, Part: p.part}
}

// beginPauses reads what is paused, before the head is told anything, and begins to
// follow it.
func (n *daemon) beginPauses(ctx context.Context) {
	if !n.Pauses {
		return
	}
	n.closePlaces()
	n.pausing = newPausing(n)
	p := n.pausing
	n.started, _ = proc.StartOf(os.Getpid())
	n.patience = patienceBefore(n.desk)
	changed := pause.Watch(ctx, p.Places, p.Ended)
	st, next, err := p.read(standing{}, n.patience)
	if err != nil {
		n.Log.Warn("cannot read all pauses", "why", err)
		next = time.Second
	}
	n.setPause(st)
	for _, q := range p.of {
		if q.Place == pause.OwnPlace(n.desk.Dir()) {
			n.hasPause(n.attempts[job.Token(q.Attempt)], q.Out)
		}
	}
	if len(p.of) > 0 {
		tell(n.patienceNews) // some may be of attempts that are over
	}
	n.work.Go(func() { p.run(ctx, changed, st, next) })
	n.work.Go(func() { n.tellNow(ctx) })
}

// pausers is who may pause this node, nil for everybody: root and this process's
// user always, whose are the pauses that the node makes by itself.
func (n *daemon) pausers() []int {
	if n.given().Pausers == nil {
		return nil
	}
	return append([]int{0, os.Geteuid()}, n.given().Pausers...)
}

// may says whether a user may pause this node.
func (n *daemon) may(uid int) bool {
	may := n.pausers()
	return may == nil || slices.Contains(may, uid)
}

// run reads the pauses when they change and when one ends. News comes too when
// the head has said how long jobs wait.
func (p *pausing) run(ctx context.Context, changed <-chan struct{}, st standing, next time.Duration) {
	for {
		timer := time.NewTimer(next)
		select {
		case <-changed:
		case <-p.n.patienceNews:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		var err error
		var patience *float64
		if !p.n.do(func() { patience = p.n.patience }) {
			return
		}
		st, next, err = p.read(st, patience)
		if err != nil {
			p.n.Log.Warn("cannot read all pauses; the previous ones stay in force", "why", err)
			next = min(next, 10*time.Second)
			continue
		}
		if !p.n.do(func() { p.n.setPause(st) }) {
			return
		}
		p.n.dropStands(ctx, p.of)
	}
}

// never is how long to wait for what nothing ends.
const never = 24 * time.Hour

// read is how things stand, and for how long they stay so by themselves. It sees
// to the node's own pauses.
func (p *pausing) read(before standing, patience *float64) (st standing, next time.Duration, err error) {
	unkept := p.keepOwners()
	unkept = p.keepOffer() || unkept
	s, err := p.Read()
	p.complain(err)
	c := s.At
	if c.Boot == "" {
		return before, lostAgain, err
	}
	p.of = s.Of
	if len(s.Lost) == 0 {
		unkept = p.keepSeen(s.Seen) || unkept
	}
	for _, o := range s.Odd {
		if text := o.Error(); !p.odd[text] && len(p.odd) < 1000 {
			p.odd[text] = true
			p.n.Log.Warn("file in a directory of pauses is no pause", "why", text)
		}
	}
	pause.Tidy(&s, p.Places)
	give := p.part.Gives(s)
	if s = p.whole(s); !s.Frozen() {
		p.since = 0
	} else if p.since == 0 {
		p.since = max(1, c.Uptime)
		for _, q := range s.Live {
			if ago := c.Now.Sub(q.Made); q.Full() && ago > 0 {
				p.since = max(1, min(p.since, c.Uptime-ago))
			}
		}
	}
	st = p.stand(c, s, give, patience)
	p.own(c, s, st)
	if next = st.stays(c, s); err != nil || unkept {
		next = min(next, lostAgain)
	}
	return st, next, nil
}

// keepOwners writes down who may pause for what runs already, which goes by it from
// then on, if that has changed. Unkept says that this failed, and is to be tried
// again.
func (p *pausing) keepOwners() (unkept bool) {
	may := p.n.pausers()
	if p.isKept && slices.Equal(may, p.kept) {
		return false
	}
	err := pause.PutOwners(p.Owners, may)
	if err != nil && p.n.desk.MakeRoom(err) {
		err = pause.PutOwners(p.Owners, may)
	}
	if err != nil {
		p.n.Log.Warn("cannot tell supervisors who may pause the node; they use what they have", "why", err)
		return true
	}
	p.kept, p.isKept = may, true
	return false
}

// keepSeen is keepOwners for who made the pauses.
func (p *pausing) keepSeen(seen pause.Seen) (unkept bool) {
	if seen.Same(pause.ReadSeen(p.Seen)) {
		return false
	}
	err := pause.PutSeen(p.Seen, seen)
	if err != nil && p.n.desk.MakeRoom(err) {
		err = pause.PutSeen(p.Seen, seen)
	}
	if err != nil {
		p.n.Log.Warn("cannot note who made the pauses; trying again", "why", err)
	}
	return err != nil
}

// keepOffer is keepOwners for what the node offers.
func (p *pausing) keepOffer() (unkept bool) {
	content, err := p.offer().Encode()
	if bytes.Equal(content, p.offers) {
		return false
	}
	put := func() error { return pause.PutOffer(pause.OfferOf(p.n.desk.Dir()), content) }
	if err == nil {
		err = put()
	}
	if err != nil && p.n.desk.MakeRoom(err) {
		err = put()
	}
	if err != nil {
		p.n.Log.Warn("cannot tell supervisors what the node offers; they use what they have", "why", err)
		return true
	}
	p.offers = content
	return false
}

// lostAgain is how long after a place could not be read, or the owners could not be
// kept, that is tried again.
const lostAgain = 10 * time.Second

// complain says once what cannot be read.
func (p *pausing) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != p.failed && err != nil {
		p.n.Log.Warn("cannot read all pauses; known ones hold until their end", "why", err)
	}
	p.failed = text
}

// ownAgain is how long after the node could not keep a pause of its own it tries
// again: the disk may be full.
const ownAgain = time.Minute

// stays is for how long things stand so by themselves.
func (st *standing) stays(c pause.Clock, s pause.State) time.Duration {
	next := never
	if d, ok := s.Next(); ok {
		next = min(next, d)
	}
	switch left := st.leave - c.Uptime; {
	case st.leave <= 0 || st.out:
	case left > 0:
		next = min(next, left)
	default:
		next = min(next, ownAgain) // that it is there now is told
	}
	return max(next, time.Millisecond)
}

// maxNamed is how many of those who hold a pause are named, the first ones: one user
// may have the numbers of thousands.
const maxNamed = 8

// whole is the state as it is for the node: a pause that takes back all that it has is one
// of everything, as nothing can run then.
func (p *pausing) whole(s pause.State) pause.State {
	s.Live = slices.Clone(s.Live)
	for i := range s.Live {
		if q := &s.Live[i]; !q.Full() && p.leavesNothing(*q) {
			q.Give = nil
		}
	}
	return s
}

// leavesNothing says whether a pause takes back all that the node has.
func (p *pausing) leavesNothing(q pause.Pause) bool {
	s := pause.State{Live: []pause.Pause{q}}
	give, memory, cpus := p.part.Gives(s), p.n.given().Offer.Memory, len(p.n.cpuIDs)
	return give.CPUs >= p.n.realCPUs() || cpus > 0 && p.part.Loses(s) >= cpus || memory > 0 && give.Memory >= memory
}

// stand sums up what the pauses ask of the node, by which it gives so much back.
func (p *pausing) stand(c pause.Clock, s pause.State, give pause.Give, patience *float64) standing {
	st := standing{frozen: s.Frozen(), out: s.Out(), give: give, until: -1, leave: -1, since: p.since}
	by := map[string]bool{}
	for _, q := range s.Live {
		st.live = append(st.live, q.Place+"/"+q.ID)
		switch {
		case q.Why == whyPatience && q.UID == os.Geteuid():
		case q.Why != "":
			st.why = q.Why
		case len(by) < maxNamed:
			by[p.name(q.UID)] = true
		}
		if p.since == 0 {
			st.since = max(st.since, c.Uptime-max(0, c.Now.Sub(q.Made)))
		}
	}
	st.by = slices.Sorted(maps.Keys(by))
	if end, forever := s.Until(); !forever && len(s.Live) > 0 {
		st.until = c.Uptime + end.Sub(c.Now)
	}
	if s.Frozen() && patience != nil {
		if leave := p.since + time.Duration(*patience*float64(time.Second)); st.until < 0 || leave < st.until {
			st.leave = max(1, leave)
		}
	}
	return st
}

// name returns that of a user, which is asked for until it is known whether it has one.
func (p *pausing) name(uid int) string {
	if name := p.names[uid]; name != "" {
		return name
	}
	name, err := account.Name(uid)
	if err == nil || errors.Is(err, account.ErrUnknown) {
		p.names[uid] = name
	}
	return name
}

// own asks the jobs to leave that have waited for as long as the head lets them,
// and ends that when the others have ended theirs.
func (p *pausing) own(c pause.Clock, s pause.State, st standing) {
	others := false
	var mine *pause.Pause
	for i, q := range s.Live {
		if q.Why == whyPatience && q.UID == os.Geteuid() {
			mine = &s.Live[i]
		} else if q.Full() {
			others = true
		}
	}
	var err error
	switch {
	case mine != nil && !others:
		err = pause.Remove(*mine)
	case mine == nil && others && !st.out && st.leave > 0 && st.leave <= c.Uptime:
		end, forever := s.Until()
		q := pause.To(c, end)
		if !forever {
			q = pause.For(c, end.Sub(c.Now))
		}
		q.Out, q.Why = true, whyPatience
		p.n.Log.Info("pause longer than jobs wait; they are asked to leave")
		_, err = p.n.putPause(q)
	}
	if err != nil {
		p.n.Log.Warn("cannot write the node's own pause", "why", err)
	}
}

// setPause makes how things stand known to all whom it concerns.
func (n *daemon) setPause(st standing) {
	was := n.pause
	n.pause = st
	n.frozen.Store(st.frozen)
	same := slices.Equal(was.live, st.live) && was.leave == st.leave && was.frozen == st.frozen // which the offer decides, too
	if same {
		return
	}
	switch {
	case len(st.live)+len(was.live) == 0:
		return
	case len(st.live) == 0:
		n.Log.Info("pause over")
	default:
		n.Log.Info("paused", "by", st.by, "why", st.why, "all", st.frozen, "out", st.out, "cpus_given_back", st.give.CPUs, "for", n.leftOf(st.until))
	}
	n.tellOffer()
	for _, a := range n.attempts {
		if a.stage != stageOver && !a.stopped() && !a.unknown {
			n.tellPhase(a)
			n.sendBack(a)
		}
	}
	n.haltGuests()
	tell(n.nowNews)
	n.refuse()
	n.pump()
}

// sendBack gives an attempt back that has not started, if a pause is in its way.
// One of an earlier daemon that does not go on yet is looked at when it does.
func (n *daemon) sendBack(a *attempt) {
	if a.cancel != nil && a.stage < stageRunning && n.mustWait(a) {
		n.endAttempt(a, endPaused, "", errPaused)
	}
}

// mustWait says whether an attempt that has not started is given back because of a
// pause. One whose build stands still waits for that, unless jobs are to leave: also if an
// earlier daemon began the build, and the attempt has not come to wait for it again.
func (n *daemon) mustWait(a *attempt) bool {
	if !n.pause.frozen {
		return a.cpus > n.given().Offer.CPUs-n.pause.give.CPUs
	}
	if n.pause.out {
		return true
	}
	b := n.buildOf(a)
	return b == nil || b.run == nil || !b.run.begun || b.run.ending || a.stage != stageBuilding && !b.run.adopted
}

// keepOff gives back at once what the head gives while the node is paused, of
// which nothing is noted. It returns the rest.
func (n *daemon) keepOff(notes []desk.Note) (rest []desk.Note) {
	n.do(func() {
		for _, s := range notes {
			paused := n.pause.frozen || s.CPUs > n.given().Offer.CPUs-n.lent()
			if n.attempts[s.Token] != nil || !paused {
				rest = append(rest, s)
				continue
			}
			n.Log.Debug("an attempt comes while the node is paused; it is given back", "attempt", s.Token)
			n.link.tell(&wire.Ended{Attempt: s.Token, Result: job.Result{Fate: job.FateNodePaused, Outcome: job.Outcome{Reason: n.pausedReason()}}})
		}
	})
	return rest
}

// pausedReason is why an attempt is given back.
func (n *daemon) pausedReason() string {
	give := node.Give(n.pause.give)
	if n.pause.frozen || give == (node.Give{}) {
		return string(n.Name) + " is paused"
	}
	return string(n.Name) + " has lent back " + give.String()
}

// lent is how many cpus are given back.
func (n *daemon) lent() int { return min(n.pause.give.CPUs, n.given().Offer.CPUs) }

// leftOf is how long it is until a moment after the machine's start.
func (n *daemon) leftOf(at time.Duration) time.Duration {
	if at < 0 {
		return -1
	}
	return max(0, at-proc.Uptime())
}

// pauseNow is what the head is told of the pauses, nil if there are none, or the node's
// part of what they want of its machine is nothing.
func (n *daemon) pauseNow() *node.Pause {
	st := &n.pause
	if len(st.live) == 0 || !st.frozen && st.give == (pause.Give{}) {
		return nil
	}
	p := &node.Pause{By: st.by, Why: st.why, Since: max(0, (proc.Uptime() - st.since).Seconds()), Out: st.out}
	if st.until >= 0 {
		p.Left = max(0.001, n.leftOf(st.until).Seconds())
	}
	if st.leave >= 0 && !st.out {
		left := n.leftOf(st.leave).Seconds()
		p.Go = &left
	}
	if !st.frozen {
		p.Give = &node.Give{CPUs: st.give.CPUs, Memory: st.give.Memory}
	}
	return p
}

// lend takes from an offer what is given back.
func (n *daemon) lend(o *node.Offer) {
	if o.Pause = n.pauseNow(); o.Pause != nil && o.Pause.Give != nil {
		o.CPUs = max(1, o.CPUs-n.pause.give.CPUs)
		o.Memory = max(0, o.Memory-n.pause.give.Memory)
	}
}

// setPatience notes how long the head lets jobs wait.
func (n *daemon) setPatience(seconds *float64) {
	n.do(func() { n.patience = seconds })
	tell(n.patienceNews)
	tell(n.nowNews)
}

// tell leaves word in a channel with room for one.
func tell(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// endPauses ends every pause, for an operator. Files that this user may not remove
// are written down as ended. A record in the node's own place ends also those that come
// again under another name, and keeps guests from new ones for a while.
func (n *daemon) endPauses(by string) {
	if n.pausing == nil {
		return
	}
	n.Log.Info("all pauses ended by an operator", "by", clean(by))
	places, ended := n.pausing.Places, n.pausing.Ended
	n.work.Go(func() {
		s, err := (&pause.Reader{Places: places, Ended: ended}).Read()
		err = errors.Join(err, n.putEnd(s.Live))
		var left []string
		for _, p := range s.Live {
			if e := pause.Remove(p); errors.Is(e, os.ErrPermission) {
				left = append(left, p.ID)
			} else if e != nil {
				err = errors.Join(err, e)
			}
		}
		if len(left) > 0 {
			err = errors.Join(err, pause.Cease(ended, places, left))
		}
		if err != nil {
			n.Log.Error("cannot end every pause", "why", err)
		}
	})
}

// putEnd puts the record into the node's own place that ends pauses.
func (n *daemon) putEnd(all []pause.Pause) error {
	put := func() error { return pause.PutEnd(pause.OwnPlace(n.desk.Dir()), time.Now(), true, all) }
	err := put()
	if err != nil && n.desk.MakeRoom(err) {
		err = put()
	}
	return err
}
