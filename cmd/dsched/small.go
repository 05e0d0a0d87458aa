package main

import (
	"bytes"
	"errors"
	"io/fs"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
	"distribute/spool"
)

// A small result comes with the message of its end. The head asks for nothing: it writes
// the small results that wait, makes them durable together, and then tells the machine of
// all of them. Whatever stands in the way of that, the result is asked for as any other.

// maxSmallKept is how many bytes of small results a session keeps for the grants that the
// machine decides on when it takes in how attempts ended.
const maxSmallKept = 16 << 20

// keepSmall keeps a small result until its grant. It is called by the state's goroutine.
func (s *session) keepSmall(m *wire.Ended) {
	if len(m.Data) == 0 || s.smallBytes+len(m.Data) > maxSmallKept {
		return
	}
	if old := s.small[m.Attempt]; old != nil {
		s.smallBytes -= len(old.Data)
	}
	s.small[m.Attempt] = m
	s.smallBytes += len(m.Data)
}

// takeSmall takes the result that came with the end of the attempt, and says false if there
// is none or it is not the one that is granted. It is called by the state's goroutine.
func (g *grant) takeSmall() bool {
	s := g.session
	came := s.small[g.attempt]
	if came == nil {
		return false
	}
	delete(s.small, g.attempt)
	s.smallBytes -= len(came.Data)
	m, err := pack.ParseList(came.Tree, pack.DefaultLimits())
	if err != nil || m.Sum() != g.sum || !m.Small() {
		s.log.Warn("a result that came with its end is not the one that was announced, and is asked for", "attempt", string(g.attempt), "why", err)
		return false
	}
	g.m, g.tree, g.data = m, m.List(), came.Data
	return true
}

// forgetSmall drops what is kept of an attempt that the machine wants nothing of.
func (s *session) forgetSmall(t job.Token) {
	if came := s.small[t]; came != nil {
		delete(s.small, t)
		s.smallBytes -= len(came.Data)
	}
}

// sealSmall takes small results in until the queue of them is closed.
func (h *head) sealSmall() {
	for gs := h.small.take(); gs != nil; gs = h.small.take() {
		h.sealTogether(gs)
	}
}

// sealTogether writes small results, makes them durable together, and tells the machine.
func (h *head) sealTogether(gs []*grant) {
	var written []*grant
	var staged []spool.Small
	for _, g := range gs {
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
		g.free(h)
	}
}

// write lays a small result into staging/. An error leaves what is there to [head.stage].
func (g *grant) write(h *head) (err error) {
	defer h.caught(&err)
	if g.held = h.staging.take(g.attempt, func() {}); !g.held {
		return errors.New("another transfer of it is under way")
	}
	if _, err := h.store.Staged(g.batch, g.attempt); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(errors.New("a part of it is here already"), err)
	}
	if err := g.room.set(sizeOf(g.m.Bytes(), len(g.m))); err != nil {
		return err
	}
	root, err := h.store.Stage(g.batch, g.attempt)
	if err != nil {
		return ofDisk(err)
	}
	defer root.Close()
	tree := pack.NewTree(root, archived)
	return ofDisk(errors.Join(pack.Receive(bytes.NewReader(g.data), g.m, pack.Want{}, landing{tree, &g.room}), tree.Close()))
}

// ask has the node asked for a result after all.
func (g *grant) ask(h *head, why error) {
	g.session.log.Debug("a result that came with its end is asked for", "attempt", string(g.attempt), "why", why)
	g.free(h)
	g.m, g.tree, g.data = nil, nil, nil
	g.again(h)
}
