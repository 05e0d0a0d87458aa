package dial

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"distribute/lib/wire"

	"golang.org/x/sys/unix"
)

// ErrNotPassed is returned by Pass when the pipes are still the caller's.
var ErrNotPassed = errors.New("the pipes were not taken")

// passedSize is what a pipe should hold that is passed on, in bytes: what any
// user may ask for.
const passedSize = 1 << 20

// Pass gives the head at the other end of a Unix socket the pipes from which it
// is to read what the stream has, and to which it is to write, and returns when
// the head is done with them. With [ErrNotPassed], as from an older head, it has
// read and written nothing; the socket is of no use then.
func Pass(stream net.Conn, m *wire.Pass, in, out any) error {
	u, ok := stream.(*net.UnixConn)
	if !ok {
		return ErrNotPassed
	}
	fds := [2]int{}
	for i, f := range []any{in, out} {
		if fds[i] = pipeOf(f); fds[i] < 0 {
			return ErrNotPassed
		}
		// A smaller one is only slower.
		_, _ = unix.FcntlInt(uintptr(fds[i]), unix.F_SETPIPE_SZ, passedSize)
	}
	var text gathered
	if err := wire.New(&text).Send(m); err != nil {
		return err
	}
	if _, _, err := u.WriteMsgUnix(text, unix.UnixRights(fds[:]...), nil); err != nil {
		return fmt.Errorf("%w: %w", ErrNotPassed, err)
	}
	if _, err := wire.Expect[*wire.Error](wire.New(stream)); err == nil {
		return ErrNotPassed
	}
	return nil
}

// pipeOf is the descriptor of a pipe, -1 of all else.
func pipeOf(f any) int {
	file, ok := f.(syscall.Conn)
	if !ok {
		return -1
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return -1
	}
	found := -1
	if err := conn.Control(func(fd uintptr) {
		if anonymous(int(fd)) == nil {
			found = int(fd)
		}
	}); err != nil {
		return -1
	}
	return found
}

// anonymous reports why a descriptor is not that of a pipe that only who was
// given it can have.
func anonymous(fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	if fs.Type != unix.PIPEFS_MAGIC {
		return errors.New("it is no pipe")
	}
	return nil
}

// gathered is what was written to it.
type gathered []byte

func (*gathered) Read([]byte) (int, error) { return 0, io.EOF }
func (*gathered) Close() error             { return nil }

func (g *gathered) Write(b []byte) (int, error) {
	*g = append(*g, b...)
	return len(b), nil
}

// direction reports a pipe's end that cannot be read, or written, as it should.
func direction(fd, want int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if how := flags & syscall.O_ACCMODE; how != want && how != syscall.O_RDWR {
		return errors.New("it is the other end of a pipe")
	}
	return nil
}
