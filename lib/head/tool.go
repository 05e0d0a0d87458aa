package head

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
	"distribute/spool"
)

// A tool is the head's side of one tool's session.
type tool struct {
	*Head
	c    *wire.Conn
	peer dial.Peer
	x    uint64 // names its transfers

	named bool // head.yaml names the peer as an operator
	asked time.Time
	by    *settings // what it said then

	jobs      *spool.Batch   // whose jobs were asked for last; nil: none
	results   *spool.Results // that were asked for last; nil: none
	resultsOf job.BatchID
}

// serveTool answers a tool's requests, one after another, until it goes.
func (h *Head) serveTool(ctx context.Context, c *wire.Conn, peer dial.Peer, known func()) error {
	if !peer.Tool() {
		return &wire.Error{Status: cli.NotAllowed, Text: "this stream does not prove which user you are: use the spool's socket, or ssh"}
	}
	if err := h.admit(peer); err != nil {
		return err
	}
	defer h.giveBack(peer.UID, user{tools: 1})
	known()
	if err := c.Send(h.hello(wire.Hello{User: peer.User, MTime: true, Order: true, MPI: true, Secrets: true, Picks: true})); err != nil {
		return err
	}
	t := &tool{Head: h, c: c, peer: peer}
	defer t.forgetJobs()
	for {
		c.ReadWithin(toolWithin)
		m, err := c.Recv()
		if errors.Is(err, wire.ErrUnknown) {
			err = c.Send(&wire.Error{Status: cli.Usage, Text: err.Error()})
			if err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if err := t.answer(ctx, m); err != nil {
			return err
		}
	}
}

// answer answers one request. What is wrong with it is told to the tool; an
// error is returned only when the stream is of no use any more.
func (t *tool) answer(ctx context.Context, m wire.Message) error {
	var err error
	switch m := m.(type) {
	case *wire.Query:
		err = t.query(ctx, m)
	case *wire.Change:
		err = t.change(ctx, m)
	case *wire.Pull:
		err = t.pull(m)
	case *wire.Log:
		err = t.printed(ctx, m)
	case *wire.Submit:
		err = t.submit(m)
	case *wire.Ping:
		err = t.c.Send(&wire.Pong{N: m.N})
	default:
		err = &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("a tool does not say %T", m)}
	}
	if errors.Is(err, errHungUp) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, line.ErrLine) {
		return err
	}
	refusal := asRefusal(err)
	if refusal == nil {
		return err
	}
	if t.over.Err() != nil { // of what dsched does not know any more nothing is told, and the tool asks the next one
		return errHungUp
	}
	return t.c.Send(refusal)
}

// errHungUp ends a session that cannot go on after an answer.
var errHungUp = errors.New("the tool has hung up, or spoke out of turn")

// send begins a transfer on the tool's stream.
func (t *tool) send(of string) *wire.Send {
	t.x++
	return &wire.Send{X: t.x, Of: of}
}

// transfer sends what write writes. If that fails while dsched ends, it closes the stream, so that
// the tool does not take this for an answer, and asks the next dsched.
func (t *tool) transfer(s *wire.Send, write func(io.Writer) error) error {
	return t.c.SendTransfer(s, func(w io.Writer) error {
		err := write(w)
		if err != nil && t.over.Err() != nil {
			t.c.Close()
		}
		return err
	})
}

// sendRows answers a request with rows, each as a line of JSON.
func sendRows[T any](t *tool, ref job.Token, rows []T) error {
	s := t.send(wire.OfRows)
	s.Ref = ref
	return t.transfer(s, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		for i := range rows {
			if err := enc.Encode(&rows[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// whileThere gives a context that ends when the tool goes away. While it is
// not ended by stop, the tool may say nothing; afterwards the stream is of no
// more use.
func (t *tool) whileThere(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	t.c.ReadWithin(0)
	go func() {
		var err error
		defer stop()
		defer t.caught(&err)
		_, err = t.c.Recv()
	}()
	return ctx, stop
}

// unlessGone is err at the end of an answer that went on for a while. If ctx,
// of whileThere, has ended, the tool has gone or dsched is ending: then the
// stream is closed, so that what was sent is not taken for the whole, and a tool
// that is still there asks again.
func (t *tool) unlessGone(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	t.c.Close()
	return ctx.Err()
}
