package sched

import (
	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// stateChanged keeps counts and queues when the state of a job has changed.
func (m *Machine) stateChanged(b *batch, i uint32, old job.State) {
	s := b.States[i]
	b.counts[old]--
	b.counts[s]++
	switch {
	case s.Over() && !old.Over():
		b.open--
	case old.Over() && !s.Over():
		b.open++
	}
	if b.gates != nil {
		m.pass(b, i, old, s)
	}
	switch {
	case s == job.Queued:
		m.enqueue(b, i)
	case old == job.Queued:
		b.queue(i).Jobs.Remove(i)
	}
}

// queue is the queue of a job.
func (b *batch) queue(i uint32) *policy.Queue {
	if t := b.trials[i]; t != nil {
		return t.q
	}
	if b.class == nil {
		return b.Queues[0]
	}
	return b.Queues[b.class[i]]
}

func (m *Machine) queueOf(ref Ref) *policy.Queue {
	return m.batches[ref.Batch].queue(ref.Job)
}
