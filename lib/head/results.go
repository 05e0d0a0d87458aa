package head

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"distribute/lib/cause"
	"distribute/lib/cli"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// Results on their way: how many may be under way for one node, how many may be
// made durable at the same time, of one node and in all (each takes threads, of
// which a thousand nodes that end together would want more than there may be),
// and how long a node may take to send the next of what it was asked for.
const (
	maxAsked    = 64
	sealsOfNode = 4
	maxSeals    = 64
	stallLimit  = 5 * time.Minute
)

// archived is how the modes of a result change in the archive: its owner and
// the group may read all of it.
var archived = pack.Perm{Set: 0o440, Clear: 0o022}

// A grant is one result that the head wants of a node. Before it is asked for,
// it has a place among the large ones if it is one, hold of what is staged of
// it, and room on the disk.
type grant struct {
	session *session
	batch   *spool.Batch
	attempt job.Token
	sum     string        // of the manifest that the node announced
	bytes   int64         // as the node says
	entries int           // as the node says
	m       pack.Manifest // once known
	want    pack.Want
	small   *wire.Ended   // it came with this message; nil: it is asked for
	list    []byte        // its manifest as a list, once a small one is written
	prints  string        // the file with what it has printed, if it did not end well
	said    string        // the last line of that, once all is here
	done    chan struct{} // a place among those under way; given back when settled
	taken   bool          // a stream is at it, or all of it has come; guarded by the session's mu

	large bool    // it has a place among the large ones
	held  bool    // it has hold of what is staged
	room  promise // for what is still to come
}

// settled tells the machine how the transfer ended.
func (g *grant) settled(h *Head, t job.Token, err error) {
	full := durable.NoRoom(err)
	if short := (*noRoom)(nil); full && !errors.As(err, &short) {
		err = fmt.Errorf("head's disk: %w", err)
	}
	if a, live := h.machine.Attempt(t); full && live && a.State != job.Stranded {
		g.session.log.Warn("no room for a result (stranded): it stays on its node", "attempt", string(t), "why", err)
	}
	e := sched.Staged{Attempt: t, Manifest: g.sum, Err: err, NoRoom: full, Permanent: permanent(err)}
	if err == nil { // else a stream may be at it yet
		e.List, e.Said = g.list, g.said
	}
	h.apply(e)
}

// permanent says that a result is not as it has to be, however often it comes.
// Of one that was cut or changed on the way that is not known.
func permanent(err error) bool {
	return (errors.Is(err, pack.ErrFormat) || errors.Is(err, pack.ErrLimit)) && !errors.Is(err, wire.ErrCut)
}

// free gives back what the grant has. It is called once, by whoever is the last
// to work on it, when the machine knows how it ended.
func (g *grant) free(h *Head) {
	g.room.end()
	if g.held {
		g.held = false
		h.transfers.staging.give(g.attempt)
	}
	if g.large {
		g.large = false
		h.transfers.room.leave(g.session.name)
	}
}

// askResults asks the node for results, a bounded number at a time. What is
// here already of an earlier, cut transfer is not asked for again, and what has
// no room stays on the node.
func (s *session) askResults(h *Head) {
	defer h.transfers.room.abandon(s)
	places := make(chan struct{}, maxAsked)
	for gs := s.asks.take(); gs != nil; gs = s.asks.take() {
		for _, g := range gs {
			select {
			case places <- struct{}{}:
			case <-s.gone:
				g.free(h)
				continue
			}
			g.done = places
			if !g.prepare(h) {
				<-places
				continue
			}
			g.taken = g.m != nil && g.want.Empty(g.m) // all of it is here
			if !s.addGrant(g) {
				g.free(h)
				continue
			}
			if g.taken {
				h.seal(s, g)
				continue
			}
			s.tell(&wire.Grant{Attempt: g.attempt, Manifest: g.m == nil, Want: wire.Want(g.want)})
		}
	}
}

// prepare gets what a grant must have, in this order, so that none waits for what another
// has who waits for what it has: first, if the result is large, a place among the large
// ones, of which a node has few; then hold of what is staged of the attempt, so that nobody
// else works on it; last room on the disk, for which nobody waits: without it the result
// stays on its node. (A place among those asked of the node it has already: askResults.)
//
// It says false if the grant waits for its turn, and then comes back to the session's
// queue; or if there is no room, and then it is settled.
func (g *grant) prepare(h *Head) bool {
	s := g.session
	size, files := sizeOf(g.bytes, g.entries)
	if size >= h.transfers.largeResult() && !g.large {
		if !h.transfers.room.enter(s.name, s, func() { g.large = true; g.again(h) }) {
			return false // it may have had its turn by now
		}
		g.large = true
	}
	if !g.held {
		if g.held = h.transfers.staging.take(g.attempt, func() { g.again(h) }); !g.held {
			return false
		}
	}
	if !h.awaits(g.attempt) { // a transfer of an earlier session has brought it home
		g.free(h)
		return false
	}
	err := g.promised(h, size, files)
	if err != nil {
		h.do(func() { g.settled(h, g.attempt, err) })
		h.broken(err)
		g.free(h)
	}
	return err == nil
}

// yield ends a session whose results came so slowly that others lacked the room promised to them.
// What has come stays, and the node comes again.
func (s *session) yield() {
	s.cutOff.Do(func() {
		s.log.Warn("results cut off: they came so slowly that others lacked the room promised to them")
		s.tell(&wire.Error{Status: cli.Later, Text: "results came so slowly that others lacked the room on the head's disk"})
		s.out.close()
	})
}

// again puts a grant that waited back into the queue of its session. It ends
// with that.
func (g *grant) again(h *Head) {
	if !g.session.asks.put(g) {
		g.free(h)
	}
}

// awaits says that the machine still wants the result of an attempt.
func (h *Head) awaits(t job.Token) (ok bool) {
	h.do(func() { _, ok = h.machine.Attempt(t) })
	return ok
}

// promised gets room for what is still to come of a result, and finds out what
// that is.
func (g *grant) promised(h *Head, size, files int64) (err error) {
	defer h.caught(&err)
	if g.large { // a look at what is staged costs more than a small result
		staged, err := h.store.StagedBytes(g.batch, g.attempt)
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) { // what is staged may be good
			return err
		}
		if err := ofDisk(err); errors.Is(err, spool.ErrBroken) { // else Resume discards what cannot be read
			return err
		}
		size = max(size-staged, files*perEntry)
	}
	if err := g.room.set(size, files); err != nil {
		return err
	}
	m, want, err := h.store.Resume(context.Background(), g.batch, g.attempt, g.sum)
	if errors.Is(err, spool.ErrBroken) {
		return err
	}
	if err != nil {
		g.session.log.Warn("partial result in staging/ discarded", "attempt", g.attempt, "why", err)
	}
	g.m, g.want = m, want
	g.room.yields = g.session.yield // what comes from now on is the node's to send
	if m == nil {
		return g.room.set(sizeOf(g.bytes, g.entries))
	}
	return g.room.set(sizeOf(want.Bytes(m), want.Entries(m)))
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
		if len(s.grants) == 0 {
			s.moved = time.Now()
		}
		s.grants[g.attempt] = g
		return true
	}
}

// stalled says that the node was asked for results and sends nothing. The room
// that is promised to them is lost to others meanwhile.
func (s *session) stalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.grants) > 0 && s.busy == 0 && time.Since(s.moved) > stallLimit
}

// countBusy counts a result at which the head is at work, or, with -1, no longer so.
func (s *session) countBusy(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += n
	s.moved = time.Now()
}

// seal makes a result durable of which all is here.
func (h *Head) seal(s *session, g *grant) {
	s.countBusy(1)
	err := h.sealed(g)
	s.countBusy(-1)
	h.finish(s, g, err)
}

func (h *Head) sealed(g *grant) (err error) {
	defer h.caught(&err)
	h.transfers.sealing.Acquire(context.Background(), 1)
	defer h.transfers.sealing.Release(1)
	if err := h.store.Seal(g.batch, g.attempt, g.m); err != nil {
		return err
	}
	g.readSaid(h)
	return nil
}

// readSaid reads the last line that an attempt has printed which did not end well.
func (g *grant) readSaid(h *Head) {
	if g.prints == "" {
		return
	}
	tail, err := h.store.StagedTail(g.batch, g.attempt, g.prints, cause.Tail)
	if err != nil { // the result is whole all the same
		g.session.log.Warn("cannot read the output of a failed attempt", "attempt", g.attempt, "why", err)
	}
	g.said = cause.Said(h.maskTail(g.batch, tail))
}

// dropStalled ends the sessions of nodes that do not send what they were asked
// for.
func (h *Head) dropStalled() {
	for _, s := range h.nodes.sessions {
		if s.stalled() {
			s.log.Error("session ended: the node was asked for results and has sent nothing", "limit", stallLimit)
			s.conn.Close()
		}
	}
}

// A moving is a transfer of a node, which is seen to move.
type moving struct {
	r io.Reader
	s *session
}

func (m moving) Read(b []byte) (int, error) {
	n, err := m.r.Read(b)
	m.s.mu.Lock()
	m.s.moved = time.Now()
	m.s.mu.Unlock()
	return n, err
}

// A busyReader is a moving whose result the head is at work with, but while it reads: it may
// first read for long what it has of a file.
type busyReader struct{ moving }

func (t busyReader) Read(b []byte) (int, error) {
	t.s.countBusy(-1)
	defer t.s.countBusy(1)
	return t.r.Read(b)
}

// receiveBusy is take, during which the node does not count as stalled.
func (h *Head) receiveBusy(s *session, g *grant, of string, m moving) error {
	s.countBusy(1)
	defer s.countBusy(-1)
	return h.take(g, of, busyReader{m})
}

// dropGrants settles what was asked for and has not come. What a stream is at
// is freed by that stream.
func (s *session) dropGrants(h *Head, why error) {
	s.mu.Lock()
	gs := s.grants
	s.grants = map[job.Token]*grant{}
	var idle []*grant
	for _, g := range gs {
		<-g.done
		if !g.taken {
			idle = append(idle, g)
		}
	}
	s.mu.Unlock()
	for t, g := range gs {
		g.settled(h, t, why)
	}
	for _, g := range idle {
		g.free(h)
	}
}

// unask forgets a result that was asked for and does not come: the node has lost
// it. One that a stream is at ends with that.
func (s *session) unask(h *Head, t job.Token) {
	s.mu.Lock()
	g := s.grants[t]
	idle := g != nil && !g.taken
	if idle {
		delete(s.grants, t)
		<-g.done
	}
	s.mu.Unlock()
	if idle {
		g.free(h)
	}
}

// claim is the grant of an attempt for one transfer: nothing else may work on
// what is staged of it until unclaim, whatever streams the node uses.
func (s *session) claim(t job.Token) *grant {
	s.mu.Lock()
	g := s.grants[t]
	s.mu.Unlock()
	if g == nil || !s.claims(g) {
		return nil
	}
	return g
}

// claims is claim of a certain grant; it says false if it is not to be had.
func (s *session) claims(g *grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grants[g.attempt] != g || g.taken {
		return false
	}
	g.taken = true
	return true
}

// unclaim ends a transfer after which another of the same grant comes.
func (s *session) unclaim(h *Head, g *grant) {
	s.mu.Lock()
	wanted := s.grants[g.attempt] == g
	g.taken = false
	s.mu.Unlock()
	if !wanted {
		g.free(h)
	}
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
func (h *Head) takeUp(s *session, c *wire.Conn) error {
	var seals errgroup.Group
	seals.SetLimit(sealsOfNode)
	defer seals.Wait() // the spool is not given back meanwhile
	var begun *grant   // whose manifest has come on this stream, and not its tree
	var at *grant      // that this stream is at
	defer func() {
		if at != nil {
			h.finish(s, at, errors.New("a panic ended its stream"))
		}
	}()
	for {
		send, err := wire.Expect[*wire.Send](c)
		if err != nil {
			return err
		}
		g := s.claim(send.Attempt)
		r := moving{c.RecvTransfer(send), s}
		if g == nil {
			if err := wire.Drain(r); err != nil && !errors.Is(err, wire.ErrGaveUp) {
				return err
			}
			continue
		}
		if begun != nil && begun != g { // manifests may be large, and are not collected
			h.leave(s, begun)
		}
		if begun = nil; send.Of == wire.OfManifest {
			begun = g
		}
		at = g
		err = h.receiveBusy(s, g, send.Of, r)
		if err != nil || send.Of == wire.OfTree {
			if rest := wire.Drain(r); rest != nil && !errors.Is(rest, wire.ErrGaveUp) {
				err = errors.Join(err, rest)
			} else if err == nil {
				err = rest
			}
		}
		at = nil
		switch {
		case errors.Is(err, wire.ErrCut):
			h.finish(s, g, err)
			return err
		case err != nil:
			h.finish(s, g, err)
		case send.Of == wire.OfTree:
			seals.Go(func() error {
				h.seal(s, g)
				return nil
			})
		default:
			s.unclaim(h, g)
		}
	}
}

// leave gives up a result whose tree does not follow its manifest.
func (h *Head) leave(s *session, g *grant) {
	if s.claims(g) {
		h.finish(s, g, errors.New("another result came between its manifest and its tree"))
	}
}

// take receives the manifest or the tree of a result.
func (h *Head) take(g *grant, of string, r io.Reader) (err error) {
	defer h.caught(&err)
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
		if err := g.room.set(sizeOf(m.Bytes(), len(m))); err != nil { // the node said less before
			return err
		}
		return wire.Drain(r)
	case wire.OfTree:
		if g.m == nil {
			return fmt.Errorf("%w: a tree came before its manifest", pack.ErrFormat)
		}
		return ofDisk(h.stage(g, r))
	}
	return fmt.Errorf("%w: a transfer of %.20q on the up stream", pack.ErrFormat, of)
}

// ofDisk is err as spool.ErrBroken if the disk is at fault, or cannot be written
// any more: what comes over the network fails otherwise.
func ofDisk(err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", spool.ErrBroken, err)
	}
	return err
}

// stage unpacks a result into the spool's staging.
func (h *Head) stage(g *grant, r io.Reader) error {
	root, err := h.store.Stage(g.batch, g.attempt)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := h.store.Note(g.batch, g.attempt, g.m); err != nil {
		return err
	}
	tree := pack.NewTree(root, archived)
	if err := errors.Join(pack.Receive(r, g.m, g.want, landing{tree, &g.room}), tree.Close()); err != nil || g.want.Ranges == nil {
		return err
	}
	return pack.Settle(root, g.m, archived)
}

// finish tells the state how a transfer ended, of which nobody works on any
// more.
func (h *Head) finish(s *session, g *grant, err error) {
	defer g.free(h)
	if !s.drop(g) {
		h.broken(err)
		return
	}
	if err != nil {
		s.log.Warn("result not received", "attempt", g.attempt, "why", err)
		h.broken(err)
	}
	h.do(func() { g.settled(h, g.attempt, err) })
}
