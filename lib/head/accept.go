package head

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
)

// listen serves the connections of one listener until ctx ends.
func (h *Head) listen(ctx context.Context, l net.Listener) {
	strange := newUnauthenticated()
	var conns sync.WaitGroup
	defer conns.Wait()
	for ctx.Err() == nil {
		stream, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors, most likely: what is connected goes on
			h.log.Warn("cannot accept a connection", "why", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		conns.Go(func() {
			end := context.AfterFunc(ctx, func() { stream.Close() })
			defer end()
			origin := dial.Origin(stream)
			strange.add(origin, stream)
			known := func() { strange.drop(stream) }
			defer known()
			h.converse(ctx, stream, known)
		})
	}
}

// converse serves one connection. Known is called when its peer has said hello,
// and again when a node is let in. A panic in it ends that connection, and not
// dsched (N69).
func (h *Head) converse(ctx context.Context, stream net.Conn, known func()) {
	defer stream.Close()
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("panic in a connection (a bug in dsched)", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	c := wire.New(stream)
	c.LimitFrames(wire.FrameWithin)
	peer, hello, err := h.greet(c, stream)
	if err == nil {
		if _, desk := stream.(deskStream); !desk { // what it may have besides is bounded otherwise
			known()
		}
		err = h.serveRole(ctx, c, peer, hello, known)
	}
	if refusal := asRefusal(err); refusal != nil {
		c.Send(refusal)
	}
	switch {
	case errors.Is(err, dial.ErrHandshake):
		h.turnedAway(dial.Origin(stream), err)
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed):
		h.log.Debug("connection ended", "peer", peer.User, "why", err)
	}
}

// turnedAway logs that a peer did not prove who it is, unless there are many of
// them.
func (h *Head) turnedAway(from string, why error) {
	unsaid, ok := h.turned.allow(time.Now())
	if !ok {
		return
	}
	if unsaid > 0 {
		h.log.Warn("more peers refused, not logged one by one", "peers", unsaid)
	}
	h.log.Warn("peer refused", "from", from, "why", why)
}

// caught makes an error of a panic: what it happened to ends, and nothing else
// does. It is to be deferred.
func (h *Head) caught(err *error) {
	if p := recover(); p != nil {
		h.log.Error("panic (a bug in dsched)", "panic", p, "stack", string(debug.Stack()))
		*err = fmt.Errorf("a panic: %v", p)
	}
}

// greet waits for the peer's hello.
func (h *Head) greet(c *wire.Conn, stream net.Conn) (dial.Peer, *wire.Hello, error) {
	peer, desk, err := h.whose(stream)
	if err != nil {
		return peer, nil, err
	}
	c.ReadWithin(wire.HelloWithin)
	defer c.ReadWithin(0)
	c.Strange(true)
	defer c.Strange(false)
	m, err := c.Recv()
	if a, ok := m.(*wire.Attach); ok && err == nil && !desk {
		if peer, err = h.attached(peer, a); err == nil {
			m, err = c.Recv()
		}
	}
	if err != nil {
		return peer, nil, err
	}
	hello, ok := m.(*wire.Hello)
	if !ok {
		return peer, nil, fmt.Errorf("%w: hello does not come first", line.ErrLine)
	}
	if err := wire.CheckProto(hello.Proto); err != nil {
		return peer, nil, &wire.Error{Status: cli.Input, Text: err.Error()}
	}
	return peer, hello, nil
}

// attached is who a stream is of that another program carries: a node, if the
// user says so who may be any node.
func (h *Head) attached(p dial.Peer, a *wire.Attach) (dial.Peer, error) {
	switch {
	case a.Node == "":
		p.Local = a.Local
		return p, nil
	case !p.Proven || p.UID != h.uid && p.UID != 0:
		return p, &wire.Error{Status: cli.NotAllowed, Text: "a node over ssh is let in by the authorized_keys of the user who runs dsched"}
	}
	p.Local = a.Local
	return p.As(a.Node), job.CheckName(a.Node)
}

func (h *Head) serveRole(ctx context.Context, c *wire.Conn, peer dial.Peer, hello *wire.Hello, known func()) error {
	if err := durable.Step("head.connection"); err != nil {
		return err
	}
	switch hello.Role {
	case wire.RoleNode:
		return h.serveNode(ctx, c, peer, hello, known)
	case wire.RoleData:
		return h.serveData(c, peer, hello, known)
	case wire.RoleTool:
		return h.serveTool(ctx, c, peer, known)
	}
	return &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("nobody is let in as %.20q", hello.Role)}
}

// serveData joins a data stream to the session of its node.
func (h *Head) serveData(c *wire.Conn, peer dial.Peer, hello *wire.Hello, known func()) error {
	g, err := h.enter(peer, hello.Name, false, func(*wire.Error) { c.Close() })
	if err != nil {
		return err
	}
	defer h.door.leave(g)
	var s *session
	h.do(func() { s = h.nodes.joins[hello.Join] })
	if s == nil || string(s.name) != hello.Name {
		return &wire.Error{Status: cli.NotAllowed, Text: "that session is over, or never was"}
	}
	if !s.addData(c) {
		return &wire.Error{Status: cli.NotAllowed, Text: fmt.Sprintf("a session has %d data streams at most", maxData)}
	}
	defer s.dropData(c)
	known()
	if err := c.Send(h.hello(wire.Hello{})); err != nil {
		return err
	}
	c.NoWriteLimit()
	switch hello.State {
	case "up":
		err := errors.New("a panic")
		defer func() { h.do(func() { s.dropGrants(h, fmt.Errorf("the up stream ended: %w", err)) }) }()
		err = h.takeUp(s, c)
		return err
	case "down":
		return h.serveDown(s, c, peer.Local)
	}
	return &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("a data stream is up or down, not %.20q", hello.State)}
}

// hello is the head's hello with what else it says to this peer.
func (h *Head) hello(m wire.Hello) *wire.Hello {
	m.Proto, m.Role, m.Spool = wire.Proto, wire.RoleHead, h.spool.ID()
	return &m
}

// maxText is how many bytes of an error a peer is told. A message has at most six times as many.
const maxText = 64 << 10

// asRefusal is the message that tells a peer of err, nil if there is nobody to
// tell any more. Of a text that is too long it has the first lines.
func asRefusal(err error) *wire.Error {
	e := refusalOf(err)
	if e == nil || len(e.Text) <= maxText {
		return e
	}
	cut := *e
	cut.Text = e.Text[:maxText]
	cut.Text = cut.Text[:max(0, strings.LastIndexByte(cut.Text, '\n'))] + "\nand more of this kind"
	return &cut
}

func refusalOf(err error) *wire.Error {
	var e *wire.Error
	var n *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && !(errors.As(err, &n) && n.Op == "write"):
		return &wire.Error{Status: cli.Later, Text: "nothing more was heard for too long"}
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.As(err, &n), errors.Is(err, wire.ErrCut):
		return nil
	case errors.As(err, &e):
		return e
	case errors.Is(err, errHungUp):
		return nil
	case errors.Is(err, line.ErrLine):
		return &wire.Error{Status: cli.Input, Text: err.Error()}
	}
	return &wire.Error{Status: cli.Status(err), Text: err.Error()}
}
