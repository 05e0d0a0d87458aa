package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// relayed is how many bytes are moved at a time, at most, and what a pipe of this
// process should hold: as much as any user may ask for.
const relayed = 1 << 20

// Relay moves what comes from in to the stream, and from that to out, until ctx ends
// or one of them does: neither side of the protocol goes on when the other has
// stopped. What is a pipe is moved by splice(2), which copies nothing; it may wait for
// that pipe also afterwards, so the process has to end then.
func Relay(ctx context.Context, stream net.Conn, in io.Reader, out io.Writer) error {
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	ended := make(chan error, 2)
	go func() { ended <- toSocket(stream, in) }()
	go func() { ended <- fromSocket(out, stream) }()
	err := <-ended
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil // whoever it was for is gone
	}
	return err
}

// toSocket moves what comes to a socket.
func toSocket(to net.Conn, from io.Reader) error {
	in, out := pipeOf(from), rawOf(to)
	if in < 0 || out == nil {
		_, err := io.Copy(to, from)
		return err
	}
	return splice(out.Write, func(socket int) (int64, error) {
		return unix.Splice(in, nil, socket, nil, relayed, unix.SPLICE_F_MOVE)
	})
}

// fromSocket moves what comes from a socket.
func fromSocket(to io.Writer, from net.Conn) error {
	in, out := rawOf(from), pipeOf(to)
	if in == nil || out < 0 {
		_, err := io.Copy(to, from)
		return err
	}
	return splice(in.Read, func(socket int) (int64, error) {
		return unix.Splice(socket, nil, out, nil, relayed, unix.SPLICE_F_MOVE)
	})
}

// splice moves until the end. Ready waits for the socket, which must not wait
// itself: splice(2) has the lock of the pipe meanwhile, and sshd, at its other end,
// would stand still.
func splice(ready func(func(uintptr) bool) error, move func(socket int) (int64, error)) error {
	for {
		var n int64
		var failed error
		err := ready(func(socket uintptr) bool {
			n, failed = move(int(socket))
			return failed != unix.EAGAIN
		})
		switch {
		case err != nil:
			return err
		case failed == unix.EINTR:
		case failed != nil:
			return os.NewSyscallError("splice", failed)
		case n == 0:
			return nil
		}
	}
}

// rawOf is the socket of a stream, nil if it has none.
func rawOf(c net.Conn) syscall.RawConn {
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// pipeOf is the descriptor of a pipe, made as large as it may be, and -1 of all else.
func pipeOf(f any) int {
	file, ok := f.(interface{ Fd() uintptr })
	if !ok {
		return -1
	}
	fd := int(file.Fd())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err != nil {
		return -1
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, relayed) // a smaller one is only slower
	return fd
}
