package sched

import "distribute/lib/sched/policy"

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
		w := trails[ref.Batch]
		if w == nil {
			w = &trail{b: b, been: policy.NewSet(len(b.States))}
			if g := b.gates; g != nil {
				gated = true
				w.lists = make([]bool, len(g.lists)+1)
			}
			trails[ref.Batch] = w
		}
		w.to(ref.Job, func(i uint32) { all = append(all, Ref{ref.Batch, i}) })
	}
	if !gated {
		return refs, false
	}
	return all, true
}

// A trail goes from jobs to those that they need.
type trail struct {
	b     *batch
	been  *policy.Set
	lists []bool // those that were gone through; 0: the canaries
	way   []stop
}

// A stop is a job on the way.
type stop struct {
	job   uint32
	ahead bool // what it needs goes ahead of it
}

// to tells of a job behind all that it needs and that is not done and over, unless
// they were told before.
func (t *trail) to(i uint32, tell func(i uint32)) {
	t.way = append(t.way, stop{job: i})
	for len(t.way) > 0 {
		s := &t.way[len(t.way)-1]
		switch {
		case s.ahead:
			tell(s.job)
		case !t.been.Has(s.job):
			t.been.Add(s.job)
			s.ahead = true
			t.needed(s.job)
			continue
		}
		t.way = t.way[:len(t.way)-1]
	}
}

// needed goes on to those that a job needs.
func (t *trail) needed(i uint32) {
	g := t.b.gates
	if g == nil {
		return
	}
	through := func(list uint32, of []uint32) {
		t.lists[list] = true
		for n := len(of) - 1; n >= 0; n-- {
			if spoils(t.b.States[of[n]]) {
				t.way = append(t.way, stop{job: of[n]})
			}
		}
	}
	if k := g.list(i); k > 0 && !t.lists[k] {
		through(k, g.needs.List(k))
	}
	if g.afterCanary(i) && !t.lists[0] {
		through(0, g.canaries())
	}
}
