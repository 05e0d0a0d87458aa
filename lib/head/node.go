package head

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/timing"
	"distribute/lib/wire"
)

// The protocol's patience with a silent peer (dwire(5)).
var (
	pingEvery   = timing.Wait(15 * time.Second)
	silentAfter = timing.Wait(45 * time.Second)
)

const (
	probeWithin = 2 * time.Second // for the old session of a node that connects again
	maxOutbox   = 1 << 17         // messages that may wait for one node
	firstProbe  = 1 << 32         // before the numbers of the pings of probes; those of others are far less
)

// A session is one node's control stream, and what hangs on it.
type session struct {
	id     uint64
	name   node.Name
	state  string // names its directory
	number uint64 // that the node has noted there; 0: none
	older  bool   // it is an older copy, which was let in
	abroad bool   // somebody brings back what was taken to a cluster
	of     int    // and of whose batches
	byLine bool   // the list of nodes lets it in, by its key or where the head has started it
	conn   *wire.Conn
	join   job.Token
	offer  node.Offer // as it was logged last; of the state's goroutine
	out    *queue[wire.Message]
	landed int64          // bytes of results; guarded by the mu of the room
	cutOff sync.Once      // of its results, which may be several, the first ends it
	asks   *queue[*grant] // results to ask for
	log    *slog.Logger
	gone   chan struct{} // closed when the session is over
	hands  sync.WaitGroup

	small      map[job.Token]*wire.Ended // results that came with these and are not granted yet; of the state's goroutine
	smallBytes atomic.Int64              // in them, and in those that are being written

	unknown map[job.Token]unknown // of the state's goroutine

	probes   atomic.Uint64        // pings that asked whether it still answers
	mu       sync.Mutex           // guards the rest
	heard    time.Time            // last message
	answered uint64               // the last ping of ours that it has answered
	moved    time.Time            // when something of what was asked for came last
	busy     int                  // results at which the head is at work, and does not wait for the node
	grants   map[job.Token]*grant // asked for, not yet received
	tails    map[uint64]*tailing  // logs on their way to tools
	lastX    uint64
	data     []*wire.Conn // its data streams
}

// slot is by what name the state knows what it serves.
func (s *session) slot() node.Name { return s.name.Of(s.of) }

// serveNode runs a node's control stream until it ends.
func (h *Head) serveNode(ctx context.Context, c *wire.Conn, peer dial.Peer, hello *wire.Hello, known func()) error {
	if err := errors.Join(checkNode(hello.Name), checkOpaque("boot id", hello.Boot), checkOpaque("state id", hello.State), checkSession(hello)); err != nil {
		return &wire.Error{Status: cli.Input, Text: err.Error()}
	}
	s := &session{name: node.Name(hello.Name), state: hello.State, byLine: peer.Key != "" || peer.Addr != "", conn: c, join: job.NewToken(),
		out: newQueue[wire.Message](maxOutbox), asks: newQueue[*grant](maxOutbox), gone: make(chan struct{}),
		heard:  time.Now(),
		grants: map[job.Token]*grant{}, tails: map[uint64]*tailing{}, unknown: map[job.Token]unknown{}, small: map[job.Token]*wire.Ended{}}
	g, err := h.enter(peer, hello.Name, true, func(why *wire.Error) { h.putOut(s, why) })
	if err != nil {
		return err
	}
	defer h.door.leave(g)
	s.log = h.logOf(s.name)
	if s.name.Abroad() {
		if err := h.admit(peer); err != nil {
			return err
		}
		defer h.giveBack(peer.UID, user{tools: 1})
		s.abroad = true
		if s.of, err = h.broughtFor(peer, hello.Batch); err != nil {
			return err
		}
	}
	var number *uint64 // of the session
	if !s.abroad {
		var why *wire.Error
		if number, why = h.checkHome(s, hello, peer); why != nil {
			return why
		}
	}
	if err := h.addJoin(s); err != nil {
		return err
	}
	defer h.do(func() { delete(h.nodes.joins, s.join) })
	if err := h.replaceOld(ctx, s, peer); err != nil {
		return err
	}
	h.noteOlder(s, hello, number)
	known()
	defer s.end() // also of one that never says what it offers, and has data streams
	c.ReadWithin(silentAfter)
	if err := c.Send(h.hello(wire.Hello{Join: s.join, Session: number, Patience: h.patience(), Visits: true})); err != nil {
		return err
	}
	offer, err := wire.Expect[*wire.Offer](c)
	if err != nil {
		return err
	}
	if number != nil && offer.Session == *number {
		s.number = *number
	}
	out := false
	ok := h.do(func() {
		if out = h.door.isOut(g) || h.outnumbered(s); !out {
			h.nodeUp(s, hello, offer.Offer.Bounded())
		}
	})
	if out || !ok {
		return net.ErrClosed
	}
	s.hands.Go(func() { s.write() })
	s.hands.Go(func() { s.askResults(h) })
	err = errors.New("a panic")
	defer func() {
		h.do(func() { h.nodeDown(s, err) })
		s.close()
		s.hands.Wait()
	}()
	err = h.readNode(s)
	return nil
}

// patience is how many seconds a node's jobs wait for the end of a pause, nil if
// as many as it takes.
func (h *Head) patience() *float64 {
	if h.settings().Patience == nil {
		return nil
	}
	s := h.settings().Patience.Seconds()
	return &s
}

// checkOpaque reports why what a node calls its boot or state is not taken.
func checkOpaque(what, s string) error {
	if s == "" || len(s) > 100 {
		return fmt.Errorf("a %s has 1 to 100 bytes", what)
	}
	return nil
}

// replaceOld makes room for a new session of a node: an old one that does not
// answer is ended, one that does is kept, and the new one refused (L42). An old session of
// the same directory under another name is ended too if it does not answer: the node was
// renamed, and the head would take that name for connected.
func (h *Head) replaceOld(ctx context.Context, s *session, peer dial.Peer) error {
	var all []*session
	var within time.Duration
	h.do(func() {
		within = cmp.Or(h.nodes.probe, probeWithin)
		for _, old := range h.nodes.sessions {
			if old.slot() == s.slot() && h.nodes.byName[s.slot()] == old.id || old.name != s.name && old.state == s.state && !s.abroad && !old.abroad {
				all = append(all, old)
			}
		}
	})
	for _, old := range all {
		switch answers, err := h.probe(ctx, old, within); {
		case err != nil:
			return err
		case answers && old.slot() == s.slot():
			return twice(old, peer)
		}
	}
	return nil
}

// probe reports whether a session answers within so long. It ends one that does not.
func (h *Head) probe(ctx context.Context, old *session, within time.Duration) (answers bool, err error) {
	n := old.probes.Add(1) + firstProbe
	old.out.put(&wire.Ping{N: n})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(within); ; {
		select {
		case <-old.gone:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-end:
			old.log.Warn("new session of a node replaces a silent one")
			h.do(func() { h.nodeDown(old, errors.New("silent, and the node came again")) })
			old.close()
			return false, nil
		case <-tick.C:
			if old.hasAnswered(n) {
				return true, nil
			}
		}
	}
}

// twice refuses a node as which another is connected, and tells both.
func twice(old *session, peer dial.Peer) error {
	if old.abroad {
		return &wire.Error{Status: cli.Later, Text: fmt.Sprintf("jobs of the same user come back from %s just now: try again when that is done", old.name)}
	}
	if peer.Key != "" {
		old.log.Error("node refused: another machine with this name and key is connected (a copy needs its own: there, remove the copied directory, then dnoded -init)", "from", peer.From)
		return refusal("a node named %q with this key is connected already: if this machine is a copy of another, give it a name, a key and a directory of its own (remove the copied directory, then dnoded -init)", old.name)
	}
	old.log.Error("node refused: another one with this name is connected (rename one of them)", "from", peer.From)
	return refusal("a node named %q is connected already: give one of the two another name in its node.yaml", old.name)
}

// hasAnswered reports whether the node has answered that ping or a later one of a probe:
// anything else that is read may have been sent before its connection was cut.
func (s *session) hasAnswered(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered >= n
}

// readNode takes the node's messages to the state until the stream ends.
func (h *Head) readNode(s *session) error {
	for {
		s.conn.ReadWithin(silentAfter)
		m, err := s.conn.Recv()
		if errors.Is(err, wire.ErrUnknown) {
			s.out.put(&wire.Error{Status: cli.Usage, Text: err.Error()})
			continue
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.heard = time.Now()
		if p, ok := m.(*wire.Pong); ok {
			s.answered = max(s.answered, p.N)
		}
		s.mu.Unlock()
		s.log.Debug("received", "message", fmt.Sprintf("%T", m))
		if s.takeLog(m) {
			continue
		}
		if p, ok := m.(*wire.Ping); ok {
			s.out.put(&wire.Pong{N: p.N})
		}
		if !h.do(func() { h.fromNode(s, m) }) {
			return net.ErrClosed
		}
	}
}

// fromNode tells the machine what a node said.
func (h *Head) fromNode(s *session, m wire.Message) {
	if h.nodes.sessions[s.id] != s || s.abroad && !h.isHis(s, m) {
		return
	}
	switch m := m.(type) {
	case *wire.Offer:
		h.offered(s, m.Offer.Bounded())
	case *wire.Item:
		if m.Build != "" {
			if n, open := h.byID[m.Build]; open {
				h.apply(sched.Built{Session: s.id, Batch: n})
			} else {
				s.tell(&wire.Forget{Build: m.Build})
			}
			return
		}
		s.noteUnknown(m.Attempt, m.Job, m.Result)
		if m.Result != nil {
			checkResult(m.Result, h.wall())
			h.maskResult(m.Attempt, m.Result)
		}
		phase := m.Phase
		if phase == job.PhaseReturning && m.Result == nil {
			phase = job.PhaseRunning // what it left is being read: it is not over yet
		}
		h.buildNews(s, m.Attempt, phase, true, m.Result != nil && m.Result.Fate == job.FateBuildFailed)
		h.apply(sched.Item{Session: s.id, Attempt: m.Attempt, Phase: phase, CPUs: m.CPUs, GPUs: m.GPUs, Also: m.Also, Ended: m.Result, Ran: m.Ran})
	case *wire.Visit:
		h.apply(sched.Visit{Session: s.id, Attempt: m.Attempt, CPUs: m.CPUs, Memory: m.Memory, GPUs: m.GPUs})
	case *wire.ListEnd:
		h.apply(sched.ListEnd{Session: s.id})
	case *wire.Phase:
		h.buildNews(s, m.Attempt, m.Phase, false, false)
		h.apply(sched.Phase{Session: s.id, Attempt: m.Attempt, Phase: m.Phase, Ran: m.Ran})
	case *wire.Ended:
		s.noteUnknown(m.Attempt, "", &m.Result)
		checkResult(&m.Result, h.wall())
		h.maskResult(m.Attempt, &m.Result)
		h.buildNews(s, m.Attempt, job.PhaseReturning, false, m.Fate == job.FateBuildFailed)
		s.keepSmall(m)
		h.apply(sched.Ended{Session: s.id, Attempt: m.Attempt, Result: m.Result})
		if a, live := h.machine.Attempt(m.Attempt); !live || a.Result == nil {
			s.dropSmall(m.Attempt)
		}
		if m.Fate == job.FateLost {
			s.unask(h, m.Attempt)
		}
	case *wire.Gone:
		delete(s.unknown, m.Attempt)
		h.apply(sched.Gone{Session: s.id, Attempt: m.Attempt})
	case *wire.Error:
		s.log.Error("error message from a node", "text", m.Text)
	default:
		h.apply(sched.Heard{Session: s.id})
	}
}

// write sends what waits for the node, and pings.
func (s *session) write() {
	defer s.conn.Close()
	s.pingLater(1)
	for ms := s.out.take(); ms != nil; ms = s.out.take() {
		if err := s.conn.Send(ms...); err != nil {
			return
		}
	}
}

// pingLater pings the node when it is time, and again and again until the session
// is over. It takes no goroutine, of which a thousand nodes would have one each.
func (s *session) pingLater(n uint64) {
	time.AfterFunc(pingEvery, func() {
		select {
		case <-s.gone:
		default:
			s.out.put(&wire.Ping{N: n})
			s.pingLater(n + 1)
		}
	})
}

// tell sends messages to the node, soon. A node that lets too many pile up
// loses its session.
func (s *session) tell(m wire.Message) {
	if !s.out.put(m) {
		s.conn.Close()
	}
}

// close ends the session's streams and everything that waits on them. It may
// be called twice.
func (s *session) close() {
	s.conn.Close()
	s.end()
}

// end is close, but for the control stream.
func (s *session) end() {
	s.out.close()
	s.asks.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.gone:
		return
	default:
		close(s.gone)
	}
	for _, d := range s.data {
		d.Close()
	}
	for x, l := range s.tails {
		l.why = errAway
		delete(s.tails, x)
		l.end()
	}
}

// addData joins a data stream to the session; it says false if it is over or
// has as many as it may.
func (s *session) addData(c *wire.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.gone:
		return false
	default:
	}
	if len(s.data) == maxData {
		return false
	}
	s.data = append(s.data, c)
	return true
}

func (s *session) dropData(c *wire.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = slices.DeleteFunc(s.data, func(d *wire.Conn) bool { return d == c })
}

// nodeUp begins a session in the state.
func (h *Head) nodeUp(s *session, hello *wire.Hello, offer node.Offer) {
	h.nodes.last++
	s.id = h.nodes.last
	delete(h.nodes.removed, s.name)
	delete(h.nodes.byLine, s.name)
	delete(h.nodes.copies, s.name)
	if s.byLine {
		h.nodes.byLine[s.name] = true
	}
	h.nodes.sessions[s.id] = s
	if h.nodes.sessions[h.nodes.byName[s.slot()]] == nil { // else it is about to be refused
		h.nodes.byName[s.slot()] = s.id
	}
	s.log.Info("node connected", "cpus", offer.CPUs, "containment", offer.Containment)
	s.offer = offer
	h.apply(sched.NodeUp{Session: s.id, Node: s.name, UID: s.of, Boot: hello.Boot, State: hello.State, Machine: hello.Machine, Number: s.number, Offer: offer})
	if h.machine.Knows(s.name) && !s.abroad { // names that are refused leave no file
		h.store.NodeSeen(string(s.name), offer)
	}
}

// nodeDown ends a session in the state, once.
func (h *Head) nodeDown(s *session, err error) {
	if h.nodes.sessions[s.id] != s {
		return
	}
	delete(h.nodes.sessions, s.id)
	delete(h.nodes.joins, s.join)
	if h.nodes.byName[s.slot()] == s.id {
		delete(h.nodes.byName, s.slot())
	}
	s.log.Info("node disconnected", "why", err)
	h.apply(sched.NodeDown{Session: s.id})
	s.end() // or what is asked for after dropGrants would keep its hold for ever
	s.dropGrants(h, fmt.Errorf("the session ended: %w", err))
}
