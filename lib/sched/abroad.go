package sched

import (
	"iter"
	"slices"

	"distribute/lib/job"
	"distribute/lib/node"
)

// A cluster abroad has a queue of its own. People take jobs there and bring back what
// became of them: each is one attempt on a node of that name, which is given nothing by
// the machine. It comes only when a person does, so nothing is lost by its silence, or
// by a list in which it is not; and nothing that happens there says anything of nodes.

// Claim says that somebody takes those of these jobs to a cluster that are queued or
// held, and wait for no other job. The others are left.
type Claim struct {
	Batch uint32
	Jobs  []uint32
	Node  node.Name
	Token func(i uint32, try int) job.Token // of an attempt: another for each, and the same if it is asked again
	By    string
}

func (e Claim) apply(m *Machine) {
	b := m.batches[e.Batch]
	if b == nil || !b.ready || !m.loaded || !e.Node.Abroad() || m.named[e.Node] == nil && len(m.abroad) >= MaxNodes {
		return
	}
	jobs := b.those(e.Jobs, "", func(s job.State) bool { return s == job.Queued || s == job.Held })
	for _, i := range jobs {
		ref := Ref{b.num, i}
		if !b.free(i) || b.stopped() {
			continue
		}
		try := int(b.tries[i]) + 1
		token := e.Token(i, try)
		k, ok := keyOf(token)
		if !ok || m.live[k] != nil || m.peerOf(e.Node).gone[k] != nil {
			continue
		}
		if b.state[i] == job.Held {
			m.log(ref, job.Record{Kind: job.KindRelease, By: e.By})
			if b.state[i] != job.Queued {
				continue
			}
		}
		s := m.queueOf(ref).c.share
		m.log(ref, job.Record{Kind: job.KindStart, Attempt: token, Try: try, Node: string(e.Node),
			CPUs: s.cpus, Memory: s.memory, GPUs: s.gpus, By: e.By})
		a := m.live[k]
		a.phase, a.began = Waiting, m.now
	}
}

// everyone is all nodes, and the clusters abroad.
func (m *Machine) everyone() iter.Seq[*peer] {
	return func(yield func(*peer) bool) {
		for _, some := range [][]*peer{m.peers, m.abroad} {
			for _, p := range some {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// Abroad calls f with every attempt on a cluster that is not settled.
func (m *Machine) Abroad(n node.Name, f func(Attempt)) {
	if p := m.named[n]; p != nil && n.Abroad() {
		for a := p.first; a != nil; a = a.after {
			f(m.shown(a))
		}
	}
}

// rowAbroad is a row for a cluster.
func (p *peer) rowAbroad() Node {
	r := Node{Row: node.Row{Node: p.name, State: node.Idle}, Heard: p.heard, Never: !p.came}
	for a := p.first; a != nil; a = a.after {
		if r.State = node.Busy; a.result == nil {
			r.Jobs++
		}
		if a.stranded {
			r.Full++
		}
		if a.current {
			r.Wait++
		}
	}
	return r
}

// Whose is the job of an attempt that a node has, or had and may not have let go of.
func (m *Machine) Whose(n node.Name, t job.Token) (Ref, bool) {
	k, ok := keyOf(t)
	p := m.named[n]
	if !ok || p == nil {
		return Ref{}, false
	}
	if a := m.live[k]; a != nil {
		return a.ref, a.peer == p
	}
	if note := p.gone[k]; note != nil {
		return note.ref, true
	}
	return Ref{}, false
}

// fromAbroad is a result without what only nodes say.
func fromAbroad(r Result) Result {
	r.NoRoom, r.Barred, r.NodePaused, r.Evicted, r.Saved, r.BuildFailed = false, false, false, false, false, false
	return r
}

// withoutAbroad is some nodes without the clusters among them.
func withoutAbroad(some []*peer) []*peer {
	if !slices.ContainsFunc(some, func(p *peer) bool { return p.abroad }) {
		return some
	}
	return slices.DeleteFunc(slices.Clone(some), func(p *peer) bool { return p.abroad })
}
