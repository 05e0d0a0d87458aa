package head

import (
	"errors"
	"slices"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// readNames puts the names of jobs into the records that are to be logged. A batch whose
// jobs.jsonl turns out to be damaged is set aside, and the others go on.
func (h *Head) readNames() {
	damaged := map[uint32]error{}
	for i, a := range h.ticks.actions {
		l, ok := a.(sched.Log)
		if !ok || l.Ref.Job == sched.AllJobs || damaged[l.Ref.Batch] != nil {
			continue
		}
		name, err := h.batches[l.Ref.Batch].Name(int(l.Ref.Job))
		switch bad := (*spool.Problem)(nil); {
		case errors.As(err, &bad):
			damaged[l.Ref.Batch] = err
		case err != nil:
			h.ticks.failed = unreadable(err)
			return
		default:
			l.Rec.Job = name
			h.ticks.actions[i] = l
		}
	}
	for n, err := range damaged {
		h.setAside(n, err)
	}
}

// setAside drops an open batch from the state, as a start of dsched leaves one alone that is
// damaged. It drops what is decided of the batch and not recorded. Nodes that have attempts
// of it have to come again: the head does not know these any more, and the nodes keep them.
func (h *Head) setAside(n uint32, why error) {
	b := h.batches[n]
	h.log.Error("spool damaged; the batch is left alone until dsched is started again", "problem", why.Error())
	its, on := map[job.Token]bool{}, map[node.Name]bool{}
	h.machine.Live(func(a sched.Attempt) {
		if a.Ref.Batch == n {
			its[a.Token], on[a.Node] = true, true
		}
	})
	h.machine.Settled(n, func(t job.Token) { its[t] = true })
	for _, a := range h.ticks.actions {
		if l, ok := a.(sched.Log); ok && l.Ref.Batch == n && l.Rec.Attempt != "" { // it may be settled by that
			its[l.Rec.Attempt], on[node.Name(l.Rec.Node)] = true, true
		}
	}
	h.ticks.actions = slices.DeleteFunc(h.ticks.actions, func(a sched.Action) bool {
		batch, attempt := about(a)
		return batch == n || its[attempt]
	})
	if h.aside == nil {
		h.aside = map[uint32]job.BatchID{}
	}
	h.aside[n] = b.ID
	h.unread = append(h.unread, b.ID)
	for name := range h.nodes.homes {
		h.machine.Guests(name, func(a sched.Attempt) {
			if a.Ref.Batch == n {
				on[name] = true
			}
		})
		if on[name] {
			h.nodes.aside[name] = true
		}
	}
	delete(h.batches, n)
	delete(h.byID, b.ID)
	h.tools.count(b.Head.UID, user{batches: -1, jobs: -b.Jobs()})
	h.tellWatchers([]logged{{batch: b.Batch, aside: true}})
	h.apply(sched.BatchGone{Batch: n})
	for name := range on {
		if s := h.nodes.sessions[h.nodes.byName[name]]; s != nil {
			s.conn.Close()
		}
	}
	h.ticks.after = append(h.ticks.after, func() { b.Close() }) // no tick has records of it then
}

// keptIn returns an error if what was to be changed of these jobs was dropped, since their
// batch was set aside.
func (h *Head) keptIn(refs ...sched.Ref) (err error) {
	h.do(func() {
		if len(h.aside) > 0 && slices.ContainsFunc(refs, func(r sched.Ref) bool { return h.aside[r.Batch] != "" }) {
			err = &wire.Error{Status: cli.IO, Text: "the files of a batch turned out to be damaged, and of its jobs none is changed: dfsck on the head's machine tells what is whole"}
		}
	})
	return err
}

// about returns which batch, or which attempt, an action is about.
func about(a sched.Action) (batch uint32, attempt job.Token) {
	switch a := a.(type) {
	case sched.Log:
		return a.Ref.Batch, ""
	case sched.Publish:
		return a.Ref.Batch, ""
	case sched.Drop:
		return a.Ref.Batch, ""
	case sched.Start:
		return a.Ref.Batch, ""
	case sched.Grant:
		return a.Ref.Batch, ""
	case sched.Closed:
		return a.Batch, ""
	case sched.Reopened:
		return a.Batch, ""
	case sched.Keep:
		return 0, a.Attempt
	case sched.Stop:
		return 0, a.Attempt
	case sched.Recall:
		return 0, a.Attempt
	case sched.Have:
		return 0, a.Attempt
	case sched.Forget:
		return 0, a.Attempt
	case sched.Hold:
		return 0, a.Attempt
	}
	return 0, ""
}
