package sched

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"distribute/lib/job"
	"distribute/lib/unit"
)

// A job that failed and is tried again goes to another node, as long as there is one
// that could ever run it. So it leaves the queue of its like, whose first job stands
// for all of them, and waits with those that keep away from the same nodes.

// maxShunned is from how many nodes a job keeps away at most. Those where it failed
// first are forgotten first.
const maxShunned = 8

// A trial is what is kept of a job that is not over and that failed since it was
// submitted, or retried by its owner, or that asks for more disk than a node has to
// which it was given with others of its queue. It follows from the log.
type trial struct {
	fails  int     // attempts that failed
	on     []*peer // where, each once, in this order
	memory int64   // bytes: some node of these had no more, and that was too little
	disk   int64   // bytes that it asks for, of one that was handed back by a node with a smaller disk
	q      *queue  // where it waits
}

// An avoidance is what the jobs of a queue keep away from; the zero one is nothing.
type avoidance struct {
	shuns  []*peer // where they failed, in the order in which nodes became known
	memory int64   // bytes: a node must have more
	disk   int64   // bytes: a node's disk must be as large
	trials int     // that have the queue
	old    bool    // it was read from a log: what other nodes there are is not known at once
	alone  bool    // no other node could ever run them, so they go where they failed
}

// retries is how often a job of the batch may be tried again.
func (b *batch) retries(i uint32) int {
	if int(i) < len(b.again) {
		return int(b.again[i])
	}
	return b.often
}

// failed takes in that the current attempt of a job failed, of which everything is
// safe on the head: the job is tried again if it may be, and else has failed.
func (m *Machine) failed(a *attempt, manifest string) {
	b, r := m.batches[a.ref.Batch], a.result
	rec := a.final(job.KindFailed, manifest)
	t := b.trials[a.ref.Job]
	if t == nil {
		t = &trial{}
	}
	switch {
	case t.fails >= b.retries(a.ref.Job) || b.never || b.stopped() || r.OwnLimit():
	case r.NodeMemory() && !m.roomier(a):
		rec.Reason += ", and no other has more than " + unit.FormatBytes(a.peer.could.memory)
	default:
		rec.Kind = job.KindBack
		if r.NodeMemory() {
			rec.Memory = a.peer.could.memory
		}
	}
	if rec.Kind == job.KindFailed && t.fails > 0 {
		rec.Reason = t.told(a.peer, &rec.Outcome)
	}
	m.log(a.ref, rec)
	if rec.Kind == job.KindFailed {
		m.stopVoid(b, a.ref.Job, "the job failed")
	}
}

// roomier says that a node has more memory than the one of an attempt and could ever
// run its job.
func (m *Machine) roomier(a *attempt) bool {
	q := m.queueOf(a.ref)
	return slices.ContainsFunc(m.peers, func(p *peer) bool {
		return m.could(q, p) && p.could.memory > a.peer.could.memory
	})
}

// told is why a job has failed that failed before: how often, where, and how at last.
func (t *trial) told(p *peer, last *job.Outcome) string {
	return last.Retried(t.fails+1, nodes(with(t.on, p)))
}

// nodes is the names of some nodes, as a sentence has them.
func nodes(some []*peer) string {
	words := make([]string, len(some))
	for i, p := range some {
		words[i] = string(p.name)
	}
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

// with is some nodes and p, which comes last.
func with(some []*peer, p *peer) []*peer {
	all := slices.DeleteFunc(slices.Clone(some), func(o *peer) bool { return o == p })
	if all = append(all, p); len(all) > maxShunned {
		all = all[1:]
	}
	return all
}

// foldTried takes in that a job waits again because an attempt of it failed, or its
// node's disk is too small for it.
func (m *Machine) foldTried(b *batch, a *attempt, rec *job.Record) {
	t := b.trials[a.ref.Job]
	if t == nil {
		if b.trials == nil {
			b.trials = map[uint32]*trial{}
		}
		t = &trial{q: b.queue(a.ref.Job)}
		b.trials[a.ref.Job] = t
	}
	if rec.Fate == job.FateEnded {
		t.fails++
		t.on = with(t.on, a.peer)
		t.memory = max(t.memory, rec.Memory)
	}
	t.disk = max(t.disk, rec.Disk)
	old := t.q
	t.q = m.avoidingQueue(old, t)
	t.q.trials++
	m.leaveAvoiding(old)
}

// forget ends the trial of a job that is over.
func (m *Machine) forget(b *batch, i uint32) {
	if t := b.trials[i]; t != nil {
		delete(b.trials, i)
		m.leaveAvoiding(t.q)
	}
}

// avoidingQueue is the queue of the batch and class of another whose jobs keep away from what a
// trial does.
func (m *Machine) avoidingQueue(of *queue, t *trial) *queue {
	b, c := of.b, of.c
	w := avoidance{shuns: slices.Clone(t.on), memory: t.memory, disk: t.disk, old: !m.loaded}
	slices.SortFunc(w.shuns, func(p, q *peer) int { return cmp.Compare(p.index, q.index) })
	for _, q := range b.avoiding {
		if q.c == c && q.memory == w.memory && q.disk == w.disk && slices.Equal(q.shuns, w.shuns) {
			return q
		}
	}
	b.made++
	q := &queue{b: b, c: c, index: MaxClasses + b.made, jobs: &set{}, says: of.says, avoidance: w}
	b.avoiding, m.avoiding = append(b.avoiding, q), append(m.avoiding, q)
	return q
}

// leaveAvoiding takes in that one job fewer has a queue, and drops it with the last one.
func (m *Machine) leaveAvoiding(q *queue) {
	if q.index < MaxClasses {
		return // not of those
	}
	if q.trials--; q.trials > 0 {
		return
	}
	is := func(o *queue) bool { return o == q }
	q.b.avoiding, m.avoiding = slices.DeleteFunc(q.b.avoiding, is), slices.DeleteFunc(m.avoiding, is)
}

// keepAway finds out which jobs that keep away from nodes have no other.
func (m *Machine) keepAway() {
	for _, q := range m.avoiding {
		q.alone = !m.elsewhere(q)
	}
}

// elsewhere says that there is a node from which the jobs of a queue do not keep away,
// and that could ever run them.
func (m *Machine) elsewhere(q *queue) bool {
	return q.old && m.ticked-m.since < settleTime ||
		slices.ContainsFunc(m.peers, func(p *peer) bool { return m.could(q, p) && !slices.Contains(q.shuns, p) })
}

// could says that a node could ever run the jobs of a queue, as far as is known: it is
// there, or was a moment ago, and nothing but time keeps them from it. One that is
// drained may be so for ever, and so may one that had no room time and again.
func (m *Machine) could(q *queue, p *peer) bool {
	t := q.b.refusals[p]
	refused := t.until != 0 && (t.barred || t.long >= longestRefusal)
	there := p.session != 0 || p.boot != "" && m.ticked-p.heard < m.cfg.Lease
	return there && p.drained == "" && q.suits(p) && !refused && !q.b.shuns(p)
}

// suits says that the node has what the jobs of the queue ask for, and what they
// turned out to need.
func (q *queue) suits(p *peer) bool {
	return p.fits[q.c] && (q.memory == 0 || p.could.memory > q.memory) && !p.smallDisk(q.asksDisk())
}

// asksDisk is how many bytes of disk each of the jobs asks for at least.
func (q *queue) asksDisk() int64 { return max(q.says.disk, q.disk) }

// smallDisk says that a node's whole disk is less than so many bytes.
func (p *peer) smallDisk(bytes int64) bool { return 0 < p.offer.DiskSize && p.offer.DiskSize < bytes }

// avoids says that the jobs of the queue failed on a node, and there is another.
func (q *queue) avoids(p *peer) bool { return !q.alone && slices.Contains(q.shuns, p) }

// all is all queues of a batch.
func (b *batch) all() iter.Seq[*queue] {
	return func(yield func(*queue) bool) {
		for _, some := range [][]*queue{b.queues, b.avoiding} {
			for _, q := range some {
				if !yield(q) {
					return
				}
			}
		}
	}
}
