package dial

import (
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"distribute/lib/wire"
)

// A part is one of the streams that share a stream. The mutex of that guards
// its fields.
type part struct {
	s       *Shared
	number  uint64        // 0: the peer has not heard of it
	changed chan struct{} // closed when something has; nil: nobody waits
	writing chan struct{} // held by who writes; has room for one

	in       [][]byte // that came and was not read
	off      int      // of the first of these, what was read
	mayCome  int      // bytes that the peer may send
	owesMore int      // bytes that it may send once it is told
	heardEnd bool     // no more will come

	mayGo   int  // bytes that may be sent
	refused bool // the peer reads no more
	owesEnd bool // no more will go, and the peer is to be told
	saidEnd bool

	closed, saidClosed bool // nothing is read any more

	readBy, writeBy limit
}

// begin gives the part its number. Parts begin in the order of their numbers:
// it needs the turn, and the mutex.
func (p *part) begin() {
	p.s.last++
	p.number = p.s.last
}

// wake has those look again who wait for a change. It needs the mutex.
func (p *part) wake() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// waits is a channel that is closed at the next change. It needs the mutex.
func (p *part) waits() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// wait waits for a change, or for the time of a limit. It needs the mutex, which
// it lets go meanwhile.
func (p *part) wait(l *limit) {
	changed, late := p.waits(), l.late
	p.s.mu.Unlock()
	defer p.s.mu.Lock()
	select {
	case <-changed:
	case <-late:
	}
}

// ownFrom is from how many bytes on a payload is kept where it is, and not
// copied behind others; maxSpare how many such are kept for use again.
const (
	ownFrom  = 32 << 10
	maxSpare = 8
)

// keep puts what came behind what is there already. What it takes of memory is
// at most twice what came. It needs the mutex.
func (p *part) keep(b []byte) {
	n := len(p.in)
	switch {
	case n > 0 && cap(p.in[n-1])-len(p.in[n-1]) >= len(b):
		p.in[n-1] = append(p.in[n-1], b...)
	case len(b) < ownFrom || cap(b) > 2*len(b):
		p.in = append(p.in, append(make([]byte, 0, max(len(b), min(ownFrom, 2*len(b)))), b...))
	default:
		var next []byte
		if k := len(p.s.spare); k > 0 {
			next, p.s.spare = p.s.spare[k-1], p.s.spare[:k-1]
		}
		p.s.c.Leave(next)
		p.in = append(p.in, b)
	}
}

// Read reads what has come. After the end of the stream it still gives what had
// come before.
func (p *part) Read(b []byte) (int, error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for {
		switch {
		case p.closed:
			return 0, failed("read", net.ErrClosed)
		case p.readBy.passed():
			return 0, failed("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case len(p.in) > 0:
			return p.take(b), nil
		case p.heardEnd:
			return 0, io.EOF
		case p.s.err != nil:
			return 0, p.s.err
		}
		p.wait(&p.readBy)
	}
}

// take gives of what has come, and asks for as much. It needs the mutex.
func (p *part) take(b []byte) (n int) {
	for n < len(b) && len(p.in) > 0 {
		k := copy(b[n:], p.in[0][p.off:])
		n += k
		if p.off += k; p.off == len(p.in[0]) {
			if cap(p.in[0]) >= ownFrom && len(p.s.spare) < maxSpare {
				p.s.spare = append(p.s.spare, p.in[0][:0])
			}
			p.in, p.off = slices.Delete(p.in, 0, 1), 0
		}
	}
	if p.owesMore += n; p.owesMore >= askFrom {
		p.s.kick()
	}
	return n
}

// Write sends b in frames. Those of other parts go in between.
func (p *part) Write(b []byte) (n int, err error) {
	if err := p.hold(p.writing, nil); err != nil {
		return 0, err
	}
	defer func() { <-p.writing }()
	for n < len(b) && err == nil {
		var k int
		k, err = p.send(b[n:])
		n += k
	}
	return n, err
}

// send sends one frame of b, when the peer has asked for something.
func (p *part) send(b []byte) (int, error) {
	m := &wire.Part{}
	err := p.hold(p.s.turn, func() bool { return p.mayGo > 0 })
	if err != nil {
		return 0, err
	}
	defer func() { <-p.s.turn }()
	p.s.mu.Lock()
	if err = p.stopped(); err == nil {
		if p.number == 0 {
			p.begin()
		}
		m.S, m.N = p.number, min(len(b), p.mayGo, wire.MaxFrame)
		m.Payload = b[:m.N]
		p.mayGo -= m.N
	}
	p.s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if err := p.s.c.Send(m); err != nil {
		p.s.end(err)
		return 0, p.s.Err()
	}
	return m.N, nil
}

// stopped says why nothing may be written any more. It needs the mutex.
func (p *part) stopped() error {
	switch {
	case p.closed, p.owesEnd && !p.refused:
		return failed("write", net.ErrClosed)
	case p.s.err != nil:
		return p.s.err
	case p.refused:
		return failed("write", syscall.EPIPE)
	case p.writeBy.passed():
		return failed("write", os.ErrDeadlineExceeded)
	}
	return nil
}

// hold waits until ready, which has the mutex, and takes what one writer can
// have at a time.
func (p *part) hold(turn chan<- struct{}, ready func() bool) error {
	for {
		p.s.mu.Lock()
		err, open := p.stopped(), turn
		if ready != nil && !ready() {
			open = nil
		}
		changed, late := p.waits(), p.writeBy.late
		p.s.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case open <- struct{}{}:
			return nil
		case <-changed:
		case <-late:
		}
	}
}

// CloseWrite says that no more will be sent. The part can still be read.
func (p *part) CloseWrite() error { return p.shut(func() {}) }

// Close ends the part both ways. It does not wait for the stream: what was
// written goes first.
func (p *part) Close() error {
	return p.shut(func() {
		p.closed, p.in = true, nil
		p.readBy.set(time.Time{})
		p.writeBy.set(time.Time{})
		if p.number == 0 {
			p.s.parts = slices.DeleteFunc(p.s.parts, func(q *part) bool { return p == q })
		}
	})
}

// shut ends the way to the peer, and what also does.
func (p *part) shut(also func()) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.closed {
		return failed("close", net.ErrClosed)
	}
	also()
	p.owesEnd = true
	p.wake()
	p.s.kick()
	return nil
}

// A limit is a deadline.
type limit struct {
	late  chan struct{} // closed when it has passed; nil: there is none
	timer *time.Timer
}

// set moves the deadline. The zero time takes it away.
func (l *limit) set(at time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.late, l.timer = nil, nil; at.IsZero() {
		return
	}
	late := make(chan struct{})
	l.late = late
	if d := time.Until(at); d > 0 {
		l.timer = time.AfterFunc(d, func() { close(late) })
		return
	}
	close(late)
}

func (l *limit) passed() bool {
	select {
	case <-l.late:
		return true
	default:
		return false
	}
}

// SetDeadline is both of the others.
func (p *part) SetDeadline(t time.Time) error { return p.limit(t, &p.readBy, &p.writeBy) }

// SetReadDeadline ends reads at t, also those under way, as net.Conn says.
func (p *part) SetReadDeadline(t time.Time) error { return p.limit(t, &p.readBy) }

// SetWriteDeadline ends writes at t that wait for the peer or for other parts.
// A frame that has begun goes on.
func (p *part) SetWriteDeadline(t time.Time) error { return p.limit(t, &p.writeBy) }

func (p *part) limit(t time.Time, ls ...*limit) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.closed {
		return failed("set", net.ErrClosed)
	}
	for _, l := range ls {
		l.set(t)
	}
	p.wake()
	return nil
}

// A partAddr is where a part comes from, of which nothing is known but that.
type partAddr struct{}

func (partAddr) Network() string { return "part" }
func (partAddr) String() string  { return "part" }

// LocalAddr and RemoteAddr say nothing: a part has no address of its own.
func (p *part) LocalAddr() net.Addr  { return partAddr{} }
func (p *part) RemoteAddr() net.Addr { return partAddr{} }

// failed is the error of a call, as those of other streams are.
func failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "part", Addr: partAddr{}, Err: err}
}
