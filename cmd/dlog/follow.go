package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/unit"
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

	pause time.Duration // before it is looked at again
}

func newLog(id string, ask wire.Log) *log {
	ask.ID = id
	return &log{id: id, ask: ask}
}

// A session is the session with the head over which logs are asked for, one after another.
type session struct {
	heads *ask.Sessions
	head  *ask.Head // nil: it is dialled for the next one
}

// ask asks for a log. The head hangs up after output that it sent as it came, and when nothing is
// asked for long: then it is dialled anew and asked again, once.
func (s *session) ask(ctx context.Context, l *log) (answer *wire.Send, err error) {
	used := s.head != nil
	if !used {
		if s.head, err = s.heads.Dial(ctx); err != nil {
			return nil, err
		}
	}
	l.ask.Ref = job.NewToken()
	if err = s.head.Send(&l.ask); err != nil {
		err = s.head.Failed(ctx, err)
	} else if answer, err = wire.Expect[*wire.Send](s.head.Conn); err != nil {
		err = fmt.Errorf("%s: %w", l.id, s.head.Failed(ctx, err))
	}
	if used && err != nil && hungUp(err) {
		s.close()
		return s.ask(ctx, l)
	}
	return answer, err
}

// hungUp reports whether the head has ended a session, with or without a word.
func hungUp(err error) bool {
	var lost *ask.Lost
	var refusal *wire.Error
	return errors.As(err, &lost) && !lost.Odd || errors.As(err, &refusal) && refusal.Status == cli.Later
}

// keepIf closes the session unless it can be used for more after err.
func (s *session) keepIf(err error) {
	if err != nil && !answered(err) {
		s.close()
	}
}

func (s *session) close() {
	if s.head != nil {
		s.head.Close()
	}
	s.head = nil
}

// answered reports whether err is an answer of the head about one log, after which it can be asked
// for others.
func answered(err error) bool {
	var refusal *wire.Error
	return errors.As(err, &refusal) || errors.Is(err, wire.ErrGaveUp)
}

// show prints what one job printed, from where it is.
func (l *log) show(ctx context.Context, c *cli.Cmd, in *session, out *output) (err error) {
	defer func() { in.keepIf(err) }()
	s, err := in.ask(ctx, l)
	if err != nil {
		return err
	}
	h := in.head
	if !l.begun {
		l.begun, l.ask.Lines, l.ask.From = true, 0, max(s.From, 0)
		if batch, name, try, err := job.ParseID(l.id); err == nil && try == 0 && s.Try > 0 {
			l.ask.ID = batch.Job(name).Try(s.Try) // and of no later one
		}
	}
	n, err := out.copy(l.id, h.RecvTransfer(s), func(err error) error { return h.Failed(ctx, err) })
	switch l.ask.From += n; {
	case errors.Is(err, wire.ErrGaveUp):
		err = fmt.Errorf("%s: %w", l.id, err)
	case err == nil && s.Cut != "":
		c.Talk("%s: the end of the output is missing: %s; the first %s are kept", l.id, s.Cut, unit.FormatBytes(l.ask.From))
	}
	return err
}

// follow is show until the job is over, also of one that does not run yet, or
// whose node is lost and comes back.
func (l *log) follow(ctx context.Context, c *cli.Cmd, heads *ask.Sessions, out *output) error {
	for more := true; ; {
		from := l.ask.From
		in := &session{heads: heads}
		err := l.show(ctx, c, in, out)
		in.close()
		var refusal *wire.Error
		none := errors.As(err, &refusal) && refusal.Status == cli.NoSuch
		if l.ask.Build || !more || !none && !errors.Is(err, wire.ErrGaveUp) {
			return err
		}
		if l.ask.From > from {
			l.pause = 0
		}
		if more, err = l.wait(ctx, c, heads); err != nil {
			return err
		}
	}
}

// While there is nothing to show of a job it is looked at after pauses that
// double.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 15 * time.Second
)

// wait waits while a job is on its node and its command does not run yet, or
// while the node of one that was shown is not connected, which it tells. It says
// whether more may come.
func (l *log) wait(ctx context.Context, c *cli.Cmd, heads *ask.Sessions) (more bool, err error) {
	h, err := heads.Dial(ctx)
	if err != nil {
		return false, err
	}
	defer h.Close()
	batch, name, try, err := job.ParseID(l.ask.ID)
	if err != nil {
		return false, err
	}
	late := []job.Phase{job.PhaseRunning, job.PhasePaused, job.PhaseStuck, job.PhaseReturning}
	ops := &ask.Operands{Args: []string{string(batch.Job(name))}}
	for told := false; ; {
		select {
		case <-time.After(l.pause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
		l.pause = min(max(2*l.pause, firstPause), lastPause)
		var row job.Row
		err := ask.Rows(ctx, h, wire.Query{Of: "jobs"}, ops, func(r *job.Row) error {
			row = *r
			return nil
		})
		away := row.State == job.Unreachable
		switch {
		case err != nil:
			return false, err
		case row.State.Logged() != job.Running, try > 0 && try != row.Attempt, away && !l.begun:
			return false, nil
		case away && !told:
			c.Talk("the node of %s is not connected; going on when it is", l.id)
			told = true
		case !away && slices.Contains(late, row.Phase):
			if told {
				c.Talk("the node of %s is connected again", l.id)
			}
			return true, nil
		}
	}
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
			err := l.follow(inner, c, heads, out)
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
