package sched

import (
	"cmp"
	"slices"

	"distribute/lib/job"
	"distribute/lib/sched/explain"
	"distribute/lib/sched/policy"
	"distribute/lib/unit"
)

// A job that failed and is tried again goes to another node, as long as there is one
// that could ever run it. So it leaves the queue of its like, whose first job stands
// for all of them, and waits with those that keep away from the same nodes.

// maxShunned is from how many nodes a job keeps away at most. Those where it failed
// first are forgotten first.
const maxShunned = 8

// A trial is what is kept of a job that is not over and that keeps away from nodes. Either
// attempts of it failed, since it was submitted or its owner has retried it; or a node gave
// it back whose disk is smaller than it asks for. It follows from the log.
type trial struct {
	fails  int            // attempts that failed
	on     []*policy.Node // where, each once, in this order
	memory int64          // bytes: some node of these had no more, and that was too little
	disk   int64          // bytes that it asks for, of one that was handed back by a node with a smaller disk
	q      *policy.Queue  // where it waits
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
	case t.fails >= b.retries(a.ref.Job) || b.once || b.Stopped || r.OwnLimit():
	case r.NodeMemory() && !m.roomier(a):
		rec.Reason += ", and no other has more than " + unit.FormatBytes(a.peer.Could.Memory)
	default:
		rec.Kind = job.KindBack
		if r.NodeMemory() {
			rec.Memory = a.peer.Could.Memory
		}
	}
	if rec.Kind == job.KindFailed && t.fails > 0 {
		rec.Reason = t.told(a.peer.Node, &rec.Outcome)
	}
	m.log(a.ref, rec)
}

// roomier says that a node has more memory than the one of an attempt and could ever
// run its job.
func (m *Machine) roomier(a *attempt) bool {
	q := m.queueOf(a.ref)
	return slices.ContainsFunc(m.lab.Nodes, func(p *policy.Node) bool {
		return m.lab.Could(q, p) && p.Could.Memory > a.peer.Could.Memory
	})
}

// told is why a job has failed that failed before: how often, where, and how at last.
func (t *trial) told(p *policy.Node, last *job.Outcome) string {
	return last.Retried(t.fails+1, explain.Nodes(with(t.on, p)))
}

// with is some nodes and p, which comes last.
func with(some []*policy.Node, p *policy.Node) []*policy.Node {
	all := slices.DeleteFunc(slices.Clone(some), func(o *policy.Node) bool { return o == p })
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
			b.trials, b.tried = map[uint32]*trial{}, map[*policy.Queue]int{}
		}
		t = &trial{q: b.queue(a.ref.Job)}
		b.trials[a.ref.Job] = t
	}
	if rec.Fate == job.FateEnded {
		t.fails++
		t.on = with(t.on, a.peer.Node)
		t.memory = max(t.memory, rec.Memory)
	}
	t.disk = max(t.disk, rec.Disk)
	old := t.q
	t.q = m.avoidingQueue(old, t)
	b.tried[t.q]++
	b.leaveAvoiding(old)
}

// forget ends the trial of a job that is over.
func (b *batch) forget(i uint32) {
	if t := b.trials[i]; t != nil {
		delete(b.trials, i)
		b.leaveAvoiding(t.q)
	}
}

// avoidingQueue is the queue of the batch and class of another whose jobs keep away from what a
// trial does.
func (m *Machine) avoidingQueue(of *policy.Queue, t *trial) *policy.Queue {
	b, c := of.Batch, of.Class
	w := policy.Avoidance{FailedOn: slices.Clone(t.on), Memory: t.memory, Disk: t.disk, Old: !m.loaded}
	slices.SortFunc(w.FailedOn, func(p, q *policy.Node) int { return cmp.Compare(p.Index, q.Index) })
	for _, q := range b.Avoiding {
		if q.Class == c && q.Memory == w.Memory && q.Disk == w.Disk && slices.Equal(q.FailedOn, w.FailedOn) {
			return q
		}
	}
	q := &policy.Queue{Batch: b, Class: c, Index: MaxClasses, Jobs: policy.NewLine(b, 0), Says: of.Says, Avoidance: w}
	b.Avoiding = append(b.Avoiding, q)
	return q
}

// leaveAvoiding takes in that one job fewer has a queue, and drops it with the last one, if
// its jobs keep away from nodes. Who walks through the queues goes on with those of before.
func (b *batch) leaveAvoiding(q *policy.Queue) {
	switch n := b.tried[q]; {
	case n > 1:
		b.tried[q]--
	case n == 1:
		delete(b.tried, q)
		b.Avoiding = slices.DeleteFunc(slices.Clone(b.Avoiding), func(o *policy.Queue) bool { return o == q })
	}
}
