package noded

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// Beside is what the nodes that one process is have in common. Their directories are on one
// disk: none of them promises its attempts what another has promised already. And the ranks of
// an attempt may be on several of them. The zero value is for a node that is the only one.
type Beside struct {
	names   []node.Name // of all, in their order
	machine string      // by which the head knows that they are one
	whole   string      // the directory of the machine

	deciding sync.Mutex // held by who sees how much is promised, and promises

	mu    sync.Mutex // guards what follows
	nodes []*daemon  // whose state answers
	met   int        // how often one has come to meet the others
	meets [2]chan struct{}
	news  chan struct{}
}

// NewBeside is for the nodes of those names, in their order, of the machine with that directory.
func NewBeside(names []node.Name, whole string) *Beside {
	return &Beside{names: names, machine: rand.Text(), whole: whole, meets: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
}

// join makes a node one of them. The others wait for its state, which has to answer, or to be
// over.
func (b *Beside) join(n *daemon) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = append(b.nodes, n)
}

// meet waits until all nodes have come to the same place, of which there are two, or ctx ends.
func (b *Beside) meet(ctx context.Context) {
	if len(b.names) == 0 {
		return
	}
	b.mu.Lock()
	at := b.met / len(b.names)
	if b.met++; b.met%len(b.names) == 0 {
		close(b.meets[at])
	}
	b.mu.Unlock()
	select {
	case <-b.meets[at]:
	case <-ctx.Done():
	}
}

// node is the node of that name; nil if there is none.
func (b *Beside) node(name string) *daemon {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.IndexFunc(b.nodes, func(n *daemon) bool { return string(n.Name) == name }); i >= 0 {
		return b.nodes[i]
	}
	return nil
}

// leave takes a node out that is at its end: what it has promised is given up.
func (b *Beside) leave(n *daemon) {
	b.mu.Lock()
	b.nodes = slices.DeleteFunc(b.nodes, func(o *daemon) bool { return o == n })
	b.mu.Unlock()
	b.changed()
}

// promised is how much of what is free the attempts of the other nodes may still take,
// and whether some of them will give room back. It waits for the state of each of these
// nodes, so that no state may call it.
func (b *Beside) promised(ctx context.Context, to *daemon) (bytes int64, more bool) {
	b.mu.Lock()
	nodes := slices.Clone(b.nodes)
	b.mu.Unlock()
	for _, n := range nodes {
		if n == to {
			continue
		}
		answered := make(chan struct{})
		answer := func() {
			for _, a := range n.attempts {
				bytes += a.claim()
				more = more || a.givesRoom()
			}
			close(answered)
		}
		select {
		case n.acts <- answer:
			<-answered
		case <-n.over:
		case <-ctx.Done():
		}
	}
	return bytes, more
}

// next is closed when there may be more room than now.
func (b *Beside) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news == nil {
		b.news = make(chan struct{})
	}
	return b.news
}

// changed tells those who wait for room that there may be more.
func (b *Beside) changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news != nil {
		close(b.news)
		b.news = nil
	}
}

// A portion is what an attempt has of one of the nodes on which its ranks are.
type portion struct {
	on    *daemon
	share *share
}

// A guest is an attempt of another node that has ranks on this one.
type guest struct {
	of    *daemon
	a     *attempt // of which only what does not change may be read
	group string   // the directory of its cgroup
	ranks int      // of the attempt in all
}

// cgroup is that of the attempt, if it has one.
func (g *guest) cgroup() string {
	if g.group == "" {
		return ""
	}
	return filepath.Join(g.group, string(g.a.Token))
}

// portions is all that an attempt has, whose share of this node it is.
func (s *share) portions(n *daemon) []*portion {
	return append([]*portion{{n, s}}, s.beside...)
}

// lodging returns how many cpus the attempt has of nodes beside its own; nil if it has none.
func (s *share) lodging() (all job.Lodging) {
	if s == nil {
		return nil
	}
	for _, p := range s.beside {
		if all == nil {
			all = job.Lodging{}
		}
		all[string(p.on.Name)] += p.share.cpus
	}
	return all
}

// allRanks is how many ranks the attempt has on all nodes.
func (s *share) allRanks() (ranks int) {
	for _, p := range s.portions(nil) {
		ranks += p.share.ranks
	}
	return ranks
}

// wantOf is what an attempt that asks for that is to have, of this node and of those beside it.
func (n *daemon) wantOf(ctx context.Context, a *attempt, asked job.Resources) (want share, err error) {
	looks := asked.GPUs > 0 || len(a.GPUs) > 0
	mine := asked
	var beside []*portion
	for _, v := range a.Also {
		on := n.Beside.node(v.Node)
		if on == nil || on == n {
			return want, &tooMuchError{fmt.Sprintf("has ranks on %.100q, which is no other node of this machine", v.Node)}
		}
		if looks {
			on.lookAtCards(ctx)
		}
		theirs := asked
		theirs.Ranks = v.Ranks
		s, err := on.shareOf(asked.CPUs*v.Ranks, theirs.Together(), v.GPUs...)
		if err != nil {
			return want, err
		}
		s.ranks, s.guest = v.Ranks, &guest{n, a, n.spread, asked.Ranks}
		beside = append(beside, &portion{on, &s})
		if mine.Ranks -= v.Ranks; mine.Ranks < 1 {
			return want, &tooMuchError{"has all of its ranks on other nodes of this machine"}
		}
	}
	if looks {
		n.lookAtCards(ctx)
	}
	want, err = n.shareOf(a.cpus, mine.Together(), a.GPUs...)
	want.ranks, want.beside = mine.Ranks, beside
	return want, err
}

// acquireAll is acquire, for an attempt that is to have portions of other nodes, too. It waits
// for one after the other in the order of the machine's nodes, so that no two attempts wait for
// each other; and meanwhile it lets those go first here that were given later.
func (n *daemon) acquireAll(ctx context.Context, a *attempt, s share) (got *share, slot Slot, err error) {
	if len(s.beside) == 0 {
		return n.acquire(ctx, a.Order, s)
	}
	wanted := s.beside
	s.group, s.beside = n.spread, nil
	var has []*portion
	defer func() {
		if err == nil {
			got.beside = has
			return
		}
		for _, p := range has {
			p.on.release(nil, p.share, nil)
		}
		if got != nil {
			n.release(nil, got, slot)
			got, slot = nil, nil
		}
	}()
	for _, name := range n.Beside.names {
		if name == n.Name {
			if got, slot, err = n.acquire(ctx, a.Order, s); err != nil {
				return nil, nil, err
			}
			continue
		}
		for _, p := range wanted {
			if p.on.Name != name {
				continue
			}
			n.setElsewhere(a, true)
			w, err := p.on.await(ctx, 0, *p.share)
			n.setElsewhere(a, false)
			if err != nil {
				return got, slot, err
			}
			has = append(has, &portion{p.on, &w.share})
		}
	}
	return got, slot, nil
}

// setElsewhere notes that an attempt waits for another node.
func (n *daemon) setElsewhere(a *attempt, is bool) {
	n.do(func() {
		if a.elsewhere = is; is {
			n.pump()
		}
	})
}

// leaveBeside gives back what an attempt has of other nodes.
func (s *share) leaveBeside() {
	for _, p := range s.beside {
		p.on.release(nil, p.share, nil)
	}
}

// returnBeside takes again what attempts of an earlier daemon have of other nodes, when all
// have taken over what they were given themselves, and before any of them goes on: the state of
// none has begun to answer, so that mu guards it.
func (n *daemon) returnBeside(ctx context.Context) {
	n.Beside.meet(ctx)
	if ctx.Err() != nil {
		return // another may be at its beginning still, or have failed there
	}
	for _, a := range n.attempts {
		s := a.Started()
		if s == nil || len(s.Also) == 0 || a.stage != stageAdopted {
			continue
		}
		ranks := max(s.Ranks, s.MPI)
		a.has.ranks = ranks
		for _, o := range s.Also {
			a.has.ranks -= o.Ranks
			on := n.Beside.node(o.Node)
			if on == nil || on == n {
				continue // it is none of the machine any more
			}
			gpus := job.GPUs(len(o.GPUs)) * job.OneGPU
			p := &portion{on, &share{cpus: o.CPUs, memory: o.Memory, grows: a.has.grows, gpus: gpus, on: o.On, cards: job.CardsOf(gpus, o.GPUs), ranks: o.Ranks,
				batch: a.Job.Batch(), never: true, guest: &guest{n, a, s.Cgroup, ranks}}}
			a.has.beside = append(a.has.beside, p)
			n.Beside.mu.Lock()
			on.retake(p.share)
			n.Beside.mu.Unlock()
		}
	}
	n.Beside.meet(ctx)
}

// A pausedError is errPaused of a node, which may be another than the attempt's own.
type pausedError struct{ reason string }

func (e *pausedError) Error() string { return e.reason }
func (e *pausedError) Unwrap() error { return errPaused }

// never is why one who waits will get no share of the node as it is now; nil if he may.
func (n *daemon) never(w *want) error {
	if err := n.beyond(&w.share); err != nil {
		return err
	}
	if n.pause.frozen || w.cpus > n.given().Offer.CPUs-n.lent() || n.stock.sized && w.memory > max(0, n.unlentMemory()) {
		return &pausedError{n.pausedReason()}
	}
	return nil
}

// tellGuest tells dpause(1) and the head that ranks of an attempt of another node came here, or
// went.
func (n *daemon) tellGuest(s *share, came bool) {
	if s.guest != nil {
		tell(n.nowNews)
		n.link.tellVisit(s.visit(came))
	}
}

// visit returns the message that tells the head of the share of a guest. The guest's own node
// tells of it, too, but only while the head listens to that node.
func (s *share) visit(is bool) *wire.Visit {
	v := &wire.Visit{Attempt: s.guest.a.Token}
	if is {
		v.CPUs, v.Memory, v.GPUs = s.cpus, s.memory, s.cards.Indexes()
	}
	return v
}

// haltGuests tells the nodes whose attempts have ranks here whether this one is paused.
func (n *daemon) haltGuests() {
	for s := range n.held {
		g := s.guest
		if g == nil {
			continue
		}
		n.work.Go(func() {
			g.of.do(func() {
				if g.a.halted == nil {
					g.a.halted = map[node.Name]bool{}
				}
				if delete(g.a.halted, n.Name); n.frozen.Load() {
					g.a.halted[n.Name] = true
				}
				if g.a.runs() {
					g.of.tellPhase(g.a)
				}
			})
		})
	}
}

// limits is what an attempt is held to, on all nodes on which it has ranks. There it may have
// what these offer together if it does not say how much memory it needs: none of them alone
// bounds it.
func (n *daemon) limits(s *share, asked job.Resources) proc.Limits {
	r, all := asked.Together(), *s
	r.Memory = r.MostMemory()
	for _, p := range s.beside {
		if all.cpus += p.share.cpus; len(all.on) == 0 || len(p.share.on) == 0 {
			all.on = nil
			continue
		}
		all.on = slices.Concat(all.on, p.share.on)
	}
	if len(s.beside) > 0 && r.Memory == 0 {
		for _, p := range s.portions(n) {
			r.Memory += p.on.given().most()
		}
	}
	return all.limits(r)
}
