package wire

import (
	"errors"
	"fmt"
	"io"
	"time"

	"distribute/lib/timing"
)

// HelloWithin is how long a peer may take to say hello. Where every wait is divided, a
// busy machine has a second for it all the same.
var HelloWithin = max(timing.Wait(5*time.Second), time.Second)

// Greet says hello as the side that dialled and waits for the head's hello: the
// first sign of success. If the head refuses, its reason is returned as *Error.
func Greet(c *Conn, h Hello) (*Hello, error) {
	h.Proto = Proto
	c.ReadWithin(HelloWithin * 6)
	defer c.ReadWithin(0)
	if err := c.Send(&h); err != nil {
		return nil, err
	}
	head, err := Expect[*Hello](c)
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the head closed the connection without a word: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return nil, err
	case head.Role != RoleHead:
		return nil, fmt.Errorf("the peer says that it is a %.20q, not a head", head.Role)
	}
	return head, CheckProto(head.Proto)
}

// CheckProto reports whether a peer that speaks the given range of versions can
// be understood.
func CheckProto(peer [2]int) error {
	if peer[0] > Proto[1] || peer[1] < Proto[0] || peer[0] > peer[1] {
		return fmt.Errorf("the peer speaks versions %d to %d of the protocol, this program %d to %d: upgrade the older one",
			peer[0], peer[1], Proto[0], Proto[1])
	}
	return nil
}
