package sched

import (
	"slices"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/explain"
	"distribute/lib/sched/policy"
)

// A Wait is why a job waits, in one line for a person who may act on it, and when
// that may change by itself.
type Wait = explain.Wait

// maxTold is for how many kinds of resources of a batch it is told in full why their
// jobs wait: the rest is told only why no node could ever take them.
const maxTold = 32

// Stuck tells why jobs of a batch that wait can start on no node that is connected,
// or not beside those that run, by the number of the job; "" of one that can. It is nil if
// there is nothing to tell. It costs what Reasons does.
func (m *Machine) Stuck(batch uint32) func(job int) string {
	of, some := m.tellEach(batch, func(r *policy.Round, q *policy.Queue) Wait { return Wait{Why: m.tell.Stuck(r, q)} })
	if !some {
		return nil
	}
	return func(job int) string { return of(job).Why }
}

// Reasons tells why the jobs of a batch wait, by the number of the job. It costs a look at
// every node and every batch that waits for each kind of resources that jobs of the batch
// ask for, up to maxTold of them, and a byte a job if some wait for others. What it returns
// may be called by any goroutine, at any time, by one at a time.
func (m *Machine) Reasons(batch uint32) func(job int) Wait {
	told := 0
	of, _ := m.tellEach(batch, func(r *policy.Round, q *policy.Queue) Wait {
		if told++; told > maxTold {
			return Wait{Why: m.tell.Nowhere(r, q)}
		}
		return m.tell.Wait(r, q)
	})
	return of
}

// tellEach is, by the number of a job that waits, what is told of its queue, or for which
// jobs it waits, and whether there is anything to tell.
func (m *Machine) tellEach(batch uint32, tell func(*policy.Round, *policy.Queue) Wait) (of func(job int) Wait, some bool) {
	b := m.batches[batch]
	if b == nil {
		return func(int) Wait { return Wait{} }, false
	}
	told, r := map[*policy.Queue]Wait{}, m.lab.Inspect()
	for q := range b.All() {
		if q.Jobs.N > 0 {
			told[q] = tell(r, q)
			some = some || told[q].Why != ""
		}
	}
	queues, tried := make([]Wait, len(b.Queues)), map[uint32]Wait{}
	for i, q := range b.Queues {
		queues[i] = told[q]
	}
	for i, t := range b.trials {
		tried[i] = told[t.q]
	}
	waits, class, jobs := b.waits(), b.class, len(b.States) // which nobody changes
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
			return queues[0]
		}
		return queues[class[job]]
	}, some || waits != nil
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
	return m.tell.Impossible(askedClass(spec, ask), ask.Disk)
}

// Able returns how many of the nodes that were heard of since the start could ever run jobs of
// the spec that ask for so much, even if they have something else to do, and how many these are.
// Only those count that counts says.
func (m *Machine) Able(spec *job.Spec, ask Ask, counts func(node.Name) bool) (able, of int) {
	c := askedClass(spec, ask)
	for _, p := range m.lab.Nodes {
		if p.Boot == "" || !counts(p.Name) {
			continue
		}
		if of++; explain.EverAble(c, ask.Disk, p) {
			able++
		}
	}
	return able, of
}

// askedClass returns the class of jobs of which no node keeps anything: there may be none.
func askedClass(spec *job.Spec, ask Ask) *policy.Class {
	c := wishOf(wants(spec), ask).class()
	c.Asked = true
	return c
}

// allHere says that something was heard of each node that is known.
func (m *Machine) allHere() bool {
	return len(m.peers) > 0 && !slices.ContainsFunc(m.peers, func(p *peer) bool { return p.Boot == "" })
}
