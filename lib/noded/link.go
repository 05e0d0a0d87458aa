package noded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/timing"
	"distribute/lib/wire"
)

// The protocol's patience with a silent head (dwire(5)), and with itself.
var (
	pingEvery   = timing.Wait(15 * time.Second)
	silentAfter = timing.Wait(45 * time.Second)
	retryAfter  = timing.Wait(time.Second)     // until the second try to reach the head
	slowest     = timing.Wait(time.Minute)     // between two tries to reach the head
	slowestHere = timing.Wait(5 * time.Second) // the same, where the head is on this machine
	pendingWait = timing.Wait(4 * time.Second) // between two questions whether the node is accepted
	joinWithin  = timing.Wait(2 * time.Second) // until a data stream that is refused is given up
)

// A link is what connects the node with the head: one session after another.
type link struct {
	n     *daemon
	small chan *request // fetches, for whichever session is up
	large chan *request // the same, of more than maxSmall bytes

	mu     sync.Mutex // guards out and visits
	out    *outbox    // of the session that is up, or nil
	visits bool       // the head of that session takes visits
}

// maxSmall is the largest size in bytes of a small request. Small requests have a data
// stream of their own, so that none waits for a large one.
const maxSmall = 1 << 20

// A request is a fetch with the function that reads its answer.
type request struct {
	*wire.Fetch
	take  func(io.Reader) error
	gone  <-chan struct{} // closed when the answer is not needed any more
	taken atomic.Bool     // take has been called, or will never be
	done  chan error      // has room for one
}

// answer ends the request, unless it has ended.
func (r *request) answer(err error) {
	select {
	case r.done <- err:
	default:
	}
}

// cancelled reports whether the answer is not needed any more.
func (r *request) cancelled() bool {
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}

// An answer is the stream of bytes for a request, until the request is cancelled.
type answer struct {
	io.Reader
	of *request
}

func (a answer) Read(p []byte) (int, error) {
	if a.of.cancelled() {
		return 0, context.Canceled
	}
	return a.Reader.Read(p)
}

// An outbox is what waits to be sent on a control stream.
type outbox struct {
	mu   sync.Mutex // guards list
	list []wire.Message
	news chan struct{} // has room for one
}

func newLink(n *daemon) *link {
	return &link{n: n, small: make(chan *request), large: make(chan *request)}
}

func newOutbox() *outbox { return &outbox{news: make(chan struct{}, 1)} }

func (o *outbox) put(ms ...wire.Message) {
	o.mu.Lock()
	o.list = append(o.list, ms...)
	o.mu.Unlock()
	select {
	case o.news <- struct{}{}:
	default:
	}
}

func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.list)
}

func (o *outbox) take() []wire.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.list = nil
	return list
}

// tell sends a message to the head, soon. Without a session it is dropped: the
// list at the begin of the next one says all there is to say.
func (l *link) tell(m wire.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		l.out.put(m)
	}
}

// tellVisit is tell, of a visit: an early head does not know that message.
func (l *link) tellVisit(v *wire.Visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil && l.visits {
		l.out.put(v)
	}
}

// errAway says that the head went away before it had answered.
var errAway = errors.New("the head went away")

// fetch asks the head for something small and gives the answer to take. While the head
// is away it waits; what was cut is asked for again. A refusal is a *wire.Error.
func (l *link) fetch(ctx context.Context, f *wire.Fetch, take func(io.Reader) error) error {
	for {
		if err := l.ask(ctx, f, 0, take); !errors.Is(err, errAway) || ctx.Err() != nil {
			return err
		}
	}
}

// ask asks the head once, for so many bytes: an answer that was cut is errAway. When ctx
// ends, the answer is not waited for.
func (l *link) ask(ctx context.Context, f *wire.Fetch, size int64, take func(io.Reader) error) error {
	r := &request{Fetch: f, take: take, gone: ctx.Done(), done: make(chan error, 1)}
	to := l.small
	if size > maxSmall {
		to = l.large
	}
	select {
	case to <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if r.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
	}
	return <-r.done // take uses what is the caller's
}

// run keeps a session with the head until ctx ends. If there is to be one only,
// it returns why that ended.
func (l *link) run(ctx context.Context) error {
	said, pending := "", false
	for wait := time.Duration(0); ctx.Err() == nil; {
		began := time.Now()
		up, err := l.n.session(ctx, l)
		if ctx.Err() != nil {
			return nil
		}
		if l.n.Once {
			return err
		}
		if text := err.Error(); up || text != said {
			l.n.Log.Warn("no session with the head; jobs go on, results are kept", "head", l.n.Addr, "why", text)
			said = text
		}
		if up && (pending || time.Since(began) > slowest) { // it was accepted meanwhile, or it went well
			wait = 0
		}
		var refusal *wire.Error
		pending = errors.As(err, &refusal) && refusal.Pending
		wait = l.next(wait, err)
		linger(ctx, wait-time.Duration(rand.Int64N(int64(wait)/4+1)))
	}
	return nil
}

// next is how long to wait after wait was not enough.
func (l *link) next(wait time.Duration, err error) time.Duration {
	var refusal *wire.Error
	own := errors.Is(err, errSlept) // not for the head's sake
	switch {
	case (wait == 0 || own) && dial.Local(l.n.Addr):
		return 200 * time.Millisecond
	case wait == 0 || own:
		return retryAfter
	case errors.As(err, &refusal) && refusal.Pending:
		return pendingWait
	case errors.As(err, &refusal):
		return min(max(2*wait, 5*retryAfter), slowest)
	case dial.Local(l.n.Addr):
		return min(2*wait, slowestHere)
	}
	return min(2*wait, slowest)
}

// A holder has attempts of which a session tells the head: the daemon of a node, or
// who brings home what ran on a cluster.
type holder interface {
	// hello is what it says of itself.
	hello() wire.Hello
	// attach begins with what it has to tell, until detach.
	attach(ctx context.Context, s *session, head *wire.Hello) error
	detach()
	// now takes a message that need not wait for its turn, and says whether it has.
	now(m wire.Message) bool
	// obey does what the head says, in its order.
	obey(ctx context.Context, s *session, ms []wire.Message)
	// deliver sends a result. Its error is that of the stream.
	deliver(c *wire.Conn, x *uint64, g *wire.Grant) error
	// beside returns what else goes on in the session, which ends with any of these.
	beside(s *session) []func(context.Context) error
}

// session is one session of a holder: its control stream and its data streams. It
// returns when one of them ends; up says that the head had let it in.
func (n *Settings) session(ctx context.Context, of holder) (up bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.Terms.Afresh()
	h := of.hello()
	h.Role, h.Name = wire.RoleNode, string(n.Name)
	c, head, err := n.greet(ctx, h)
	if err != nil {
		return false, err
	}
	defer c.Close()
	s := &session{n: n, of: of, c: c, join: head.Join, watch: newWatch(n.Uptime, n.ticks), out: newOutbox(), in: newOutbox(),
		grants: newOutbox(), tails: map[uint64]context.CancelFunc{}}
	if err := of.attach(ctx, s, head); err != nil {
		return false, err
	}
	defer of.detach()
	n.Log.Info("session with the head", "head", n.Addr, "spool", head.Spool)
	var parts sync.WaitGroup
	ends := make(chan error, 8)
	part := func(f func(context.Context) error) {
		parts.Go(func() {
			ends <- n.guarded(func() error { return f(ctx) })
			cancel()
			c.Close()
		})
	}
	part(s.watch.run)
	part(s.write)
	part(s.read)
	part(s.obey)
	part(func(ctx context.Context) error { return s.data(ctx, "up", s.up) })
	for _, f := range of.beside(s) {
		part(f)
	}
	err = <-ends
	if slept := s.watch.slept(); slept != nil {
		err = slept
	}
	parts.Wait()
	s.following.Wait()
	return true, err
}

// guarded calls f, whose panic is an error: it ends the session, and not the
// daemon (N69). What the state's goroutine does for f is not guarded.
func (n *Settings) guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			n.Log.Error("panic in a session (a bug in dnoded)", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// greet makes a stream to the head, and says hello on it.
func (n *Settings) greet(ctx context.Context, h wire.Hello) (*wire.Conn, *wire.Hello, error) {
	open := n.Terms.Dial
	if n.Dial != nil {
		open = n.Dial
	}
	stream, err := open(ctx, n.Addr)
	if err != nil {
		return nil, nil, err
	}
	return dial.Over(ctx, stream, n.Addr, h)
}

func (l *link) hello() wire.Hello {
	h := wire.Hello{Boot: l.n.boot, State: l.n.desk.State(), Machine: l.n.Machine.ID()}
	if l.n.Machine.Stays(l.n.desk.Dir()) { // else each start of a container or live system shows an older directory
		last := l.n.desk.Session()
		h.Session = &last
	}
	return h
}

// note makes the number that the head gave to a session durable, and returns it; 0 if there
// is none, or it cannot be written, as on a full disk.
func (l *link) note(session *uint64) uint64 {
	if session == nil {
		return 0
	}
	if err := l.n.desk.SetSession(*session); err != nil {
		l.n.Log.Warn("cannot note the number of this session; a copy of the node's directory may not be noticed", "why", err)
		return 0
	}
	return *session
}

// attach makes s the session that is up, and begins it with the list of what
// the node holds. Everything that happens from then on is told.
func (l *link) attach(ctx context.Context, s *session, head *wire.Hello) error {
	number := l.note(head.Session)
	ok := l.n.allLeft(ctx, func() {
		l.n.letGo = recent{}
		offer := l.n.telling(l.n.offer())
		offer.Session = number
		s.out.put(offer, &wire.List{})
		items := l.n.list()
		s.out.put(items...)
		for share := range l.n.held {
			if head.Visits && share.guest != nil {
				s.out.put(share.visit(true))
			}
		}
		s.out.put(&wire.ListEnd{Items: len(items)})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.out, l.visits = s.out, head.Visits
	})
	if !ok {
		return context.Canceled
	}
	l.n.setPatience(head.Patience)
	return nil
}

func (l *link) detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = nil
}

// list is everything that the node holds.
func (n *daemon) list() []wire.Message {
	var ms []wire.Message
	now := n.Uptime()
	for t, a := range n.attempts {
		ms = append(ms, &wire.Item{Attempt: t, Job: a.Job, Try: a.Try, Phase: a.phase, CPUs: a.cpus, GPUs: a.gpus(), Also: a.has.lodging(), Ran: a.ranFor(now), Result: a.result})
	}
	for _, t := range n.unreadable { // one that is not in the list has never begun
		ms = append(ms, &wire.Item{Attempt: t, Phase: job.PhaseReturning, Result: lostByDamage()})
	}
	seen := map[job.BatchID]bool{}
	for _, b := range n.batches {
		if !seen[b.Batch] && !b.over {
			seen[b.Batch] = true
			ms = append(ms, &wire.Item{Build: b.Batch})
		}
	}
	return ms
}

// data is one data stream of the session: dialled, joined, and used. The head
// may not have taken in the session's offer yet; then it is asked again.
func (s *session) data(ctx context.Context, way string, use func(context.Context, *wire.Conn) error) error {
	h := wire.Hello{Role: wire.RoleData, Name: string(s.n.Name), Join: s.join, State: way}
	c, _, err := s.n.greet(ctx, h)
	for wait := 5 * time.Millisecond; err != nil && wait < joinWithin; wait *= 2 {
		if linger(ctx, wait); ctx.Err() != nil {
			return ctx.Err()
		}
		c, _, err = s.n.greet(ctx, h)
	}
	if err != nil {
		return fmt.Errorf("data stream %s: %w", way, err)
	}
	defer c.Close()
	c.LimitFrames(wire.FrameWithin)
	c.NoWriteLimit()
	return use(ctx, c)
}

// beside returns the data streams by which attempts fetch what they lack.
func (l *link) beside(s *session) []func(context.Context) error {
	return []func(context.Context) error{
		func(ctx context.Context) error { return s.data(ctx, "down", l.fetchSmall) },
		func(ctx context.Context) error { return l.fetchLarge(ctx, s) },
	}
}

// fetchSmall makes small requests on a data stream.
func (l *link) fetchSmall(ctx context.Context, c *wire.Conn) error {
	for {
		select {
		case r := <-l.small:
			err := fetchOne(c, r)
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errCancelled is returned when a data stream was closed because its request was cancelled.
var errCancelled = errors.New("the request was cancelled")

// fetchLarge makes large requests on a data stream, which begins with the first one. A
// request that is cancelled ends the stream, and the next one begins another, as soon as
// the head has noticed the end of the one before. If the head is of an earlier release and
// never accepts that stream, all requests share the other one.
func (l *link) fetchLarge(ctx context.Context, s *session) error {
	var r *request
	for accepted, refused := false, false; ; {
		if r == nil {
			select {
			case r = <-l.large:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := errors.New("refused")
		if !refused {
			err = s.data(ctx, "down", func(ctx context.Context, c *wire.Conn) error {
				accepted = true
				err := fetchUntilCancelled(c, r)
				for r = nil; err == nil; {
					select {
					case next := <-l.large:
						err = fetchUntilCancelled(c, next)
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return err
			})
			refused = errors.As(err, new(*wire.Error))
		}
		switch {
		case errors.Is(err, errCancelled):
			continue
		case !refused:
			if r != nil {
				r.answer(fmt.Errorf("%w: %w", errAway, err))
			}
			return err
		case accepted:
			if refused = false; r.cancelled() {
				r = nil
			}
			continue
		}
		select {
		case l.small <- r:
		case <-r.gone:
			r.answer(errAway)
		case <-ctx.Done():
			r.answer(errAway)
			return ctx.Err()
		}
		r = nil
	}
}

// fetchUntilCancelled makes one request. It closes the stream if that is cancelled.
func fetchUntilCancelled(c *wire.Conn, r *request) error {
	answered := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-r.gone:
			c.Close()
		case <-answered:
		}
	})
	defer watch.Wait()
	defer close(answered)
	err := fetchOne(c, r)
	if r.cancelled() {
		return errCancelled
	}
	return err
}

// fetchOne makes one request. Its error is that of the stream; what speaks
// against the answer goes to the request.
func fetchOne(c *wire.Conn, r *request) error {
	defer r.answer(fmt.Errorf("%w: a panic", errAway)) // nothing else has answered it then
	if err := c.Send(r.Fetch); err != nil {
		r.answer(fmt.Errorf("%w: %w", errAway, err))
		return err
	}
	send, err := wire.Expect[*wire.Send](c)
	var refusal *wire.Error
	if errors.As(err, &refusal) {
		r.answer(refusal)
		return nil
	}
	if err == nil && (send.Of != r.Of || send.Attempt != r.Attempt) {
		err = fmt.Errorf("the head sends %.20q of attempt %.40q for %q of %s", send.Of, string(send.Attempt), r.Of, r.Attempt)
	}
	if err != nil {
		r.answer(fmt.Errorf("%w: %w", errAway, err))
		return err
	}
	in := c.RecvTransfer(send)
	if r.taken.CompareAndSwap(false, true) {
		err = r.take(answer{in, r})
	}
	if r.cancelled() {
		r.answer(errAway) // before the rest comes, which nobody needs
	}
	rest := wire.Drain(in)
	switch {
	case errors.Is(rest, wire.ErrCut):
		r.answer(fmt.Errorf("%w: %w", errAway, rest))
		return rest
	case rest != nil:
		err = rest // it gave up, and says why
	}
	r.answer(err)
	return nil
}
