package sched

import (
	"time"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// place starts what can be started, as the policy says.
func (m *Machine) place() {
	for _, p := range m.peers {
		m.promote(p)
	}
	r := m.lab.Decide()
	for q, p := range r.Starts() {
		m.start(q, m.peers[p.Index], true)
	}
	for q, p := range r.Aheads() {
		m.start(q, m.peers[p.Index], false)
	}
	for a, p := range r.Recalls() {
		p.Expects = a
		k, _ := a.Token.Key()
		m.recall(m.live[k], "another node is idle")
	}
}

// recall asks a node for an attempt back that it has not begun, and says why.
func (m *Machine) recall(a *attempt, why string) {
	a.recalled = true
	m.do(Recall{a.peer.Session, a.Token, why})
}

// start gives the first job of a queue to a node: to run at once, or to wait
// there for room.
func (m *Machine) start(q *policy.Queue, p *peer, active bool) {
	ref := Ref{q.Batch.Num, q.Jobs.First()}
	all := q.Class.ShareOf(p.Node)
	var portions []job.Portion
	if active && q.Class.Ranks > 1 {
		for _, o := range p.Portions(q.Class)[1:] {
			portions = append(portions, job.Portion{Node: string(o.On.Name), Ranks: o.Ranks})
		}
	}
	token, k := m.draw(p)
	try := int(m.batches[ref.Batch].tries[ref.Job]) + 1
	m.log(ref, job.Record{Kind: job.KindStart, Attempt: token, Try: try, Node: string(p.Name),
		CPUs: all.CPUs, Memory: all.Memory, GPUs: all.GPUs, Also: portions, Counted: all.Counts})
	a := m.live[k]
	a.Share = p.Given(q.Class, a.Share)
	a.phase, a.Active, a.listed, a.Began = job.PhaseWaiting, active, p.Session, m.lab.Now
	p.LastGiven = m.lab.Now
	p.occupy(a.Share, active)
	also := a.takePortions()
	m.count(a)
	m.do(Start{p.Session, ref, token, try, a.Share.CPUs, a.Share.Cards.Indexes(), also, a.from.token, m.batches[ref.Batch].anew})
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

func seconds(s float64) time.Duration {
	if !(s >= 0 && s < 1e9) {
		return policy.NoPace
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
	if _, ok := b.Pace[a.peer.Node]; !ok || ran != policy.NoPace {
		b.Pace[a.peer.Node] = ran
		b.Quick = b.Quick || b.Ahead(a.peer.Node) > 0
	}
}
