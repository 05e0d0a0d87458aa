package sched

import (
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
	if old, ok := b.pace[a.peer]; !ok || ran != noPace {
		b.pace[a.peer] = ran
		if (ran != noPace && ran < short) != (ok && old != noPace && old < short) {
			m.touch(a.peer)
		}
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
	if !q.suits(p) || q.avoids(p) || q.doom != "" || q.b.stopped() {
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

// room says that a node has room for a job of the class now. What waits on it
// goes first.
func (p *peer) room(c *class) bool {
	switch {
	case !p.listed || p.waiting > 0 || p.rest != 0 || p.paused():
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

// place starts what can be started. Before the event nothing could; so what
// can now be started either goes to a node that the event touched, or is of a
// class that it touched. Jobs go in the order of [queue.before].
func (m *Machine) place() {
	for _, p := range m.freed {
		m.promote(p)
	}
	m.review()
	m.feedYielding()
	if len(m.freed)+len(m.fed) > 0 {
		m.takeTurns()
	}
	for {
		q := m.foremost()
		if q == nil {
			break
		}
		if p := m.best(q); !m.reserve(q, p) {
			m.start(q, p, true)
		}
	}
	m.stock()
	for _, p := range m.freed {
		p.touched = false
	}
	for _, c := range m.fed {
		c.fed = false
	}
	m.freed, m.fed = m.freed[:0], m.fed[:0]
}

// foremost is the queue whose first job goes first of those that can be started now.
func (m *Machine) foremost() *queue {
	var q *queue
	try := func(p *peer, c *class) {
		if len(c.lanes) > 0 && p.room(c) {
			if r := m.nextLet(c, p); r != nil && (q == nil || r.before(q)) && !m.yields(r) {
				q = r
			}
		}
	}
	for _, c := range m.fed {
		for _, p := range m.peers {
			try(p, c)
		}
	}
	for _, p := range m.freed {
		for _, c := range m.classes {
			try(p, c)
		}
	}
	return q
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
func (m *Machine) best(q *queue) *peer {
	among := m.freed
	if q.c.fed {
		among = m.peers
	}
	var best *peer
	for _, p := range among {
		if p.room(q.c) && q.takes(p) && m.lets(q, p) && (best == nil || m.prefers(q, p, best)) {
			best = p
		}
	}
	return best
}

func (m *Machine) prefers(q *queue, p, r *peer) bool {
	if p, r := m.leaves(p), m.leaves(r); p != r {
		return r
	}
	_, pBuilt := q.b.pace[p]
	_, rBuilt := q.b.pace[r]
	if pBuilt != rBuilt {
		return pBuilt
	}
	if p, r := p.has.gpus > 0, r.has.gpus > 0; q.c.share.gpus == 0 && p != r {
		return r
	}
	if p, r := p.begins(q.c.share.gpus), r.begins(q.c.share.gpus); p != r {
		return r
	}
	if pFree, rFree := p.has.cpus-p.used.cpus, r.has.cpus-r.used.cpus; pFree != rFree {
		return pFree < rFree
	}
	return p.index < r.index
}

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
	if active {
		m.kept(q.c, p)
	}
	m.touch(p)
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

// stock sends attempts ahead to busy nodes whose attempts are short, so that
// no slot waits for a round trip, and asks for them back for nodes that are
// idle. What it misses costs time only: it looks at touched nodes alone.
func (m *Machine) stock() {
	for i := 0; i < len(m.freed); i++ {
		p := m.freed[i]
		for p.listed && p.waiting < p.active && m.allShort(p) { // one a slot
			q := m.upNext(p)
			if q == nil || !q.b.short(p) || !p.ahead(q.c) || !p.spares(q) {
				break
			}
			m.start(q, p, false)
		}
		if p.listed && p.active == 0 && p.waiting == 0 && p.recalling == nil && !p.paused() {
			m.recall(p)
		}
	}
}

// upNext is the queue whose first job the node should do next.
func (m *Machine) upNext(p *peer) *queue {
	var q *queue
	for _, c := range m.classes {
		if r := m.next(c, p); r != nil && (q == nil || r.before(q)) {
			q = r
		}
	}
	return q
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

// recall asks for an attempt that waits elsewhere and could run on p.
func (m *Machine) recall(p *peer) {
	for _, from := range m.peers {
		if from == p || !from.listed || from.waiting == 0 {
			continue
		}
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
