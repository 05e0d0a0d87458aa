//go:build !race

// One goroutine does all of this, and takes ten times as long under the race
// detector, which has nothing to find in it.

package sched_test

// This is the protocol of attempts as a model that is searched whole: one job,
// two nodes, a head, and everything that may go wrong between them. It is the
// specification; lib/sched and dnoded(8) carry it out, dwire(5) spells its
// messages.
//
// What may go wrong, at any time:
//
//   - The network: what was sent in a session may arrive at any later time of
//     that session, any number of times, in any order, or never. So the network
//     is the set of what was sent, emptied when a session ends.
//   - The head crashes: its memory is gone, the disk stays. It may crash after
//     any of the records that a decision wrote, before it has told anybody.
//     Its nodes may go on for a while taking what it had sent.
//   - dnoded crashes, or the cable is pulled: the session ends.
//   - The machine of a node restarts: what ran there is lost.
//   - A lease ends, whenever a node is not connected.
//   - The user cancels, and retries.
//   - An operator puts an old copy of the spool back (roll-back).
//
// A node that loses its directory is not in the model: it loses results, and
// nothing can be done.

// Tokens of attempts. The search draws a few; healing may draw the last one.
const (
	drawMost = 2
	tokens   = drawMost + 1
	nodes    = 2
)

// Rules that hold the protocol together. The model obeys all of them but the
// one that a test takes away.
type rule string

const (
	none             rule = ""
	ackDurable       rule = "have is said when the record is durable"
	startDurable     rule = "start is said when the record is durable"
	cancelDurable    rule = "the user is told cancelled when it is durable"
	keepUntilHave    rule = "a node keeps a result until it hears have"
	acceptOnce       rule = "nothing replaces an accepted result"
	bytesFirst       rule = "a result is accepted when all of it is staged"
	remember         rule = "an attempt that was given up is remembered"
	noteFirst        rule = "a node notes an attempt durably before it starts it"
	holdUnknown      rule = "what the head does not know, the node keeps"
	randomTokens     rule = "tokens are random, not counted"
	overStays        rule = "a late result changes no job that is over"
	voidStays        rule = "an attempt from before a retry is not accepted"
	neverAgain       rule = "a job with retry: never that may have run is not put back"
	sessionsEnd      rule = "what was sent in an old session is ignored"
	listFirst        rule = "nothing is started on a node before its list is complete"
	listOnce         rule = "the list of a session counts once"
	goneThenClosed   rule = "a batch is closed when its nodes have let everything go"
	letGoNames       rule = "a node remembers for a session what it let go"
	lostIsTold       rule = "a node says of what ran when it restarted that it is lost"
	answerKnownTwice rule = "a result said again is answered again"
)

// States of the job, by its log.
const (
	queued = iota
	running
	done
	failed
	cancelled
)

// What the log tells of an attempt.
const (
	unknown = iota
	current // the job's attempt
	givenUp // lost or its lease ended; it may come back
	void    // its job was over since; it must never be accepted
	settled // nothing of it is wanted any more
	kept    // settled, and what it left is on the head
)

// A spool is what the head has on disk.
type spool struct {
	job      uint8
	at       [tokens]uint8 // by attempt
	node     [tokens]uint8
	accepted uint8 // token+1
	staged   uint8 // set of tokens: whole results in staging/ or published
	since    uint8 // tokens drawn before the last retry
	retried  bool
	closed   bool
}

func (l *spool) over() bool { return l.job >= done }

// What a node has of an attempt.
const (
	absent = iota
	assigned
	runs
	ended
)

// How an attempt ended, as its node says.
const (
	good = iota
	bad
	unstarted
	lost
)

// A nodeState is a node: its disk, its memory, and what is in the network
// between it and the head.
type nodeState struct {
	has   [tokens]uint8
	how   [tokens]uint8 // of ended ones
	letGo uint8         // set of tokens; memory
	up    bool          // it believes to be in a session

	// Sets of tokens: what was sent in this session, by message of dwire(5).
	start, stop, have, forget, grant uint8 // head to node
	ended, data, gone                uint8 // node to head
	list                             [tokens]uint8
	listed                           bool // the list was sent
}

// A state is everything, with what an onlooker remembers to judge by.
type state struct {
	disk, mem spool // mem is ahead of disk only when a rule is missing
	session   [nodes]uint8
	acked     uint8 // settled attempts that their nodes have let go; the head's memory
	n         [nodes]nodeState

	never bool // retry: never

	// The onlooker.
	old    uint8  // how far the roll-back is
	copy   spool  // the old copy
	rolled bool   // it was put back
	drawn  uint8  // attempts given away
	ran    uint8  // set: attempts that were started
	starts uint8  // how many since the last retry
	safe   uint8  // set: attempts whose results nobody needs any more, or that are on the head's disk
	told   uint8  // done or cancelled, as the user was told
	first  uint8  // accepted token+1
	broken breach // an invariant that a transition broke
}

// A breach is an invariant that does not hold.
type breach string

const (
	twiceAccepted breach = "I1: an accepted result is replaced"
	noResult      breach = "I2: done or kept, and the files are not there"
	thrownAway    breach = "I3: a node deletes what nobody has"
	untrue        breach = "I4: what the user was told is no longer true"
	twiceRun      breach = "I5: an attempt runs twice"
	manyStates    breach = "I6: the job is in no state, or in two"
	notFinal      breach = "I7: a job that was over changes without its owner's wish"
	tooOld        breach = "I7: a retried job has the result of an attempt from before"
	twiceStarted  breach = "I15: a job with retry: never is started twice"
	leftOver      breach = "something is left on a node when the batch is closed"
	stuck         breach = "when all faults are over it does not end"
)

// How far a roll-back is.
const (
	noCopy = iota // none will be made
	toCopy        // a copy will be made some time
	copied
	putBack
)

// The head's side of a session.
const (
	apart   = iota
	greeted // hello was said; the list is to come
	ready   // the list is complete
)

func bit(t int) uint8 { return 1 << t }

// A tick is one turn of the head: something came in, records were decided on,
// messages are to be sent.
type tick struct {
	state
	without rule
	points  []spool // after each record
	early   bool    // a missing rule: messages go out before the records are durable
}

func (k *tick) log() { k.points = append(k.points, k.mem) }

// to sends a message, if the node is in a session.
func (k *tick) to(t int, set func(n *nodeState) *uint8) {
	if i := k.mem.node[t]; k.session[i] != apart {
		*set(&k.n[i]) |= bit(t)
	}
}

func msgStart(n *nodeState) *uint8  { return &n.start }
func msgStop(n *nodeState) *uint8   { return &n.stop }
func msgHave(n *nodeState) *uint8   { return &n.have }
func msgForget(n *nodeState) *uint8 { return &n.forget }
func msgGrant(n *nodeState) *uint8  { return &n.grant }

// outcomes is what a turn can come to: all is done, or the head crashes after
// one of the records. Without a rule, messages are out and the records are not.
func (k *tick) outcomes(from *state) []state {
	all := k.state
	all.disk = all.mem
	next := []state{all}
	if k.early {
		next = append(next, k.state)
	}
	for _, p := range k.points {
		s := *from
		s.drawn, s.disk = k.drawn, p
		if p.retried && !from.disk.retried {
			s.told, s.starts = 0, 0 // its owner has asked for it
		}
		s.disk.staged |= k.mem.staged
		s.crash()
		next = append(next, s)
	}
	return next
}

// crash ends the head and starts it again. What it had sent may still arrive.
func (s *state) crash() {
	s.mem, s.acked = s.disk, 0
	for i := range s.n {
		s.session[i] = apart
		s.n[i].ended, s.n[i].data, s.n[i].gone, s.n[i].listed, s.n[i].list = 0, 0, 0, false, [tokens]uint8{}
	}
}

// The head.

// place gives the job to a node: record start, then message start.
func (k *tick) place(i int) {
	t := int(k.drawn)
	if k.without == randomTokens {
		t = 0
		for k.mem.at[t] != unknown {
			t++
		}
	}
	k.drawn++
	k.mem.job, k.mem.at[t], k.mem.node[t] = running, current, uint8(i)
	k.log()
	k.to(t, msgStart)
	k.early = k.without == startDurable
}

// over moves the job to its end; all attempts of it are void (and stopped).
func (k *tick) over(job uint8) {
	k.mem.job = job
	for t := range tokens {
		if k.mem.at[t] == current || k.mem.at[t] == givenUp {
			k.mem.at[t] = void
		}
	}
}

func (k *tick) stopVoid() {
	for t := range tokens {
		if k.mem.at[t] == void {
			k.to(t, msgStop)
		}
	}
}

// lose gives a current attempt up: record back, or failed when its job must
// not be started again and may have been.
func (k *tick) lose(t int, mayHaveRun bool) {
	if k.never && mayHaveRun && k.without != neverAgain {
		k.over(failed)
		k.log()
		k.stopVoid()
		return
	}
	k.mem.job, k.mem.at[t] = queued, givenUp
	if k.without == remember {
		k.mem.at[t] = unknown
	}
	k.log()
}

// settle writes the last record of an attempt: late.
func (k *tick) settle(t int, as uint8) {
	if k.mem.at[t] != unknown {
		k.mem.at[t] = as
		k.log()
	}
}

// leaseEnds: nothing was heard of a node for too long.
func (k *tick) leaseEnds(i int) {
	for t := range tokens {
		if k.mem.at[t] == current && int(k.mem.node[t]) == i && (!k.never || k.without == neverAgain) {
			k.lose(t, true)
		}
	}
}

// hearList is the node's list: begin, items, end.
func (k *tick) hearList(i int) {
	k.session[i] = ready
	list := k.n[i].list
	for t := range tokens {
		mine := k.mem.at[t] != unknown && int(k.mem.node[t]) == i
		switch {
		case list[t] != absent && !mine:
			k.hold(i, t)
		case !mine:
		case list[t] == ended:
			k.hearEnded(i, t)
		case list[t] == absent:
			k.notThere(t)
		default:
			k.goesOn(t, list[t])
		}
	}
}

// hold: the head does not know the attempt. The node keeps it, and an operator
// is told.
func (k *tick) hold(i, t int) {
	if k.without == holdUnknown {
		k.n[i].have |= bit(t)
	}
}

// notThere: an attempt is not on its node: it never arrived, or was let go.
func (k *tick) notThere(t int) {
	switch k.mem.at[t] {
	case settled, kept:
		k.acked |= bit(t)
		return
	case current:
		k.lose(t, false)
	}
	k.settle(t, settled)
	k.acked |= bit(t)
}

// goesOn: an attempt is on its node and not over: keep or stop, and adopt if
// its job waits.
func (k *tick) goesOn(t int, as uint8) {
	switch k.mem.at[t] {
	case givenUp:
		if k.mem.job == queued {
			k.mem.job, k.mem.at[t] = running, current
			k.log() // record adopt; keep
		} else if as == assigned {
			k.to(t, msgStop)
		} // else keep: both run, the first result wins
	case void:
		k.to(t, msgStop)
	case settled, kept:
		k.to(t, msgStop)
	}
}

// hearEnded: an attempt is over on its node.
func (k *tick) hearEnded(i, t int) {
	how := k.n[i].how[t]
	switch k.mem.at[t] {
	case unknown:
		k.hold(i, t)
		return
	case settled, kept:
		if k.without != answerKnownTwice {
			k.release(i, t)
		}
		return
	}
	switch how {
	case unstarted:
		if k.mem.at[t] == current {
			k.mem.job = queued // record back, which settles it
		}
		k.settle(t, settled)
		k.release(i, t)
	case lost:
		if k.mem.at[t] == current {
			k.lose(t, true)
		}
		k.settle(t, settled)
		k.release(i, t)
	default:
		if k.mem.at[t] == givenUp && k.mem.job == queued && how == good {
			k.mem.job, k.mem.at[t] = running, current
			k.log() // record adopt
		}
		if k.without == bytesFirst {
			k.finish(i, t)
		}
		k.to(t, msgGrant)
	}
}

// hearData: all of a result has come: it is checked and synced in staging/.
func (k *tick) hearData(i, t int) {
	switch k.mem.at[t] {
	case current, givenUp, void:
		k.mem.staged |= bit(t)
		k.finish(i, t)
	case settled, kept:
		k.release(i, t)
	}
}

// finish decides on a staged result: record done, failed or late, then have.
func (k *tick) finish(i, t int) {
	how := k.n[i].how[t]
	as := k.mem.at[t]
	accept := how == good && as != void && !k.mem.over()
	if how == good && (k.without == acceptOnce && k.mem.job == done || k.without == overStays && k.mem.job == cancelled ||
		k.without == voidStays && !k.mem.over()) {
		accept = true
	}
	switch {
	case accept:
		k.over(done)
		k.mem.accepted = uint8(t) + 1
		k.mem.at[t] = kept
		k.log()
		k.told = done
		k.stopVoid()
	case as == current:
		k.over(failed)
		k.mem.at[t] = kept
		k.log()
		k.stopVoid()
	default:
		k.settle(t, kept)
	}
	k.release(i, t)
	k.early = k.without == ackDurable
}

// release tells a node that nothing of an attempt is wanted: have, or forget
// if it never started.
func (k *tick) release(i, t int) {
	if k.n[i].how[t] == unstarted {
		k.to(t, msgForget)
	} else {
		k.to(t, msgHave)
	}
}

func (k *tick) hearGone(t int) {
	if k.mem.at[t] == settled || k.mem.at[t] == kept {
		k.acked |= bit(t)
	}
}

// mayClose: the job is over and nothing of it is anywhere.
func (k *tick) mayClose() bool {
	if !k.mem.over() || k.mem.closed {
		return false
	}
	for t := range tokens {
		as := k.mem.at[t]
		if as != unknown && as != settled && as != kept || as != unknown && k.acked&bit(t) == 0 && k.without != goneThenClosed {
			return false
		}
	}
	return true
}

// The user.

func (k *tick) cancel() {
	k.over(cancelled)
	k.log()
	k.told = cancelled
	k.stopVoid()
	k.early = k.without == cancelDurable
}

func (k *tick) retry() {
	k.mem.job, k.mem.retried, k.mem.since = queued, true, k.drawn
	k.log()
	k.told, k.starts = 0, 0
}
