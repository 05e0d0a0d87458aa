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

// maxTold is for how many kinds of resources of a batch, and priorities of its jobs, it is told in
// full why these wait: the rest is told only why no node could ever take them.
const maxTold = 32

// Stuck tells why jobs of a batch that wait can start on no node that is connected,
// or not beside those that run, by the number of the job; "" of one that can. It is nil if
// there is nothing to tell. It costs what Reasons does.
func (m *Machine) Stuck(batch uint32) func(job int) string {
	of, some := m.tellEach(batch, 1, func(r *policy.Round, q *policy.Queue) Wait { return Wait{Why: m.tell.Stuck(r, q)} })
	if !some {
		return nil
	}
	return func(job int) string { return of(job).Why }
}

// Reasons tells why the jobs of a batch wait, by the number of the job. It costs a look at
// every node and every batch that waits for each kind of resources that jobs of the batch
// ask for, and each priority of these, up to maxTold of them, and a byte a job if some wait
// for others. What it returns may be called by any goroutine, at any time, by one at a time.
func (m *Machine) Reasons(batch uint32) func(job int) Wait {
	told := 0
	of, _ := m.tellEach(batch, maxTold, func(r *policy.Round, q *policy.Queue) Wait {
		if told++; told > maxTold {
			return Wait{Why: m.tell.Nowhere(r, q)}
		}
		return m.tell.Wait(r, q)
	})
	return of
}

// tellEach is, by the number of a job that waits, what is told of its queue, or for which
// jobs it waits, and whether there is anything to tell. Of a queue whose jobs have several
// priorities of their own it is told of each, up to so many in all, and of the rest together.
func (m *Machine) tellEach(batch uint32, most int, tell func(*policy.Round, *policy.Queue) Wait) (of func(job int) Wait, some bool) {
	b := m.batches[batch]
	if b == nil {
		return func(int) Wait { return Wait{} }, false
	}
	type part struct {
		of  *policy.Queue
		own int
	}
	told, rest, r := map[part]Wait{}, map[*policy.Queue]Wait{}, m.lab.Inspect()
	for q := range b.All() {
		first := true
		for own, alike := range q.Parts() {
			w := tell(r, alike)
			some = some || w.Why != ""
			if !first && len(told) >= most {
				rest[q] = w
				break
			}
			told[part{q, own}], first = w, false
		}
	}
	queues, tried := slices.Clone(b.Queues), map[uint32]*policy.Queue{}
	for i, t := range b.trials {
		tried[i] = t.q
	}
	waits, class, own, jobs := b.waits(), b.class, b.Own, len(b.States) // which nobody changes
	return func(job int) Wait {
		if job >= jobs {
			return Wait{}
		}
		if waits != nil {
			if why := waits(uint32(job)); why != "" {
				return Wait{Why: why}
			}
		}
		q, its := tried[uint32(job)], 0
		switch {
		case q != nil:
		case class == nil:
			q = queues[0]
		default:
			q = queues[class[job]]
		}
		if job < len(own) {
			its = int(own[job])
		}
		if wait, ok := told[part{q, its}]; ok {
			return wait
		}
		return rest[q]
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
// Those that were removed do not count.
func (m *Machine) Able(spec *job.Spec, ask Ask) (able, of int) {
	c := askedClass(spec, ask)
	for _, p := range m.lab.Nodes {
		if p.Boot == "" || p.Removed {
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

// allHere says that something was heard of each node that is known and was not removed.
func (m *Machine) allHere() bool {
	some := false
	for _, p := range m.peers {
		if p.Boot == "" && !p.Removed {
			return false
		}
		some = some || !p.Removed
	}
	return some
}
