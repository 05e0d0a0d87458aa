package head

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"distribute/lib/dial"
	"distribute/lib/wire"
)

// A deskStream is a stream of a desk that the head has dialled.
type deskStream struct {
	net.Conn
	peer dial.Peer
}

// whose is who is at the other end of a stream; desk says that it is a desk's.
func (h *Head) whose(stream net.Conn) (peer dial.Peer, desk bool, err error) {
	if d, ok := stream.(deskStream); ok {
		return d.peer, true, nil
	}
	peer, err = h.proven(stream)
	peer.From = dial.Origin(stream)
	return peer, false, err
}

// letInWithin is how long a desk may take until its node is let in.
var letInWithin = 2 * wire.HelloWithin

// lastWords is how long a desk may take to say why the session ended.
const lastWords = time.Second

// serveDesk serves the streams of a desk, which come to the listener l, and are
// all of that peer, until the session of its node ends, ctx does, or what carries
// the streams.
func (h *Head) serveDesk(ctx context.Context, l net.Listener, over <-chan error, peer dial.Peer) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(ctx, func() { l.Close() })()
	late := time.AfterFunc(letInWithin, func() { end(errors.New("its node is not let in")) })
	defer late.Stop()
	go func() { end(<-over) }()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		stream, err := l.Accept()
		if err != nil {
			end(err)
			return context.Cause(ctx)
		}
		if p, err := h.proven(stream); err != nil || p.UID != h.uid { // only the head's own ssh carries them
			stream.Close()
			continue
		}
		conns.Go(func() {
			defer context.AfterFunc(ctx, func() { stream.Close() })()
			let := false
			h.converse(ctx, deskStream{stream, peer}, func() { let = late.Stop() || let })
			if let {
				time.AfterFunc(lastWords, func() { end(errors.New("the session of its node is over")) })
			}
		})
	}
}
