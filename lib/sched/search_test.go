//go:build !race

// One goroutine does all of this, and takes ten times as long under the race
// detector, which has nothing to find in it.

package sched_test

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"distribute/lib/suite"
)

// The search.

// A move is one thing that happens.
type move struct {
	label
	to state
}

// A label names a move: what happens, to which attempt, at which node.
type label struct {
	what string
	t, i int8 // -1: none
}

func (l label) String() string {
	s := l.what
	if l.t >= 0 {
		s += fmt.Sprintf(" a%d", l.t+1)
	}
	if l.i >= 0 {
		s += fmt.Sprintf(" node %d", l.i)
	}
	return s
}

// The ways in which a move is taken: by the head, in a turn of it, or at once.
type (
	turning  func(what string, t, i int, do func(k *tick))
	changing func(what string, t, i int, do func(to *state))
)

// moves is everything that can happen in a state.
func (s *state) moves(without rule) []move {
	var all []move
	add := func(what string, t, i int, to ...state) {
		for _, next := range to {
			next.tidy(without)
			if next != *s {
				next.judge(s, what)
				all = append(all, move{label{what, int8(t), int8(i)}, next})
			}
		}
	}
	turn := func(what string, t, i int, do func(k *tick)) {
		k := &tick{state: *s, without: without}
		do(k)
		add(what, t, i, k.outcomes(s)...)
	}
	change := func(what string, t, i int, do func(to *state)) {
		to := *s
		do(&to)
		add(what, t, i, to)
	}
	s.headMoves(without, turn)
	for i := range nodes {
		s.nodeMoves(i, without, turn, change)
	}
	change("the head crashes", -1, -1, (*state).crash)
	if s.mem != s.disk {
		change("the head's records become durable", -1, -1, func(to *state) { to.disk = to.mem })
	}
	switch s.old {
	case toCopy:
		change("the spool is copied", -1, -1, func(to *state) { to.old, to.copy = copied, to.disk })
	case copied:
		change("the old copy of the spool is put back", -1, -1, func(to *state) {
			to.disk, to.copy, to.rolled, to.old = to.copy, spool{}, true, putBack
			to.told, to.first = 0, to.disk.accepted
			to.crash()
		})
	}
	return all
}

func (s *state) headMoves(without rule, turn turning) {
	for i := range nodes {
		if s.mem.job == queued && s.drawn < drawMost && (s.session[i] == ready || s.session[i] == greeted && without == listFirst) {
			turn("the job is given to", -1, i, func(k *tick) { k.place(i) })
		}
		if s.session[i] == apart {
			turn("the lease ends of", -1, i, func(k *tick) { k.leaseEnds(i) })
		}
	}
	if !s.mem.over() && s.told == 0 && !s.mem.retried && s.old == noCopy {
		turn("the user cancels", -1, -1, (*tick).cancel)
	}
	if (s.mem.job == failed || s.mem.job == cancelled) && !s.mem.retried && !s.mem.closed {
		turn("the user retries", -1, -1, (*tick).retry)
	}
	if k := (&tick{state: *s, without: without}); k.mayClose() {
		turn("the batch is closed", -1, -1, func(k *tick) { k.mem.closed = true; k.log() })
	}
}

func (s *state) nodeMoves(i int, without rule, turn turning, change changing) {
	n := &s.n[i]
	change("a session begins with", -1, i, func(to *state) { to.connect(i, without) })
	if n.up {
		change("the session ends with", -1, i, func(to *state) { to.disconnect(i, without) })
	}
	change("a restart of", -1, i, func(to *state) { to.reboot(i, without) })
	if n.listed && (s.session[i] == greeted || s.session[i] == ready && without == listOnce) {
		turn("list arrives from", -1, i, func(k *tick) { k.hearList(i) })
	}
	for t := range tokens {
		switch n.has[t] {
		case assigned:
			change("runs", t, i, func(to *state) { to.run(i, t) })
			change("is handed back", t, i, func(to *state) { to.end(i, t, unstarted) })
		case runs:
			change("ends well", t, i, func(to *state) { to.end(i, t, good) })
			change("fails", t, i, func(to *state) { to.end(i, t, bad) })
		}
		for _, m := range n.toNode() {
			if m.sent&bit(t) != 0 {
				change(m.name+" arrives:", t, i, func(to *state) { to.nodeHears(i, t, m.sent, m.name, without) })
			}
		}
		if s.session[i] == apart {
			continue
		}
		if n.ended&bit(t) != 0 {
			turn("ended arrives:", t, i, func(k *tick) { k.hearEnded(i, t) })
		}
		if n.data&bit(t) != 0 {
			turn("data arrives:", t, i, func(k *tick) { k.hearData(i, t) })
		}
		if n.gone&bit(t) != 0 {
			turn("gone arrives:", t, i, func(k *tick) { k.hearGone(t) })
		}
	}
}

type message struct {
	name string
	sent uint8
}

func (n *nodeState) toNode() [5]message {
	return [5]message{{"start", n.start}, {"stop", n.stop}, {"have", n.have}, {"forget", n.forget}, {"grant", n.grant}}
}

// tidy takes out of a state what cannot have an effect any more, so that states
// that differ in nothing else are one. A start that was taken once is taken
// out: whether the node has the attempt or has let it go, it does nothing again.
func (s *state) tidy(without rule) {
	for i := range nodes {
		n := &s.n[i]
		if s.session[i] == ready && without != listOnce {
			n.listed, n.list = false, [tokens]uint8{}
		}
		if without != letGoNames && without != listOnce {
			for t := range tokens {
				n.tidy(t, s.mem.at[t] == settled || s.mem.at[t] == kept, s.acked&bit(t) != 0)
			}
			n.letGo = 0
		}
		if s.session[i] == apart && n.start|n.stop|n.have|n.forget|n.grant == 0 {
			*n = nodeState{has: n.has, how: n.how}
		}
	}
}

func (n *nodeState) tidy(t int, settled, acked bool) {
	off := ^bit(t)
	switch {
	case n.has[t] != absent:
		n.start &= off
		if n.has[t] == ended {
			n.stop &= off
		}
		if n.data&bit(t) != 0 {
			n.grant &= off
		}
	case n.start&bit(t) == 0:
		n.stop, n.have, n.forget, n.grant = n.stop&off, n.have&off, n.forget&off, n.grant&off
		if settled {
			n.ended, n.data = n.ended&off, n.data&off
		}
		if acked {
			n.gone &= off
		}
		if n.ended&bit(t) == 0 && n.data&bit(t) == 0 {
			n.how[t] = 0
		}
	}
}

// judge looks at a state that a move led to.
func (s *state) judge(from *state, by string) {
	s.remember()
	current := 0
	for t := range tokens {
		if s.mem.at[t] == 1 {
			current++
		}
		if s.disk.at[t] == kept && s.disk.staged&bit(t) == 0 {
			s.broken = noResult
		}
		for i := range nodes {
			if s.disk.closed && s.n[i].has[t] != absent && !s.rolled {
				s.broken = leftOver
			}
		}
	}
	switch d, f := &s.disk, &from.disk; {
	case s.broken != "":
	case d.accepted != s.first:
		s.broken = twiceAccepted
	case s.told != 0 && s.mem.job != s.told:
		s.broken = untrue
	case (s.mem.job == running) != (current == 1) || current > 1:
		s.broken = manyStates
	case f.over() && d.job != f.job && by != "the user retries" && s.rolled == from.rolled:
		s.broken = notFinal
	case d.accepted != 0 && d.accepted-1 < d.since && !s.rolled:
		s.broken = tooOld
	}
}

// remember keeps the onlooker's notes: what was accepted first, and which
// results need not be kept any more.
func (s *state) remember() {
	d := &s.disk
	if s.first == 0 {
		s.first = d.accepted
	}
	if s.told == 0 && (d.job == done || d.job == cancelled) {
		s.told = d.job // whoever asks is told what is durable
	}
	for t := range tokens {
		if d.at[t] == kept || (d.job == done || d.job == cancelled) && t < int(s.drawn) {
			s.safe |= bit(t)
		}
	}
}

// A healer takes the first thing that changes anything.
type healer struct {
	from    *state
	without rule
	next    state
	found   bool
}

func (h *healer) change(do func(to *state)) {
	if !h.found {
		h.next = *h.from
		do(&h.next)
		h.next.tidy(h.without)
		h.found = h.next != *h.from
	}
}

func (h *healer) turn(do func(k *tick)) {
	h.change(func(to *state) {
		k := &tick{state: *to, without: h.without}
		do(k)
		*to = k.state
		to.disk = to.mem
	})
}

// heal is the next thing that happens when no fault happens any more and
// everything has its turn; false when nothing is left to happen.
func (s *state) heal(without rule) (state, bool) {
	h := &healer{from: s, without: without}
	for i := range nodes {
		switch s.session[i] {
		case apart:
			h.change(func(to *state) { to.connect(i, without) })
		case greeted:
			h.turn(func(k *tick) { k.hearList(i) })
		}
	}
	for i := range nodes {
		for t := range tokens {
			h.attempt(i, t)
		}
	}
	if s.mem.job == queued && s.session[0] == ready && s.drawn < tokens {
		h.turn(func(k *tick) { k.place(0) })
	}
	h.turn(func(k *tick) {
		if k.mayClose() {
			k.mem.closed = true
		}
	})
	h.next.remember()
	return h.next, h.found
}

func (h *healer) attempt(i, t int) {
	n := &h.from.n[i]
	for _, m := range n.toNode() {
		if m.sent&bit(t) != 0 {
			h.change(func(to *state) { to.nodeHears(i, t, m.sent, m.name, h.without) })
		}
	}
	switch n.has[t] {
	case assigned:
		h.change(func(to *state) { to.run(i, t) })
	case runs:
		h.change(func(to *state) { to.end(i, t, good) })
	}
	if n.ended&bit(t) != 0 {
		h.turn(func(k *tick) { k.hearEnded(i, t) })
	}
	if n.data&bit(t) != 0 {
		h.turn(func(k *tick) { k.hearData(i, t) })
	}
	if n.gone&bit(t) != 0 {
		h.turn(func(k *tick) { k.hearGone(t) })
	}
}

// heals says that from s everything ends: the job is over, and nothing is left
// on the nodes but what an operator must look at.
func (s state) heals(without rule, ends map[state]bool) bool {
	var way []state
	for range 200 {
		if ends[s] {
			break
		}
		way = append(way, s)
		next, more := s.heal(without)
		if !more && !(s.mem.over() && (s.mem.closed || s.rolled)) {
			return false
		} else if !more {
			break
		}
		s = next
	}
	for _, w := range way {
		ends[w] = true
	}
	return len(way) < 200
}

// A search is all states that were reached, and from where.
type search struct {
	states []state
	from   []int32
	by     []label
	broken breach
	at     int
}

// explore goes breadth first through all states that so many moves lead to, or to
// the first that breaks an invariant: by one of the shortest ways. live wants that
// every state can still come to a good end.
func explore(moves int, without rule, rollback, live bool, nevers ...bool) *search {
	x := &search{}
	seen := map[state]struct{}{}
	visit := func(s state, from int, by label) {
		if _, ok := seen[s]; !ok {
			seen[s] = struct{}{}
			x.states = append(x.states, s)
			x.from, x.by = append(x.from, int32(from)), append(x.by, by)
		}
	}
	for _, never := range nevers {
		s := state{never: never}
		if rollback {
			s.old = toCopy
		}
		visit(s, -1, label{fmt.Sprintf("a job with retry: never=%v", never), -1, -1})
	}
	ends := map[state]bool{}
	for at, last := 0, len(x.states); at < len(x.states); at++ {
		if at == last {
			moves, last = moves-1, len(x.states)
		}
		s := x.states[at]
		if live && s.broken == "" && !s.heals(without, ends) {
			s.broken = stuck
		}
		if s.broken != "" {
			x.broken, x.at = s.broken, at
			return x
		}
		if moves == 0 {
			continue
		}
		for _, m := range s.moves(without) {
			visit(m.to, at, m.label)
		}
	}
	return x
}

// way tells how a state was reached.
func (x *search) way() string {
	var steps []string
	for at := x.at; at >= 0; at = int(x.from[at]) {
		steps = append(steps, x.by[at].String())
	}
	slices.Reverse(steps)
	return strings.Join(steps, "\n  ")
}

// allMoves are more than lead to any state.
const allMoves = 1000

// TestModel searches what can happen when every rule is obeyed, all of it with
// D_FULL=1, and else what can in a number of moves: crashes of
// the head anywhere (L35), attempts that both end (L39), starts and answers that
// come twice, late or never (L43, L44), a log rolled back (J31).
func TestModel(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // memory is there, time is not
	for _, c := range []struct {
		name     string
		rollback bool
		nevers   []bool
	}{
		{"cancel, retry and retry: never", false, []bool{false, true}},
		{"roll-back", true, []bool{false}},
	} {
		x := explore(suite.Size(14, allMoves), none, c.rollback, true, c.nevers...)
		t.Logf("%s: %d states", c.name, len(x.states))
		if x.broken != "" {
			t.Errorf("%s: %s\n  %s\n%+v", c.name, x.broken, x.way(), x.states[x.at])
		}
	}
}

// TestModelNeedsEveryRule takes one rule away at a time: without it the search
// must find an invariant that breaks, so that no rule is there for nothing and
// no invariant is blind.
func TestModelNeedsEveryRule(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // memory is there, time is not
	for _, c := range []struct {
		without  rule
		breaks   breach
		rollback bool
	}{
		{ackDurable, thrownAway, false},
		{startDurable, leftOver, false},
		{cancelDurable, untrue, false},
		{keepUntilHave, thrownAway, false},
		{acceptOnce, twiceAccepted, false},
		{bytesFirst, noResult, false},
		{remember, leftOver, false},
		{noteFirst, twiceStarted, false},
		{lostIsTold, twiceRun, false},
		{holdUnknown, thrownAway, true},
		{randomTokens, twiceRun, true},
		{overStays, notFinal, false},
		{voidStays, tooOld, false},
		{neverAgain, twiceStarted, false},
		{sessionsEnd, leftOver, false},
		{listFirst, leftOver, false},
		{listOnce, leftOver, false},
		{goneThenClosed, leftOver, false},
		{letGoNames, leftOver, false},
		{answerKnownTwice, stuck, false},
	} {
		t.Run(string(c.without), func(t *testing.T) {
			nevers := []bool{false, true}
			if c.rollback {
				nevers = nevers[:1]
			}
			x := explore(allMoves, c.without, c.rollback, c.breaks == stuck, nevers...)
			t.Logf("%d states\n  %s\n=> %s", len(x.states), x.way(), x.broken)
			if x.broken != c.breaks {
				t.Errorf("breaks %q, should break %q", x.broken, c.breaks)
			}
		})
	}
}
