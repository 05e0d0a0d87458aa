package dial

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"

	"distribute/lib/line"
	"distribute/lib/wire"
)

// Limits of a stream that others share; see dwire(5), "Parts".
const (
	MaxParts = 8       // at once
	credit   = 1 << 20 // bytes of a part that the other side has not asked for
	askFrom  = credit / 4
)

// A Shared is a stream whose parts are streams of their own, each a net.Conn
// with deadlines. One side begins parts, the other accepts them. Of each part
// no more is under way than its reader has asked for: one that is not read
// stops its own writer and no other part, and needs at most 2 MiB of memory
// here. A peer that breaks a rule loses the stream.
//
// Two goroutines live until Close.
type Shared struct {
	c     *wire.Conn
	turn  chan struct{} // held by who writes to c; has room for one
	news  chan struct{} // something is owed to the peer; has room for one
	fresh chan *part    // begun by the peer; has room for all
	over  chan struct{} // closed at the end of the stream
	hands sync.WaitGroup

	begins bool // this side begins the parts

	mu    sync.Mutex // guards what follows, and the parts
	parts []*part    // those that have not ended; MaxParts at most
	last  uint64     // number of a part
	spare [][]byte   // room for what comes
	err   error      // why the stream ended
}

// ErrOver is why a stream and its parts ended that the other side has closed.
var ErrOver = errors.New("the stream that this is a part of ended")

// Share makes parts of a stream, which it closes in the end. Begins says that
// this side begins them.
func Share(c *wire.Conn, begins bool) *Shared {
	s := &Shared{c: c, begins: begins, turn: make(chan struct{}, 1),
		news: make(chan struct{}, 1), fresh: make(chan *part, MaxParts), over: make(chan struct{})}
	s.hands.Go(func() { s.end(s.listen()) })
	s.hands.Go(func() { s.end(s.settle()) })
	return s
}

// ErrFull is returned by Begin for a stream that has as many parts as it may.
var ErrFull = fmt.Errorf("the stream has %d parts, which is the limit", MaxParts)

// Begin begins a part, or returns [ErrFull], or why the stream has ended. The
// peer hears of it with the first byte.
func (s *Shared) Begin() (net.Conn, error) {
	c, _, err := s.begin()
	return c, err
}

// begin is Begin. Of a full stream with a part that is closed here, which the peer
// answers at once, it gives a channel that is closed when it is worth to try again.
func (s *Shared) begin() (c net.Conn, again <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, nil, s.err
	case !s.begins:
		return nil, nil, errors.New("the other side begins the parts of this stream")
	case len(s.parts) < MaxParts:
		return s.add(0), nil, nil
	}
	if i := slices.IndexFunc(s.parts, func(p *part) bool { return p.closed }); i >= 0 {
		again = s.parts[i].waits()
	}
	return nil, again, ErrFull
}

// add makes a part known, and needs the mutex. Number 0 is for one that the
// peer has not heard of.
func (s *Shared) add(number uint64) *part {
	p := &part{s: s, number: number, mayCome: credit, mayGo: credit, writing: make(chan struct{}, 1)}
	s.parts = append(s.parts, p)
	return p
}

// find is the part of a number, nil if there is none. It needs the mutex.
func (s *Shared) find(number uint64) *part {
	for _, p := range s.parts {
		if p.number == number && number > 0 {
			return p
		}
	}
	return nil
}

// Accept waits for a part that the peer begins, until the stream ends.
func (s *Shared) Accept() (net.Conn, error) {
	select {
	case p := <-s.fresh:
		return p, nil
	case <-s.over:
		return nil, s.Err()
	}
}

// Over is closed when the stream has ended, by whichever side.
func (s *Shared) Over() <-chan struct{} { return s.over }

// Err says why the stream ended, nil if it has not.
func (s *Shared) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the stream and all its parts.
func (s *Shared) Close() error {
	s.end(net.ErrClosed)
	s.hands.Wait()
	return nil
}

// end ends the stream, once. What has come of its parts can still be read.
func (s *Shared) end(err error) {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = over(err)
		close(s.over)
		for _, p := range s.parts {
			p.wake()
		}
	}
	s.mu.Unlock()
	if first {
		s.c.Close()
	}
}

// over is an error of the stream, as [ErrOver] where it is that the peer has
// closed it.
func over(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // of its parts, that is
	} else if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOver, err)
}

// listen takes in what the peer sends until the stream ends.
func (s *Shared) listen() error {
	for {
		m, err := s.c.Recv()
		switch {
		case errors.Is(err, wire.ErrUnknown):
			continue
		case err != nil:
			return err
		}
		switch m := m.(type) {
		case *wire.Part:
			err = s.taken(m)
		case *wire.More:
			err = s.asked(m)
		case *wire.Error:
			err = m
		default:
			err = fmt.Errorf("%w: it is no part's", line.ErrLine)
		}
		if err != nil {
			return err
		}
	}
}

// taken takes in bytes of a part, or its end.
func (s *Shared) taken(m *wire.Part) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(m.S)
	switch {
	case p == nil && (s.begins || m.S != s.last+1):
		return fmt.Errorf("%w: there is no part %d, and %d is the last", line.ErrLine, m.S, s.last)
	case p == nil && len(s.parts) == MaxParts:
		return fmt.Errorf("%w: more than %d parts at once", line.ErrLine, MaxParts)
	case p == nil:
		p = s.add(s.last + 1)
		select {
		case s.fresh <- p:
			s.last++
		default: // as many as there may be were ended before anybody took them
			return fmt.Errorf("%w: parts begin and end faster than they are taken", line.ErrLine)
		}
	case p.heardEnd:
		return fmt.Errorf("%w: part %d goes on after its end", line.ErrLine, m.S)
	}
	if m.N > p.mayCome {
		return fmt.Errorf("%w: part %d is %d bytes ahead of what was asked for", line.ErrLine, m.S, m.N-p.mayCome)
	}
	if p.mayCome -= m.N; m.N == 0 {
		p.heardEnd = true
		s.forget() // at once: where the peer had heard our end, its next part may be in the place of this one
	} else if !p.closed {
		p.keep(m.Payload)
	}
	p.wake()
	return nil
}

// asked takes in that the peer wants more of a part, or nothing more.
func (s *Shared) asked(m *wire.More) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(m.S)
	switch {
	case p == nil && m.S > s.last:
		return fmt.Errorf("%w: more is asked of part %d, and %d is the last", line.ErrLine, m.S, s.last)
	case p == nil: // it has ended since
		return nil
	case m.N < 0 || m.N > credit-p.mayGo:
		return fmt.Errorf("%w: %d more bytes are asked of part %d, of which %d may go", line.ErrLine, m.N, m.S, p.mayGo)
	case m.N == 0:
		p.refused, p.owesEnd = true, true
		s.kick()
	}
	p.mayGo += m.N
	p.wake()
	return nil
}

// kick has what is owed to the peer sent soon. It never blocks.
func (s *Shared) kick() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// settle sends what is owed to the peer, in place of those who read and close
// and who must not wait for a slow stream.
func (s *Shared) settle() error {
	for {
		select {
		case <-s.news:
		case <-s.over:
			return nil
		}
		select {
		case s.turn <- struct{}{}:
		case <-s.over:
			return nil
		}
		err := s.c.Send(s.owed()...)
		<-s.turn
		if err != nil {
			return err
		}
	}
}

// owed is what is to be told to the peer, of whose parts it forgets those that
// both sides have ended. Its caller has the turn.
func (s *Shared) owed() []wire.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ms []wire.Message
	for _, p := range s.parts {
		if p.number == 0 && p.owesEnd {
			p.begin()
		}
		if p.owesMore > 0 && !p.heardEnd && !p.closed {
			ms = append(ms, &wire.More{S: p.number, N: p.owesMore})
			p.mayCome += p.owesMore
			p.owesMore = 0
		}
		if p.owesEnd && !p.saidEnd {
			ms = append(ms, &wire.Part{S: p.number})
			p.saidEnd = true
		}
		if p.closed && !p.saidClosed && !p.heardEnd {
			ms = append(ms, &wire.More{S: p.number})
			p.saidClosed = true
		}
	}
	s.forget()
	return ms
}

// forget forgets the parts that both sides have ended. It needs the mutex.
func (s *Shared) forget() {
	s.parts = slices.DeleteFunc(s.parts, func(p *part) bool {
		over := p.saidEnd && p.heardEnd
		if over {
			p.wake()
		}
		return over
	})
}
