package sched

import (
	"math"
	"slices"
	"time"

	"distribute/lib/job"
)

// short is how long an attempt may run for the next one of its batch to be sent
// to its node ahead.
const short = 5 * time.Second

// noPace says that a batch is built on a node, and nothing of how long it runs.
const noPace = time.Duration(-1)

func seconds(s float64) time.Duration {
	if !(s >= 0 && s < 1e9) {
		return noPace
	}
	return time.Duration(s * float64(time.Second))
}

// built notes that the batch of an attempt is built on its node, and how long
// the attempt ran there.
func (m *Machine) built(a *attempt, ran time.Duration) {
	b := m.batches[a.ref.Batch]
	if a.peer.abroad {
		return
	}
	if _, ok := b.pace[a.peer]; !ok || ran != noPace {
		b.pace[a.peer] = ran
		b.quick = b.quick || b.short(a.peer)
	}
}

func (b *batch) short(p *peer) bool {
	ran, ok := b.pace[p]
	return ok && ran != noPace && ran < short
}

// takes says that a node may be used for a queue at all.
func (q *queue) takes(p *peer) bool { return q.may(p) && !q.tooFull(p) }

// may says that nothing speaks against it but how full its disk is.
func (q *queue) may(p *peer) bool {
	if !q.suits(p) || q.avoids(p) {
		return false
	}
	_, refused := q.b.refusedBy(p)
	return !refused && !q.b.shuns(p)
}

// shuns says that the build of the batch failed on a node.
func (b *batch) shuns(p *peer) bool {
	_, avoid := b.avoid[p]
	_, suspect := b.suspect[p]
	return avoid || suspect
}

// open says that a node may be given jobs.
func (p *peer) open() bool { return p.listed && p.rest == 0 && !p.paused() }

// room says that a node has room for a job of the class now. What waits on it
// goes first.
func (p *peer) room(c *class) bool {
	switch {
	case !p.open() || p.waiting > 0:
		return false
	case c.share.cpus == 0 && (p.active > 0 || p.has.cpus == 0 || p.cardless(c)):
		return false
	}
	return p.fits[c] && p.holds(c.of(p)) && p.site.room(c)
}

// ahead says that one more attempt of the class may wait on a busy node.
func (p *peer) ahead(c *class) bool {
	switch {
	case p.rest != 0 || p.paused():
		return false
	case c.share.counts != "" || c.share.gpus > 0 || c.cards: // what waits would keep that from others
		return false
	case c.share.cpus == 0 && (p.waiting > 0 || p.has.cpus == 0):
		return false
	}
	return holds(p.has, p.waits, c.of(p))
}

// A round is one decision: the queues whose first job may be started, the one that goes
// first in front, and what was found out of nodes meanwhile.
type round struct {
	m        *Machine
	queues   []*queue
	free     []*peer // have a cpu free, and may be given jobs
	places   map[*class]*place
	outlooks map[*reservation]*outlook
}

// round looks at all batches.
func (m *Machine) round() *round {
	m.takeTurns()
	r := &round{m: m, places: map[*class]*place{}, outlooks: map[*reservation]*outlook{}}
	for _, b := range m.order {
		for q := range b.all() {
			if q.waits() {
				r.queues = append(r.queues, q)
			}
		}
	}
	slices.SortFunc(r.queues, (*queue).before)
	for _, p := range m.peers {
		if p.open() && p.waiting == 0 && p.used.cpus < p.has.cpus {
			r.free = append(r.free, p)
		}
	}
	return r
}

// waits says that jobs of the queue wait for nothing but a node.
func (q *queue) waits() bool {
	return q.jobs.n > 0 && q.b.ready && !q.b.full() && !q.b.stopped() && !(q.b.mixed && q.index == MaxClasses-1)
}

// started puts the queues in order again after a job of an owner has started on a node.
func (r *round) started(o *owner, on *peer) {
	delete(r.outlooks, on.keeps)
	his, others := []*queue{}, r.queues[:0]
	for _, q := range r.queues {
		switch {
		case !q.waits():
		case q.b.owner == o:
			his = append(his, q)
		default:
			others = append(others, q)
		}
	}
	slices.SortFunc(his, (*queue).before)
	r.queues = others
	for at, q := range his {
		i, _ := slices.BinarySearchFunc(r.queues[at:], q, (*queue).before)
		r.queues = slices.Insert(r.queues, at+i, q)
	}
}

// ahead is the queues that go before one.
func (r *round) ahead(q *queue) []*queue {
	i, _ := slices.BinarySearchFunc(r.queues, q, (*queue).before)
	return r.queues[:i]
}

// place starts what can be started. Jobs go in the order of [queue.before].
func (m *Machine) place() {
	for _, p := range m.peers {
		m.promote(p)
	}
	r := m.round()
	m.keepAway()
	m.survey(r.queues)
	r.review()
	for {
		q, p := r.first()
		if q == nil {
			break
		}
		if !r.reserve(q, p) {
			m.start(q, p, true)
			r.release(q.c, p)
			r.started(q.b.owner, p)
		}
	}
	r.stock()
}

// first is the queue whose first job goes first of those that can be started now, and its
// node.
func (r *round) first() (*queue, *peer) {
	for _, q := range r.queues {
		if p := r.best(q); p != nil && !r.yields(q) {
			return q, p
		}
	}
	return nil, nil
}

// A place is the nodes that had room for a job of a class when they were looked at.
type place struct {
	free  []*peer // for any
	kept  []*peer // for jobs of a higher priority than those for which they are kept, or that are over in time
	least int     // the least of those priorities
}

// place looks at the nodes for a class.
func (r *round) place(c *class) *place {
	l := r.places[c]
	if l == nil {
		l = &place{least: math.MaxInt}
		r.places[c] = l
		for _, p := range r.free {
			switch {
			case !p.room(c):
			case r.spares(c, p):
				l.free = append(l.free, p)
			default:
				l.kept, l.least = append(l.kept, p), min(l.least, p.keeps.priority)
			}
		}
	}
	return l
}

// soon is within what time a node that will be paused is used only after others.
const soon = time.Hour

// leaves says that a node will soon be paused by its hours. When it was to be paused
// and says no more of it, something else has come in between.
func (m *Machine) leaves(p *peer) bool { return p.soon > m.now && p.soon-m.now < soon }

// best is the node for the first job of a queue: one that is not paused soon before
// others, then one that has built the batch, then, if the job needs none, one without
// GPUs, or if it needs a part of one, where others have parts of one that is enough,
// then the one it fills best, then the one known longest.
func (r *round) best(q *queue) *peer {
	var best *peer
	var least rank
	try := func(p *peer) {
		if p.room(q.c) && q.takes(p) && r.lets(q, p) {
			if k := r.m.rank(q, p); best == nil || k.better(least) {
				best, least = p, k
			}
		}
	}
	l := r.place(q.c)
	for _, p := range l.free {
		try(p)
	}
	if q.says.longest() > 0 || q.b.priority > l.least {
		for _, p := range l.kept {
			try(p)
		}
	}
	return best
}

// A rank is how good a node is for a queue: the lower the better, the first difference counts.
type rank [6]int

func (m *Machine) rank(q *queue, p *peer) rank {
	_, built := q.b.pace[p]
	return rank{one(m.leaves(p)), one(!built), one(q.c.share.gpus == 0 && p.has.gpus > 0), one(p.begins(q.c.share.gpus)), p.has.cpus - p.used.cpus, p.index}
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (r rank) better(s rank) bool { return slices.Compare(r[:], s[:]) < 0 }

// begins says that a job which asks for so much of a GPU would be the first there on its.
func (p *peer) begins(asks job.GPUs) bool {
	return asks.Part() && !p.freeGPUs().Shared(asks)
}

// start gives the first job of a queue to a node: to run at once, or to wait
// there for room.
func (m *Machine) start(q *queue, p *peer, active bool) {
	ref := Ref{q.b.num, q.jobs.first()}
	s := p.given(q.c.of(p))
	token, k := m.draw(p)
	try := int(q.b.tries[ref.Job]) + 1
	m.log(ref, job.Record{Kind: job.KindStart, Attempt: token, Try: try, Node: string(p.name),
		CPUs: s.cpus, Memory: s.memory, GPUs: s.gpus, Counted: s.counts})
	a := m.live[k]
	a.share.cards = s.cards
	a.phase, a.active, a.listed, a.began = job.PhaseWaiting, active, p.session, m.now
	if active {
		p.used = p.used.plus(a.share)
		p.active++
	} else {
		p.waiting++
		p.waits = p.waits.plus(a.share)
	}
	m.count(a)
	m.do(Start{p.session, ref, token, try, s.cpus, s.cards.Indexes(), a.from.token})
}

// draw draws the token of an attempt. Drawing one that is taken is as likely
// as a broken source of random numbers, with which nothing can be done safely.
func (m *Machine) draw(p *peer) (job.Token, key) {
	for range 100 {
		t := m.cfg.Token()
		k, ok := t.Key()
		if ok && m.live[k] == nil && p.gone[k] == nil {
			return t, k
		}
	}
	panic("sched: the source of tokens repeats itself")
}

// stock sends attempts ahead to busy nodes whose attempts are short, so that no slot waits
// for a round trip, and asks for them back for nodes that are idle.
func (r *round) stock() {
	m := r.m
	r.send()
	var from []*peer
	for _, p := range m.peers {
		if p.listed && p.waiting > 0 {
			from = append(from, p)
		}
	}
	for _, p := range m.peers {
		if len(from) > 0 && p.listed && p.active == 0 && p.waiting == 0 && p.recalling == nil && !p.paused() {
			m.recall(p, from)
		}
	}
}

// send sends attempts ahead.
func (r *round) send() {
	m := r.m
	if !slices.ContainsFunc(r.queues, func(q *queue) bool { return q.b.quick }) {
		return
	}
	for _, p := range m.peers {
		for p.listed && p.waiting < p.active && m.allShort(p) { // one a slot
			q := r.upNext(p)
			if q == nil || !q.b.short(p) || !p.ahead(q.c) || !r.beside(q, p) {
				break
			}
			m.start(q, p, false)
			r.started(q.b.owner, p)
		}
	}
}

// upNext is the queue whose first job the node should do next.
func (r *round) upNext(p *peer) *queue {
	i := slices.IndexFunc(r.queues, func(q *queue) bool { return q.takes(p) })
	if i < 0 {
		return nil
	}
	return r.queues[i]
}

// allShort says that what runs on a node is of batches that are short there.
func (m *Machine) allShort(p *peer) bool {
	for a := p.first; a != nil; a = a.after {
		if a.result == nil && !m.batches[a.ref.Batch].short(p) {
			return false
		}
	}
	return len(p.held) == 0
}

// recall asks for an attempt that waits on one of some nodes and could run on p.
func (m *Machine) recall(p *peer, some []*peer) {
	for _, from := range some {
		for a := from.last; a != nil; a = a.before {
			if a.active || a.result != nil || a.recalled || a.stopped || !a.current || a.phase != job.PhaseWaiting {
				continue
			}
			if q := m.queueOf(a.ref); q.takes(p) && p.room(q.c) {
				a.recalled, p.recalling = true, a
				m.do(Recall{from.session, a.token})
				return
			}
		}
	}
}

func (m *Machine) queueOf(ref Ref) *queue {
	return m.batches[ref.Batch].queue(ref.Job)
}
