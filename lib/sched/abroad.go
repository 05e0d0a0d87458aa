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
// held, and wait for no other job than for such that are there as these are to be: the
// cluster has them wait. The others are left.
type Claim struct {
	Batch uint32
	Jobs  []uint32
	Node  node.Name
	Token func(i uint32, try int) job.Token // of an attempt: another for each, and the same if it is asked again
	By    string
}

func (e Claim) apply(m *Machine) {
	b := m.batches[e.Batch]
	if b == nil || !b.Ready || !m.loaded || !e.Node.Abroad() || !m.MayClaim(e.Node, b.uid) {
		return
	}
	jobs := b.those(e.Jobs, "", func(s job.State) bool { return s == job.Queued || s == job.Held })
	if b.Stopped {
		return
	}
	b.inTurn(jobs, func(i uint32) bool { return m.claim(b, i, &e) }, func(i uint32) bool { return m.isThere(b, i, &e) })
}

// MaxClusters is how many clusters a user can have jobs at: anybody may make up their names.
// Each folder of d2slurm may have another.
const MaxClusters = 1000

// MayClaim reports whether a user can have jobs at a cluster.
func (m *Machine) MayClaim(n node.Name, uid int) bool {
	return m.named[n.Of(uid)] != nil || !m.fullAbroad(uid)
}

// fullAbroad says that no more clusters of a user can be known, once those are forgotten
// that have nothing.
func (m *Machine) fullAbroad(uid int) bool {
	full := func() bool {
		n := 0
		for _, p := range m.abroad {
			if p.uid == uid {
				n++
			}
		}
		return n >= MaxClusters || len(m.abroad) >= MaxNodes
	}
	if full() {
		m.abroad = slices.DeleteFunc(m.abroad, func(p *peer) bool {
			idle := p.Session == 0 && p.first == nil && len(p.gone) == 0
			if idle {
				delete(m.named, p.Name.Of(p.uid))
			}
			return idle
		})
	}
	return full()
}

// claim takes one job abroad, unless it cannot be.
func (m *Machine) claim(b *batch, i uint32, e *Claim) bool {
	ref, try := Ref{b.Num, i}, int(b.tries[i])+1
	token := e.Token(i, try)
	k, ok := token.Key()
	if !ok || m.live[k] != nil || m.peerOf(e.Node, b.uid).gone[k] != nil {
		return false
	}
	if b.States[i] == job.Held {
		m.log(ref, job.Record{Kind: job.KindRelease, By: e.By})
	}
	if b.States[i] != job.Queued {
		return false
	}
	s := m.queueOf(ref).Class.Share
	m.log(ref, job.Record{Kind: job.KindStart, Attempt: token, Try: try, Node: string(e.Node),
		CPUs: s.CPUs, Memory: s.Memory, GPUs: s.GPUs, By: e.By})
	a := m.live[k]
	a.phase, a.Began = job.PhaseWaiting, m.lab.Now
	return true
}

// runsAbroad reports whether a job runs on a cluster, as far as is known: nothing here can
// pause it. One that waits there can be held when it comes back.
func (m *Machine) runsAbroad(ref Ref) bool {
	a, ok := m.Current(ref)
	return ok && a.Node.Abroad() && a.Phase == job.PhaseRunning
}

// isThere says that a job is where a claim takes others.
func (m *Machine) isThere(b *batch, i uint32, e *Claim) bool {
	if b.States[i] != job.Running {
		return false
	}
	k, ok := e.Token(i, int(b.tries[i])).Key()
	a := m.live[k]
	return ok && a != nil && a.current && a.peer.Name == e.Node
}

// inTurn calls take for each of these jobs that is free, or that waits only for such
// that have been taken, or are there: those first. It takes a step for each job of the
// lists of what these need.
func (b *batch) inTurn(jobs []uint32, take, there func(i uint32) bool) {
	g := b.gates
	if g == nil || g.needs == nil {
		for _, i := range jobs {
			if b.free(i) {
				take(i)
			}
		}
		return
	}
	wait := map[uint32][]uint32{} // jobs that wait for a list, from 1
	left := map[uint32]int{}      // how many of it are neither done nor there
	var next []uint32
	for _, i := range jobs {
		k := g.need(i)
		if _, known := left[k]; k > 0 && !known {
			n := 0
			for _, o := range g.list(k) {
				if b.States[o] != job.Done && !there(o) {
					n++
				}
			}
			left[k] = n
		}
		switch {
		case g.late(i) && g.lists[0].left > 0:
		case left[k] == 0:
			next = append(next, i)
		default:
			wait[k] = append(wait[k], i)
		}
	}
	for ; len(next) > 0; next = next[1:] {
		i := next[0]
		if !take(i) {
			continue
		}
		for _, k := range g.in.row(i) {
			if n, asked := left[k]; asked {
				if left[k] = n - 1; n == 1 {
					next = append(next, wait[k]...)
				}
			}
		}
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
	for _, p := range m.abroad {
		for a := p.first; a != nil && p.Name == n; a = a.after {
			f(m.shown(a))
		}
	}
}

// Whose is the job of an attempt that a user has at a cluster, or had and may not have let
// go of.
func (m *Machine) Whose(n node.Name, uid int, t job.Token) (Ref, bool) {
	k, ok := t.Key()
	p := m.named[n.Of(uid)]
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
	switch {
	case r.Fate.Unstarted():
		r.Fate = job.FateUnstarted
	case r.Fate != job.FateLost:
		r.Fate = job.FateEnded
	}
	r.Saved = false
	return r
}
