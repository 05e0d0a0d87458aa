package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/pull"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// maxPart is how long what is common to a batch, or a job, may be as JSON.
const maxPart = 16 << 20

// A fetcher fetches what jobs are that were taken to a cluster, as a node does for its
// attempts.
type fetcher struct {
	bringer
	tmp  string // where inputs are put
	down *wire.Conn

	batch *job.Batch
}

// session calls f while the session of the cluster is there, in which nobody else brings
// anything from it.
func (f *fetcher) session(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	terms := dial.Terms{Sharing: dial.SharingDirs(f.c.Getenv)}
	j, err := f.join(ctx, terms)
	if err != nil {
		return err
	}
	f.late = time.AfterFunc(time.Hour, func() {})
	defer f.late.Stop()
	read := make(chan struct{})
	go func() {
		defer close(read)
		if err := f.read(ctx, nil, nil, make(chan uint64, 1)); err != nil {
			cancel(err)
		}
	}()
	if f.down, err = j.data(ctx, "down"); err == nil {
		err = do(ctx)
		f.down.Close()
	}
	if why := context.Cause(ctx); why != nil {
		err = why
	}
	cancel(nil)
	f.control.Close()
	<-read
	return err
}

// fetch makes the batch of these attempts, with all their inputs.
func (f *fetcher) fetch(ctx context.Context, id job.BatchID, attempts []job.Token) error {
	namespace, name, _ := strings.Cut(string(id), "/")
	f.batch = &job.Batch{Namespace: namespace, Name: name, Sources: map[string]job.Source{}}
	asked := make(chan error, 1)
	go func() { // one answer is on its way while the next is asked for
		err := f.down.Send(&wire.Fetch{Attempt: attempts[0], Of: wire.OfSpec})
		for i := 0; i < len(attempts) && err == nil; i++ {
			err = f.down.Send(&wire.Fetch{Attempt: attempts[i], Of: wire.OfJob})
		}
		asked <- err
	}()
	err := f.object(wire.OfSpec, &f.batch.Spec)
	for i := 0; i < len(attempts) && err == nil; i++ {
		j := job.Job{}
		if err = f.object(wire.OfJob, &j); err == nil {
			err = job.CheckName(j.Name)
		}
		f.batch.Jobs = append(f.batch.Jobs, j)
	}
	if err != nil {
		f.down.Close()
		<-asked
		return err
	}
	if err := <-asked; err != nil {
		return err
	}
	job.NeedAmong(f.batch.Jobs) // the rest is done
	bar := f.c.Progress("fetching inputs", 0, unit.FormatBytes)
	defer bar.Done()
	all := &pull.Inputs{Dir: f.tmp, Sources: f.batch.Sources, Some: wire.MaxSums, Grow: bar.Grow, Add: bar.Add}
	lists := [][]job.Input{f.batch.Spec.Inputs}
	if image := f.batch.Spec.Image; image != nil {
		lists = append(lists, []job.Input{*image})
	}
	if err := f.inputs(ctx, all, attempts[0], lists...); err != nil {
		return err
	}
	for i := range f.batch.Jobs {
		if err := f.inputs(ctx, all, attempts[i], f.batch.Jobs[i].Inputs); err != nil {
			return err
		}
	}
	return nil
}

// answer is a transfer that was asked for.
func (f *fetcher) answer(of string, take func(io.Reader) error) error {
	s, err := wire.Expect[*wire.Send](f.down)
	if err == nil && s.Of != of {
		err = fmt.Errorf("%w: the head sends %.20q for %q", line.ErrLine, s.Of, of)
	}
	if err != nil {
		return err
	}
	in := f.down.RecvTransfer(s)
	return errors.Join(take(in), wire.Drain(in))
}

// object is an answer that is one object.
func (f *fetcher) object(of string, v any) error {
	return f.answer(of, func(in io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(in, maxPart+1))
		switch {
		case err != nil:
			return err
		case len(text) > maxPart:
			return fmt.Errorf("%w: %s of more than %d bytes", line.ErrLine, of, maxPart)
		}
		return json.Unmarshal(text, v)
	})
}

// inputs fetches those inputs of an attempt that have not come yet.
func (f *fetcher) inputs(ctx context.Context, all *pull.Inputs, t job.Token, lists ...[]job.Input) error {
	return all.Lack(lists, func(m pack.Manifest) error {
		ask := &wire.Fetch{Attempt: t, Of: wire.OfInputs}
		for _, e := range m {
			ask.Sums = append(ask.Sums, e.Sum)
		}
		if err := f.down.Send(ask); err != nil {
			return err
		}
		err := f.answer(wire.OfInputs, func(in io.Reader) error { return pack.Receive(in, m, pack.Want{}, all) })
		return errors.Join(err, ctx.Err())
	})
}
