package head

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"distribute/lib/dial"
)

// A simNet is the network of a history. Every stream goes between a host and
// the head; what it carries comes in order and late, and may be held up, cut at
// any byte, or never come.
type simNet struct {
	mu       sync.Mutex // guards the rest, and all streams
	r        *rand.Rand
	down     map[string]bool // hosts that nothing reaches and that reach nothing
	slow     time.Duration   // the greatest delay
	listener *simListener    // of the head, if it is up
	conns    []*simConn
}

func newSimNet(r *rand.Rand) *simNet {
	return &simNet{r: r, down: map[string]bool{}, slow: 10 * time.Millisecond}
}

// An owner is a process: its streams end with it.
type owner struct {
	host string
	gone bool // guarded by the net's mu
}

// A simConn is one end of a stream.
type simConn struct {
	net   *simNet
	own   *owner
	peer  dial.Peer // who is at the other end
	far   *simConn
	in    []chunk
	last  time.Time     // when the last chunk comes
	fin   bool          // nothing follows what is in
	err   error         // the stream is broken
	mute  bool          // its machine lost power: nobody answers
	until time.Time     // limit of reads
	news  chan struct{} // closed when something has changed
}

// A chunk is bytes on their way.
type chunk struct {
	at   time.Time
	data []byte
}

// A simListener is where the head is reached.
type simListener struct {
	net  *simNet
	own  *owner
	come chan *simConn
	once sync.Once
	over chan struct{}
}

func (n *simNet) listen(own *owner) *simListener {
	l := &simListener{net: n, own: own, come: make(chan *simConn), over: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener = l
	return l
}

func (l *simListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.come:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *simListener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *simListener) Addr() net.Addr { return &net.UnixAddr{Name: "head", Net: "sim"} }

// take sets how long a chunk takes at most.
func (n *simNet) take(longest time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow = longest
	return longest
}

// delay is how long a chunk takes; it needs mu.
func (n *simNet) delay() time.Duration {
	return time.Duration(n.r.Int64N(int64(n.slow)))
}

// dial makes a stream to the head for a process, who is peer to the head.
func (n *simNet) dial(ctx context.Context, own *owner, peer dial.Peer) (net.Conn, error) {
	refused := func(err error) error { return &net.OpError{Op: "dial", Net: "sim", Err: err} }
	n.mu.Lock()
	wait, l, down := n.delay(), n.listener, n.down[own.host]
	if down {
		wait = 10 * time.Second
	}
	n.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, refused(ctx.Err())
	}
	n.mu.Lock()
	gone := own.gone || l != nil && l.own.gone
	n.mu.Unlock()
	switch {
	case down:
		return nil, refused(syscall.ETIMEDOUT)
	case l == nil || gone:
		return nil, refused(syscall.ECONNREFUSED)
	}
	near, far := &simConn{net: n, own: own, news: make(chan struct{})}, &simConn{net: n, own: l.own, peer: peer, news: make(chan struct{})}
	near.far, far.far = far, near
	select {
	case l.come <- far:
	case <-l.over:
		return nil, refused(syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, refused(ctx.Err())
	}
	n.mu.Lock()
	n.conns = append(n.conns, near, far)
	n.mu.Unlock()
	return near, nil
}

// changed wakes who reads; it needs mu.
func (c *simConn) changed() {
	close(c.news)
	c.news = make(chan struct{})
}

// reached says that bytes come to this end; it needs mu.
func (c *simConn) reached() bool {
	return !c.mute && !c.far.mute && !c.net.down[c.own.host] && !c.net.down[c.far.own.host]
}

func (c *simConn) Read(p []byte) (int, error) {
	for {
		c.net.mu.Lock()
		n, wait, err := c.take(p)
		news := c.news
		c.net.mu.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
		if wait == 0 {
			<-news
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-news:
		case <-t.C:
		}
		t.Stop()
	}
}

// take is what can be read now, or how long there is nothing to read, 0: until
// something changes. It needs mu.
func (c *simConn) take(p []byte) (n int, wait time.Duration, err error) {
	fault := func(err error) error { return &net.OpError{Op: "read", Net: "sim", Err: err} }
	now := time.Now()
	soon := func(at time.Time) {
		if d := at.Sub(now); wait == 0 || d < wait {
			wait = d
		}
	}
	if c.own.gone {
		return 0, 0, fault(net.ErrClosed)
	}
	if c.reached() {
		if len(c.in) > 0 && !c.in[0].at.After(now) {
			n = copy(p, c.in[0].data)
			if c.in[0].data = c.in[0].data[n:]; len(c.in[0].data) == 0 {
				c.in = c.in[1:]
			}
			return n, 0, nil
		}
		switch {
		case len(c.in) > 0:
			soon(c.in[0].at)
		case c.err != nil:
			return 0, 0, fault(c.err)
		case c.fin:
			return 0, 0, io.EOF
		}
	}
	if c.err == net.ErrClosed { // by this side
		return 0, 0, fault(c.err)
	}
	if !c.until.IsZero() {
		if !c.until.After(now) {
			return 0, 0, fault(os.ErrDeadlineExceeded)
		}
		soon(c.until)
	}
	return 0, wait, nil
}

// Write never waits: what cannot come is on its way for ever.
func (c *simConn) Write(p []byte) (int, error) {
	n := c.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.own.gone || c.err != nil {
		err := c.err
		if err == nil {
			err = net.ErrClosed
		}
		return 0, &net.OpError{Op: "write", Net: "sim", Err: err}
	}
	f := c.far
	if f.err != nil || f.own.gone {
		return len(p), nil // it learns of that when it reads
	}
	at := time.Now().Add(n.delay())
	if at.Before(f.last) {
		at = f.last
	}
	f.last = at
	f.in = append(f.in, chunk{at, slices.Clone(p)})
	f.changed()
	return len(p), nil
}

// Close ends the stream; the other side reads what is on its way, and then the
// end.
func (c *simConn) Close() error {
	n := c.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.err != net.ErrClosed {
		c.err = net.ErrClosed
		c.in = nil
		c.changed()
		c.far.fin = true
		c.far.changed()
	}
	n.conns = slices.DeleteFunc(n.conns, func(o *simConn) bool { return o == c })
	return nil
}

func (c *simConn) LocalAddr() net.Addr  { return &net.UnixAddr{Name: c.own.host, Net: "sim"} }
func (c *simConn) RemoteAddr() net.Addr { return &net.UnixAddr{Name: c.far.own.host, Net: "sim"} }

func (c *simConn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *simConn) SetWriteDeadline(t time.Time) error { return nil }

func (c *simConn) SetReadDeadline(t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.until = t
	c.changed()
	return nil
}

// proven says who is at the other end.
func (n *simNet) proven(c net.Conn) (dial.Peer, error) { return c.(*simConn).peer, nil }

// partition cuts a host off, or lets it back: what was on its way comes then.
func (n *simNet) partition(host string, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[host] = down
	for _, c := range n.conns {
		c.changed()
	}
}

// reset breaks the streams that fit, each at a random byte of what is on its
// way.
func (n *simNet) reset(fits func(*simConn) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		if c.err == nil && (fits(c) || fits(c.far)) {
			if len(c.in) > 0 {
				c.in = c.in[:1+n.r.IntN(len(c.in))]
				last := &c.in[len(c.in)-1]
				last.data = last.data[:n.r.IntN(len(last.data)+1)]
				if len(last.data) == 0 {
					c.in = c.in[:len(c.in)-1]
				}
			}
			c.err = syscall.ECONNRESET
			c.changed()
		}
	}
}

// end ends a process: its streams end with it, or, when its machine has lost
// power, are never heard of again.
func (n *simNet) end(own *owner, power bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	own.gone = true
	for _, c := range n.conns {
		if c.own == own {
			c.mute = power
			c.far.fin = true
			c.changed()
			c.far.changed()
		}
	}
}

// kinds of streams, for reset.
func (n *simNet) of(host string) func(*simConn) bool {
	return func(c *simConn) bool { return c.own.host == host }
}
