package head

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// change makes the changes that tools ask for. The tool is told when that is
// durable.
func (t *tool) change(ctx context.Context, m *wire.Change) error {
	if err := m.Ref.Check(); err != nil {
		return &wire.Error{Status: cli.Usage, Text: err.Error()}
	}
	if len(m.Reason) > maxReason {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("a reason has at most %d bytes", maxReason)}
	}
	switch m.Verb {
	case "cancel", "retry", "hold", "release":
		return t.changeJobs(m)
	case "set":
		if err := m.Set.Check(); err != nil {
			return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: err.Error()}
		}
		return t.changeJobs(m)
	case "delete":
		return t.remove(ctx, m)
	case "lost":
		return t.lost(m)
	case "drain":
		return t.drain(m)
	case "resume":
		return t.resume(m)
	case "accept":
		return t.admit(m)
	case "remove":
		return t.shutOut(m)
	case "claim":
		return t.claim(m)
	}
	return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("nothing is known of %.20q", m.Verb)}
}

// kinds is what is logged of a job for what a tool asks.
var kinds = map[string]job.Kind{"cancel": job.KindCancelled, "retry": job.KindRetry, "hold": job.KindHold, "release": job.KindRelease,
	"set": job.KindSet}

// changeJobs cancels, retries, holds or releases jobs, or sets what is asked for of
// them.
func (t *tool) changeJobs(m *wire.Change) error {
	q, err := t.parse(m.Args, m.All)
	if err != nil {
		return err
	}
	if !t.settled(func() {}) { // a release sees the hold before it, also one whose answer was lost
		return &wire.Error{Ref: m.Ref, Status: cli.Later, Text: "dsched is ending"}
	}
	var snap *snapshot
	t.do(func() { snap = t.snapshot() })
	var ids []job.ID
	var others string
	err = t.rows(snap, q, func(r, log *job.Row) error {
		if !q.Match(r) {
			return nil
		}
		if !mayMove(m, log.State) {
			return nil
		}
		if !t.mayChange(r.UID) {
			others = r.Owner
			return nil
		}
		ids = append(ids, r.ID)
		return nil
	})
	if err != nil {
		return err
	}
	if len(ids) == 0 && others != "" {
		return &wire.Error{Ref: m.Ref, Status: cli.NotAllowed, Text: fmt.Sprintf(
			"these are jobs of %s: only %s and operators may %s them", others, others, m.Verb)}
	}
	if !m.Dry || m.Verb != "cancel" {
		if ids, err = t.changeAll(m, ids); err != nil {
			return err
		}
	}
	return t.tellIDs(m, ids)
}

// tellIDs answers a change with the ids of the jobs that were changed.
func (t *tool) tellIDs(m *wire.Change, ids []job.ID) error {
	s := t.send(wire.OfIDs)
	s.Ref = m.Ref
	return t.c.SendTransfer(s, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		for _, id := range ids {
			fmt.Fprintln(b, id)
		}
		return b.Flush()
	})
}

// changeAll asks the machine for each change, and returns those that it made.
// A batch that is closed is opened again for it. Either all are asked for, or
// none, with an error. If nothing is to be done, it returns what would be asked.
func (t *tool) changeAll(m *wire.Change, ids []job.ID) (changed []job.ID, err error) {
	hold := t.store.NewHold()
	defer hold.Release()
	any := t.operator()
	named := m.Set != nil && m.Set.Priority != nil && t.isNamed()
	var refs []sched.Ref
	ok := t.settled(func() {
		defer t.dropUnchanged(t.lastBatch)
		refs = make([]sched.Ref, len(ids))
		for i, id := range ids {
			if refs[i], err = t.ref(id); err != nil {
				return
			}
			if !any && !t.owns(t.batches[refs[i].Batch].Head.UID) { // the name has passed to another's
				err = &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("no job %q", id)}
				return
			}
		}
		if m.Verb == "retry" {
			if ids, refs, err = t.withNeeds(ids, refs); err == nil {
				err = t.canRetry(hold, ids, refs)
			}
		}
		switch {
		case err == nil && m.Verb == "set":
			changed, err = t.set(m, named, ids, refs)
		case err == nil && (m.Verb == "hold" || m.Verb == "release"):
			changed = t.holdJobs(m, ids, refs)
		case err != nil || m.Dry:
			changed = ids
		default:
			changed = t.ask(m, ids, refs)
		}
	})
	if !ok {
		return nil, &wire.Error{Ref: m.Ref, Status: cli.Later, Text: "dsched is ending"}
	}
	if err == nil {
		err = t.keptIn(refs...)
	}
	if err != nil {
		return nil, err
	}
	return changed, nil
}

// ask asks the machine for each change, and returns the ids of the jobs that are
// changed then: also those that were cancelled since they need one before them.
func (t *tool) ask(m *wire.Change, ids []job.ID, refs []sched.Ref) (changed []job.ID) {
	before := make([]job.State, len(refs))
	for i, ref := range refs {
		before[i] = t.machine.State(ref)
	}
	anew := 0
	if m.Anew {
		anew = int(t.wall().Unix())
	}
	for _, ref := range refs {
		if m.Verb == "cancel" {
			t.apply(sched.Cancel{Ref: ref, By: t.peer.User, Request: m.Ref, Reason: m.Reason})
		} else {
			t.apply(sched.Retry{Ref: ref, By: t.peer.User, Request: m.Ref, Anew: anew})
		}
	}
	for i, ref := range refs {
		if t.machine.State(ref) != before[i] {
			changed = append(changed, ids[i])
		}
	}
	return changed
}

// mayMove says that a change can be one of a job in that state.
func mayMove(m *wire.Change, s job.State) bool {
	_, legal := s.Next(kinds[m.Verb])
	return legal || s == job.Running && (m.Verb == "release" || m.Verb == "hold" && m.Freeze)
}

// holdJobs holds or releases jobs, and returns the ids of those that it changes.
func (t *tool) holdJobs(m *wire.Change, ids []job.ID, refs []sched.Ref) (changed []job.ID) {
	release := m.Verb == "release"
	for i, ref := range refs {
		if t.machine.Holds(ref, release, m.Freeze) {
			changed = append(changed, ids[i])
		}
	}
	if m.Dry {
		return changed
	}
	for batch, jobs := range byBatch(refs) {
		t.apply(sched.HoldJobs{Batch: batch, Jobs: jobs, By: t.peer.User, Request: m.Ref, Release: release, Freeze: m.Freeze})
	}
	return changed
}

// byBatch is jobs, batch by batch.
func byBatch(refs []sched.Ref) iter.Seq2[uint32, []uint32] {
	return func(yield func(uint32, []uint32) bool) {
		for len(refs) > 0 {
			batch, jobs := refs[0].Batch, []uint32(nil)
			for len(refs) > 0 && refs[0].Batch == batch {
				jobs, refs = append(jobs, refs[0].Job), refs[1:]
			}
			if !yield(batch, jobs) {
				return
			}
		}
	}
}

// withNeeds is jobs that are to be retried, behind those that they need and that
// have to be retried before them.
func (h *Head) withNeeds(ids []job.ID, refs []sched.Ref) ([]job.ID, []sched.Ref, error) {
	all, gated := h.machine.WithNeeds(refs)
	if !gated {
		return ids, refs, nil
	}
	known := make(map[sched.Ref]job.ID, len(refs))
	for i, ref := range refs {
		known[ref] = ids[i]
	}
	ids = make([]job.ID, len(all))
	for i, ref := range all {
		if ids[i] = known[ref]; ids[i] == "" {
			b := h.batches[ref.Batch]
			name, err := b.Name(int(ref.Job))
			if err != nil {
				return nil, nil, err
			}
			ids[i] = b.ID.Job(name)
		}
	}
	return ids, all, nil
}

// dropUnchanged forgets the batches with a greater number than after that were
// loaded for a change and are still closed.
func (h *Head) dropUnchanged(after uint32) {
	for n := after + 1; n <= h.lastBatch; n++ {
		if h.batches[n] != nil && h.machine.Closed(n) && !h.reopens(n) {
			h.forget(n)
		}
	}
}

// number is the machine's number of a batch. One that is over is loaded, and so is one that is
// just being made.
func (h *Head) number(id job.BatchID) (n uint32, err error) {
	n, open := h.byID[id]
	if open {
		return n, nil
	}
	if h.store.Deleted(id) {
		return 0, &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("no batch %q: it was deleted", id)}
	}
	damaged := &wire.Error{Status: cli.IO, Text: fmt.Sprintf("the files of %s are damaged: see the log of dsched", id)}
	if !h.store.Closed(id) && slices.Contains(slices.Collect(maps.Values(h.aside)), id) {
		return 0, damaged // also if they can be read again: a tick may still have them open
	}
	b, problems, err := h.store.Open(id)
	h.logProblems(problems)
	if err == nil && b == nil {
		err = damaged
	}
	if err != nil {
		return 0, err
	}
	return h.open(b, h.store.Closed(id))
}

// ref is the machine's number of a job. A batch that is over is loaded.
func (h *Head) ref(id job.ID) (sched.Ref, error) {
	n, err := h.number(id.Batch())
	if err != nil {
		return sched.Ref{}, err
	}
	i, ok, err := h.batches[n].Find(id.Name())
	if err != nil {
		h.log.Error("cannot read a job", "job", string(id), "why", err)
		return sched.Ref{}, errDamaged(id.Batch())
	}
	if !ok {
		return sched.Ref{}, &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("no job %q", id)}
	}
	return sched.Ref{Batch: n, Job: uint32(i)}, nil
}
