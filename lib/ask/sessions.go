package ask

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"

	"distribute/lib/cli"
	"distribute/lib/dial"
)

// Sessions are sessions with one head that go on side by side. Over ssh several
// of them are one stream: sshd has a limit for those.
type Sessions struct {
	c    *cli.Cmd
	addr string
	from string // the file that names it, if one does

	mu      sync.Mutex // guards streams
	streams []*dial.Streams
}

// NewSessions makes none yet; flag is as for Dial.
func NewSessions(c *cli.Cmd, flag string) (*Sessions, error) {
	addr, from, err := dial.HeadFrom(c.Getenv, flag)
	if err != nil {
		return nil, err
	}
	return &Sessions{c: c, addr: addr, from: from}, nil
}

// Dial makes one more. It ends when ctx does, or with Close. The head ends a
// stream on which nobody has a session for a while: that another begins there
// just then says nothing of the head, which is asked once more.
func (s *Sessions) Dial(ctx context.Context) (*Head, error) {
	h, err := greet(ctx, s.c, s.addr, s.from, s.stream)
	if errors.Is(err, dial.ErrOver) && ctx.Err() == nil {
		h, err = greet(ctx, s.c, s.addr, s.from, s.stream)
	}
	return h, err
}

// stream makes a stream that shares another where one has room for it. Those
// that the head has ended are forgotten.
func (s *Sessions) stream(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.streams); {
		c, err := s.streams[i].Dial(ctx)
		switch {
		case errors.Is(err, dial.ErrOver):
			s.streams[i].Close()
			s.streams = slices.Delete(s.streams, i, i+1)
		case errors.Is(err, dial.ErrFull):
			i++
		default:
			return c, err
		}
	}
	more := terms(s.c).Streams(s.addr)
	s.streams = append(s.streams, more)
	return more.Dial(ctx)
}

// Close ends all of them.
func (s *Sessions) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, some := range s.streams {
		some.Close()
	}
}
