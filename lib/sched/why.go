package sched

import (
	"slices"

	"distribute/lib/job"
	"distribute/lib/sched/explain"
	"distribute/lib/sched/policy"
)

// A Wait is why a job waits, in one line for a person who may act on it, and when
// that may change by itself.
type Wait = explain.Wait

// maxTold is for how many kinds of resources of a batch it is told in full why their
// jobs wait: the rest is told only why no node could ever take them.
const maxTold = 32

// Why tells why a job waits, in one line; "" if it does not wait.
func (m *Machine) Why(ref Ref) string {
	if m.State(ref) != job.Queued {
		return ""
	}
	b := m.batches[ref.Batch]
	if !b.free(ref.Job) {
		return b.waits()(ref.Job)
	}
	return m.tell.Wait(m.lab.Inspect(), b.queue(ref.Job)).Why
}

// Stuck tells why jobs of a batch that wait can start on no node that is connected,
// or not beside those that run, by the number of the job; "" of one that can, or does
// not wait. It is nil if there
// is nothing to tell. It costs a look at every node for each kind of resources that
// jobs of the batch ask for, and a byte a job if some wait for others. What it
// returns may be called by any goroutine, at any time, by one at a time.
func (m *Machine) Stuck(batch uint32) func(job int) string {
	b := m.batches[batch]
	if b == nil {
		return nil
	}
	reasons, some, r := make([]string, len(b.Queues)), false, m.lab.Inspect()
	for i, q := range b.Queues {
		if q.Jobs.N == 0 {
			continue
		}
		reasons[i] = m.tell.Stuck(r, q)
		some = some || reasons[i] != ""
	}
	tried := m.stuckTried(r, b)
	waits := b.waits()
	if !some && waits == nil && tried == nil {
		return nil
	}
	class, jobs := b.class, len(b.States) // which nobody changes
	return func(job int) string {
		if job >= jobs {
			return ""
		}
		if waits != nil {
			if why := waits(uint32(job)); why != "" {
				return why
			}
		}
		if why, ok := tried[uint32(job)]; ok {
			return why
		}
		if class == nil {
			return reasons[0]
		}
		return reasons[class[job]]
	}
}

// stuckTried is the same for jobs that failed and wait to be tried again, by their
// numbers.
func (m *Machine) stuckTried(r *policy.Round, b *batch) map[uint32]string {
	reasons := map[*policy.Queue]string{}
	for _, q := range b.Avoiding {
		reasons[q] = m.tell.Stuck(r, q)
	}
	var all map[uint32]string
	for i, t := range b.trials {
		if b.States[i] == job.Queued {
			if all == nil {
				all = map[uint32]string{}
			}
			all[i] = reasons[t.q]
		}
	}
	return all
}

// Reasons tells why the jobs of a batch wait, by the number of the job; nothing of one
// that does not. It costs a look at every node and every batch that waits for
// each kind of resources that jobs of the batch ask for, up to maxTold of them, and a
// byte a job if some wait for others. What it returns may be called by any goroutine,
// at any time, by one at a time.
func (m *Machine) Reasons(batch uint32) func(job int) Wait {
	b := m.batches[batch]
	if b == nil {
		return func(int) Wait { return Wait{} }
	}
	told, r := map[*policy.Queue]Wait{}, m.lab.Inspect()
	for q := range b.All() {
		switch {
		case q.Jobs.N == 0:
		case len(told) < maxTold:
			told[q] = m.tell.Wait(r, q)
		default:
			told[q] = Wait{Why: m.tell.Nowhere(r, q)}
		}
	}
	of, tried := make([]Wait, len(b.Queues)), map[uint32]Wait{}
	for i, q := range b.Queues {
		of[i] = told[q]
	}
	for i, t := range b.trials {
		tried[i] = told[t.q]
	}
	waits := b.waits()
	class, jobs := b.class, len(b.States) // which nobody changes
	return func(job int) Wait {
		if job >= jobs {
			return Wait{}
		}
		if waits != nil {
			if why := waits(uint32(job)); why != "" {
				return Wait{Why: why}
			}
		}
		if wait, ok := tried[uint32(job)]; ok {
			return wait
		}
		if class == nil {
			return of[0]
		}
		return of[class[job]]
	}
}

// Impossible tells why no node could ever run jobs of the spec that ask for so much,
// even if it had nothing else to do; "" if one could, or if that is not known: in
// the first minute after the start, without any node, and as long as nothing was
// heard of a node that an attempt was given to earlier. It costs a look at every
// node.
func (m *Machine) Impossible(spec *job.Spec, ask Ask) string {
	if !m.loaded || m.lab.Now-m.lab.Loaded < policy.SettleTime || !m.allHere() {
		return ""
	}
	return m.tell.Impossible(wishOf(wants(spec), ask).class(), ask.Disk)
}

// allHere says that something was heard of each node that is known.
func (m *Machine) allHere() bool {
	return len(m.peers) > 0 && !slices.ContainsFunc(m.peers, func(p *peer) bool { return p.Boot == "" })
}
