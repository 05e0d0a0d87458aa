package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// relayed is how many bytes are moved at a time, at most.
const relayed = 256 << 10

// Relay moves what comes from in to the stream, and from that to out, until ctx ends
// or one of them does: neither side of the protocol goes on when the other has
// stopped. A read of in may go on afterwards, so the process has to end then. The
// limit of a message that was written before does not hold: a stream lasts for days.
func Relay(ctx context.Context, stream net.Conn, in io.Reader, out io.Writer) error {
	if err := stream.SetDeadline(time.Time{}); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	ended := make(chan error, 2)
	move := func(to io.Writer, from io.Reader) {
		// Bare, so that this buffer is used and not a smaller one of theirs.
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, relayed))
		ended <- err
	}
	go move(stream, in)
	go move(out, stream)
	err := <-ended
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil // whoever it was for is gone
	}
	return err
}
