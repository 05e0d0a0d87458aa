package noded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
)

// How often a file is looked at while somebody follows it, how many files may be followed, and how
// many may be sent at a time with the logs of builds. The head asks for each of these once, and of
// the others for half as many: one that it has ended may take a moment.
const (
	lookEvery     = 100 * time.Millisecond
	MaxTails      = 128
	maxBuildTails = 1024
)

// tail begins to send what an attempt or its build printed. It is called in the order
// of the head's messages, and opens what is there at once: the next message may let the
// attempt go.
func (s *session) tail(ctx context.Context, n *daemon, m *wire.Tail) {
	ctx, cancel := context.WithCancel(ctx)
	most := MaxTails
	if m.Build && !m.Follow {
		most = maxBuildTails
	}
	s.mu.Lock()
	if s.tails[m.X] != nil || len(s.tails) >= most {
		s.mu.Unlock()
		cancel()
		s.out.put(&wire.Send{X: m.X, Of: wire.OfLog, Attempt: m.Attempt}, &wire.End{X: m.X, Error: fmt.Sprintf("%d logs are followed on this node, which is the limit", most)})
		return
	}
	s.tails[m.X] = cancel
	s.mu.Unlock()
	var f *os.File
	var over bool
	a, err := n.attemptOf(m)
	if err == nil {
		f, over, err = n.openOutput(a, m)
	}
	s.following.Go(func() {
		defer s.untail(m.X)
		n.guarded(func() error {
			for ; f == nil && err == nil && !over && m.Follow; f, over, err = n.openOutput(a, m) {
				if linger(ctx, lookEvery); ctx.Err() != nil {
					err = ctx.Err()
					break
				}
			}
			var o *output
			if f != nil {
				defer f.Close()
				o, err = outputFrom(f, a, m)
			}
			send := wire.Send{X: m.X, Of: wire.OfLog, Attempt: m.Attempt, From: -1} // nowhere
			if o != nil {
				send.From = o.from
			}
			return s.c.SendTransfer(&send, func(w io.Writer) error {
				if o == nil {
					return err
				}
				err := n.follow(ctx, o, m, w.(*wire.Writer))
				if err == nil && !m.Build {
					send.Cut = n.whyCut(o)
				}
				return err
			})
		})
	})
}

func (s *session) untail(x uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.tails[x]; cancel != nil {
		cancel()
		delete(s.tails, x)
	}
}

// An output is what an attempt or its build printed, from a byte on.
type output struct {
	*os.File
	of   *attempt
	from int64
}

// outputFrom is an output from where it is asked for.
func outputFrom(f *os.File, a *attempt, m *wire.Tail) (*output, error) {
	o := &output{f, a, m.From}
	if info, err := f.Stat(); err == nil && o.from < 0 {
		o.from = max(0, info.Size()+o.from)
	}
	if m.Lines > 0 {
		from, err := line.Last(f, m.Lines)
		if err != nil {
			return nil, err
		}
		o.from = from
	}
	if _, err := f.Seek(o.from, io.SeekStart); err != nil {
		return nil, err
	}
	return o, nil
}

// follow copies an output to its end, and with Follow what is added until the
// attempt is over. That ctx ends before is an error: more may come.
func (n *daemon) follow(ctx context.Context, o *output, m *wire.Tail, w *wire.Writer) error {
	for {
		over := n.isOver(o.of, m.Build)
		for {
			if _, err := io.CopyN(w, o, 1<<20); err == io.EOF {
				break
			} else if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if over || !m.Follow || ctx.Err() != nil {
			return ctx.Err()
		}
		linger(ctx, lookEvery)
	}
}

// whyCut returns why an output of an attempt lacks its end, or "".
func (n *daemon) whyCut(o *output) (why string) {
	info, err := o.Stat()
	if err != nil {
		return ""
	}
	n.do(func() {
		if r := o.of.result; r != nil {
			why = job.WhyCut(r.Reason, info.Size())
		}
	})
	return why
}

var errNotHere = errors.New("the attempt is not on this node")

// attemptOf is the attempt of which an output is asked for.
func (n *daemon) attemptOf(m *wire.Tail) (a *attempt, err error) {
	n.do(func() { a = n.attempts[m.Attempt] })
	if a == nil {
		return nil, errNotHere
	}
	return a, nil
}

// openOutput opens what is asked for of an attempt. If it is not there yet the file is
// nil; over says then that it will never be.
func (n *daemon) openOutput(a *attempt, m *wire.Tail) (f *os.File, over bool, err error) {
	name := a.RankOutput(m.Rank)
	if s := a.Started(); s != nil && m.Rank > 0 && m.Rank >= s.Ranks {
		return nil, true, fmt.Errorf("it has no rank %d", m.Rank)
	}
	over = n.isOver(a, m.Build)
	if m.Build {
		if b, err := n.desk.Build(a.Job.Batch(), n.builder(a.User), a.Spec); err == nil {
			name = b.Output()
		}
	}
	f, err = openPlain(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, over, err
	}
	if now, err := n.attemptOf(m); err != nil || now != a { // the head has it, and it was deleted meanwhile
		return nil, over, errNotHere
	}
	return nil, over, nil
}

// isOver says whether nothing will be added to what an attempt, or its build,
// printed.
func (n *daemon) isOver(a *attempt, build bool) (over bool) {
	over = true
	n.do(func() {
		over = a.result != nil
		if build && !over {
			over = a.began() || !n.building(a) && a.phase != job.PhaseWaiting && a.phase != job.PhaseSending
		}
	})
	return over
}

// building says whether the batch of an attempt is being built here.
func (n *daemon) building(a *attempt) bool {
	b := n.buildOf(a)
	return b != nil && b.run != nil
}
