package main

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
func (h *head) whose(stream net.Conn) (peer dial.Peer, part bool, err error) {
	if p, ok := stream.(partOf); ok {
		return p.peer, true, nil
	}
	peer, err = h.proven(stream)
	return peer, false, err
}

// serveParts serves the streams that share one until that ends. The peer of it
// is that of all. A stream without parts is not kept: not before the first one,
// and not after the last. Known is called when the first has said who it is.
func (h *head) serveParts(ctx context.Context, s *dial.Shared, peer dial.Peer, known func()) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer s.Close()
	end := context.AfterFunc(ctx, func() { s.Close() })
	defer end()
	var mu sync.Mutex // guards live
	live := 0
	idle := time.AfterFunc(wire.HelloWithin, func() {
		mu.Lock()
		defer mu.Unlock()
		if live == 0 {
			go s.Close()
		}
	})
	defer idle.Stop()
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if live += n; live == 0 {
			idle.Reset(wire.HelloWithin)
		}
	}
	for {
		part, err := s.Accept()
		if err != nil {
			return err
		}
		count(1)
		conns.Go(func() {
			defer count(-1)
			h.converse(ctx, partOf{part, peer}, known)
		})
	}
}
