package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// Results on their way: how many may be under way for one node, and how many
// of a node's may be made durable at the same time.
const (
	maxAsked   = 64
	maxSealing = 4
)

// archived is how the modes of a result change in the archive: its owner and
// the group may read all of it.
var archived = pack.Perm{Set: 0o440, Clear: 0o022}

// A grant is one result that the head wants of a node.
type grant struct {
	session *session
	batch   *spool.Batch
	attempt job.Token
	sum     string        // of the manifest that the node announced
	m       pack.Manifest // once known
	want    pack.Want
	done    chan struct{} // a place among those under way; given back when settled
	taken   bool          // a stream is at it, or all of it has come; guarded by the session's mu
}

// settled tells the machine how the transfer ended.
func (g *grant) settled(h *head, t job.Token, err error) {
	h.apply(sched.Staged{Attempt: t, Manifest: g.sum, Err: err,
		Permanent: errors.Is(err, pack.ErrFormat) || errors.Is(err, pack.ErrLimit),
		NoRoom:    errors.Is(err, spool.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)})
}

// askResults asks the node for results, a bounded number at a time. What is
// here already of an earlier, cut transfer is not asked for again.
func (s *session) askResults(h *head) {
	places := make(chan struct{}, maxAsked)
	for gs := s.asks.take(); gs != nil; gs = s.asks.take() {
		for _, g := range gs {
			select {
			case places <- struct{}{}:
			case <-s.gone:
				return
			}
			g.done = places
			g.resume(h)
			if !s.addGrant(g) {
				return
			}
			if g.m != nil && g.want.Empty(g.m) { // all of it is here
				h.finish(s, g, h.store.Seal(g.batch, g.attempt, g.m))
				continue
			}
			s.tell(&wire.Grant{Attempt: g.attempt, Manifest: g.m == nil, Want: wire.Want(g.want)})
		}
	}
}

// resume finds what is staged already.
func (g *grant) resume(h *head) {
	m, want, err := h.store.Resume(context.Background(), g.batch, g.attempt, g.sum)
	if err != nil {
		g.session.log.Warn("what is staged of an attempt is not used", "attempt", g.attempt, "why", err)
		return
	}
	g.m, g.want = m, want
}

// addGrant notes that the node has been asked; it says false when the session
// is over.
func (s *session) addGrant(g *grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.gone:
		return false
	default:
		s.grants[g.attempt] = g
		return true
	}
}

// takeGrants empties the list of what was asked for.
func (s *session) takeGrants() map[job.Token]*grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	gs := s.grants
	s.grants = map[job.Token]*grant{}
	for _, g := range gs {
		<-g.done
	}
	return gs
}

// claim is the grant of an attempt for one transfer: nothing else may work on
// what is staged of it until unclaim, whatever streams the node uses.
func (s *session) claim(t job.Token) *grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.grants[t]
	if g == nil || g.taken {
		return nil
	}
	g.taken = true
	return g
}

func (s *session) unclaim(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.taken = false
}

// drop forgets a grant that is settled, and says whether it was still wanted.
func (s *session) drop(g *grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grants[g.attempt] != g {
		return false
	}
	delete(s.grants, g.attempt)
	<-g.done
	return true
}

// takeUp receives results on a node's up stream until it ends.
func (h *head) takeUp(s *session, c *wire.Conn) error {
	sealing := make(chan struct{}, maxSealing)
	var seals sync.WaitGroup
	defer seals.Wait() // the spool is not given back meanwhile
	for {
		send, err := wire.Expect[*wire.Send](c)
		if err != nil {
			return err
		}
		g := s.claim(send.Attempt)
		r := c.RecvTransfer(send)
		if g == nil {
			if err := wire.Drain(r); err != nil && !errors.Is(err, wire.ErrGaveUp) {
				return err
			}
			continue
		}
		err = h.take(g, send.Of, r)
		if err != nil || send.Of == wire.OfTree {
			if rest := wire.Drain(r); rest != nil && !errors.Is(rest, wire.ErrGaveUp) {
				err = errors.Join(err, rest)
			} else if err == nil {
				err = rest
			}
		}
		switch {
		case errors.Is(err, wire.ErrCut):
			h.finish(s, g, err)
			return err
		case err != nil:
			h.finish(s, g, err)
		case send.Of == wire.OfTree:
			sealing <- struct{}{}
			seals.Go(func() {
				h.finish(s, g, h.store.Seal(g.batch, g.attempt, g.m))
				<-sealing
			})
		default:
			s.unclaim(g)
		}
	}
}

// take receives the manifest or the tree of a result.
func (h *head) take(g *grant, of string, r io.Reader) error {
	switch of {
	case wire.OfManifest:
		m, err := pack.DecodeManifest(r, pack.DefaultLimits())
		if err != nil {
			return err
		}
		if m.Sum() != g.sum {
			return fmt.Errorf("%w: the manifest is not the one that the node announced", pack.ErrFormat)
		}
		g.m, g.want = m, pack.Want{}
		return wire.Drain(r)
	case wire.OfTree:
		if g.m == nil {
			return fmt.Errorf("%w: a tree came before its manifest", pack.ErrFormat)
		}
		return h.stage(g, r)
	}
	return fmt.Errorf("%w: a transfer of %.20q on the up stream", pack.ErrFormat, of)
}

// stage unpacks a result into the spool's staging.
func (h *head) stage(g *grant, r io.Reader) error {
	root, err := h.store.Stage(g.batch, g.attempt)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := h.store.Note(g.batch, g.attempt, g.m); err != nil {
		return err
	}
	tree := pack.NewTree(root, archived)
	if err := errors.Join(pack.Receive(r, g.m, g.want, tree), tree.Close()); err != nil || g.want.Ranges == nil {
		return err
	}
	return pack.Settle(root, g.m, archived)
}

// finish tells the state how a transfer ended.
func (h *head) finish(s *session, g *grant, err error) {
	if !s.drop(g) {
		h.broken(err)
		return
	}
	if err != nil {
		s.log.Warn("a result did not arrive", "attempt", g.attempt, "why", err)
		h.broken(err)
	}
	h.do(func() { g.settled(h, g.attempt, err) })
}
