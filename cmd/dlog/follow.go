package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

// maxFollowed is how many jobs are followed at once: each has a session.
const maxFollowed = 64

// A log is what one job prints, and how far it is printed here.
type log struct {
	id    string // as the person knows it
	ask   wire.Log
	begun bool  // the head has said which attempt it is of, and so does ask
	over  bool  // all of it is printed, or why not is in err
	err   error //
}

func newLog(id string, ask wire.Log) *log {
	ask.ID = id
	return &log{id: id, ask: ask}
}

// show prints what one job printed, from where it is. It takes a session of its
// own, since one over which output was sent as it came cannot be used for more.
func (l *log) show(ctx context.Context, heads *ask.Sessions, out *output) error {
	h, err := heads.Dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	l.ask.Ref = job.NewToken()
	if err := h.Send(&l.ask); err != nil {
		return h.Failed(ctx, err)
	}
	s, err := wire.Expect[*wire.Send](h.Conn)
	if err != nil {
		return fmt.Errorf("%s: %w", l.id, h.Failed(ctx, err))
	}
	if !l.begun {
		l.begun, l.ask.Lines, l.ask.From = true, 0, max(s.From, 0)
		if batch, name, try, err := job.ParseID(l.id); err == nil && try == 0 && s.Try > 0 {
			l.ask.ID = batch.Job(name).Try(s.Try) // and of no later one
		}
	}
	n, err := out.copy(l.id, h.RecvTransfer(s), func(err error) error { return h.Failed(ctx, err) })
	l.ask.From += n
	return err
}

// follow is show until the job is over, also of one that does not run yet.
func (l *log) follow(ctx context.Context, heads *ask.Sessions, out *output) error {
	again := l.begun
	err := l.show(ctx, heads, out)
	var refusal *wire.Error
	if l.ask.Build || !errors.As(err, &refusal) || refusal.Status != cli.NoSuch {
		return err
	}
	away, waited := l.wait(ctx, heads)
	switch {
	case waited != nil:
		return waited
	case away && again:
		return &nodeAway{l.id}
	}
	return l.show(ctx, heads, out)
}

// nodeAway is that the head is there again and the node of a job is not yet.
type nodeAway struct{ id string }

func (e *nodeAway) Error() string { return fmt.Sprintf("the node of %s is not connected", e.id) }

// ExitStatus is that of a head that is lost: it is tried again as one is.
func (*nodeAway) ExitStatus() int { return cli.Unreachable }

// errBegun ends the answer to the question of wait.
var errBegun = errors.New("it runs, or does not any more")

// wait waits while a job is on its node and its command does not run yet, and
// says whether the node is away. It takes a session of its own, since the answer
// has no end.
func (l *log) wait(ctx context.Context, heads *ask.Sessions) (away bool, err error) {
	h, err := heads.Dial(ctx)
	if err != nil {
		return false, err
	}
	defer h.Close()
	batch, name, try, err := job.ParseID(l.ask.ID)
	if err != nil {
		return false, err
	}
	late := []string{wire.Running, wire.Paused, wire.Stuck, wire.Returning}
	ops := &ask.Operands{Args: []string{string(batch.Job(name))}}
	err = ask.Rows(ctx, h, wire.Query{Of: "jobs", Follow: true}, ops, func(r *job.Row) error {
		mine := try == 0 || try == r.Attempt
		if r.State == job.Running && !slices.Contains(late, r.Phase) && mine {
			return nil
		}
		away = r.State == job.Unreachable && mine
		return errBegun
	})
	if errors.Is(err, errBegun) {
		return away, nil
	}
	return false, err
}

// follows prints what jobs print, all at once, until they are over, and goes on
// where it was when the head is lost and comes back.
func follows(ctx context.Context, c *cli.Cmd, head string, ids []string, want wire.Log, out *output) error {
	if len(ids) > maxFollowed {
		return cli.Usagef("-f: %d jobs fit, and %d can be followed at once", len(ids), maxFollowed)
	}
	var logs []*log
	for _, id := range ids {
		logs = append(logs, newLog(id, want))
	}
	err := ask.Again(ctx, c, func(progress func()) error { return together(ctx, c, head, logs, out, progress) })
	if err != nil {
		return err
	}
	var problems []error
	for _, l := range logs {
		problems = append(problems, l.err)
	}
	return errors.Join(problems...)
}

// together follows all logs that are not over until they are, or until one of
// them loses the head: then the others begin anew with it.
func together(ctx context.Context, c *cli.Cmd, head string, logs []*log, out *output, progress func()) error {
	heads, err := ask.NewSessions(c, head)
	if err != nil {
		return err
	}
	defer heads.Close()
	inner, cut := context.WithCancel(ctx)
	defer cut()
	h, err := heads.Dial(ctx)
	if err != nil {
		return err
	}
	h.Close()
	progress()
	var all sync.WaitGroup
	var mu sync.Mutex // guards lost
	var lost error
	for _, l := range logs {
		if l.over {
			continue
		}
		all.Go(func() {
			err := l.follow(inner, heads, out)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				l.over = true
			case inner.Err() != nil:
			case err != nil && cli.Status(err) == cli.Unreachable:
				lost = err
				cut()
			default:
				l.over, l.err = true, err
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return lost
}
