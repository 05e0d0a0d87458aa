package head

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
	"distribute/spool"
)

// A small result comes with the message that tells how its attempt ended. The head asks for
// nothing: it writes the small results that wait, makes them durable together, and tells the
// machine of all of them at once. Whatever prevents that, the node is asked for the result
// as for any other.

// Limits of what comes with the end of an attempt. What is larger is asked for.
const (
	maxSmallList = 64 << 10                 // bytes of a manifest
	maxSmallData = pack.SmallBytes + 64<<10 // bytes of a stream
	maxSmallKept = 16 << 20                 // bytes of both that a session has in memory
)

func sizeOfSmall(m *wire.Ended) int64 { return int64(len(m.List) + len(m.Data)) }

// keepSmall keeps a small result until its grant. It is called by the state's goroutine.
func (s *session) keepSmall(m *wire.Ended) {
	s.dropSmall(m.Attempt)
	if len(m.Data) == 0 || len(m.List) > maxSmallList || len(m.Data) > maxSmallData || s.smallBytes.Load()+sizeOfSmall(m) > maxSmallKept {
		return
	}
	s.small[m.Attempt] = m
	s.smallBytes.Add(sizeOfSmall(m))
}

// dropSmall forgets a small result that waits for its grant. It is called by the state's
// goroutine.
func (s *session) dropSmall(t job.Token) {
	if m := s.small[t]; m != nil {
		delete(s.small, t)
		s.smallBytes.Add(-sizeOfSmall(m))
	}
}

// takeSmall has a grant take the result that came with the end of its attempt, and says
// false if there is none. It is called by the state's goroutine.
func (g *grant) takeSmall() bool {
	g.small = g.session.small[g.attempt]
	delete(g.session.small, g.attempt)
	return g.small != nil
}

// maxSealing is how many groups of small results are made durable at a time. What comes
// while all are under way is the next group.
const maxSealing = 4

// sealSmall takes small results in until their queue is closed.
func (h *Head) sealSmall() {
	places := make(chan struct{}, maxSealing)
	var groups sync.WaitGroup
	defer groups.Wait()
	for {
		places <- struct{}{}
		gs := h.transfers.small.take()
		if gs == nil {
			return
		}
		groups.Go(func() {
			h.sealTogether(gs)
			<-places
		})
	}
}

// sealTogether writes small results, makes them durable together, and tells the machine.
func (h *Head) sealTogether(gs []*grant) {
	var written []*grant
	var staged []spool.Small
	for _, g := range h.awaited(gs) {
		if err := g.write(h); err != nil {
			h.broken(err)
			g.ask(h, err)
			continue
		}
		written = append(written, g)
		staged = append(staged, spool.Small{Batch: g.batch, Attempt: g.attempt})
	}
	if len(written) == 0 {
		return
	}
	if err := h.store.SealSmall(staged); err != nil {
		h.broken(err)
		for _, g := range written {
			g.ask(h, err)
		}
		return
	}
	for _, g := range written {
		g.readSaid(h)
	}
	h.do(func() {
		for _, g := range written {
			g.settled(h, g.attempt, nil)
		}
	})
	for _, g := range written {
		g.dropSmall()
		g.free(h)
	}
}

// awaited takes hold of what is staged of each attempt, and is those of the grants whose
// results the machine still wants. Where another transfer is under way the node is asked.
func (h *Head) awaited(gs []*grant) (all []*grant) {
	for _, g := range gs {
		if g.held = h.transfers.staging.take(g.attempt, func() {}); g.held {
			all = append(all, g)
		} else {
			g.ask(h, errors.New("another transfer of it is under way"))
		}
	}
	wanted := make([]bool, len(all))
	h.do(func() {
		for i, g := range all {
			_, wanted[i] = h.machine.Attempt(g.attempt)
		}
	})
	n := 0
	for i, g := range all {
		if wanted[i] {
			all[n] = g
			n++
			continue
		}
		g.dropSmall()
		g.free(h)
	}
	return all[:n]
}

// write checks a small result and lays it into a new directory of staging/.
func (g *grant) write(h *Head) (err error) {
	defer h.caught(&err)
	m, err := pack.ParseList(g.small.List, pack.DefaultLimits())
	switch {
	case err != nil:
		return err
	case m.Sum() != g.sum || !m.Small():
		return fmt.Errorf("%w: its manifest is not the one that was announced", pack.ErrFormat)
	}
	if err := g.room.set(sizeOf(m.Bytes(), len(m))); err != nil {
		return err
	}
	root, err := h.store.StageNew(g.batch, g.attempt)
	if err != nil {
		return ofDisk(err)
	}
	defer root.Close()
	tree := pack.NewTree(root, archived)
	err = errors.Join(pack.Receive(bytes.NewReader(g.small.Data), m, pack.Want{}, landing{tree, &g.room}), tree.Close())
	g.list = m.List()
	return ofDisk(err)
}

// ask has the node asked for a small result after all, which removes what was written of it.
func (g *grant) ask(h *Head, why error) {
	g.session.log.Debug("cannot use a small result that came with its end; asking for it", "attempt", string(g.attempt), "why", why)
	g.dropSmall()
	g.list = nil
	g.free(h)
	g.again(h)
}

// dropSmall forgets the message with the result.
func (g *grant) dropSmall() {
	g.session.smallBytes.Add(-sizeOfSmall(g.small))
	g.small = nil
}
