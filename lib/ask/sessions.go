package ask

import (
	"context"
	"net"
	"sync"

	"distribute/lib/cli"
	"distribute/lib/dial"
)

// perConnection is how many sessions share one ssh: sshd lets ten do that, if
// nobody has set another MaxSessions, and other tools may have some of them.
const perConnection = 8

// Sessions are sessions with one head that go on side by side. Over ssh several
// of them are one connection: sshd has a limit for those that begin at once.
type Sessions struct {
	c    *cli.Cmd
	addr string
	from string // the file that names it, if one does

	mu   sync.Mutex // guards used
	used []int      // sessions of each connection
}

// NewSessions makes none yet; flag is as for Dial.
func NewSessions(c *cli.Cmd, flag string) (*Sessions, error) {
	addr, from, err := dial.HeadFrom(c.Getenv, flag)
	if err != nil {
		return nil, err
	}
	return &Sessions{c: c, addr: addr, from: from}, nil
}

// Dial makes one more. It ends when ctx does.
func (s *Sessions) Dial(ctx context.Context) (*Head, error) {
	return greet(ctx, s.c, s.addr, s.from, s.stream)
}

// stream makes a stream, over the first connection that has room for it.
func (s *Sessions) stream(ctx context.Context) (net.Conn, error) {
	t := terms(s.c)
	t.Connection = s.take()
	c, err := t.Dial(ctx, s.addr)
	if err != nil {
		s.giveBack(t.Connection)
		return nil, err
	}
	return &sharing{Conn: c, closed: func() { s.giveBack(t.Connection) }}, nil
}

func (s *Sessions) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range s.used {
		if n < perConnection {
			s.used[i]++
			return i
		}
	}
	s.used = append(s.used, 1)
	return len(s.used) - 1
}

func (s *Sessions) giveBack(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[i]--
}

// A sharing stream says once that it was closed.
type sharing struct {
	net.Conn
	once   sync.Once
	closed func()
}

// Close closes the stream.
func (c *sharing) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.closed)
	return err
}
