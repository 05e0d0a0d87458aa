package sched

import (
	"slices"

	"distribute/lib/sched/policy"
)

// WithNeeds is jobs that are to be retried, and before each those that it needs
// and that have to be retried, too: none twice. It says false if it is the same
// jobs in the same order because none of their batches has jobs that wait for one
// another.
func (m *Machine) WithNeeds(refs []Ref) (all []Ref, gated bool) {
	trails := map[uint32]*trail{}
	for _, ref := range refs {
		b := m.batches[ref.Batch]
		if b == nil || int(ref.Job) >= len(b.States) {
			continue
		}
		if trails[ref.Batch] == nil {
			trails[ref.Batch] = &trail{b, policy.NewSet(len(b.States)), map[uint32]bool{}}
		}
		gated = gated || b.gates != nil
		trails[ref.Batch].follow(ref.Job, func(i uint32) { all = append(all, Ref{ref.Batch, i}) })
	}
	if !gated {
		return refs, false
	}
	return all, true
}

// A trail goes from jobs of a batch to those that they need.
type trail struct {
	b     *batch
	told  *policy.Set     // jobs with all that they need
	lists map[uint32]bool // to which it has come
}

// follow tells of a job behind all that it needs and that have to be retried, unless they
// were told before.
func (t *trail) follow(i uint32, tell func(i uint32)) {
	for way := []uint32{i}; len(way) > 0; {
		i := way[len(way)-1]
		if more := t.needed(i); more != nil {
			way = append(way, more...)
			continue
		}
		way = way[:len(way)-1]
		if !t.told.Has(i) {
			t.told.Add(i)
			tell(i)
		}
	}
}

// needed is the jobs that have to be retried of the next list that a job waits for. It is
// one list at a time: what is in the one may wait for the other, too.
func (t *trail) needed(i uint32) (all []uint32) {
	if t.b.gates == nil {
		return nil
	}
	for k := range t.b.gates.of(i) {
		if t.lists[k] {
			continue
		}
		t.lists[k] = true
		for _, o := range slices.Backward(t.b.gates.list(k)) {
			if spoils(t.b.States[o]) {
				all = append(all, o)
			}
		}
		if all != nil {
			break
		}
	}
	return all
}
