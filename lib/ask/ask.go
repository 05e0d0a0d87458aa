// Package ask is what the tools for people have in common: reading the
// operands that name jobs, the session with the head, and its answers; how a
// batch is given to it, and how results are brought from it.
//
// What a tool asks and what the head answers is told in dwire(5); dquery(1)
// tells what operands mean.
package ask

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
)

// A Head is a session with the head. It is used by one goroutine, one request
// after another. After any error but one of the head itself, or that it gave up a transfer,
// it is of no use.
type Head struct {
	*wire.Conn
	Addr string // where it is

	Noted func(string) // what a note after rows is given to; it must be set to ask for notes

	OnCluster bool // a batch that is submitted runs on a cluster, and is not for nodes

	mtime bool // jobs may give the mtime of inputs: heads of release 0.1.0 refuse it
	order bool // and priorities of their own, which they refuse, too
	mpi   bool // mpirun may start their ranks: those heads have each started by itself
	picks bool // the head takes several picks of one result

	secrets bool // batches may have secrets, which earlier heads would keep where others read them
}

// Dial makes a session with the head that flag, the value of -H, or the
// environment names. It ends when ctx does.
func Dial(ctx context.Context, c *cli.Cmd, flag string) (*Head, error) {
	addr, from, err := dial.HeadFrom(c.Getenv, flag)
	if err != nil {
		return nil, err
	}
	return greet(ctx, c, addr, from, func(ctx context.Context) (net.Conn, error) { return terms(c).Dial(ctx, addr) })
}

// terms are those of a tool.
func terms(c *cli.Cmd) dial.Terms { return dial.Terms{Sharing: dial.SharingDirs(c.Getenv)} }

// greet makes a session of a stream. From is the file that names the address,
// if one does.
func greet(ctx context.Context, c *cli.Cmd, addr, from string, stream func(context.Context) (net.Conn, error)) (*Head, error) {
	s, err := stream(ctx)
	var conn *wire.Conn
	var hello *wire.Hello
	if err == nil {
		conn, hello, err = dial.Over(ctx, s, addr, wire.Hello{Role: wire.RoleTool})
	}
	if unreached := (*dial.Error)(nil); errors.As(err, &unreached) {
		unreached.From = from
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, fs.ErrPermission):
		return nil, cli.Errorf(cli.NotAllowed, "%w", err)
	case err != nil:
		return nil, err
	}
	c.Verbose("asking the head at %q as %q", addr, hello.User)
	return &Head{Conn: conn, Addr: addr, mtime: hello.MTime, order: hello.Order, mpi: hello.MPI, picks: hello.Picks, secrets: hello.Secrets}, nil
}

// Failed explains an error of the session: the context's if that has ended,
// the head's own as it is, and else that the head went away.
func (h *Head) Failed(ctx context.Context, err error) error {
	var own *wire.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &own):
		return err
	case errors.Is(err, wire.ErrGaveUp):
		return cli.Errorf(cli.IO, "the head: %w", err)
	}
	odd := errors.Is(err, line.ErrLine) && !errors.Is(err, line.ErrPartial)
	return &Lost{h.Addr, err, odd}
}

// Odd is Failed for an answer that has come, and is none that a head gives.
func (h *Head) Odd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &Lost{h.Addr, err, true}
}

// Lost is that the session with a head ended before its answer did.
type Lost struct {
	Addr string
	Err  error
	Odd  bool // by what the head has said: it may say that again
}

func (l *Lost) Error() string {
	why := strings.ReplaceAll(l.Err.Error(), wire.ErrCut.Error()+": ", "") // what cut it says more
	if errors.Is(l.Err, io.EOF) || errors.Is(l.Err, io.ErrUnexpectedEOF) || errors.Is(l.Err, syscall.EPIPE) || errors.Is(l.Err, syscall.ECONNRESET) {
		why = "the connection was closed"
	}
	return fmt.Sprintf("lost the head at %q: %s", l.Addr, why)
}

// Unwrap returns the cause.
func (l *Lost) Unwrap() error { return l.Err }

// ExitStatus is the status with which a tool ends for it.
func (*Lost) ExitStatus() int { return cli.Unreachable }

// Answer sends a request and returns the transfer that answers it. The
// reader's errors have to go through Failed.
func (h *Head) Answer(ctx context.Context, request wire.Message) (io.Reader, error) {
	if err := h.Send(request); err != nil {
		return nil, h.Failed(ctx, err)
	}
	s, err := wire.Expect[*wire.Send](h.Conn)
	if err != nil {
		return nil, h.Failed(ctx, err)
	}
	return h.RecvTransfer(s), nil
}

// Rows asks q, part by part if ops has too many ids for one question, and
// calls each for every row that comes, which is valid during the call. An error
// of each ends it and is returned as it is.
func Rows[R any](ctx context.Context, h *Head, q wire.Query, ops *Operands, each func(*R) error) error {
	return RowsFrom(ctx, h, q, ops, func() {}, each)
}

// RowsFrom is Rows that calls begun when the head begins to answer: from then on it
// follows what is to be followed.
func RowsFrom[R any](ctx context.Context, h *Head, q wire.Query, ops *Operands, begun func(), each func(*R) error) error {
	parts := ops.Parts()
	if len(parts) > 1 && q.Follow {
		return cli.Usagef("%d ids are too many to follow: name their batches", len(ops.Args))
	}
	for _, part := range parts {
		q.Ref, q.Args = job.NewToken(), part
		r, err := h.Answer(ctx, &q)
		if err != nil {
			return err
		}
		begun()
		var row R
		words := map[string]string{}
		err = h.lines(ctx, r, func(b []byte) (err error) {
			if q.Notes && bytes.HasPrefix(b, []byte(`{"note":`)) {
				var n wire.Note
				if err := line.Unmarshal(b, &n); err != nil {
					return h.Odd(ctx, err)
				}
				h.Noted(n.Note)
				return nil
			}
			if r, ok := any(&row).(*job.Row); ok {
				err = job.ReadRow(b, r, words)
			} else {
				var none R
				row = none
				err = line.Unmarshal(b, &row)
			}
			if err != nil {
				return h.Odd(ctx, err)
			}
			return each(&row)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lines calls each for every line of a transfer.
func (h *Head) lines(ctx context.Context, r io.Reader, each func([]byte) error) error {
	in := line.NewReader(r, wire.MaxLine)
	for {
		b, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return h.Failed(ctx, err)
		}
		if err := each(b); err != nil {
			return err
		}
	}
}

// Change asks for a change of the jobs that ops means, and calls each for the
// id of every job that was changed. If it takes several requests, all of them
// are tried first, so that one that the head refuses keeps the others from
// being made.
func (h *Head) Change(ctx context.Context, c wire.Change, ops *Operands, each func(id string) error) error {
	parts := ops.Parts()
	if len(parts) > 1 && !c.Dry {
		try := c
		try.Dry = true
		if err := h.change(ctx, try, parts, func(string) error { return nil }); err != nil {
			return err
		}
	}
	return h.change(ctx, c, parts, each)
}

func (h *Head) change(ctx context.Context, c wire.Change, parts [][]string, each func(id string) error) error {
	return h.changes(ctx, c, parts, func(b []byte) error {
		id := string(b)
		if _, _, _, err := job.ParseID(id); err != nil {
			return h.Odd(ctx, err)
		}
		return each(id)
	})
}

// changes asks for a change, part by part, and calls each for every line of the
// answers.
func (h *Head) changes(ctx context.Context, c wire.Change, parts [][]string, each func(line []byte) error) error {
	for _, part := range parts {
		c.Ref, c.Args = job.NewToken(), part
		r, err := h.Answer(ctx, &c)
		if err != nil {
			return err
		}
		if err := h.lines(ctx, r, each); err != nil {
			return err
		}
	}
	return nil
}

// Delete asks that the batches that ops means be deleted, and calls each for
// what becomes of every one. Like Change it tries several requests first.
func (h *Head) Delete(ctx context.Context, c wire.Change, ops *Operands, each func(*wire.Deletion) error) error {
	c.Verb = "delete"
	parts := ops.Parts()
	read := func(b []byte) error {
		var d wire.Deletion
		if err := line.Unmarshal(b, &d); err != nil {
			return h.Odd(ctx, err)
		}
		if _, err := job.ParseBatchID(string(d.Batch)); err != nil {
			return h.Odd(ctx, err)
		}
		return each(&d)
	}
	if len(parts) > 1 && !c.Dry {
		try := c
		try.Dry = true
		if err := h.changes(ctx, try, parts, func([]byte) error { return nil }); err != nil {
			return err
		}
	}
	return h.changes(ctx, c, parts, read)
}

// maxOdd is how often a head may break the protocol in the same way.
const maxOdd = 3

// Again calls try until it ends without losing the head, with a pause of one
// second that doubles up to half a minute after each loss. It gives up when
// the context ends. A try that got anywhere calls the function it is given,
// which makes the next pause short again; before the first such call an error
// is returned at once. A loss is told, each cause of it once, and its end. A head
// that breaks the protocol maxOdd times in the same way is given up, with status
// 74.
func Again(ctx context.Context, c *cli.Cmd, try func(progress func()) error) error {
	reached, pause, told := false, time.Second, ""
	var odd string // the invalid answer of the head
	times := 0     // how often it came
	for {
		err := try(func() {
			if told != "" {
				c.Talk("the head answers again")
			}
			reached, pause, told = true, time.Second, ""
		})
		var lost interface{ ExitStatus() int }
		if err == nil || ctx.Err() != nil || !reached || !errors.As(err, &lost) || lost.ExitStatus() != cli.Unreachable {
			return err
		}
		var l *Lost
		if errors.As(err, &l) && l.Odd {
			if times++; l.Err.Error() != odd {
				odd, times = l.Err.Error(), 1
			}
			if times == maxOdd {
				return cli.Errorf(cli.IO, "giving up on the head at %q: the same invalid answer, %d times: %w", l.Addr, times, l.Err)
			}
		}
		if text := err.Error(); text != told {
			c.Talk("%v; trying again in %v", err, pause)
			told = text
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, 30*time.Second)
	}
}
