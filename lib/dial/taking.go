package dial

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passedFiles is how many descriptors come with a message that passes a stream
// on. More have no room and are closed by the kernel.
const passedFiles = 2

// A Taking is a stream that was accepted, over which the peer may pass on the
// pipes of another, which it is from then on: see [Taking.Take]. Descriptors are
// taken with the first bytes of a Unix socket only.
type Taking struct {
	net.Conn

	begun bool
	files []int // that came and are not taken
	odd   bool  // what came beside the bytes is not what belongs there

	passed atomic.Pointer[passed]
	closed atomic.Bool
}

// NewTaking makes one of a stream, which is closed by closing it.
func NewTaking(c net.Conn) *Taking { return &Taking{Conn: c} }

// Read reads the stream. It is for one goroutine.
func (t *Taking) Read(b []byte) (int, error) {
	if p := t.passed.Load(); p != nil {
		return p.Read(b)
	}
	u, ok := t.Conn.(*net.UnixConn)
	if !ok || t.begun {
		return t.Conn.Read(b)
	}
	t.begun = true
	room := make([]byte, unix.CmsgSpace(4*passedFiles))
	n, oobn, flags, _, err := u.ReadMsgUnix(b, room)
	if oobn > 0 || flags&unix.MSG_CTRUNC != 0 {
		t.files, t.odd = descriptors(room[:oobn])
		t.odd = t.odd || flags&unix.MSG_CTRUNC != 0
	}
	if n == 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

// descriptors are those that came beside the bytes of a message; odd says that
// there was something else.
func descriptors(control []byte) (files []int, odd bool) {
	all, err := unix.ParseSocketControlMessage(control)
	odd = err != nil
	for i := range all {
		some, err := unix.ParseUnixRights(&all[i])
		files, odd = append(files, some...), odd || err != nil
	}
	return files, odd
}

// Take goes over to the pipes that came with the first message, one to read and
// one to write. An error says why it cannot, and the stream is what it was.
// Nothing may read or write meanwhile. From then on the stream ends also when the
// peer closes the socket over which they came, and deadlines begin anew.
func (t *Taking) Take() error {
	files := t.files
	t.files = nil
	if t.odd || len(files) != passedFiles {
		closeAll(files)
		return fmt.Errorf("%d descriptors came, where two belong", len(files))
	}
	p, err := newPassed(files[0], files[1])
	if err != nil {
		return err
	}
	t.Conn.SetDeadline(time.Time{})
	if t.passed.Store(p); t.closed.Load() {
		p.Close()
	}
	go func() {
		var one [1]byte
		t.Conn.Read(one[:]) // there is nothing to be said there any more
		p.Close()
	}()
	return nil
}

func closeAll(files []int) {
	for _, fd := range files {
		unix.Close(fd)
	}
}

// Write writes the stream.
func (t *Taking) Write(b []byte) (int, error) {
	if p := t.passed.Load(); p != nil {
		return p.Write(b)
	}
	return t.Conn.Write(b)
}

// SetReadDeadline is that of a [net.Conn].
func (t *Taking) SetReadDeadline(at time.Time) error {
	if p := t.passed.Load(); p != nil {
		return p.in.SetReadDeadline(at)
	}
	return t.Conn.SetReadDeadline(at)
}

// SetWriteDeadline is that of a [net.Conn].
func (t *Taking) SetWriteDeadline(at time.Time) error {
	if p := t.passed.Load(); p != nil {
		return p.out.SetWriteDeadline(at)
	}
	return t.Conn.SetWriteDeadline(at)
}

// SetDeadline is that of a [net.Conn].
func (t *Taking) SetDeadline(at time.Time) error {
	return errors.Join(t.SetReadDeadline(at), t.SetWriteDeadline(at))
}

// Close closes the stream: pipes first, so that who has passed them on hears of
// it when everything is in them. What was never taken is closed with it.
func (t *Taking) Close() error {
	t.closed.Store(true)
	if p := t.passed.Load(); p != nil {
		p.Close()
	}
	return t.Conn.Close()
}

// Forget closes what came and was not taken. It is for the goroutine that reads.
func (t *Taking) Forget() {
	closeAll(t.files)
	t.files = nil
}

// passed are two pipes that somebody else has made, and may still have, whose
// every system call says that it must not wait: that the pipe itself says so
// could be changed by whoever has it.
type passed struct {
	in, out *os.File
	once    sync.Once

	roomy bool // both hold much
	bulk  bool // much came with the last read
}

// While much is under way, who reads or writes a pipe waits for more than the
// first bytes of it, or room for them: its other end is filled or emptied by a
// packet of ssh at a time, and to be woken for each costs more than to move it. A
// pipe that holds less than roomyPipe would be empty, or full, by then.
const (
	bulkRead  = 16 << 10
	roomyPipe = 512 << 10
	gathering = 500 * time.Microsecond
)

// newPassed makes one of two descriptors, which it closes if it cannot.
func newPassed(in, out int) (*passed, error) {
	for _, why := range []error{knowsNoWait(), anonymous(in), anonymous(out), direction(in, syscall.O_RDONLY), direction(out, syscall.O_WRONLY),
		syscall.SetNonblock(in, true), syscall.SetNonblock(out, true)} {
		if why != nil {
			closeAll([]int{in, out})
			return nil, why
		}
	}
	return &passed{in: os.NewFile(uintptr(in), "passed in"), out: os.NewFile(uintptr(out), "passed out"), roomy: roomy(in) && roomy(out)}, nil
}

func roomy(fd int) bool {
	size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	return err == nil && size >= roomyPipe
}

// knowsNoWait reports that the kernel cannot be told by a call that this must not
// wait for a pipe, as it can since Linux 6.4.
func knowsNoWait() error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer closeAll(fds[:])
	var one [1]byte
	if _, err := unix.Preadv2(fds[0], [][]byte{one[:]}, -1, unix.RWF_NOWAIT); err != unix.EAGAIN {
		return fmt.Errorf("the kernel does not know RWF_NOWAIT of pipes: %w", err)
	}
	return nil
}

// Read reads the one pipe.
func (p *passed) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	conn, err := p.in.SyscallConn()
	if err != nil {
		return 0, wrapped("read", err)
	}
	var failed error
	patient := p.roomy && p.bulk
	err = conn.Read(func(fd uintptr) bool {
		n, failed = again(patient, func() (int, error) { return unix.Preadv2(int(fd), [][]byte{b}, -1, unix.RWF_NOWAIT) })
		return failed != unix.EAGAIN
	})
	p.bulk = n >= bulkRead
	if err == nil && failed == nil && n == 0 {
		return 0, io.EOF
	}
	return max(n, 0), wrapped("read", firstOf(err, failed))
}

// Write writes the other.
func (p *passed) Write(b []byte) (n int, err error) {
	conn, err := p.out.SyscallConn()
	if err != nil {
		return 0, wrapped("write", err)
	}
	var failed error
	err = conn.Write(func(fd uintptr) bool {
		for n < len(b) {
			var m int
			if m, failed = again(p.roomy, func() (int, error) { return unix.Pwritev2(int(fd), [][]byte{b[n:]}, -1, unix.RWF_NOWAIT) }); failed != nil {
				return failed != unix.EAGAIN
			}
			n += m
		}
		return true
	})
	return n, wrapped("write", firstOf(err, failed))
}

// again makes a system call until no signal has interrupted it. Where it is
// patient it makes it once more when something may have gathered.
func again(patient bool, call func() (int, error)) (n int, err error) {
	for {
		switch n, err = call(); {
		case err == unix.EAGAIN && patient:
			time.Sleep(gathering)
			patient = false
		case err != unix.EINTR:
			return n, err
		}
	}
}

// firstOf is the error of waiting for a pipe, else that of the call.
func firstOf(wait, call error) error {
	if wait != nil {
		return wait
	}
	return call
}

// wrapped is an error as a stream of the network has it.
func wrapped(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrDeadlineExceeded) && !isErrno(err):
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: "pipe", Err: err}
}

func isErrno(err error) bool { return errors.As(err, new(syscall.Errno)) }

// Close closes both pipes.
func (p *passed) Close() {
	p.once.Do(func() {
		p.out.Close()
		p.in.Close()
	})
}
