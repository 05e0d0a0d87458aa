package head

import (
	"context"
	"net"
	"sync"
	"time"

	"distribute/lib/dial"
	"distribute/lib/wire"
)

// A partOf is a stream that shares another, and so is of its peer.
type partOf struct {
	net.Conn
	peer dial.Peer
}

// whose is who is at the other end of a stream; part says that it shares one.
func (h *Head) whose(stream net.Conn) (peer dial.Peer, part bool, err error) {
	if p, ok := stream.(partOf); ok {
		return p.peer, true, nil
	}
	peer, err = h.proven(stream)
	return peer, false, err
}

// letInWithin is how long a stream is kept of which no part is let in.
var letInWithin = 2 * wire.HelloWithin

// serveParts serves the streams that share one until that ends. The peer of it
// is that of all. A stream of which no part is let in is not kept, whatever parts
// it begins. Known is called when the first is.
func (h *Head) serveParts(ctx context.Context, s *dial.Shared, peer dial.Peer, known func()) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer s.Close()
	end := context.AfterFunc(ctx, func() { s.Close() })
	defer end()
	var mu sync.Mutex // guards in
	in := 0
	late := time.AfterFunc(letInWithin, func() {
		mu.Lock()
		defer mu.Unlock()
		if in == 0 {
			go s.Close()
		}
	})
	defer late.Stop()
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if in += n; in == 0 {
			late.Reset(letInWithin)
		}
	}
	for {
		part, err := s.Accept()
		if err != nil {
			return err
		}
		conns.Go(func() {
			let := false
			h.converse(ctx, partOf{part, peer}, func() {
				let = true
				count(1)
				known()
			})
			if let {
				count(-1)
			}
		})
	}
}
