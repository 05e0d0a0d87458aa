package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/slurm"
	"distribute/lib/wire"
)

// How many results may be under way, how long the head may take for the next step of any
// of them, and for a message.
const (
	underWay    = 64
	headWithin  = 5 * time.Minute
	silentAfter = 45 * time.Second
)

// A work is one attempt on the cluster, of which the head is to be told.
type work struct {
	wire.Claimed
	job  *slurm.FolderJob
	fate slurm.Fate
	say  *job.Result // how it ended; nil: it has not
	left bool        // and it has left a result

	done    bool // the head has what it wants of it
	refused bool // the head does not take it
}

// A bringer tells the head what has become of attempts on the cluster, as a node does.
type bringer struct {
	c       *cli.Cmd
	addr    string
	name    node.Name
	p       *place
	kind    string
	moved   func(*work) // its result is safe at home, or not wanted
	control *wire.Conn
	up      *wire.Conn
	x       uint64

	mu   sync.Mutex // guards the works, of which each is in of while it is under way
	of   map[job.Token]*work
	late *time.Timer
}

// bring tells the head of all works: of those that run, and of those that have ended with
// what they left. It returns when the head has all that it wants.
func (b *bringer) bring(ctx context.Context, works []*work) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	terms := dial.Terms{Sharing: dial.SharingDirs(b.c.Getenv)}
	j, err := b.join(ctx, terms)
	if err != nil {
		return err
	}
	defer b.control.Close()
	if b.up, err = j.data(ctx, "up"); err != nil {
		return err
	}
	defer b.up.Close()
	b.of = map[job.Token]*work{}
	b.late = time.AfterFunc(headWithin, func() {
		cancel(cli.Errorf(cli.Later, "the head takes no result for %v (is its disk full?): what is left is for the next time", headWithin))
	})
	defer b.late.Stop()
	places, grants, pong := make(chan struct{}, underWay), make(chan *wire.Grant, underWay), make(chan uint64, 1)
	var hands sync.WaitGroup
	hand := func(f func() error) {
		hands.Go(func() {
			if err := f(); err != nil {
				cancel(err)
			}
		})
	}
	hand(func() error { return b.read(ctx, places, grants, pong) })
	hand(func() error {
		for {
			select {
			case g := <-grants:
				if err := b.deliver(ctx, g); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	err = b.tell(ctx, works, places)
	for i := uint64(1); i <= 2 && err == nil; i++ { // what was answered to the first is in the state by the second
		if err = b.control.Send(&wire.Ping{N: i}); err != nil {
			break
		}
		select {
		case <-pong:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if why := context.Cause(ctx); why != nil {
		err = why
	}
	cancel(nil)
	b.control.Close()
	b.up.Close()
	hands.Wait()
	return err
}

// A joint is what data streams join.
type joint struct {
	greet func(context.Context, wire.Hello) (*wire.Conn, *wire.Hello, error)
	token job.Token
}

// join begins the session of the cluster.
func (b *bringer) join(ctx context.Context, terms dial.Terms) (*joint, error) {
	j := &joint{greet: func(ctx context.Context, h wire.Hello) (*wire.Conn, *wire.Hello, error) {
		h.Name = string(b.name)
		s, err := terms.Dial(ctx, b.addr)
		if err != nil {
			return nil, nil, err
		}
		return dial.Over(ctx, s, b.addr, h)
	}}
	control, head, err := j.greet(ctx, wire.Hello{Role: wire.RoleNode, Boot: "-", State: "-"})
	if err != nil {
		return nil, err
	}
	if err := control.Send(&wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{}); err != nil {
		control.Close()
		return nil, err
	}
	b.control, j.token = control, head.Join
	return j, nil
}

// data makes a stream on which results go up, or jobs and their inputs come down, as
// soon as the head knows the session.
func (j *joint) data(ctx context.Context, way string) (*wire.Conn, error) {
	h := wire.Hello{Role: wire.RoleData, Join: j.token, State: way}
	c, _, err := j.greet(ctx, h)
	for wait := 5 * time.Millisecond; err != nil && wait < 2*time.Second; wait *= 2 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		c, _, err = j.greet(ctx, h)
	}
	return c, err
}

// tell says how far each work is. A place is taken for each that has ended, and all of
// them are free again at the end.
func (b *bringer) tell(ctx context.Context, works []*work, places chan struct{}) error {
	for _, w := range works {
		if w.say == nil {
			if w.fate.Stand == slurm.Running {
				if err := b.control.Send(&wire.Phase{Attempt: w.Attempt, Phase: job.PhaseRunning}); err != nil {
					return err
				}
			}
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := b.ready(ctx, w); err != nil {
			return err
		}
		b.mu.Lock()
		b.of[w.Attempt] = w
		b.mu.Unlock()
		b.late.Reset(headWithin)
		if err := b.control.Send(&wire.Ended{Attempt: w.Attempt, Result: *w.say}); err != nil {
			return err
		}
	}
	for range underWay {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ready reads what a work has left.
func (b *bringer) ready(ctx context.Context, w *work) error {
	if !w.left {
		return nil
	}
	r, err := resultOf(ctx, b.p, b.kind, w.job, w.fate.Outcome.Started)
	switch {
	case err == nil:
		defer r.root.Close()
		w.say = r.said(w.fate.Outcome)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, pack.ErrLimit), errors.Is(err, fs.ErrNotExist), errors.Is(err, pack.ErrFormat):
		w.say, w.left = &job.Result{Outcome: w.fate.Outcome}, false
		if w.say.Reason == "" {
			w.say.Reason = "what it left on the cluster cannot be brought home: " + err.Error()
		}
		return nil
	}
	return err
}

// read takes the head's messages in.
func (b *bringer) read(ctx context.Context, places chan struct{}, grants chan<- *wire.Grant, pong chan<- uint64) error {
	over := func(t job.Token, how func(*work)) {
		b.mu.Lock()
		w := b.of[t]
		delete(b.of, t)
		b.mu.Unlock()
		if w != nil {
			how(w)
			b.late.Reset(headWithin)
			<-places
		}
	}
	for {
		b.control.ReadWithin(silentAfter)
		m, err := b.control.Recv()
		switch {
		case errors.Is(err, wire.ErrUnknown):
			continue
		case err != nil && ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF):
			return cli.Errorf(cli.Unreachable, "the head has ended the session: what is left is for the next time")
		case err != nil:
			return cli.Errorf(cli.Unreachable, "lost the head: %w", err)
		}
		switch m := m.(type) {
		case *wire.Ping:
			err = b.control.Send(&wire.Pong{N: m.N})
		case *wire.Pong:
			pong <- m.N
		case *wire.Grant:
			b.late.Reset(headWithin)
			select {
			case grants <- m:
			case <-ctx.Done():
				return nil
			}
		case *wire.Have:
			over(m.Attempt, func(w *work) { w.done = true; b.moved(w) })
			err = b.control.Send(&wire.Gone{Attempt: m.Attempt})
		case *wire.Forget:
			if m.Attempt != "" {
				over(m.Attempt, func(w *work) { w.done = true; b.moved(w) })
				err = b.control.Send(&wire.Gone{Attempt: m.Attempt})
			}
		case *wire.Hold:
			over(m.Attempt, func(w *work) { w.refused = true })
		case *wire.Error:
			return m
		}
		if err != nil {
			return err
		}
	}
}

// deliver sends one result. Its error is that of the stream, but for files that were
// changed meanwhile: such a work is told of anew the next time.
func (b *bringer) deliver(ctx context.Context, g *wire.Grant) error {
	b.mu.Lock()
	w := b.of[g.Attempt]
	b.mu.Unlock()
	if w == nil || !w.left {
		return nil
	}
	r, err := resultOf(ctx, b.p, b.kind, w.job, w.fate.Outcome.Started)
	if err != nil {
		return err
	}
	defer r.root.Close()
	if r.m.Sum() != w.say.Manifest {
		return cli.Errorf(cli.Later, "what %s has left was changed while it was read: try again", w.Job)
	}
	if err := pack.Want(g.Want).Check(r.m); err != nil {
		return fmt.Errorf("the head wants what is not there: %w", err)
	}
	if g.Manifest {
		b.x++
		if err := b.up.SendTransfer(&wire.Send{X: b.x, Of: wire.OfManifest, Attempt: w.Attempt}, r.m.Encode); err != nil {
			return err
		}
	}
	b.x++
	return b.up.SendTransfer(&wire.Send{X: b.x, Of: wire.OfTree, Attempt: w.Attempt}, func(out io.Writer) error {
		return pack.Sender(dial.Local(b.addr))(moving{out, b.late}, r.m, pack.Want(g.Want), r.open)
	})
}

// moving is a transfer that is seen to move.
type moving struct {
	io.Writer
	late *time.Timer
}

func (m moving) Write(p []byte) (int, error) {
	m.late.Reset(headWithin)
	return m.Writer.Write(p)
}
